"""Lists and their items, groceries, the food log, recipes and places."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import F, QuerySet

from capabilities.assistant.models import FoodEntry, GroceryItem, ListItem, NamedList, Place, Recipe
from capabilities.contract.context import ToolError
from capabilities.models.numbered import Owner
from capabilities.running.records.names import name_and_key, one_line
from capabilities.running.records.own import Naming, RecordRefused, change_named, create_named, named_row, own_rows
from capabilities.running.records.rows import create_numbered

#: Lists of one member, items of one list, things to buy, recipes, places.
LISTS = 200
ITEMS = 1_000
GROCERIES = 1_000
RECIPES = 1_000
PLACES = 500
#: Characters of an item, of a unit, of what was eaten, of a recipe's steps and ingredients, and of an address.
ITEM_TEXT = 500
UNIT_TEXT = 20
FOOD_TEXT = 300
STEPS_TEXT = 20_000
INGREDIENTS = 100
ADDRESS_TEXT = 500
#: The most and least that can be bought of one thing; kcal and servings likewise.
MOST = 1_000_000
LEAST = Decimal("0.001")
MOST_KCAL = 100_000
MOST_SERVINGS = 1_000

A_LIST = Naming("A list", LISTS, "All {limit} lists are in use: remove one first.")
A_RECIPE = Naming("A recipe", RECIPES, "All {limit} recipes are in use.")
A_PLACE = Naming("A place", PLACES, "All {limit} places are in use: remove one first.")


# -- Lists ------------------------------------------------------------------------------------------------------------


def create_list(owner: Owner, *, name: str) -> NamedList:
    return create_named(owner, NamedList, name, A_LIST)


def change_list(owner: Owner, named_list: NamedList, *, name: str) -> None:
    change_named(owner, named_list, A_LIST, name=name)


@transaction.atomic
def create_list_items(owner: Owner, list_name: str, texts: Sequence[str]) -> tuple[NamedList, list[ListItem]]:
    """New items at the end of the list of that name, which is made where there is none."""
    lines = [_item_text(text) for text in texts]
    named_list = _list_with_room(owner, list_name, len(lines))
    return named_list, [create_numbered(ListItem, owner, list=named_list, text=line) for line in lines]


@transaction.atomic
def create_list_item(owner: Owner, *, list: str, text: str, is_checked: bool = False) -> ListItem:
    """`list` is the list's name."""
    _, (item,) = create_list_items(owner, list, [text])
    if is_checked:
        check_list_items(owner, own_rows(ListItem, owner).filter(pk=item.pk), True)
    return item


@transaction.atomic
def change_list_item(
    owner: Owner, item: ListItem, *, list: str | None = None, text: str | None = None, is_checked: bool | None = None
) -> None:
    """`list` moves the item to the list of that name."""
    rows = own_rows(ListItem, owner).filter(pk=item.pk)
    if text is not None:
        rows.update(text=_item_text(text))
    if list is not None and name_and_key(list, "A list")["key"] != item.list.key:
        rows.update(list=_list_with_room(owner, list, 1))
    if is_checked is not None:
        check_list_items(owner, rows, is_checked)


def check_list_items(owner: Owner, items: QuerySet[ListItem], is_checked: bool) -> None:
    """Check these items, or open them again. One that is checked keeps its moment."""
    items.filter(checked_at__isnull=is_checked).update(checked_at=owner.now() if is_checked else None)


def _item_text(text: str) -> str:
    return one_line(text, "An item needs a text.")


def _list_with_room(owner: Owner, name: str, more: int) -> NamedList:
    named_list = named_row(owner, NamedList, name, A_LIST)
    if named_list.items.count() + more > ITEMS:
        raise RecordRefused(f"A list holds at most {ITEMS} items: remove some first.")
    return named_list


# -- Groceries --------------------------------------------------------------------------------------------------------


def to_buy(owner: Owner) -> QuerySet[GroceryItem]:
    return own_rows(GroceryItem, owner).filter(bought_at=None)


@transaction.atomic
def create_grocery(
    owner: Owner, *, name: str, quantity: Decimal = Decimal(1), unit: str = "", is_bought: bool = False
) -> GroceryItem:
    """Put a thing on the shopping list; what is on it in the same unit is added up.

    One statement adds to what is there. Where two calls make the first one, the database refuses the second row. Raises
    RecordRefused for a full list and for too much of one thing; ToolError for a name that is not taken.
    """
    check_grocery_room(owner, 1)
    named = name_and_key(name, "A thing to buy")
    quantity, unit = _quantity(quantity, named["name"]), grocery_unit(unit)
    same = to_buy(owner).filter(key=named["key"], unit=unit)
    more = {"quantity": F("quantity") + quantity}
    if not _with_room(same, quantity).update(**more):
        if same.filter(quantity__gt=MOST - quantity).exists():
            raise RecordRefused(f"Nobody buys more than {MOST} of {named['name']}.", "quantity")
        try:
            row = create_numbered(GroceryItem, owner, **named, quantity=quantity, unit=unit)
        except ToolError:
            if not _with_room(same, quantity).update(**more):
                raise
            row = same.get()
    else:
        row = same.get()
    if is_bought:
        buy_groceries(owner, own_rows(GroceryItem, owner).filter(pk=row.pk), True)
    return row


@transaction.atomic
def change_grocery(owner: Owner, item: GroceryItem, *, is_bought: bool | None = None, **changes: Any) -> None:
    """Change name, quantity and unit (`changes`), and whether it is bought. Raises RecordRefused for what is on the
    list already, and for a quantity that is not taken."""
    if "name" in changes:
        changes |= name_and_key(changes["name"], "A thing to buy")
    if "quantity" in changes:
        changes["quantity"] = _quantity(changes["quantity"], str(changes.get("name", item.name)))
    if "unit" in changes:
        changes["unit"] = grocery_unit(changes["unit"])
    rows = own_rows(GroceryItem, owner).filter(pk=item.pk)
    try:
        with transaction.atomic():
            if changes:
                rows.update(**changes)
            if is_bought is not None:
                buy_groceries(owner, rows, is_bought)
    except IntegrityError:
        raise RecordRefused("This is on the shopping list already, in the same unit.", "name") from None


def buy_groceries(owner: Owner, items: QuerySet[GroceryItem], is_bought: bool) -> None:
    """Mark these things as bought, or as still to buy. One that is bought keeps its moment."""
    items.filter(bought_at__isnull=is_bought).update(bought_at=owner.now() if is_bought else None)


def check_grocery_room(owner: Owner, more: int) -> None:
    """Raises RecordRefused where the shopping list has no room for so many more. One query."""
    if to_buy(owner).count() + more > GROCERIES:
        raise RecordRefused(f"The shopping list holds at most {GROCERIES} things: check or remove some first.")


def grocery_unit(text: str) -> str:
    """Units are compared as written, but for blanks and the case of a unit's name: 2 Packs are 2 packs."""
    unit = " ".join(text.split())
    return unit if len(unit) <= 2 else unit.lower()


def _quantity(quantity: Decimal, name: str) -> Decimal:
    quantity = quantity.quantize(LEAST)
    if not quantity:
        raise RecordRefused(f"The quantity of {name} is too small.", "quantity")
    return quantity


def _with_room(same: QuerySet[GroceryItem], quantity: Decimal) -> QuerySet[GroceryItem]:
    return same.filter(quantity__lte=MOST - quantity)


# -- Food, recipes, places --------------------------------------------------------------------------------------------


def create_food_entry(
    owner: Owner, *, food: str, date: date | None = None, meal: str = "", kcal: int | None = None
) -> FoodEntry:
    """Create a food entry; without a date it is of today."""
    day = date or owner.now().date()
    return create_numbered(FoodEntry, owner, food=_food(food), date=day, meal=meal, kcal=kcal)


def change_food_entry(owner: Owner, entry: FoodEntry, **changes: Any) -> None:
    """`changes`: food, date, meal, kcal."""
    if "food" in changes:
        changes["food"] = _food(changes["food"])
    own_rows(FoodEntry, owner).filter(pk=entry.pk).update(**changes)


def _food(text: str) -> str:
    return one_line(text, "Say what was eaten.")


@transaction.atomic
def save_recipe(
    owner: Owner, *, name: str, ingredients: Sequence[str], steps: str, servings: int | None
) -> tuple[Recipe, bool]:
    """The recipe of that name with this content, and whether it is new."""
    key = name_and_key(name, "A recipe")["key"]
    content = {"ingredients": _ingredients(ingredients), "steps": steps.strip(), "servings": servings}
    known = own_rows(Recipe, owner).filter(key=key).first()
    if known is not None:
        change_named(owner, known, A_RECIPE, name=name, **content, updated_at=owner.now())
        return known, False
    return create_named(owner, Recipe, name, A_RECIPE, **content), True


def create_recipe(owner: Owner, *, name: str, ingredients: str, steps: str = "", servings: int | None = None) -> Recipe:
    """`ingredients` are lines."""
    content = {"ingredients": _ingredients(_lines(ingredients)), "steps": steps.strip(), "servings": servings}
    return create_named(owner, Recipe, name, A_RECIPE, **content)


def change_recipe(owner: Owner, recipe: Recipe, *, name: str | None = None, **changes: Any) -> None:
    """`changes`: ingredients (lines), steps, servings."""
    if "ingredients" in changes:
        changes["ingredients"] = _ingredients(_lines(changes["ingredients"]))
    if "steps" in changes:
        changes["steps"] = changes["steps"].strip()
    change_named(owner, recipe, A_RECIPE, name=name, **changes, updated_at=owner.now())


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]


def _ingredients(lines: Sequence[str]) -> str:
    named = [one_line(line, "An ingredient needs a name.") for line in lines]
    if not named or len(named) > INGREDIENTS:
        raise RecordRefused(f"A recipe has from 1 to {INGREDIENTS} ingredients, one a line.", "ingredients")
    if max(len(line) for line in named) > FOOD_TEXT:
        raise RecordRefused(f"An ingredient has at most {FOOD_TEXT} characters.", "ingredients")
    return "\n".join(named)


@transaction.atomic
def save_place(owner: Owner, *, name: str, latitude: float, longitude: float, address: str) -> Place:
    """The place of that name, there."""
    key = name_and_key(name, "A place")["key"]
    content = {"latitude": latitude, "longitude": longitude, "address": " ".join(address.split())}
    known = own_rows(Place, owner).filter(key=key).first()
    if known is None:
        return create_named(owner, Place, name, A_PLACE, **content)
    change_named(owner, known, A_PLACE, name=name, **content)
    known.refresh_from_db()
    return known


def create_place(owner: Owner, *, name: str, latitude: float, longitude: float, address: str = "") -> Place:
    content = {"latitude": latitude, "longitude": longitude, "address": " ".join(address.split())}
    return create_named(owner, Place, name, A_PLACE, **content)


def change_place(owner: Owner, place: Place, *, name: str | None = None, **changes: Any) -> None:
    """`changes`: latitude, longitude, address."""
    if "address" in changes:
        changes["address"] = " ".join(changes["address"].split())
    change_named(owner, place, A_PLACE, name=name, **changes)
