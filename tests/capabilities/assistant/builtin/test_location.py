from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capabilities.assistant.builtin.location import Point, distance_km
from capabilities.assistant.records.writes import household
from capabilities.contract.context import ToolError
from tests.capabilities.assistant.builtin.conftest import Call

pytestmark = pytest.mark.usefixtures("in_acme")

BERLIN = {"name": "Berlin", "latitude": 52.52, "longitude": 13.405}
PARIS = {"name": "Paris", "latitude": 48.8566, "longitude": 2.3522, "address": "Île de la Cité"}

points = st.builds(Point, latitude=st.floats(-90, 90), longitude=st.floats(-180, 180))


def save_both(call: Call) -> None:
    call("location_save", **BERLIN)
    call("location_save", **PARIS)


def test_saved_places_are_listed(as_alice: Call) -> None:
    assert as_alice("location_save", **PARIS) == {"place": PARIS}
    as_alice("location_save", **BERLIN)

    assert as_alice("location_list") == {"places": [BERLIN, PARIS]}


def test_a_place_saved_again_is_replaced(as_alice: Call) -> None:
    save_both(as_alice)

    as_alice("location_save", name="BERLIN", latitude=1, longitude=2)

    assert as_alice("location_list")["places"] == [{"name": "BERLIN", "latitude": 1.0, "longitude": 2.0}, PARIS]


def test_the_distance_between_two_places_is_told(as_alice: Call) -> None:
    save_both(as_alice)

    assert as_alice("location_distance", start="berlin", end="PARIS") == {
        "from": "Berlin",
        "to": "Paris",
        "kilometres": pytest.approx(877.46, abs=0.1),
        "miles": pytest.approx(545.23, abs=0.1),
    }


def test_coordinates_are_as_good_as_a_name(as_alice: Call) -> None:
    answer = as_alice("location_distance", start={"latitude": 0, "longitude": 0}, end={"latitude": 0, "longitude": 180})

    assert (answer["from"], answer["kilometres"]) == ("0, 0", pytest.approx(20015.11, abs=0.1))


@given(points, points)
def test_a_distance_is_the_same_both_ways_and_at_most_half_around(a: Point, b: Point) -> None:
    assert distance_km(a, b) == pytest.approx(distance_km(b, a), abs=1e-6)
    assert 0 <= distance_km(a, b) <= 20016
    assert distance_km(a, a) == 0


def test_a_place_is_removed(as_alice: Call) -> None:
    save_both(as_alice)

    assert as_alice("location_remove", name="paris") == {"removed": PARIS}

    assert as_alice("location_list") == {"places": [BERLIN]}


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        ("location_save", BERLIN | {"name": ""}, "A place needs a name"),
        ("location_save", BERLIN | {"latitude": 91}, "latitude: Input should be less than or equal to 90"),
        ("location_save", BERLIN | {"longitude": float("nan")}, "longitude: Input should be"),
        ("location_distance", {"start": "Berlin", "end": "Rome"}, "There is no place Berlin: location_list shows"),
        ("location_remove", {"name": "Rome"}, "There is no place Rome"),
    ],
)
def test_invalid_arguments_are_refused_with_a_message(
    as_alice: Call, name: str, arguments: dict[str, object], sentence: str
) -> None:
    with pytest.raises(ToolError, match=sentence):
        as_alice(name, **arguments)


def test_places_are_limited_but_can_be_replaced(as_alice: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(household, "A_PLACE", replace(household.A_PLACE, limit=1))
    as_alice("location_save", **BERLIN)
    as_alice("location_save", **BERLIN)

    with pytest.raises(ToolError, match="All 1 places are in use"):
        as_alice("location_save", **PARIS)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize(
    ("name", "arguments", "queries"), [("location_list", {}, 2), ("location_distance", {"start": "0", "end": "0"}, 1)]
)
def test_listings_take_a_fixed_number_of_queries(
    as_alice: Call,
    count: int,
    name: str,
    arguments: dict[str, str],
    queries: int,
    django_assert_num_queries: pytest.FixtureRequest,
) -> None:
    for number in range(count):
        as_alice("location_save", name=str(number), latitude=0, longitude=0)

    with django_assert_num_queries(queries):  # type: ignore[operator]
        as_alice(name, **arguments)
