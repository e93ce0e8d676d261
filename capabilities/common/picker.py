"""A part of a form in which some of many things are ticked: those that are, and others that a search finds.

Of many it shows a part. What is ticked and not shown goes with the form as one text, so that no save loses it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from django.http import QueryDict
from django.utils.http import urlencode

#: Rows that are ticked, and rows that are found, on a page.
SHOWN = 50
#: A search is offered where there are more things than this.
MANY = 10
MAX_QUERY = 64

Row = TypeVar("Row")
#: The fields of one ticked row, as a form posts them.
Fields = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Search:
    """Words, and the short name of a group."""

    q: str = ""
    group: str = ""

    def __bool__(self) -> bool:
        return bool(self.q or self.group)


@dataclass(frozen=True)
class Group:
    """A category in numbers, in place of its tools."""

    name: str
    title: str
    count: int


@dataclass(frozen=True)
class Picker:
    """Values that the template draws. `row` and `found_row` draw one line."""

    #: The name of the checkboxes.
    field: str
    noun: str
    search: Search
    #: Number of all that can be ticked.
    total: int
    ticked: Sequence[Any]
    found: Sequence[Any]
    row: str
    found_row: str
    #: Words for what is searched, and a sentence for where there is nothing to tick.
    words: str
    none: str
    has_more: bool = False
    kept: str = ""
    kept_count: int = 0
    groups: Sequence[Group] = ()
    many: int = MANY

    @property
    def plural(self) -> str:
        return f"{self.noun.removesuffix('y')}ies" if self.noun.endswith("y") else f"{self.noun}s"

    @property
    def is_searched(self) -> bool:
        return self.total > self.many or bool(self.search)

    @property
    def is_summary(self) -> bool:
        """True where there are too many to show any before somebody searches."""
        return self.total > SHOWN and bool(self.groups) and not self.search


def search_in(data: Mapping[str, str], field: str) -> Search:
    q, group = (str(data.get(f"{field}-{part}", "")).replace("\x00", "").strip() for part in ("q", "group"))
    return Search(q[:MAX_QUERY], group[:MAX_QUERY])


def with_kept(data: QueryDict, *fields: str) -> QueryDict:
    """A form's body with the fields of the rows that were ticked and not shown."""
    whole = data.copy()
    for field in fields:
        for text in data.getlist(f"{field}-kept"):
            for name, values in QueryDict(text).lists():
                for value in values:
                    whole.appendlist(name, value)
    return whole


def shown_and_kept(
    rows: Sequence[Row], fields: Callable[[Row], Fields], fits: Callable[[Row], bool]
) -> tuple[list[Row], str, int]:
    """The ticked rows that are shown, of many the first that fit; the others as text, and how many they are."""
    if len(rows) <= SHOWN:
        return list(rows), "", 0
    shown = [row for row in rows if fits(row)][:SHOWN]
    shown_ids = {id(row) for row in shown}
    kept = [row for row in rows if id(row) not in shown_ids]
    return shown, urlencode([pair for row in kept for pair in fields(row)]), len(kept)
