"""Reads for `/metrics`: the totals of ended turns, and what is open, waits or is left now. Of all organisations.

Nothing here reads a history: totals are a few rows for each organisation, the rest goes by partial indexes over what is
open. With `by_organisation` each row has its organisation's `slug`, else rows are of all together.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db.models import Case, Count, F, FloatField, Min, OuterRef, Q, QuerySet, Subquery, Sum, Value, When
from django.db.models.functions import Cast, Coalesce, Greatest, Now

from sessions.models import (
    BUCKETS,
    NOT_ROLLED_UP,
    OPEN_STATUSES,
    UNENDED,
    Approval,
    ApprovalKind,
    ApprovalStatus,
    Budget,
    BudgetPeriod,
    Measure,
    ModelTotal,
    ToolTotal,
    Turn,
    TurnEvent,
    TurnStatus,
    TurnTotal,
    Window,
)
from sessions.turns import ledger

Rows = Sequence[dict[str, Any]]

#: Turns that are not counted yet are counted to this number.
MOST_UNCOUNTED = 10_000
_TIMES = ("calls", "timed_calls", "milliseconds", *BUCKETS)
_TOKENS = ("input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens")


# -- Totals of ended turns --------------------------------------------------------------------------------------------


def ended_turns(*, by_organisation: bool) -> Rows:
    """Sum the `turns` by `status` and `error_code`. One query."""
    return _sums(TurnTotal.objects.all(), ("status", "error_code"), ("turns",), by_organisation)


def model_calls(*, by_organisation: bool) -> Rows:
    """The sums of `ModelTotal` by `vendor` and `model_name`. One query."""
    sums = (*_TIMES, *_TOKENS, "unpriced_calls", "cost")
    return _sums(ModelTotal.objects.all(), ("vendor", "model_name"), sums, by_organisation)


def tool_calls(*, by_organisation: bool) -> Rows:
    """The sums of `ToolTotal` by `kind`, `tool_name` and `outcome`. One query."""
    return _sums(ToolTotal.objects.all(), ("kind", "tool_name", "outcome"), _TIMES, by_organisation)


def _sums(rows: QuerySet[Any], key: Sequence[str], sums: Sequence[str], by_organisation: bool) -> Rows:
    return list(_grouped(rows, key, by_organisation).annotate(**{f"sum_{name}": Sum(name) for name in sums}))


def _grouped(rows: QuerySet[Any], key: Sequence[str], by_organisation: bool) -> Any:
    """The rows grouped by these columns, and by their organisation where that is asked for."""
    slug = {"slug": F("organisation__slug")} if by_organisation else {}
    return rows.order_by().values(*key, **slug)


# -- What is open now -------------------------------------------------------------------------------------------------


def open_turns(*, by_organisation: bool) -> Rows:
    """Count the open `turns` by `status`, and of these those that are `left`: their worker has not been heard of in
    time. One query."""
    turns = Turn.objects.filter(UNENDED, status__in=OPEN_STATUSES)
    is_left = Q(status=TurnStatus.RUNNING, lease_until__lt=Now())
    return list(_grouped(turns, ("status",), by_organisation).annotate(turns=Count("pk"), left=Count("pk", is_left)))


def waiting_since(*, by_organisation: bool) -> Rows:
    """Return as `oldest` the moment since when the turn waits that waits longest, of those that a worker could take.
    One query."""
    free = Turn.objects.filter(UNENDED, ledger.due(), status=TurnStatus.QUEUED, seq=ledger.first_open_seq())
    free = free.annotate(since=_free_since()).order_by()
    if by_organisation:
        return list(_grouped(free, (), by_organisation).annotate(oldest=Min("since")))
    return [free.aggregate(oldest=Min("since"))]


def _free_since() -> Case:
    """Build the moment when a queued turn could begin, or go on: it waited for nothing but a worker from then on."""
    last_event = TurnEvent.objects.filter(turn=OuterRef("pk"), number=OuterRef("last_event")).values("created_at")
    before = Turn.objects.filter(session=OuterRef("session"), seq=OuterRef("seq") - 1).values("ended_at")
    begins = Greatest(F("created_at"), Coalesce(Subquery(before[:1]), F("created_at")))
    return Case(
        When(next_attempt_at__isnull=False, then=F("next_attempt_at")),
        When(epoch=0, then=begins),
        default=Coalesce(Subquery(last_event[:1]), F("created_at")),
    )


def uncounted_turns() -> int:
    """Ended turns that the totals do not hold yet, at most `MOST_UNCOUNTED`. One query."""
    return Turn.objects.filter(NOT_ROLLED_UP).order_by("-ended_at", "-pk")[:MOST_UNCOUNTED].count()


def pending_approvals(*, by_organisation: bool) -> Rows:
    """Count what waits for a person by `kind`, with the moment since when the `oldest` does. One query."""
    pending = Approval.objects.filter(kind__in=ApprovalKind.values, status=ApprovalStatus.PENDING)
    return list(_grouped(pending, ("kind",), by_organisation).annotate(waiting=Count("pk"), oldest=Min("created_at")))


# -- What is left of budgets ------------------------------------------------------------------------------------------


def running_budgets(at: datetime, *, by_organisation: bool) -> Rows:
    """Count, by `measure` and `window` of the hard budgets, the windows that run and those of them that are spent, with
    the lowest `share` of one that is left. Only windows on which something was counted. Two queries."""
    enabled = Budget.objects.filter(is_enabled=True).exclude(measure=Measure.TURNS)
    ending = BudgetPeriod.objects.filter(
        ends_at__gt=at, starts_at__lte=at, budget__in=enabled.exclude(window=Window.TURN).values("pk")
    )
    for_good = BudgetPeriod.objects.filter(budget__in=enabled.filter(window=Window.TOTAL).values("pk"))
    total, left = F("limit") + F("added"), F("limit") + F("added") - F("spent") - F("reserved")
    ratio = Cast(left, FloatField()) / Cast(total, FloatField())
    share = Case(When(Q(limit=0, added=0), then=Value(0.0)), default=ratio, output_field=FloatField())
    sums = {"windows": Count("pk"), "spent_windows": Count("pk", Q(spent__gte=total)), "share": Min(share)}
    key = ("measure", "budget__window")
    hard = (periods.filter(is_hard=True) for periods in (ending, for_good))
    return [row for periods in hard for row in _grouped(periods, key, by_organisation).annotate(**sums)]
