"""Rows of a query as a model gets to see them: plain values, and only so many. Knows no database."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

#: Characters of one value, and of all of them together.
CELL_LIMIT = 2_000
TABLE_LIMIT = 100_000


@dataclass(frozen=True)
class Table:
    columns: list[str]
    rows: list[list[Any]]
    #: Whether there are more rows than these.
    more: bool


@dataclass(frozen=True)
class Limits:
    """Limits of one query: its rows, and its seconds in all."""

    rows: int
    seconds: float
    stopped: Callable[[], bool]

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
        """Build a table of as many of the rows as may be shown. Values are plain already."""
        kept: list[list[Any]] = []
        room = TABLE_LIMIT
        for row in rows:
            room -= sum(len(str(value)) + 4 for value in row)
            if len(kept) == self.rows or (room < 0 and kept):
                return Table(list(columns), kept, more=True)
            kept.append(list(row))
        return Table(list(columns), kept, more=False)


def cell(value: Any) -> Any:
    """A value as JSON has it. Numbers that a float would round, dates and the like are text."""
    if value is None or isinstance(value, (bool, int)):
        return value if value is None or abs(value) < 2**63 else str(value)
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else str(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        data = bytes(value)
        return f"{len(data)} bytes: {data[:32].hex()}" + ("…" if len(data) > 32 else "")
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    text = str(value)
    return text if len(text) <= CELL_LIMIT else text[: CELL_LIMIT - 1] + "…"
