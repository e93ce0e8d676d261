"""Sums of usage for pages and REST, read from the hourly sums alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any

from django.db.models import Case, IntegerField, Max, Q, QuerySet, Sum, Value, When

from capabilities.models import Agent
from sessions.models import NOT_ROLLED_UP, ToolUsageHour, Turn, UsageHour
from sessions.usage.spans import Range
from toolhub.tenants.models import Membership, Right

#: Groups of the page's table, and of them those with a colour of their own in the chart.
GROUPS_SHOWN = 50
SERIES_SHOWN = 6


@dataclass(frozen=True)
class UsageSums:
    """Sums of `UsageHour`."""

    turns: int = 0
    failed_turns: int = 0
    rounds: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    cost: int = 0
    unpriced_rounds: int = 0
    estimated_rounds: int = 0
    tool_tokens: int = 0
    all_tool_tokens: int = 0
    saved_tokens: int = 0
    saved_cost: int = 0
    routed_turns: int = 0
    empty_turns: int = 0
    missed_turns: int = 0

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    @property
    def uncached_tokens(self) -> int:
        """Input that the provider's cache had nothing to do with."""
        return max(0, self.input_tokens - self.cached_tokens - self.cache_write_tokens)

    @property
    def answer_tokens(self) -> int:
        """Output without what the model thought."""
        return max(0, self.output_tokens - self.reasoning_tokens)

    @property
    def left_out_tokens(self) -> int:
        """Definitions of tools that were permitted and not sent."""
        return self.all_tool_tokens - self.tool_tokens

    @property
    def cached_percent(self) -> int:
        return round(100 * self.cached_tokens / self.input_tokens) if self.input_tokens else 0


@dataclass(frozen=True)
class ToolSums:
    """Sums of `ToolUsageHour`."""

    sent_rounds: int = 0
    sent_tokens: int = 0
    calls: int = 0
    failed_calls: int = 0
    result_tokens: int = 0
    missed_turns: int = 0


@dataclass(frozen=True)
class Grouping:
    """Columns that sums are grouped by: those that tell groups apart, and those that name one."""

    title: str
    plural: str
    key: tuple[str, ...]
    names: tuple[str, ...]
    sums: type[UsageSums] | type[ToolSums] = UsageSums

    @property
    def model(self) -> Any:
        return UsageHour if self.sums is UsageSums else ToolUsageHour


GROUPINGS = {
    "agent": Grouping("Agent", "Agents", ("agent_key",), ("agent_name",)),
    "member": Grouping("Member", "Members", ("membership_key",), ("member_name",)),
    "model": Grouping("Model", "Models", ("provider_name", "model_name"), ("provider_name", "model_name")),
    "tool": Grouping("Tool", "Tools", ("tool_key",), ("tool_name",), ToolSums),
    "category": Grouping("Category", "Categories", ("category_name",), ("category_name",), ToolSums),
}


@dataclass(frozen=True)
class Group:
    """One line of a table of usage."""

    key: tuple[Any, ...]
    name: str
    sums: Any
    #: Percent of the largest group's, for a bar.
    percent: int = 0


@dataclass(frozen=True)
class Usage:
    """Usage in a range: all of it, by period as far as that is drawn, and by group, the largest first."""

    total: Any
    by_period: Sequence[Any]
    groups: Sequence[Group]
    #: Sums of the groups that are not shown; None where all are.
    others: Any = None
    #: By period: the sums of each of the first groups, and of all others.
    series: Sequence[Sequence[Any]] = field(default_factory=list)


def sees_all(member: Membership) -> bool:
    """Return whether the member sees everybody's usage, and that of tools."""
    return member.has_right(Right.BUDGETS)


def groupings_of(member: Membership) -> dict[str, Grouping]:
    """Return the groupings that the member may choose. One's own usage is known by agent and model: sums of tools
    belong to nobody."""
    return GROUPINGS if sees_all(member) else {name: GROUPINGS[name] for name in ("agent", "model")}


def rows_of(member: Membership, grouping: Grouping, starts_at: datetime, ends_at: datetime) -> QuerySet[Any]:
    """The hourly sums between two moments that the member may see."""
    rows: QuerySet[Any] = grouping.model.objects.filter(hour__gte=starts_at, hour__lt=ends_at)
    return rows if sees_all(member) else rows.filter(membership_key=member.pk)


def usage_in(
    member: Membership, grouping: Grouping, span: Range, measure: str, drawn: Sequence[str] | None = None
) -> Usage:
    """Return the usage in a range that the member may see, with the groups that have most of `measure`, a column of the
    sums, or tokens. By period only the columns of `drawn` are summed, or all without it. Four queries."""
    rows = rows_of(member, grouping, span.starts_at, span.ends_at)
    groups = largest_groups(_of_largest(rows, grouping, measure), grouping, measure)
    series, by_period = _by_period(rows, grouping, span, groups[:SERIES_SHOWN], drawn)
    total = as_sums(grouping.sums, rows.aggregate(**sums_of(grouping.sums)))
    shown = groups[:GROUPS_SHOWN]
    others = None
    if len(groups) > GROUPS_SHOWN:
        others = subtracted(grouping.sums, total, added(grouping.sums, [each.sums for each in shown]))
    return Usage(total, by_period, shown, others, series)


def _of_largest(rows: QuerySet[Any], grouping: Grouping, measure: str) -> QuerySet[Any]:
    """The rows of the groups that are shown, and of one more. One query, of one sum: all sums of each of a thousand
    groups would take a database several times as long."""
    keys = rows.values_list(*grouping.key).annotate(weight=_weight(measure))
    largest = [key for *key, _ in keys.order_by("-weight", *grouping.key)[: GROUPS_SHOWN + 1]]
    if len(grouping.key) == 1:
        return rows.filter(**{f"{grouping.key[0]}__in": [key for (key,) in largest]})
    shown = Q(pk__in=[])
    for key in largest:
        shown |= Q(**dict(zip(grouping.key, key, strict=True)))
    return rows.filter(shown)


def _weight(measure: str) -> Any:
    return Sum("input_tokens") + Sum("output_tokens") if measure == "tokens" else Sum(measure)


def largest_groups(rows: QuerySet[Any], grouping: Grouping, measure: str, limit: int | None = None) -> list[Group]:
    """Return the first groups by the measure, the largest first. One query. A group's key stays while names change: of
    several, it has the last in the alphabet."""
    names = [name for name in grouping.names if name not in grouping.key]
    found = rows.values(*grouping.key).annotate(
        weight=_weight(measure), **{f"last_{name}": Max(name) for name in names}, **sums_of(grouping.sums)
    )
    listed = list(found.order_by("-weight", *grouping.key)[:limit])
    most = max((abs(row["weight"]) for row in listed), default=0)
    return [
        Group(
            tuple(row[name] for name in grouping.key),
            name_of(grouping, row),
            as_sums(grouping.sums, row),
            round(100 * abs(row["weight"]) / most) if most else 0,
        )
        for row in listed
    ]


def name_of(grouping: Grouping, row: Mapping[str, Any]) -> str:
    parts = (str(row.get(f"last_{name}", row.get(name, ""))) for name in grouping.names)
    return " / ".join(part for part in parts if part)


def sums_by_period(rows: QuerySet[Any], grouping: Grouping, span: Range, columns: Sequence[str]) -> list[Any]:
    """Return the sums of these columns in each period of the span. One query."""
    return _by_period(rows, grouping, span, (), columns)[1]


def _by_period(
    rows: QuerySet[Any], grouping: Grouping, span: Range, groups: Sequence[Group], columns: Sequence[str] | None
) -> tuple[list[list[Any]], list[Any]]:
    """The sums of each of these groups and of all others by period, and of all by period. One query."""
    starts = [period.starts_at for period in span.periods]
    period = Case(
        *(When(hour__lt=start, then=Value(number)) for number, start in enumerate(starts[1:])),
        default=Value(len(starts) - 1),
        output_field=IntegerField(),
    )
    of_group = Case(
        *(
            When(Q(**dict(zip(grouping.key, each.key, strict=True))), then=Value(number))
            for number, each in enumerate(groups)
        ),
        default=Value(len(groups)),
        output_field=IntegerField(),
    )
    found = rows.annotate(period=period, of_group=of_group).values("period", "of_group").order_by()
    series = [[grouping.sums() for _ in starts] for _ in range(len(groups) + 1)]
    for row in found.annotate(**sums_of(grouping.sums, columns)):
        series[row["of_group"]][row["period"]] = as_sums(grouping.sums, row)
    return series, [added(grouping.sums, column) for column in zip(*series, strict=True)]


def sums_of(kind: type[UsageSums] | type[ToolSums], columns: Sequence[str] | None = None) -> dict[str, Sum]:
    """The aggregates of each column, or of these, under names of their own: a column's name is taken."""
    names = [each.name for each in fields(kind)]
    return {f"sum_{name}": Sum(name) for name in (names if columns is None else columns)}


def as_sums(kind: type[UsageSums] | type[ToolSums], row: Mapping[str, Any]) -> Any:
    """Build the sums of a row; a field that was not summed is 0."""
    return kind(**{each.name: row.get(f"sum_{each.name}") or 0 for each in fields(kind)})


def added(kind: type[UsageSums] | type[ToolSums], parts: Iterable[Any]) -> Any:
    listed = list(parts)
    return kind(**{each.name: sum(getattr(part, each.name) for part in listed) for each in fields(kind)})


def subtracted(kind: type[UsageSums] | type[ToolSums], whole: Any, part: Any) -> Any:
    return kind(**{each.name: getattr(whole, each.name) - getattr(part, each.name) for each in fields(kind)})


def counted_from() -> datetime | None:
    """Return the moment when the first turn ended whose usage is still to be added; None where all is. One query."""
    return Turn.objects.filter(NOT_ROLLED_UP).order_by("ended_at").values_list("ended_at", flat=True).first()


def slugs_of(keys: Iterable[int]) -> dict[int, str]:
    """Return the slugs of those of the agents that are still there, by key. One query."""
    return dict(Agent.objects.filter(pk__in=list(keys)).values_list("pk", "slug"))


def public_ids_of(keys: Iterable[int]) -> dict[int, str]:
    """The members that are still there, if they have left or not. One query."""
    rows = Membership.objects.filter(pk__in=list(keys)).values_list("pk", "public_id")
    return {key: str(public_id) for key, public_id in rows}
