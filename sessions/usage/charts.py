"""Chart of a page: series of numbers for each period. Reads nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sessions.usage.queries import SERIES_SHOWN, Grouping, ToolSums, Usage, UsageSums
from sessions.usage.spans import Range
from toolhub.tenants.rows.money import NANO, rounded_dollars

#: Figures that a chart can show of usage, and the column by which its groups are large.
SHOWN = {
    "tokens": ("Tokens by group", "tokens"),
    "kinds": ("Kinds of tokens", "tokens"),
    "money": ("Money", "cost"),
    "definitions": ("Tool definitions", "tool_tokens"),
    "saved": ("Saved by routing", "saved_tokens"),
}
DEFAULT_SHOWN = "tokens"
#: The columns that each of them draws.
_KINDS = ("input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens")
DRAWN = {
    "tokens": ("input_tokens", "output_tokens"),
    "kinds": _KINDS,
    "money": ("cost",),
    "definitions": ("tool_tokens", "all_tool_tokens"),
    "saved": ("saved_tokens",),
}


@dataclass(frozen=True)
class Series:
    """One colour of the chart."""

    label: str
    values: Sequence[float]


@dataclass(frozen=True)
class Chart:
    """Stacked bars by period."""

    labels: Sequence[str]
    titles: Sequence[str]
    series: Sequence[Series]
    unit: str
    title: str

    @property
    def is_empty(self) -> bool:
        return not any(value for each in self.series for value in each.values)

    @property
    def lines(self) -> list[tuple[str, list[str]]]:
        """The chart as a table: a period's title and the value of each series."""
        shown = self._as_dollars if self.unit == "dollars" else self._as_tokens
        return [
            (title, [shown(each.values[number]) for each in self.series]) for number, title in enumerate(self.titles)
        ]

    @staticmethod
    def _as_dollars(value: float) -> str:
        return rounded_dollars(round(value * NANO))

    @staticmethod
    def _as_tokens(value: float) -> str:
        return f"{value:,.0f}"

    def as_json(self) -> str:
        """Return the chart as JSON for the script that draws it."""
        return json.dumps(asdict(self), ensure_ascii=False)


def chart_of(usage: Usage, grouping: Grouping, span: Range, shown: str) -> Chart:
    """The chart that the reader asked for; of tools, always the tokens of their definitions."""
    if grouping.sums is ToolSums:
        series = _by_group(usage, lambda sums: sums.sent_tokens)
        return _chart(span, series, "tokens", f"Tokens of definitions that were sent, by {grouping.title.lower()}")
    if shown == "kinds":
        return _chart(span, _of_total(usage, KINDS), "tokens", "Tokens by kind")
    if shown == "definitions":
        return _chart(span, _of_total(usage, DEFINITIONS), "tokens", "Tokens of tool definitions")
    if shown == "saved":
        return _chart(span, _of_total(usage, SAVED), "tokens", "Tokens that routing saved, counted as new input")
    if shown == "money":
        series = _by_group(usage, lambda sums: sums.cost / NANO)
        return _chart(span, series, "dollars", f"Money by {grouping.title.lower()}")
    return _chart(span, _by_group(usage, lambda sums: sums.tokens), "tokens", f"Tokens by {grouping.title.lower()}")


KINDS: Sequence[tuple[str, Callable[[UsageSums], int]]] = (
    ("Input, new", lambda sums: sums.uncached_tokens),
    ("Input, read from the cache", lambda sums: sums.cached_tokens),
    ("Input, written to the cache", lambda sums: sums.cache_write_tokens),
    ("Answers and calls", lambda sums: sums.answer_tokens),
    ("Reasoning", lambda sums: sums.reasoning_tokens),
)
DEFINITIONS: Sequence[tuple[str, Callable[[UsageSums], int]]] = (
    ("Sent", lambda sums: sums.tool_tokens),
    ("Permitted, not sent", lambda sums: sums.left_out_tokens),
)
SAVED: Sequence[tuple[str, Callable[[UsageSums], int]]] = (("Saved", lambda sums: sums.saved_tokens),)


def _chart(span: Range, series: Sequence[Series], unit: str, title: str) -> Chart:
    return Chart([each.label for each in span.periods], [each.title for each in span.periods], series, unit, title)


def _of_total(usage: Usage, parts: Sequence[tuple[str, Callable[[UsageSums], int]]]) -> list[Series]:
    return [Series(label, [value(sums) for sums in usage.by_period]) for label, value in parts]


def _by_group(usage: Usage, value: Callable[[Any], float]) -> list[Series]:
    """The largest groups, and the others together where there are more."""
    names = [each.name or "(no name)" for each in usage.groups[:SERIES_SHOWN]]
    if len(usage.groups) > SERIES_SHOWN:
        names.append("All others")
    return [Series(name, [value(sums) for sums in column]) for name, column in zip(names, usage.series, strict=False)]
