from __future__ import annotations

from typing import Any

import pytest

from capabilities.assistant.models import GroceryItem
from capabilities.assistant.records.writes import household
from capabilities.contract.context import ToolError
from tests.capabilities.assistant.builtin.conftest import Call

pytestmark = pytest.mark.usefixtures("in_acme")

MILK = {"number": 1, "name": "Milk", "quantity": 2, "unit": "l"}


def buy(call: Call, name: str, quantity: float = 1, unit: str = "") -> dict[str, Any]:
    answer: dict[str, Any] = call("grocery_add", items=[{"name": name, "quantity": quantity, "unit": unit}])
    return answer


def test_things_are_put_on_the_list(as_alice: Call) -> None:
    assert as_alice("grocery_add", items=[{"name": "Milk", "quantity": 2, "unit": "l"}, {"name": "eggs"}]) == {
        "items": [MILK, {"number": 2, "name": "eggs", "quantity": 1}]
    }

    assert as_alice("grocery_list") == {"items": [{"number": 2, "name": "eggs", "quantity": 1}, MILK]}


def test_the_same_thing_in_the_same_unit_is_added_up(as_alice: Call) -> None:
    buy(as_alice, "Milk", 2, "l")

    assert buy(as_alice, " milk ", 0.5, "l") == {"items": [MILK | {"quantity": 2.5}]}
    buy(as_alice, "milk", 1, "Pack")
    buy(as_alice, "milk", 1, "pack")

    assert [(row["quantity"], row.get("unit")) for row in as_alice("grocery_list")["items"]] == [
        (2.5, "l"),
        (2, "pack"),
    ]


def test_what_was_bought_leaves_the_list_and_can_be_needed_again(as_alice: Call) -> None:
    buy(as_alice, "Milk", 2, "l")

    assert as_alice("grocery_check", numbers=[1]) == {"bought": ["Milk"]}
    assert as_alice("grocery_list") == {"items": []}
    assert buy(as_alice, "milk", 1, "l") == {"items": [{"number": 2, "name": "milk", "quantity": 1, "unit": "l"}]}

    assert as_alice("grocery_list", bought=True) == {"items": [MILK]}


def test_things_are_taken_off_the_list(as_alice: Call) -> None:
    buy(as_alice, "Milk")

    assert as_alice("grocery_remove", numbers=[1]) == {"removed": ["Milk"]}

    assert not GroceryItem.objects.exists()


def test_a_thing_put_there_at_the_same_moment_is_added_to(as_alice: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    buy(as_alice, "Milk", 2, "l")
    exists = iter([False])
    monkeypatch.setattr(
        household, "_with_room", lambda rows, quantity: rows.none() if next(exists, True) is False else rows
    )

    assert buy(as_alice, "Milk", 1, "l") == {"items": [MILK | {"quantity": 3}]}


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        ("grocery_add", {"items": [{"name": " "}]}, "A thing to buy needs a name"),
        ("grocery_add", {"items": [{"name": "x", "quantity": 0}]}, "items.0.quantity: Input should be greater than 0"),
        ("grocery_add", {"items": [{"name": "x", "quantity": 0.0001}]}, "The quantity of x is too small"),
        ("grocery_check", {"numbers": [9]}, "There is no item 9: grocery_list shows the numbers"),
        ("grocery_remove", {"numbers": [-1]}, "There is no item -1"),
    ],
)
def test_invalid_arguments_are_refused_with_a_message(
    as_alice: Call, name: str, arguments: dict[str, object], sentence: str
) -> None:
    with pytest.raises(ToolError, match=sentence):
        as_alice(name, **arguments)


def test_of_several_things_all_or_none_are_put_on_the_list(as_alice: Call) -> None:
    with pytest.raises(ToolError):
        as_alice("grocery_add", items=[{"name": "milk"}, {"name": " "}])

    assert not GroceryItem.objects.exists()


def test_the_list_and_its_quantities_are_limited(as_alice: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(household, "GROCERIES", 1)
    monkeypatch.setattr(household, "MOST", 10)
    buy(as_alice, "milk", 9)

    with pytest.raises(ToolError, match="holds at most 1 things"):
        as_alice("grocery_add", items=[{"name": "eggs"}])
    monkeypatch.setattr(household, "GROCERIES", 2)
    with pytest.raises(ToolError, match="Nobody buys more than 10 of milk"):
        buy(as_alice, "milk", 2)


@pytest.mark.parametrize("count", [1, 3])
def test_a_listing_takes_two_queries(
    as_alice: Call, count: int, django_assert_num_queries: pytest.FixtureRequest
) -> None:
    for number in range(count):
        buy(as_alice, f"thing {number}")

    with django_assert_num_queries(2):  # type: ignore[operator]
        as_alice("grocery_list")
