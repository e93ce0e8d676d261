"""A turn that waits for the turns it gave to other agents: no worker, no thread, no lease; and how it goes on.

Whoever ends a child looks, in the same transaction and with the parent's row held, whether another is still open; and
whoever parks the parent holds the same row and looks for children that ended before. So one of the two sees the other,
in whatever order they come.
"""

from __future__ import annotations

from uuid import UUID

from django.db import transaction
from django.db.models import Exists, F, OuterRef, QuerySet
from django.db.models.functions import Now

from sessions.models import OPEN_STATUSES, UNENDED, Turn, TurnStatus
from sessions.turns.bell import ring_after_commit
from sessions.turns.fencing import HELD, Claim, add_event, check_may_start, fence, hold, insert_event
from sessions.turns.sweeping import Backoff, each_item

#: Turns that one sweep looks after.
AT_ONCE = 100
#: Waiting turns that could not be let go on lately.
resume_backoff = Backoff("waiting turn")


def open_children(turn_id: UUID) -> QuerySet[Turn]:
    """The turns that this one gave to other agents and that have not ended."""
    return Turn.objects.filter(parent_step__turn=turn_id, status__in=OPEN_STATUSES).order_by("created_at", "pk")


def park(claim: Claim) -> bool:
    """Let the turn wait for its children, held by nobody. False if all have ended: then it may go on at once.

    Raises CancelRequested for a turn that was stopped, or may not go on.
    """
    with transaction.atomic():
        turn = fence(claim, HELD)
        check_may_start(turn)
        children = list(open_children(claim.turn_id).values_list("pk", flat=True))
        if not children:
            return False
        number = turn["last_event"] + 1
        add_event(claim, {"last_event": number}, "waiting_child", {"turns": [str(child) for child in children]})
        Turn.objects.filter(pk=claim.turn_id).update(
            status=TurnStatus.WAITING_CHILD,
            owner="",
            lease_until=None,
            waiting_since=Now(),
            attempts=0,
            last_event=number,
        )
    return True


def resume(turn_id: UUID) -> None:
    """Let a waiting turn go on, if none of its children is open any more: it is queued, and its deadline moves by as
    long as it waited. Inside a transaction that holds its row."""
    if open_children(turn_id).exists():
        return
    resumed = Turn.objects.filter(pk=turn_id, status=TurnStatus.WAITING_CHILD).update(
        status=TurnStatus.QUEUED,
        deadline_at=F("deadline_at") + (Now() - F("waiting_since")),
        waiting_since=None,
        rang_at=Now(),
        last_event=F("last_event") + 1,
    )
    if not resumed:
        return
    turn = Turn.objects.only("organisation_id", "last_event").get(pk=turn_id)
    insert_event(turn.organisation_id, turn_id, turn.last_event, "resumed", {})
    ring_after_commit(turn_id)


def resume_forgotten() -> None:
    """Let every waiting turn go on whose children have all ended. In the scope of the system, in any worker."""
    open_child = Turn.objects.filter(parent_step__turn=OuterRef("pk"), status__in=OPEN_STATUSES)
    waiting = Turn.objects.filter(UNENDED, status=TurnStatus.WAITING_CHILD).exclude(Exists(open_child))
    waiting = waiting.exclude(pk__in=resume_backoff.paused()).order_by("created_at", "pk")
    each_item(resume_backoff, list(waiting.values_list("pk", "organisation_id")[:AT_ONCE]), _resume_one)


def _resume_one(turn_id: UUID) -> None:
    with transaction.atomic():
        hold(turn_id)
        resume(turn_id)
