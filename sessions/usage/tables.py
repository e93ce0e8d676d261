"""Usage as lines of a file for a spreadsheet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields

from sessions.usage.queries import Group, Grouping
from toolhub.tenants.rows.money import dollars
from toolhub.tenants.spreadsheets import as_text

#: Columns of money, in billionths of a dollar.
MONEY = {"cost", "saved_cost"}


def csv_lines(grouping: Grouping, groups: Iterable[Group]) -> Iterator[list[str | int]]:
    """A heading, then a line for each group; money in dollars."""
    columns = [each.name for each in fields(grouping.sums)]
    yield [grouping.title.lower(), *(f"{name}_usd" if name in MONEY else name for name in columns)]
    for group in groups:
        values = ((name, getattr(group.sums, name)) for name in columns)
        yield [as_text(group.name), *(dollars(value) if name in MONEY else value for name, value in values)]
