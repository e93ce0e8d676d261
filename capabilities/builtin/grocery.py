"""What a member has to buy. The same thing in the same unit stands on the list once, with its quantities added."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any

from django.db import transaction
from django.db.models import F, QuerySet
from pydantic import BaseModel, ConfigDict, Field

from capabilities.builtin._names import name_and_key
from capabilities.builtin._rows import WITHOUT_NUL, create_numbered, listing, numbered
from capabilities.contract.context import ToolContext, ToolError
from capabilities.models import GroceryItem
from capabilities.registry import CategorySpec, tool

CATEGORY = CategorySpec(
    name="grocery",
    title="Groceries",
    description="The member's shopping list, with quantities.",
    keywords=("grocery", "groceries", "shopping list", "shopping", "buy", "supermarket", "out of milk", "we need"),
    is_core=True,
)

#: Things to buy of one member, and what one listing shows.
ITEMS = 1_000
LIST_LIMIT = 200
#: More than anybody buys of one thing.
MOST = 1_000_000

Numbers = Annotated[list[int], Field(description="Numbers of items.", min_length=1, max_length=100)]


class Item(BaseModel):
    """One thing to buy."""

    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(max_length=200), WITHOUT_NUL]
    quantity: Annotated[float, Field(gt=0, le=100_000, allow_inf_nan=False)] = 1
    unit: Annotated[str, Field(description="As g, l, pack; empty for pieces.", max_length=20), WITHOUT_NUL] = ""


@tool(category="grocery", effect="read", human_format="Listing groceries")
def grocery_list(context: ToolContext, bought: bool = False) -> dict[str, Any]:
    """List what the user has to buy, or with bought what was bought, the latest first."""
    if bought:
        rows = _items(context).exclude(bought_at=None).order_by("-bought_at", "number")
    else:
        rows = _to_buy(context).order_by("key", "number")
    return listing("items", rows, _as_json, limit=LIST_LIMIT)


@tool(category="grocery", effect="write", human_format="Adding groceries")
def grocery_add(
    context: ToolContext, items: Annotated[list[Item], Field(min_length=1, max_length=50)]
) -> dict[str, Any]:
    """Put things on the user's shopping list. What is on it already in the same unit is added up."""
    if _to_buy(context).count() + len(items) > ITEMS:
        raise ToolError(f"The shopping list holds at most {ITEMS} things: check or remove some first.")
    with transaction.atomic():
        rows = [_add(context, item) for item in items]
    return {"items": [_as_json(row) for row in rows]}


@tool(category="grocery", effect="write", on_crash="retry", human_format="Checking groceries {numbers}")
def grocery_check(context: ToolContext, numbers: Numbers) -> dict[str, Any]:
    """Mark things on the shopping list as bought."""
    rows = numbered(_items(context), numbers, "grocery_list")
    _to_buy(context).filter(number__in=numbers).update(bought_at=context.now())
    return {"bought": [row.name for row in rows]}


# No retry after a crash: the highest number is given again, so a repeat could remove a newer thing.
@tool(category="grocery", effect="write", human_format="Removing groceries {numbers}")
def grocery_remove(context: ToolContext, numbers: Numbers) -> dict[str, Any]:
    """Take things off the shopping list without buying them."""
    rows = numbered(_items(context), numbers, "grocery_list")
    _items(context).filter(pk__in=[row.pk for row in rows]).delete()
    return {"removed": [row.name for row in rows]}


def _items(context: ToolContext) -> QuerySet[GroceryItem]:
    return GroceryItem.objects.filter(membership_id=context.membership_id)


def _to_buy(context: ToolContext) -> QuerySet[GroceryItem]:
    return _items(context).filter(bought_at=None)


def _add(context: ToolContext, item: Item) -> GroceryItem:
    """One statement adds to what is there. Where two calls make the first one, the database refuses the second row."""
    named = name_and_key(item.name, "A thing to buy")
    quantity, unit = Decimal(str(item.quantity)).quantize(Decimal("0.001")), _unit(item.unit)
    if not quantity:
        raise ToolError(f"The quantity of {named['name']} is too small.")
    same = _to_buy(context).filter(key=named["key"], unit=unit)
    more = {"quantity": F("quantity") + quantity}
    if not _room(same, quantity).update(**more):
        if same.filter(quantity__gt=MOST - quantity).exists():
            raise ToolError(f"Nobody buys more than {MOST} of {named['name']}.")
        try:
            return create_numbered(GroceryItem, context, **named, quantity=quantity, unit=unit)
        except ToolError:
            if not _room(same, quantity).update(**more):
                raise
    return same.get()


def _room(same: QuerySet[GroceryItem], quantity: Decimal) -> QuerySet[GroceryItem]:
    return same.filter(quantity__lte=MOST - quantity)


def _unit(text: str) -> str:
    """Units are compared as written, but for blanks and the case of a unit's name: 2 Packs are 2 packs."""
    unit = " ".join(text.split())
    return unit if len(unit) <= 2 else unit.lower()


def _as_json(row: GroceryItem) -> dict[str, Any]:
    """The quantity as a plain number: 2 and not 2.000."""
    quantity = float(row.quantity)
    shown = {"number": row.number, "name": row.name, "quantity": int(quantity) if quantity.is_integer() else quantity}
    return shown | ({"unit": row.unit} if row.unit else {})
