from __future__ import annotations

from dataclasses import replace

import pytest

from capabilities.assistant.records.writes import household
from capabilities.contract.context import ToolError
from tests.capabilities.assistant.builtin.conftest import Call

pytestmark = pytest.mark.usefixtures("in_acme")

SOCKS = {"number": 1, "text": "socks"}
HAT = {"number": 2, "text": "hat"}


def pack(call: Call) -> None:
    call("list_add", name="Packing", items=["socks", "hat"])


def test_the_first_item_makes_the_list(as_alice: Call) -> None:
    answer = as_alice("list_add", name=" Packing ", items=[" socks", "hat"])

    assert answer == {"list": "Packing", "items": [SOCKS, HAT]}
    assert as_alice("list_show", name="PACKING") == {"list": "Packing", "items": [SOCKS, HAT]}


def test_all_lists_are_shown_with_their_counts(as_alice: Call) -> None:
    pack(as_alice)
    as_alice("list_add", name="books", items=["Emma"])
    as_alice("list_check", numbers=[2])

    assert as_alice("list_show") == {
        "lists": [{"name": "books", "items": 1, "unchecked": 1}, {"name": "Packing", "items": 2, "unchecked": 1}]
    }


def test_items_are_checked_and_opened_again(as_alice: Call) -> None:
    pack(as_alice)

    assert as_alice("list_check", numbers=[1, 2]) == {"checked": ["socks", "hat"]}
    assert as_alice("list_check", numbers=[2], checked=False) == {"opened": ["hat"]}

    assert as_alice("list_show", name="packing")["items"] == [SOCKS | {"checked": True}, HAT]


def test_items_are_removed(as_alice: Call) -> None:
    pack(as_alice)

    assert as_alice("list_remove", numbers=[1]) == {"removed": ["socks"]}

    assert as_alice("list_show", name="packing")["items"] == [HAT]


def test_a_whole_list_is_removed(as_alice: Call) -> None:
    pack(as_alice)

    assert as_alice("list_remove", name="packing") == {"removed_list": "Packing", "items": 2}

    assert as_alice("list_show") == {"lists": []}


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        ("list_show", {"name": "none"}, "There is no list none: list_show without a name shows them"),
        ("list_add", {"name": " ", "items": ["x"]}, "A list needs a name"),
        ("list_add", {"name": "a", "items": [" "]}, "An item needs a text"),
        ("list_add", {"name": "a", "items": []}, "items: List should have at least 1 item"),
        ("list_check", {"numbers": [1, 9, 10**30]}, f"There is no item 9, {10**30}: list_show shows the numbers"),
        ("list_remove", {"numbers": [9]}, "There is no item 9"),
        ("list_remove", {}, "Give either numbers of items, or the name"),
        ("list_remove", {"numbers": [1], "name": "Packing"}, "Give either numbers of items, or the name"),
    ],
)
def test_invalid_arguments_are_refused_with_a_message(
    as_alice: Call, name: str, arguments: dict[str, object], sentence: str
) -> None:
    pack(as_alice)

    with pytest.raises(ToolError, match=sentence):
        as_alice(name, **arguments)

    assert as_alice("list_show", name="Packing")["items"] == [SOCKS, HAT]


def test_lists_and_items_are_limited(as_alice: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(household, "A_LIST", replace(household.A_LIST, limit=1))
    monkeypatch.setattr(household, "ITEMS", 3)
    pack(as_alice)

    with pytest.raises(ToolError, match="All 1 lists are in use"):
        as_alice("list_add", name="other", items=["x"])
    with pytest.raises(ToolError, match="A list holds at most 3 items"):
        as_alice("list_add", name="packing", items=["x", "y"])


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize(("arguments", "queries"), [({}, 2), ({"name": "l0"}, 3)])
def test_listings_take_a_fixed_number_of_queries(
    as_alice: Call,
    count: int,
    arguments: dict[str, str],
    queries: int,
    django_assert_num_queries: pytest.FixtureRequest,
) -> None:
    for number in range(count):
        as_alice("list_add", name=f"l{number}", items=["x"] * count)

    with django_assert_num_queries(queries):  # type: ignore[operator]
        as_alice("list_show", **arguments)
