"""A turn that waits for others: the turns that it gave to other agents, people who must allow a call or answer
something, and far sides that work on a long task. No worker, no thread, no lease; and how it goes on.

A task is asked for again when its moment has come: then the turn goes on, whatever else is open, and waits again.

Whoever ends a child or answers looks, in the same transaction and with the waiting turn's row held, whether anything
else is still open; and whoever parks the turn holds the same row and looks for what ended before. So one of the two
sees the other, in whatever order they come.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import BooleanField, Case, DateTimeField, Exists, F, OuterRef, Q, QuerySet, Value, When
from django.db.models.functions import Now

from sessions.models import (
    OPEN_STATUSES,
    UNENDED,
    WAITING_STATUSES,
    Approval,
    ApprovalKind,
    ApprovalStatus,
    CallWait,
    StepStatus,
    Turn,
    TurnStatus,
)
from sessions.turns.bell import ring_after_commit
from sessions.turns.fencing import COUNTERS, Claim, add_event, check_may_start, fence, hold, insert_event
from sessions.turns.spending import HAS_RESERVATION, owned_with_reservation, release_held
from sessions.turns.sweeping import Backoff, each_item
from toolhub.tenants.rows.statements import Update

#: Turns that one sweep looks after.
AT_ONCE = 100
#: Calls that wait for a far side's work; and whether the moment has come to ask it again.
OF_A_TASK = Q(poll_at__isnull=False, asked=None, step__status=StepStatus.WAITING)
IS_DUE = Case(When(poll_at__lte=Now(), then=True), default=False, output_field=BooleanField())
#: Waiting turns that could not be let go on lately.
resume_backoff = Backoff("waiting turn")


@dataclass(frozen=True)
class Awaited:
    """Reasons for which a turn waits: turns of other agents, questions to people, by kind, and steps whose far side
    works."""

    children: tuple[UUID, ...] = ()
    asked: tuple[tuple[UUID, str], ...] = ()
    tasks: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.children or self.asked or self.tasks)

    @property
    def status(self) -> TurnStatus:
        """Status of the waiting turn: reasons that a person can end come first."""
        kinds = {kind for _, kind in self.asked}
        if ApprovalKind.APPROVAL in kinds:
            return TurnStatus.WAITING_APPROVAL
        if kinds:
            return TurnStatus.WAITING_INPUT
        return TurnStatus.WAITING_CHILD if self.children else TurnStatus.WAITING_TASK

    @property
    def payload(self) -> Mapping[str, Any]:
        """Payload of the event that says that the turn waits."""
        named = {"turns": [str(each) for each in self.children], "approvals": [str(each) for each, _ in self.asked]}
        if self.tasks:
            named["tasks"] = [str(each) for each in self.tasks]
        return {name: each for name, each in named.items() if each}


def awaited_by(turn_id: UUID) -> Awaited:
    """Return the reasons for which this turn waits now; none where a far side is to be asked again. Three queries."""
    tasks = tasks_of(turn_id)
    if any(is_due for _, is_due in tasks):
        return Awaited()
    pending = Approval.objects.filter(turn=turn_id, status=ApprovalStatus.PENDING).order_by("pk")
    return Awaited(
        tuple(open_children(turn_id).values_list("pk", flat=True)),
        tuple(pending.values_list("public_id", "kind")),
        tuple(step for step, _ in tasks),
    )


def tasks_of(turn_id: UUID) -> list[tuple[int, bool]]:
    """The steps of this turn whose far side works, each with whether it is to be asked again by now. One query."""
    tasks = CallWait.objects.filter(OF_A_TASK, turn=turn_id).annotate(is_due=IS_DUE).order_by("step__index")
    return list(tasks.values_list("step__index", "is_due"))


def open_children(turn_id: UUID) -> QuerySet[Turn]:
    """The turns that this one gave to other agents and that have not ended."""
    return Turn.objects.filter(parent_step__turn=turn_id, status__in=OPEN_STATUSES).order_by("created_at", "pk")


_PARKED = Update(owned_with_reservation, {"epoch": F("epoch")}, (*COUNTERS, HAS_RESERVATION))


def park(claim: Claim) -> bool:
    """Let the turn wait for its children and for people, held by nobody. False if nothing that it waits for is open any
    more: then it may go on at once.

    Raises CancelRequested for a turn that was stopped, or may not go on.
    """
    with transaction.atomic():
        turn = fence(claim, _PARKED)
        check_may_start(turn)
        awaited = awaited_by(claim.turn_id)
        if not awaited:
            return False
        if turn[HAS_RESERVATION]:
            release_held(claim.turn_id)
        number = turn["last_event"] + 1
        add_event(claim, {"last_event": number}, awaited.status, awaited.payload)
        Turn.objects.filter(pk=claim.turn_id).update(
            status=awaited.status,
            owner="",
            lease_until=None,
            waiting_since=Now(),
            attempts=0,
            last_event=number,
        )
    return True


def resume(turn_id: UUID) -> None:
    """Let a waiting turn go on, if nothing that it waits for is open any more: it is queued, and its deadline moves by
    as long as it waited; so do those of the messages behind it, where it waited for people. Else its status says what
    it still waits for. Inside a transaction that holds its row."""
    waiting = Turn.objects.filter(pk=turn_id, status__in=WAITING_STATUSES)
    awaited = awaited_by(turn_id)
    if awaited:
        waiting.exclude(status=awaited.status).update(status=awaited.status)
        return
    turn = waiting.only("organisation_id", "session_id", "seq", "status", "waiting_since", "last_event").first()
    if turn is None:
        return
    number = turn.last_event + 1
    waiting.update(
        status=TurnStatus.QUEUED,
        deadline_at=F("deadline_at") + (Now() - F("waiting_since")),
        waiting_since=None,
        rang_at=Now(),
        last_event=number,
    )
    if turn.status != TurnStatus.WAITING_CHILD and turn.waiting_since is not None:
        waited = Now() - Value(turn.waiting_since, output_field=DateTimeField())
        behind = Turn.objects.filter(UNENDED, session=turn.session_id, seq__gt=turn.seq, status=TurnStatus.QUEUED)
        behind.update(deadline_at=F("deadline_at") + waited)
    insert_event(turn.organisation_id, turn_id, number, "resumed", {})
    ring_after_commit(turn_id)


def resume_forgotten() -> None:
    """Let every waiting turn go on that waits for nothing any more, or that has a task to ask for. In the scope of the
    system, in any worker."""
    open_child = Turn.objects.filter(parent_step__turn=OuterRef("pk"), status__in=OPEN_STATUSES)
    asked = Approval.objects.filter(turn=OuterRef("pk"), status=ApprovalStatus.PENDING)
    tasks = CallWait.objects.filter(OF_A_TASK, turn=OuterRef("pk"))
    nothing_left = ~Exists(open_child) & ~Exists(asked) & ~Exists(tasks)
    waiting = Turn.objects.filter(UNENDED, status__in=WAITING_STATUSES)
    waiting = waiting.filter(nothing_left | Exists(tasks.filter(poll_at__lte=Now())))
    waiting = waiting.exclude(pk__in=resume_backoff.paused()).order_by("created_at", "pk")
    each_item(resume_backoff, list(waiting.values_list("pk", "organisation_id")[:AT_ONCE]), _resume_one)


def _resume_one(turn_id: UUID) -> None:
    with transaction.atomic():
        hold(turn_id)
        resume(turn_id)
