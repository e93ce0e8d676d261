"""Keyset pages, of every HTML list and of the lists over REST: a page begins behind (or ends before) a row.

The place of a row is its values in the columns of the order, encrypted: an address tells no key, and no row is counted.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any, Generic, TypedDict, TypeVar

from django.core.exceptions import FieldDoesNotExist, ValidationError
from django.db.models import Field, Q, QuerySet
from django.db.models.constants import LOOKUP_SEP

from toolhub.tenants.rows.cursors import opened_place, sealed_place

Row = TypeVar("Row")
ShownRow = TypeVar("ShownRow", covariant=True)
Shown = TypeVar("Shown")

PAGE = 50


class PageBounds(TypedDict):
    """Place where a page begins, as an address says it; empty where it says nothing."""

    after: str
    before: str


@dataclass(frozen=True)
class Page(Generic[ShownRow]):
    """Some rows, and the places to go on after and before; empty at either end."""

    rows: Sequence[ShownRow]
    after: str = ""
    before: str = ""

    def of(self, shown: Callable[[ShownRow], Shown]) -> Page[Shown]:
        """Return this page with each row replaced by what `shown` makes of it."""
        return Page([shown(row) for row in self.rows], self.after, self.before)


@dataclass(frozen=True)
class Keyset(Generic[Row]):
    """Rows in the order of some columns, none of them null, which together name one row. A minus is before what falls.

    A column may be annotated, or lie behind a join (`user__email`). Rows of `values_list` are named.
    """

    rows: QuerySet[Any, Row]
    order: tuple[str, ...]

    def page(self, after: str = "", before: str = "", *, limit: int = PAGE) -> Page[Row]:
        """The rows behind one place, or before another. One query. A place that none of our pages wrote is left out."""
        backwards = self.rows_behind(before, backwards=True) if before else None
        if backwards is not None:
            found = list(backwards.order_by(*self._turned)[: limit + 1])
            rows = found[:limit][::-1]
            return Page(
                rows,
                after=self.place_of(rows[-1]) if rows else "",
                before=self.place_of(rows[0]) if len(found) > limit else "",
            )
        forwards = self.rows_behind(after) if after else None
        found = list((self.rows if forwards is None else forwards).order_by(*self.order)[: limit + 1])
        rows = found[:limit]
        is_begun = forwards is not None and bool(rows)
        return Page(
            rows,
            after=self.place_of(rows[-1]) if len(found) > limit else "",
            before=self.place_of(rows[0]) if is_begun else "",
        )

    def place_of(self, row: Row) -> str:
        """Return the place of this row, as text for an address."""
        return sealed_place([str(value) for value in self._values_of(row)])

    def rows_behind(self, cursor: str, *, backwards: bool = False) -> QuerySet[Any, Row] | None:
        """The rows after a place, or before it. None where none of our pages wrote the place, or of another order."""
        values = self._values_in(cursor)
        return None if values is None else self._behind(values, self._turned if backwards else self.order)

    def rows_behind_row(self, row: Row) -> QuerySet[Any, Row]:
        return self._behind(self._values_of(row), self.order)

    def _behind(self, values: Sequence[Any], order: tuple[str, ...]) -> QuerySet[Any, Row]:
        behind, same = Q(), Q()
        for name, value in zip(order, values, strict=True):
            column, step = name.removeprefix("-"), "lt" if name.startswith("-") else "gt"
            behind |= same & Q(**{f"{column}__{step}": value})
            same &= Q(**{column: value})
        return self.rows.filter(behind)

    def _values_of(self, row: Row) -> list[Any]:
        """Rows of models are asked through their joins; those of values have their columns by name."""
        return [
            getattr(row, name) if hasattr(row, name) else attrgetter(name.replace(LOOKUP_SEP, "."))(row)
            for name in self.columns
        ]

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return tuple(name.removeprefix("-") for name in self.order)

    @property
    def _turned(self) -> tuple[str, ...]:
        return tuple(name.removeprefix("-") if name.startswith("-") else f"-{name}" for name in self.order)

    def _values_in(self, cursor: str) -> list[Any] | None:
        texts = opened_place(cursor, list)
        if texts is None or len(texts) != len(self.order):
            return None
        try:
            return [self._field(name).to_python(str(text)) for name, text in zip(self.columns, texts, strict=True)]
        except ValidationError:
            return None

    def _field(self, name: str) -> Field[Any, Any]:
        """Return the field that reads a text as a value of this column."""
        annotation = self.rows.query.annotations.get(name)
        if annotation is not None:
            output: Field[Any, Any] = annotation.output_field
            return output
        model: Any = self.rows.model
        *joins, last = name.split(LOOKUP_SEP)
        for join in joins:
            model = model._meta.get_field(join).related_model
        if last == "pk":
            return model._meta.pk  # type: ignore[no-any-return]
        field = model._meta.get_field(last)
        if not isinstance(field, Field):
            raise FieldDoesNotExist(f"{name} is no column.")
        return field


def page_of_sorted(
    rows: Sequence[Row], key: Callable[[Row], tuple[Any, ...]], after: str = "", before: str = "", *, limit: int = PAGE
) -> Page[Row]:
    """Return a page of rows that no query can put in order: they are sorted by `key`, of numbers and texts."""

    def place_of(row: Row) -> str:
        return sealed_place(list(key(row)))

    def index(cursor: str, bisect: Callable[..., int]) -> int | None:
        values = opened_place(cursor, list) if cursor and rows else None
        if values is None or [type(each) for each in values] != [type(each) for each in key(rows[0])]:
            return None
        return bisect(rows, tuple(values), key=key)

    end = index(before, bisect_left)
    if end is not None:
        begin = max(0, end - limit)
        found = rows[begin:end]
        return Page(found, place_of(found[-1]) if found else "", place_of(found[0]) if begin else "")
    start = index(after, bisect_right)
    begin = start or 0
    found = rows[begin : begin + limit]
    return Page(
        found,
        place_of(found[-1]) if begin + limit < len(rows) else "",
        place_of(found[0]) if start is not None and found else "",
    )
