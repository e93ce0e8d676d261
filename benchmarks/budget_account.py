"""What became of the turns and budgets of a run of budget_race.py, by the database.

Importing it sets Django up, with the settings that the environment names.
"""

from __future__ import annotations

from collections.abc import Sequence

import django

django.setup()

from django.db.models import Sum  # noqa: E402 -- app ready

from sessions.models import Budget, BudgetPeriod, Reservation, Turn  # noqa: E402
from toolhub.tenants.rows.scope import system_scope  # noqa: E402


def ended(turn_ids: Sequence[str]) -> int:
    with system_scope():
        return Turn.objects.filter(pk__in=turn_ids).exclude(ended_at=None).count()


def count(turn_ids: Sequence[str], status: str) -> int:
    with system_scope():
        return Turn.objects.filter(pk__in=turn_ids, status=status).count()


def writing(turn_ids: Sequence[str]) -> int:
    """Turns whose model has begun to write, under a reservation that is held."""
    with system_scope():
        turns = Turn.objects.filter(pk__in=turn_ids).exclude(draft="")
        held = Reservation.objects.filter(turn__in=turns, ended_at=None)
        return held.values("turn").distinct().count()


def reserved_by(turn_id: str) -> int:
    """Tokens that the first model call of a turn reserved."""
    with system_scope():
        return Reservation.objects.filter(turn__in=Turn.objects.filter(pk=turn_id)).earliest("pk").tokens


def budget_id(name: str) -> str:
    with system_scope():
        return str(Budget.objects.get(name=name).public_id)


def of_race(turn_ids: Sequence[str], limit: int) -> dict[str, int]:
    with system_scope():
        turns = Turn.objects.filter(pk__in=turn_ids)
        rows = list(Reservation.objects.filter(turn__in=turns).order_by("pk"))
        return {
            "started": turns.filter(epoch__gt=0).count(),
            "let_through": turns.filter(status="done").count(),
            "overrun_reservations": sum(taken_before(row, rows) + row.tokens > limit for row in rows),
            "refused": turns.filter(error_code="budget_exceeded").count(),
        }


def taken_before(reservation: Reservation, others: Sequence[Reservation]) -> int:
    """Tokens of a limit that were reserved or spent when this reservation was made. What a dead worker held is free as
    soon as its turn is taken over."""
    taken = 0
    for row in others:
        if row.pk < reservation.pk:
            is_over = row.ended_at is not None and row.ended_at <= reservation.created_at
            taken += row.used_tokens if is_over else row.tokens
    return taken


def leaked() -> int:
    """Tokens that are reserved now."""
    with system_scope():
        found: int = BudgetPeriod.objects.aggregate(total=Sum("reserved", default=0))["total"]
        return found


def totals(budget: str) -> dict[str, int]:
    """What the budget says that all turns used, and what they say themselves."""
    with system_scope():
        periods = BudgetPeriod.objects.filter(budget__name=budget)
        tokens = Turn.objects.aggregate(sent=Sum("input_tokens", default=0), said=Sum("output_tokens", default=0))
        return {
            "charged": periods.aggregate(total=Sum("spent", default=0))["total"],
            "used": tokens["sent"] + tokens["said"],
            "leaked": leaked(),
        }
