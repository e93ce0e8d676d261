"""Groceries that a member has to buy. One thing in one unit stands on the list once, with its quantities added."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any

from django.db import transaction
from django.db.models import QuerySet
from pydantic import BaseModel, ConfigDict, Field

from capabilities.assistant.models import GroceryItem
from capabilities.assistant.records.writes.household import (
    UNIT_TEXT,
    buy_groceries,
    check_grocery_room,
    create_grocery,
    to_buy,
)
from capabilities.contract.context import ToolContext
from capabilities.running.records.own import own_rows
from capabilities.running.records.rows import WITHOUT_NUL, listing, numbered
from capabilities.running.registry import CategorySpec, tool

CATEGORY = CategorySpec(
    name="grocery",
    title="Groceries",
    description="The member's shopping list, with quantities.",
    keywords=("grocery", "groceries", "shopping list", "shopping", "buy", "supermarket", "out of milk", "we need"),
    is_core=True,
)

#: Things that one listing shows.
LIST_LIMIT = 200

Numbers = Annotated[list[int], Field(description="Numbers of items.", min_length=1, max_length=100)]


class Item(BaseModel):
    """One thing to buy."""

    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(max_length=200), WITHOUT_NUL]
    quantity: Annotated[float, Field(gt=0, le=100_000, allow_inf_nan=False)] = 1
    unit: Annotated[str, Field(description="As g, l, pack; empty for pieces.", max_length=UNIT_TEXT), WITHOUT_NUL] = ""


@tool(category="grocery", effect="read", human_format="Listing groceries")
def grocery_list(context: ToolContext, bought: bool = False) -> dict[str, Any]:
    """List what the user has to buy, or with bought what was bought, the latest first."""
    if bought:
        rows = _items(context).exclude(bought_at=None).order_by("-bought_at", "number")
    else:
        rows = to_buy(context).order_by("key", "number")
    return listing("items", rows, _as_json, limit=LIST_LIMIT)


@tool(category="grocery", effect="write", human_format="Adding groceries")
def grocery_add(
    context: ToolContext, items: Annotated[list[Item], Field(min_length=1, max_length=50)]
) -> dict[str, Any]:
    """Put things on the user's shopping list. What is on it already in the same unit is added up."""
    check_grocery_room(context, len(items))
    with transaction.atomic():
        rows = [
            create_grocery(context, name=item.name, quantity=Decimal(str(item.quantity)), unit=item.unit)
            for item in items
        ]
    return {"items": [_as_json(row) for row in rows]}


@tool(category="grocery", effect="write", on_crash="retry", human_format="Checking groceries {numbers}")
def grocery_check(context: ToolContext, numbers: Numbers) -> dict[str, Any]:
    """Mark things on the shopping list as bought."""
    rows = numbered(_items(context), numbers, "grocery_list")
    buy_groceries(context, _items(context).filter(number__in=numbers), True)
    return {"bought": [row.name for row in rows]}


# No retry after a crash: the highest number is given again, so a repeat could remove a newer thing.
@tool(category="grocery", effect="write", human_format="Removing groceries {numbers}")
def grocery_remove(context: ToolContext, numbers: Numbers) -> dict[str, Any]:
    """Take things off the shopping list without buying them."""
    rows = numbered(_items(context), numbers, "grocery_list")
    _items(context).filter(pk__in=[row.pk for row in rows]).delete()
    return {"removed": [row.name for row in rows]}


def _items(context: ToolContext) -> QuerySet[GroceryItem]:
    return own_rows(GroceryItem, context)


def _as_json(row: GroceryItem) -> dict[str, Any]:
    """The quantity as a plain number: 2 and not 2.000."""
    quantity = float(row.quantity)
    shown = {"number": row.number, "name": row.name, "quantity": int(quantity) if quantity.is_integer() else quantity}
    return shown | ({"unit": row.unit} if row.unit else {})
