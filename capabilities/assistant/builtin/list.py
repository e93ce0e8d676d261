"""A member's lists with names: packing, books to read. What is to be bought has a category of its own."""

from __future__ import annotations

from typing import Annotated, Any

from django.db.models import Count, Q, QuerySet
from pydantic import Field

from capabilities.assistant.models import ListItem, NamedList
from capabilities.assistant.records.writes.household import ITEM_TEXT, check_list_items, create_list_items
from capabilities.contract.context import ToolContext, ToolError
from capabilities.running.records.names import key_of
from capabilities.running.records.own import own_rows, remove_row
from capabilities.running.records.rows import WITHOUT_NUL, listing, numbered
from capabilities.running.registry import CategorySpec, tool

CATEGORY = CategorySpec(
    name="list",
    title="Lists",
    description="The member's named lists, such as packing or books to read.",
    keywords=("list", "lists", "checklist", "packing list", "reading list", "wish list", "bucket list", "check off"),
    is_core=True,
)

#: Lists or items that one listing shows.
LIST_LIMIT = 200

Name = Annotated[str, Field(description="The list's name.", max_length=200), WITHOUT_NUL]
Numbers = Annotated[list[int], Field(description="Numbers of items.", min_length=1, max_length=100)]
Text = Annotated[str, Field(max_length=ITEM_TEXT), WITHOUT_NUL]


@tool(category="list", effect="read", human_format="Showing lists")
def list_show(
    context: ToolContext,
    name: Annotated[str | None, Field(description="Without it, the names of all lists.", max_length=200)] = None,
) -> dict[str, Any]:
    """Show one of the user's lists with its items, or the names of all lists."""
    if name is None:
        return _all_lists(context)
    found = _list(context, name)
    items = _items(context).filter(list=found)
    return {"list": found.name} | listing("items", items.order_by("number"), _as_json, limit=LIST_LIMIT)


@tool(category="list", effect="write", human_format="Adding to the list {name}")
def list_add(
    context: ToolContext,
    name: Annotated[Name, Field(description="A new name makes a new list.")],
    items: Annotated[list[Text], Field(min_length=1, max_length=50)],
) -> dict[str, Any]:
    """Add items to one of the user's lists. For groceries use grocery_add, for things to do task_create."""
    found, rows = create_list_items(context, name, items)
    return {"list": found.name, "items": [_as_json(row) for row in rows]}


@tool(category="list", effect="write", on_crash="retry", human_format="Checking items {numbers}")
def list_check(context: ToolContext, numbers: Numbers, checked: bool = True) -> dict[str, Any]:
    """Check items of a list off, or with checked false open them again."""
    rows = numbered(_items(context), numbers, "list_show")
    check_list_items(context, _items(context).filter(number__in=numbers), checked)
    return {"checked" if checked else "opened": [row.text for row in rows]}


# No retry after a crash: the highest number is given again, so a repeat could remove a newer item.
@tool(category="list", effect="write", human_format="Removing from a list")
def list_remove(
    context: ToolContext,
    numbers: Annotated[Numbers | None, Field(description="Items to remove.")] = None,
    name: Annotated[
        str | None, Field(description="Or a whole list, when the user asks for it.", max_length=200)
    ] = None,
) -> dict[str, Any]:
    """Remove items from a list by their numbers, or a whole list by its name."""
    if (numbers is None) == (name is None):
        raise ToolError("Give either numbers of items, or the name of a whole list.")
    if name is not None:
        found = _list(context, name)
        count = found.items.count()
        remove_row(context, found)
        return {"removed_list": found.name, "items": count}
    rows = numbered(_items(context), numbers or [], "list_show")
    _items(context).filter(pk__in=[row.pk for row in rows]).delete()
    return {"removed": [row.text for row in rows]}


def _all_lists(context: ToolContext) -> dict[str, Any]:
    lists = _lists(context).annotate(count=Count("items"), left=Count("items", filter=Q(items__checked_at=None)))
    return listing("lists", lists.order_by("key"), _list_as_json, limit=LIST_LIMIT)


def _lists(context: ToolContext) -> QuerySet[NamedList]:
    return own_rows(NamedList, context)


def _list(context: ToolContext, name: str) -> NamedList:
    found = _lists(context).filter(key=key_of(name)).first()
    if found is None:
        raise ToolError(f"There is no list {name}: list_show without a name shows them.")
    return found


def _items(context: ToolContext) -> QuerySet[ListItem]:
    return own_rows(ListItem, context)


def _list_as_json(row: NamedList) -> dict[str, Any]:
    return {"name": row.name, "items": row.count, "unchecked": row.left}  # type: ignore[attr-defined]


def _as_json(row: ListItem) -> dict[str, Any]:
    return {"number": row.number, "text": row.text} | ({"checked": True} if row.checked_at else {})
