"""Tools by words and in an order, one page at a time: the catalogue's list, the pickers, Explain and REST."""

from __future__ import annotations

from typing import TypeVar

from django.db.models import Case, F, IntegerField, Q, QuerySet, Value, When
from django.db.models.expressions import Combinable
from django.db.models.functions import Coalesce

from capabilities.models import Tool
from toolhub.tenants.keyset import Keyset

#: Words of a query that are looked for.
MAX_WORDS = 8

Row = TypeVar("Row")


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


def in_order(tools: QuerySet[Tool, Row]) -> Keyset[Row]:
    """These tools by the number that they are annotated with as `place`, and by name among those of one number. Rows
    that are no tools have `name` and `place` among their columns."""
    return Keyset(tools, ("place", "name"))
