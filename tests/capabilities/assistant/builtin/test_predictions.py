from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from capabilities.assistant.builtin import predictions
from capabilities.assistant.builtin._lib import statistics as _statistics
from capabilities.contract.context import ToolError
from tests.capabilities.assistant.builtin.conftest import Call

pytestmark = pytest.mark.usefixtures("in_acme")


def record(call: Call, *values: float, name: str = "weight") -> None:
    """One a day, the last one today."""
    days = [f"2026-11-{18 - len(values) + 1 + number:02}" for number in range(len(values))]
    points = [{"value": value, "at": day} for value, day in zip(values, days, strict=True)]
    call("series_record", name=name, points=points)


def test_numbers_are_recorded_and_listed(as_alice: Call) -> None:
    answer = as_alice(
        "series_record",
        name="Weight",
        unit="kg",
        points=[{"value": 80.5}, {"value": 81, "at": "yesterday"}, {"value": 82, "at": "2026-11-16 07:30"}],
    )

    assert answer == {"series": "Weight", "recorded": 3, "points": 3}
    assert as_alice("series_list") == {
        "series": [{"name": "Weight", "points": 3, "unit": "kg", "latest": "2026-11-18"}]
    }
    assert as_alice("series_list", name="weight", limit=2) == {
        "series": "Weight",
        "unit": "kg",
        "points": [{"at": "2026-11-18T09:30+00:00", "value": 80.5}, {"at": "2026-11-17T12:00+00:00", "value": 81.0}],
        "more": 1,
    }


def test_a_number_for_the_same_moment_replaces_the_old_one(as_alice: Call) -> None:
    record(as_alice, 1, 2)

    assert as_alice("series_record", name="weight", points=[{"value": 9, "at": "today"}])["points"] == 2

    assert [point["value"] for point in as_alice("series_list", name="weight")["points"]] == [9.0, 1.0]


def test_a_straight_line_goes_on_straight(as_alice: Call) -> None:
    record(as_alice, *range(1, 11))

    assert as_alice("series_predict", name="weight", on="in 5 days", method="linear") == {
        "series": "weight",
        "on": "2026-11-23",
        "unit": "",
        "value": 15.0,
        "low": 15.0,
        "high": 15.0,
        "interval": "95 %",
        "method": "linear",
        "n": 10,
        "mean_error": pytest.approx(0, abs=1e-9),
        "note": "The trend is 1.0 a day.",
    }


def test_the_interval_of_a_line_is_students(as_alice: Call) -> None:
    """The textbook's: y = 1, 3, 2, 5, 4 on days 1 to 5; on day 6 y = 5.4, with t(3) = 3.182 it reaches 5.051."""
    record(as_alice, 1, 3, 2, 5, 4)

    answer = as_alice("series_predict", name="weight", on="tomorrow", method="linear")

    assert answer["value"] == pytest.approx(5.4)
    assert answer["high"] - answer["value"] == pytest.approx(5.051, rel=0.01)
    assert answer["value"] - answer["low"] == pytest.approx(5.051, rel=0.01)


def test_the_mean_has_students_interval_too(as_alice: Call) -> None:
    record(as_alice, 4, 6, 5, 5)

    answer = as_alice("series_predict", name="weight", on="tomorrow", method="mean")

    assert (answer["value"], answer["n"]) == (5, 4)
    assert answer["high"] - 5 == pytest.approx(3.182 * 0.8165 * 1.118, rel=0.01)


def test_a_week_repeats_itself(as_alice: Call) -> None:
    """Closed on Sundays: the 15th and the 8th of November 2026."""
    values = [0 if day in (1, 8, 15) else 100 + day % 2 for day in range(1, 19)]
    record(as_alice, *values, name="sales")

    sunday = as_alice("series_predict", name="sales", on="2026-11-22")
    monday = as_alice("series_predict", name="sales", on="2026-11-23")

    assert (sunday["method"], sunday["value"]) == ("weekly", 0)
    assert (monday["method"], monday["value"]) == ("weekly", 100)


def test_auto_takes_what_was_nearest_on_the_latest_points(as_alice: Call) -> None:
    record(as_alice, *range(1, 15), name="line")
    record(as_alice, 5, 6, 4, 5, 6, 4, 5, 6, 4, 5, name="noise")

    assert as_alice("series_predict", name="line", on="tomorrow")["method"] == "linear"
    assert as_alice("series_predict", name="noise", on="tomorrow")["method"] == "mean"


@pytest.mark.parametrize(
    ("count", "method", "sentence"),
    [
        (0, "auto", "There is no series weight: series_list shows them"),
        (2, "auto", "A prediction needs at least 3 points; there are 2"),
        (4, "linear", "The method linear needs at least 5 points; there are 4"),
        (2, "mean", "The method mean needs at least 3 points"),
        (7, "weekly", "The method weekly needs at least 8 points"),
        (8, "weekly", "needs points of the same weekdays in several weeks"),
    ],
)
def test_too_few_points_are_refused(as_alice: Call, count: int, method: str, sentence: str) -> None:
    if count:
        record(as_alice, *range(count))

    with pytest.raises(ToolError, match=sentence):
        as_alice("series_predict", name="weight", on="tomorrow", method=method)


@pytest.mark.parametrize(
    ("on", "sentence"),
    [
        ("yesterday", "That day is not after the latest point"),
        ("2029-01-01", "at most 730 days past"),
        ("soon", "'soon' is not a date"),
    ],
)
def test_a_day_that_cannot_be_predicted_is_refused(as_alice: Call, on: str, sentence: str) -> None:
    record(as_alice, *range(10))

    with pytest.raises(ToolError, match=sentence):
        as_alice("series_predict", name="weight", on=on)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"name": " ", "points": [{"value": 1}]}, "A series needs a name"),
        ({"name": "a", "points": []}, "points: List should have at least 1 item"),
        ({"name": "a", "points": [{"value": float("inf")}]}, "points.0.value"),
        ({"name": "a", "points": [{"value": 1, "at": "?"}]}, "'?' is not a date".replace("?", r"\?")),
    ],
)
def test_an_invalid_value_of_a_series_is_refused(as_alice: Call, arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ToolError, match=sentence):
        as_alice("series_record", **arguments)


def test_series_and_points_are_limited(as_alice: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predictions, "SERIES", 1)
    monkeypatch.setattr(predictions, "POINTS", 3)
    record(as_alice, 1, 2)

    with pytest.raises(ToolError, match="All 1 series are in use"):
        record(as_alice, 1, name="other")
    with pytest.raises(ToolError, match="at most 3 points"):
        as_alice("series_record", name="weight", points=[{"value": 1, "at": f"2026-10-0{day}"} for day in (1, 2)])


@given(st.lists(st.floats(-1e15, 1e15), min_size=3, max_size=40), st.sampled_from(["auto", "linear", "mean", "weekly"]))
def test_whatever_the_numbers_a_forecast_lies_in_its_interval(values: list[float], method: str) -> None:
    points = [(float(day), value) for day, value in enumerate(values)]

    assume(method == "auto" or len(values) >= max(_statistics.LEAST[method], 17))

    forecast = _statistics.forecast(points, len(values) + 3.0, method)

    assert forecast.low <= forecast.value <= forecast.high
    assert forecast.n == len(values)


@pytest.mark.parametrize(("freedom", "exact"), [(2, 4.303), (3, 3.182), (5, 2.571), (10, 2.228), (100, 1.984)])
def test_students_quantile_is_near_the_table(freedom: int, exact: float) -> None:
    assert _statistics._student(freedom) == pytest.approx(exact, rel=0.01 if freedom > 2 else 0.04)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize(
    ("name", "arguments", "queries"),
    [
        ("series_list", {}, 2),
        ("series_list", {"name": "s0"}, 3),
        ("series_predict", {"name": "s0", "on": "tomorrow"}, 2),
    ],
)
def test_listings_take_a_fixed_number_of_queries(
    as_alice: Call,
    count: int,
    name: str,
    arguments: dict[str, str],
    queries: int,
    django_assert_num_queries: Any,
) -> None:
    for number in range(count):
        record(as_alice, *range(3 * count), name=f"s{number}")

    call = as_alice
    with django_assert_num_queries(queries):
        call(name, **arguments)
