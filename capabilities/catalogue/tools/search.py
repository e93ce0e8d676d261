"""Tools by words and in an order, one page at a time: the catalogue's list, the pickers, Explain and REST.

A page begins behind a place: a number that comes first in the order, and a name among those of one number. In an
address it is `number:name`, or the name alone where the number is 0.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from django.db.models import Case, F, IntegerField, Q, QuerySet, Value, When
from django.db.models.expressions import Combinable
from django.db.models.functions import Coalesce

from capabilities.models import Tool

#: Words of a query that are looked for.
MAX_WORDS = 8
PLACE = re.compile(r"(?:(-?[0-9]{1,15}):)?([a-zA-Z0-9_-]{1,64})")

Row = TypeVar("Row")


@dataclass(frozen=True)
class Page(Generic[Row]):
    """Some rows, and the places to go on after and before; None at either end."""

    rows: Sequence[Row]
    after: str | None
    before: str | None


def words_of(q: str) -> list[str]:
    return q.split()[:MAX_WORDS]


def matching(tools: QuerySet[Tool], q: str) -> QuerySet[Tool]:
    """The tools in which every word of `q` stands: in the name, the description or the category."""
    for word in words_of(q):
        tools = tools.filter(
            Q(name__icontains=word)
            | Q(current_version__description__icontains=word)
            | Q(category__name__icontains=word)
            | Q(category__title__icontains=word)
        )
    return tools


def by_match(q: str) -> Combinable:
    """0 for the tool of that name, 1 where all words stand in the name, 2 for the others; 0 for all without a word."""
    words = words_of(q)
    if not words:
        return Value(0)
    in_name = Q()
    for word in words:
        in_name &= Q(name__icontains=word)
    return Case(
        When(name__iexact="_".join(words), then=Value(0)),
        When(in_name, then=Value(1)),
        default=Value(2),
        output_field=IntegerField(),
    )


def by_tokens() -> Combinable:
    """The most tokens first."""
    return Value(0) - Coalesce(F("current_version__tokens"), Value(0))


def page_of(tools: QuerySet[Tool, Row], after: str = "", before: str = "", *, limit: int) -> Page[Row]:
    """One page of these tools, which are annotated with their number in an order as `place`; rows that are no tools
    have `name` and `place` among their columns. One query. A place that none of ours wrote is left out."""
    backwards, mark = bool(before), PLACE.fullmatch(before or after)
    if mark is not None:
        number, name = int(mark[1] or 0), mark[2]
        beyond = Q(place__lt=number) if backwards else Q(place__gt=number)
        tools = tools.filter(beyond | Q(place=number, **{"name__lt" if backwards else "name__gt": name}))
    found = list(tools.order_by(*(("-place", "-name") if backwards else ("place", "name")))[: limit + 1])
    rows, has_more = found[:limit], len(found) > limit
    if backwards:
        rows = rows[::-1]
        return Page(rows, place_of(rows[-1]) if rows else None, place_of(rows[0]) if has_more else None)
    return Page(rows, place_of(rows[-1]) if has_more else None, place_of(rows[0]) if mark and rows else None)


def place_of(tool: Any) -> str:
    return f"{tool.place}:{tool.name}" if tool.place else str(tool.name)
