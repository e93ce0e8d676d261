from __future__ import annotations

from dataclasses import replace

import pytest

from capabilities.assistant.builtin import food
from capabilities.assistant.records.writes import household
from capabilities.contract.context import ToolError
from tests.capabilities.assistant.builtin.conftest import Call

pytestmark = pytest.mark.usefixtures("in_acme")


def test_what_was_eaten_is_logged_with_the_days_sum(as_alice: Call) -> None:
    as_alice("food_log_add", food="egg", kcal=80, meal="breakfast")

    answer = as_alice("food_log_add", food=" two  apples ", kcal=150)

    assert answer == {"date": "2026-11-18", "entry": {"food": "two apples", "kcal": 150}, "day_kcal": 230}


def test_the_log_is_listed_by_day_with_sums_of_what_is_known(as_alice: Call) -> None:
    as_alice("food_log_add", food="egg", kcal=80, date="yesterday")
    as_alice("food_log_add", food="tea", date="yesterday")
    as_alice("food_log_add", food="soup", meal="lunch")
    as_alice("food_log_add", food="cake", kcal=400, date="2026-11-01")

    assert as_alice("food_log_list", since="2026-11-10") == {
        "days": [
            {"date": "2026-11-18", "entries": [{"food": "soup", "meal": "lunch"}]},
            {"date": "2026-11-17", "kcal": 80, "entries": [{"food": "egg", "kcal": 80}, {"food": "tea"}]},
        ]
    }


def test_without_days_the_log_is_todays(as_alice: Call) -> None:
    as_alice("food_log_add", food="egg", date="yesterday")

    assert as_alice("food_log_list") == {"days": []}


def test_a_long_log_is_cut_and_its_sums_are_whole(as_alice: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(food, "LOG_LIMIT", 2)
    for _ in range(3):
        as_alice("food_log_add", food="egg", kcal=80)

    listing = as_alice("food_log_list")

    assert (len(listing["days"][0]["entries"]), listing["days"][0]["kcal"], listing["more"]) == (2, 240, 1)


def test_a_recipe_is_kept_found_and_read(as_alice: Call) -> None:
    saved = as_alice("recipe_save", name="Crêpes", ingredients=["250 g flour", " 3  eggs"], steps="Mix.", servings=4)

    assert saved == {"recipe": "Crêpes", "ingredients": 2, "replaced": False}
    for query in ("", "CRÊPES", "eggs flour"):
        assert as_alice("recipe_search", query=query) == {"recipes": [{"name": "Crêpes", "ingredients": 2}]}
    assert as_alice("recipe_search", query="eggs milk") == {"recipes": []}
    assert as_alice("recipe_read", name="crêpes") == {
        "name": "Crêpes",
        "ingredients": ["250 g flour", "3 eggs"],
        "steps": "Mix.",
        "servings": 4,
    }


def test_a_recipe_saved_again_is_replaced(as_alice: Call) -> None:
    as_alice("recipe_save", name="Soup", ingredients=["water"], servings=2)

    assert as_alice("recipe_save", name="soup", ingredients=["stock"])["replaced"] is True

    assert as_alice("recipe_read", name="Soup") == {"name": "soup", "ingredients": ["stock"], "steps": ""}


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        ("food_log_add", {"food": " "}, "Say what was eaten"),
        ("food_log_add", {"food": "x", "kcal": -1}, "kcal: Input should be greater"),
        ("food_log_add", {"food": "x", "date": "32"}, "'32' is not a date"),
        ("food_log_list", {"since": "today", "until": "yesterday"}, "2026-11-18 is later than 2026-11-17"),
        ("recipe_save", {"name": "", "ingredients": ["x"]}, "A recipe needs a name"),
        ("recipe_save", {"name": "x", "ingredients": [" "]}, "An ingredient needs a name"),
        ("recipe_read", {"name": "x"}, "There is no recipe x: recipe_search shows them"),
    ],
)
def test_invalid_arguments_are_refused_with_a_message(
    as_alice: Call, name: str, arguments: dict[str, object], sentence: str
) -> None:
    with pytest.raises(ToolError, match=sentence):
        as_alice(name, **arguments)


def test_recipes_and_a_search_are_limited(as_alice: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(household, "A_RECIPE", replace(household.A_RECIPE, limit=2))
    monkeypatch.setattr(food, "SEARCH_LIMIT", 1)
    for name in ("b", "a"):
        as_alice("recipe_save", name=name, ingredients=["x"])

    assert as_alice("recipe_search") == {"recipes": [{"name": "a", "ingredients": 1}], "more": 1}
    with pytest.raises(ToolError, match="All 2 recipes are in use"):
        as_alice("recipe_save", name="c", ingredients=["x"])


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize(
    ("name", "arguments", "queries"), [("food_log_list", {"since": "2026-01-01"}, 3), ("recipe_search", {}, 1)]
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
        as_alice("food_log_add", food="x", date=f"2026-11-0{number + 1}", kcal=1)
        as_alice("recipe_save", name=str(number), ingredients=["x"])

    with django_assert_num_queries(queries):  # type: ignore[operator]
        as_alice(name, **arguments)
