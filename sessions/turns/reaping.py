"""Turns that nobody may, can or will go on with: found by every worker's sweep, and ended."""

from __future__ import annotations

from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import (
    Exists,
    OuterRef,
    Q,
    QuerySet,
)
from django.db.models.functions import Now

from sessions.access import Ending, facts_of_turn, turn_ending, turn_may_not_go_on
from sessions.models import (
    OPEN_STATUSES,
    UNENDED,
    Turn,
    TurnStatus,
)
from sessions.turns.asked import accept_connected, expire_due
from sessions.turns.endings import end_unclaimed, stop_turn
from sessions.turns.fencing import (
    hold,
)
from sessions.turns.ledger import ending_of
from sessions.turns.spending import remove_turn_periods, sweep_reservations
from sessions.turns.sweeping import Backoff, each_item, each_step
from sessions.turns.waiting import resume_forgotten
from toolhub.tenants.audit.writes import record
from toolhub.tenants.rows.scope import system_scope

#: Turns of each kind that one sweep ends.
AT_ONCE = 100
#: Turns whose end failed lately.
ends_backoff = Backoff("end of turn")
#: Turns that may not go on, and could not be stopped lately.
stops_backoff = Backoff("stop of turn")


def reap() -> None:
    """End the turns that are past their deadline, cancelled, or crashed too often; stop those that may not go on; let
    those go on that wait for nobody; and release the reservations of calls that no worker makes any more. Each by
    itself. Safe in any worker."""
    with system_scope():
        ends = (_stop_disallowed, _end_stopped, _end_expired, _end_crashed)
        each_step((*ends, expire_due, accept_connected, resume_forgotten, sweep_reservations, remove_turn_periods))


def _stop_disallowed() -> None:
    """Stop the open turns of members who were removed, demoted or locked out, and of agents that were switched off or
    are not offered to the turn's member any more."""
    found = Turn.objects.filter(UNENDED, turn_may_not_go_on(), status__in=OPEN_STATUSES, cancel_requested_at=None)
    found = found.exclude(pk__in=stops_backoff.paused()).order_by("created_at", "pk")
    each_item(stops_backoff, list(found.values_list("pk", "organisation_id")[:AT_ONCE]), stop_disallowed)


@transaction.atomic
def stop_disallowed(turn_id: UUID) -> None:
    """Stop one turn that may not go on, with its audit row; one that may is left alone."""
    turn = Turn.objects.select_related("parent_step").get(pk=turn_id)
    ending = turn_ending(facts_of_turn(turn_id))
    if ending is None:
        return
    if turn.parent_step is not None:
        hold(turn.parent_step.turn_id)
    if stop_turn(turn_id, ending):
        record("turn.stop", turn, actor=None, after={"reason": ending.code, "message": ending.message})


def _end_stopped() -> None:
    _end_each(Turn.objects.filter(_unheld()).exclude(cancel_requested_at=None), None)


def _end_expired() -> None:
    # A message behind a turn that waits for people or for a far side may be late by as much: its deadline moves when
    # that turn goes on.
    people = (TurnStatus.WAITING_APPROVAL, TurnStatus.WAITING_INPUT, TurnStatus.WAITING_TASK)
    ahead = Turn.objects.filter(UNENDED, session=OuterRef("session"), seq__lt=OuterRef("seq"), status__in=people)
    late = Turn.objects.filter(_unheld(), deadline_at__lt=Now()).exclude(Exists(ahead))
    _end_each(late, Ending(TurnStatus.EXPIRED, "deadline", "The turn ran out of time."))


def _end_crashed() -> None:
    crashed = Turn.objects.filter(_unheld(), status=TurnStatus.RUNNING, attempts__gte=settings.TOOLHUB_MAX_ATTEMPTS)
    message = "The worker crashed on this turn again and again."
    _end_each(crashed, Ending(TurnStatus.FAILED, "crash_loop", message))


def _unheld() -> Q:
    """Turns that could run and that no worker holds now."""
    return UNENDED & (Q(status=TurnStatus.QUEUED) | Q(status=TurnStatus.RUNNING, lease_until__lt=Now()))


def _end_each(turns: QuerySet[Turn], ending: Ending | None) -> None:
    """End them like this; without an ending, as turns that were stopped."""
    oldest = turns.exclude(pk__in=ends_backoff.paused()).order_by("created_at", "pk")

    def end(turn_id: UUID) -> None:
        with transaction.atomic():
            end_unclaimed(Turn.objects.filter(_unheld(), pk=turn_id), ending or ending_of(turn_id))

    each_item(ends_backoff, list(oldest.values_list("pk", "organisation_id")[:AT_ONCE]), end)
