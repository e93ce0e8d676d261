"""Food that a member ate, and the recipes that a member keeps."""

from __future__ import annotations

from itertools import groupby
from typing import Annotated, Any, Literal

from django.db.models import QuerySet, Sum
from pydantic import Field

from capabilities.assistant.models import FoodEntry, Recipe
from capabilities.assistant.records.writes.household import (
    FOOD_TEXT,
    INGREDIENTS,
    MOST_KCAL,
    MOST_SERVINGS,
    STEPS_TEXT,
    create_food_entry,
    save_recipe,
)
from capabilities.contract.context import ToolContext, ToolError
from capabilities.running.records.dates import parse_date
from capabilities.running.records.names import holds_all, key_of, words_of
from capabilities.running.records.own import own_rows
from capabilities.running.records.rows import WITHOUT_NUL
from capabilities.running.registry import CategorySpec, tool

CATEGORY = CategorySpec(
    name="food",
    title="Food and recipes",
    description="The member's food log and recipes.",
    keywords=("food", "recipe", "recipes", "meal", "calories", "kcal", "i ate", "breakfast", "lunch", "dinner", "cook"),
    is_core=True,
)

#: Entries that one listing of the log shows, and recipes that one search shows.
LOG_LIMIT = 300
SEARCH_LIMIT = 20

ShortText = Annotated[str, Field(max_length=FOOD_TEXT), WITHOUT_NUL]
Name = Annotated[str, Field(max_length=200), WITHOUT_NUL]
Day = Annotated[str | None, Field(description="YYYY-MM-DD, or words such as yesterday; default today.", max_length=40)]


@tool(category="food", effect="write", human_format="Logging food: {food}")
def food_log_add(
    context: ToolContext,
    food: Annotated[ShortText, Field(description="What was eaten, with its amount.")],
    kcal: Annotated[int | None, Field(description="If known.", ge=0, le=MOST_KCAL)] = None,
    meal: Literal["", "breakfast", "lunch", "dinner", "snack"] = "",
    date: Day = None,
) -> dict[str, Any]:
    """Write down what the user ate."""
    today = context.now().date()
    day = parse_date(date, today) if date else today
    entry = create_food_entry(context, food=food, kcal=kcal, meal=meal, date=day)
    return {"date": day.isoformat(), "entry": _entry_as_json(entry)} | _total(context, day.isoformat())


@tool(category="food", effect="read", human_format="Reading the food log")
def food_log_list(context: ToolContext, since: Day = None, until: Day = None) -> dict[str, Any]:
    """List what the user ate, by day with the sum of known kcal, the latest day first."""
    today = context.now().date()
    first, last = (parse_date(each, today) if each else today for each in (since, until))
    if first > last:
        raise ToolError(f"{first} is later than {last}: since comes first.")
    entries = _log(context).filter(date__gte=first, date__lte=last)
    total = entries.count()
    shown = entries.order_by("-date", "number")[:LOG_LIMIT]
    sums = dict(entries.values_list("date").annotate(Sum("kcal")))
    days = []
    for day, rows in groupby(shown, key=lambda entry: entry.date):
        known = {"kcal": sums[day]} if sums[day] is not None else {}
        days.append({"date": day.isoformat()} | known | {"entries": [_entry_as_json(row) for row in rows]})
    return {"days": days} | ({"more": total - LOG_LIMIT} if total > LOG_LIMIT else {})


@tool(category="food", effect="write", on_crash="retry", human_format="Saving the recipe {name}")
def recipe_save(
    context: ToolContext,
    name: Annotated[Name, Field(description="A recipe of that name is replaced.")],
    ingredients: Annotated[
        list[ShortText], Field(description="With amounts, one each.", min_length=1, max_length=INGREDIENTS)
    ],
    steps: Annotated[str, Field(max_length=STEPS_TEXT), WITHOUT_NUL] = "",
    servings: Annotated[int | None, Field(ge=1, le=MOST_SERVINGS)] = None,
) -> dict[str, Any]:
    """Keep a recipe for the user."""
    recipe, is_new = save_recipe(context, name=name, ingredients=ingredients, steps=steps, servings=servings)
    return {"recipe": recipe.name, "ingredients": len(recipe.ingredients.splitlines()), "replaced": not is_new}


@tool(category="food", effect="read", human_format="Searching recipes")
def recipe_search(
    context: ToolContext,
    query: Annotated[str, Field(description="Words of name or ingredients; empty for all.", max_length=200)] = "",
) -> dict[str, Any]:
    """Find the user's recipes."""
    words = words_of(query)
    # Compared here and not in the database: SQLite ignores case in ASCII letters only.
    recipes = _recipes(context).defer("steps").order_by("key")
    found = [recipe for recipe in recipes if holds_all(words, recipe.name, recipe.ingredients)]
    rows = [
        {"name": recipe.name, "ingredients": len(recipe.ingredients.splitlines())} for recipe in found[:SEARCH_LIMIT]
    ]
    return {"recipes": rows} | ({"more": len(found) - SEARCH_LIMIT} if len(found) > SEARCH_LIMIT else {})


@tool(category="food", effect="read", human_format="Reading the recipe {name}")
def recipe_read(context: ToolContext, name: Name) -> dict[str, Any]:
    """Read one recipe in full."""
    recipe = _recipes(context).filter(key=key_of(name)).first()
    if recipe is None:
        raise ToolError(f"There is no recipe {name}: recipe_search shows them.")
    row: dict[str, Any] = {"name": recipe.name, "ingredients": recipe.ingredients.splitlines(), "steps": recipe.steps}
    return row | ({"servings": recipe.servings} if recipe.servings else {})


def _log(context: ToolContext) -> QuerySet[FoodEntry]:
    return own_rows(FoodEntry, context)


def _recipes(context: ToolContext) -> QuerySet[Recipe]:
    return own_rows(Recipe, context)


def _total(context: ToolContext, day: str) -> dict[str, int]:
    kcal = _log(context).filter(date=day).aggregate(sum=Sum("kcal"))["sum"]
    return {} if kcal is None else {"day_kcal": kcal}


def _entry_as_json(entry: FoodEntry) -> dict[str, Any]:
    row: dict[str, Any] = {"food": entry.food}
    if entry.meal:
        row["meal"] = entry.meal
    return row | ({"kcal": entry.kcal} if entry.kcal is not None else {})
