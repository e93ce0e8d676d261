"""A member's lists with names: packing, books to read. What is to be bought has a category of its own."""

from __future__ import annotations

from typing import Annotated, Any

from django.db import transaction
from django.db.models import Count, Q, QuerySet
from pydantic import Field

from capabilities.builtin._names import key_of, name_and_key, one_line
from capabilities.builtin._rows import WITHOUT_NUL, create_numbered, listing, numbered
from capabilities.contract.context import ToolContext, ToolError
from capabilities.models import ListItem, NamedList
from capabilities.registry import CategorySpec, tool

CATEGORY = CategorySpec(
    name="list",
    title="Lists",
    description="The member's named lists, such as packing or books to read.",
    keywords=("list", "lists", "checklist", "packing list", "reading list", "wish list", "bucket list", "check off"),
    is_core=True,
)

#: Lists of one member, items of one list, and what one listing shows of either.
LISTS = 200
ITEMS = 1_000
LIST_LIMIT = 200

Name = Annotated[str, Field(description="The list's name.", max_length=200), WITHOUT_NUL]
Numbers = Annotated[list[int], Field(description="Numbers of items.", min_length=1, max_length=100)]
Text = Annotated[str, Field(max_length=500), WITHOUT_NUL]


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
    texts = [one_line(item, "An item needs a text.") for item in items]
    with transaction.atomic():
        found = _list_to_write(context, name)
        if found.items.count() + len(texts) > ITEMS:
            raise ToolError(f"A list holds at most {ITEMS} items: remove some first.")
        rows = [create_numbered(ListItem, context, list=found, text=text) for text in texts]
    return {"list": found.name, "items": [_as_json(row) for row in rows]}


@tool(category="list", effect="write", on_crash="retry", human_format="Checking items {numbers}")
def list_check(context: ToolContext, numbers: Numbers, checked: bool = True) -> dict[str, Any]:
    """Check items of a list off, or with checked false open them again."""
    rows = numbered(_items(context), numbers, "list_show")
    changed = _items(context).filter(number__in=numbers, checked_at__isnull=checked)
    changed.update(checked_at=context.now() if checked else None)
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
        NamedList.objects.filter(pk=found.pk).delete()
        return {"removed_list": found.name, "items": count}
    rows = numbered(_items(context), numbers or [], "list_show")
    _items(context).filter(pk__in=[row.pk for row in rows]).delete()
    return {"removed": [row.text for row in rows]}


def _all_lists(context: ToolContext) -> dict[str, Any]:
    lists = _lists(context).annotate(count=Count("items"), left=Count("items", filter=Q(items__checked_at=None)))
    return listing("lists", lists.order_by("key"), _list_as_json, limit=LIST_LIMIT)


def _lists(context: ToolContext) -> QuerySet[NamedList]:
    return NamedList.objects.filter(membership_id=context.membership_id)


def _list(context: ToolContext, name: str) -> NamedList:
    found = _lists(context).filter(key=key_of(name)).first()
    if found is None:
        raise ToolError(f"There is no list {name}: list_show without a name shows them.")
    return found


def _list_to_write(context: ToolContext, name: str) -> NamedList:
    named = name_and_key(name, "A list")
    found = _lists(context).filter(key=named["key"]).first()
    if found is None and _lists(context).count() >= LISTS:
        raise ToolError(f"All {LISTS} lists are in use: remove one first.")
    return (
        found
        or NamedList.objects.get_or_create(
            organisation_id=context.organisation_id,
            membership_id=context.membership_id,
            key=named["key"],
            defaults={"name": named["name"]},
        )[0]
    )


def _items(context: ToolContext) -> QuerySet[ListItem]:
    return ListItem.objects.filter(membership_id=context.membership_id)


def _list_as_json(row: NamedList) -> dict[str, Any]:
    return {"name": row.name, "items": row.count, "unchecked": row.left}  # type: ignore[attr-defined]


def _as_json(row: ListItem) -> dict[str, Any]:
    return {"number": row.number, "text": row.text} | ({"checked": True} if row.checked_at else {})
