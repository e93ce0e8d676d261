"""The end of a turn, and what follows from it in the same transaction.

No step and no child of it stays open, nothing stays reserved for it, and the turn that waits for it goes on. The
session's next turn is rung for where no worker ends this one: a worker takes the next turn itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.db.models import Exists, F, OuterRef, QuerySet
from django.db.models.functions import Now

from sessions.access import Ending
from sessions.models import (
    OPEN_STATUSES,
    UNANSWERED,
    WAITING_STATUSES,
    Approval,
    ApprovalStatus,
    CallWait,
    Step,
    StepStatus,
    Turn,
    TurnStatus,
)
from sessions.turns.bell import ring_after_commit
from sessions.turns.fencing import hold, insert_event
from sessions.turns.masking import mask_ended
from sessions.turns.spending import HAS_RESERVATION, has_reservation, owned_with_reservation, release_held
from sessions.turns.waiting import open_children, resume

#: Nobody runs a turn in one of these.
UNHELD = (TurnStatus.QUEUED, *WAITING_STATUSES)
#: Result that the model reads, in a later turn, of a call that never began.
NOT_RUN = json.dumps({"success": False, "error": "Not run: the turn ended before."})
NOT_FINISHED = json.dumps({"success": False, "error": "Not finished: the turn ended while the call waited."})
PARENT_ENDED = "The turn that asked for it has ended."


def end_unclaimed(turns: QuerySet[Turn], ending: Ending) -> None:
    """End the one turn in `turns`, if it is still there; the new epoch shuts out whoever held it."""
    row = turns.values("pk", "parent_step__turn_id").first()
    if row is None:
        return
    hold(row["parent_step__turn_id"])
    ended = turns.update(
        status=ending.status,
        error_code=ending.code,
        error_message=ending.message,
        ended_at=Now(),
        epoch=F("epoch") + 1,
        last_event=F("last_event") + 1,
        lease_until=None,
        waiting_since=None,
        owner="",
        # A worker that died in the middle of a reply left its beginning.
        answer=F("draft"),
        draft="",
    )
    if not ended:
        return
    turn = Turn.objects.only("organisation_id", "session_id", "last_event").get(pk=row["pk"])
    insert_event(turn.organisation_id, turn.pk, turn.last_event, str(ending.status), {"error_code": ending.code})
    why = ending.message if ending.status == TurnStatus.CANCELLED else PARENT_ENDED
    after = Turn.objects.filter(pk=turn.pk).annotate(**_aftermath()).values(*AFTERMATH).get()
    follow_up(turn.pk, after, row["parent_step__turn_id"], why)
    mask_ended(turn.pk)
    ring_next(turn.session_id)


#: Work that the end of a turn makes necessary: whether steps of it, or turns that it gave to others, are open, and
#: whether something is reserved for it.
AFTERMATH = ("has_open_steps", "has_open_children", HAS_RESERVATION)


def _aftermath() -> dict[str, Any]:
    return _open_below() | {HAS_RESERVATION: has_reservation()}


def _open_below() -> dict[str, Any]:
    return {
        "has_open_steps": Exists(Step.objects.filter(turn=OuterRef("pk"), status__in=UNANSWERED)),
        "has_open_children": Exists(Turn.objects.filter(parent_step__turn=OuterRef("pk"), status__in=OPEN_STATUSES)),
    }


def ending_turn() -> QuerySet[Any, Any]:
    """`owned`, with what its end brings about."""
    turns: QuerySet[Any, Any] = owned_with_reservation().annotate(**_open_below())
    return turns


def follow_up(turn_id: UUID, after: Mapping[str, Any], parent_id: UUID | None, why: str = PARENT_ENDED) -> None:
    """Do the work that the end of a turn makes necessary, by its `AFTERMATH`. Its parent's row and its own are held."""
    if after["has_open_steps"]:
        close_open_steps(turn_id)
    if after["has_open_children"]:
        stop_children(turn_id, why)
    if after[HAS_RESERVATION]:
        release_held(turn_id)
    if parent_id is not None:
        resume(parent_id)


def stop_turn(turn_id: UUID, ending: Ending) -> bool:
    """Stop a turn and all below it: those that nobody runs end here, the others before their next effect.

    Its parent's row is held. False, and nothing changed, where it was stopped or has ended before.
    """
    requested = Turn.objects.filter(pk=turn_id, status__in=OPEN_STATUSES, cancel_requested_at=None).update(
        cancel_requested_at=Now()
    )
    if requested:
        end_unclaimed(Turn.objects.filter(pk=turn_id, status__in=UNHELD), ending)
        stop_children(turn_id, ending.message)
    return bool(requested)


def stop_children(turn_id: UUID, why: str) -> None:
    for child_id in list(open_children(turn_id).values_list("pk", flat=True)):
        stop_turn(child_id, Ending(TurnStatus.CANCELLED, "cancelled", why))


def close_open_steps(turn_id: UUID) -> None:
    """Close the calls that a dead turn leaves behind: those that had begun may have happened, the others never will,
    and nobody can allow them any more. A sweep asks far sides that work on one to stop."""
    tasks = CallWait.objects.filter(turn_id=turn_id, is_task=True, step__status__in=UNANSWERED)
    if tasks.update(cancel_requested_at=Now(), poll_at=None):
        unknown = {"status": StepStatus.UNKNOWN, "ended_at": Now()}
        Step.objects.filter(turn_id=turn_id, status=StepStatus.WAITING, wait__is_task=True).update(**unknown)
    not_finished = {"status": StepStatus.FAILED, "result": NOT_FINISHED, "result_sent": NOT_FINISHED, "ended_at": Now()}
    if Step.objects.filter(turn_id=turn_id, status=StepStatus.WAITING).update(**not_finished):
        CallWait.objects.filter(turn_id=turn_id, is_task=False).delete()
    refused = {"status": StepStatus.REFUSED, "result": NOT_RUN, "result_sent": NOT_RUN, "ended_at": Now()}
    Step.objects.filter(turn_id=turn_id, status=StepStatus.PENDING).update(**refused)
    Step.objects.filter(turn_id=turn_id, status=StepStatus.STARTED).update(status=StepStatus.UNKNOWN, ended_at=Now())
    asked = Approval.objects.filter(turn_id=turn_id, status=ApprovalStatus.PENDING)
    asked.update(status=ApprovalStatus.VOID, decided_at=Now())


def ring_next(session_id: UUID) -> None:
    """Ring for the session's next queued turn, once this transaction is committed."""
    following = Turn.objects.filter(session_id=session_id, status=TurnStatus.QUEUED).order_by("seq")
    next_id = following.values_list("pk", flat=True).first()
    if next_id is not None:
        ring_after_commit(next_id)
