"""Average of the turns of the last days, from the hourly sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db.models import QuerySet, Sum
from django.utils import timezone

from sessions.models import Budget, UsageHour

#: Days of turns that an average is of.
DAYS = 7


@dataclass(frozen=True)
class Average:
    """Tokens, and billionths of a dollar, of one turn."""

    tokens: int
    money: int


@dataclass(frozen=True)
class Averages:
    """Averages of all turns, and by agent and by member, each by key."""

    overall: Average | None
    by_agent: Mapping[int, Average]
    by_member: Mapping[int, Average]

    def of(self, budget: Budget) -> Average | None:
        """The average of turns of the budget's agent or member; of all turns where it is for others. None without
        turns."""
        if budget.agent_id:
            return self.by_agent.get(budget.agent_id)
        if budget.membership_id:
            return self.by_member.get(budget.membership_id)
        return self.overall


def averages_for(budgets: Sequence[Budget]) -> Averages:
    """Return the averages that these budgets need. One query, and one each where some are for an agent or a member; no
    query for no budget."""
    if not budgets:
        return Averages(None, {}, {})
    rows = UsageHour.objects.filter(hour__gte=timezone.now() - timedelta(days=DAYS)).order_by()
    agents = {each.agent_id for each in budgets if each.agent_id}
    members = {each.membership_id for each in budgets if each.membership_id}
    return Averages(
        _average(rows.aggregate(**_SUMS)),
        _by_key(rows.filter(agent_key__in=agents), "agent_key") if agents else {},
        _by_key(rows.filter(membership_key__in=members), "membership_key") if members else {},
    )


_SUMS = {
    "all_turns": Sum("turns"),
    "all_input": Sum("input_tokens"),
    "all_output": Sum("output_tokens"),
    "all_cost": Sum("cost"),
}


def _by_key(rows: QuerySet[Any], key: str) -> dict[int, Average]:
    found = {row[key]: _average(row) for row in rows.values(key).annotate(**_SUMS)}
    return {name: average for name, average in found.items() if average is not None}


def _average(row: Mapping[str, Any]) -> Average | None:
    turns = int(row["all_turns"] or 0)
    if not turns:
        return None
    tokens = int(row["all_input"] or 0) + int(row["all_output"] or 0)
    return Average(-(-tokens // turns), -(-int(row["all_cost"] or 0) // turns))
