"""Uses of tools in the last seven days, from the hourly sums: for the list of tools, and a tool's page."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Sum

from sessions.usage.queries import GROUPINGS, ToolSums, rows_of, sees_all, sums_by_period
from sessions.usage.spans import range_of
from toolhub.tenants.models import Membership

RANGE = "7d"
GROUPING = GROUPINGS["tool"]
#: Calls from which failures count as more than chance, and the percentage that needs somebody.
FEWEST_CALLS, FAILING = 5, 50


@dataclass(frozen=True)
class ToolUse:
    """Calls of a tool, and those of them that failed."""

    calls: int = 0
    failed: int = 0

    @property
    def percent_failed(self) -> int:
        return round(100 * self.failed / self.calls) if self.calls else 0

    @property
    def is_failing(self) -> bool:
        """True where so many calls fail that somebody should look at the tool."""
        return self.calls >= FEWEST_CALLS and self.percent_failed >= FAILING


def uses_of(member: Membership, now: datetime, tools: Collection[int] | None = None) -> dict[int, ToolUse]:
    """Return the uses of the tools that were called, by the tool's key; of these tools alone where some are given. One
    query; none, and nothing, for who does not see the usage of tools."""
    if not sees_all(member):
        return {}
    span = range_of(RANGE, member.organisation.time_zone, now)
    rows = rows_of(member, GROUPING, span.starts_at, span.ends_at).filter(calls__gt=0)
    if tools is not None:
        rows = rows.filter(tool_key__in=tools)
    sums = rows.order_by().values("tool_key").annotate(all_calls=Sum("calls"), all_failed=Sum("failed_calls"))
    return {row["tool_key"]: ToolUse(row["all_calls"], row["all_failed"]) for row in sums}


@dataclass(frozen=True)
class ToolWeek:
    """Use of one tool on each of the last seven days, the oldest first, and all of them."""

    days: tuple[ToolUse, ...]
    #: Tokens of its results, as models got to see them.
    result_tokens: int

    @property
    def total(self) -> ToolUse:
        return ToolUse(sum(day.calls for day in self.days), sum(day.failed for day in self.days))

    @property
    def calls(self) -> tuple[int, ...]:
        return tuple(day.calls for day in self.days)

    @property
    def failed(self) -> tuple[int, ...]:
        return tuple(day.failed for day in self.days)


def week_of_tool(member: Membership, now: datetime, tool: int) -> ToolWeek | None:
    """Return the week of the tool with this key. One query; None for who does not see the usage of tools."""
    if not sees_all(member):
        return None
    span = range_of(RANGE, member.organisation.time_zone, now)
    rows = rows_of(member, GROUPING, span.starts_at, span.ends_at).filter(tool_key=tool)
    days: list[ToolSums] = sums_by_period(rows, GROUPING, span, ("calls", "failed_calls", "result_tokens"))
    uses = tuple(ToolUse(day.calls, day.failed_calls) for day in days)
    return ToolWeek(uses, sum(day.result_tokens for day in days))
