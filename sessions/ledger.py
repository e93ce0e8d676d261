"""The durable turn: accept, claim, record, finish, cancel, reap. The database is the queue; Celery only rings.

A turn belongs to whoever claimed it last: the claim raises its epoch and takes a lease, and every write names the
epoch. A worker whose lease ran out finds that it owns nothing any more (LeaseLost) and stops at once. All times are
the database's, so that workers need not agree on the hour.

LedgerError
├── LeaseLost         another worker owns the turn now, or it has ended
├── CancelRequested   the turn is to stop, so nothing new may start
└── Conflict          the request cannot be taken; `code` says why
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import (
    Case,
    DateTimeField,
    DurationField,
    Exists,
    ExpressionWrapper,
    F,
    Max,
    OuterRef,
    Q,
    Value,
    When,
)
from django.db.models.expressions import CombinedExpression
from django.db.models.functions import Coalesce, Now
from django.utils import timezone

from sessions.bell import announce, ring_after_commit
from sessions.models import (
    OPEN_STATUSES,
    ChatSession,
    Step,
    StepKind,
    StepStatus,
    ToolSet,
    Turn,
    TurnEvent,
    TurnStatus,
)
from sessions.text import storable
from toolhub.tenants.models import Membership
from toolhub.tenants.scope import organisation_scope, system_scope

#: Characters of a message.
MAX_MESSAGE = 100_000
#: Times that accept tries for the session's next number, when others take it first.
ACCEPT_TRIES = 20


class LedgerError(Exception):
    """Something that the ledger does not do."""


class LeaseLost(LedgerError):
    """Another worker owns the turn now, or it has ended: stop, and write nothing."""


class CancelRequested(LedgerError):
    """Somebody stopped the turn: start nothing more, and end it."""


class Conflict(LedgerError):
    """The request cannot be taken; `code` is for programs, the message for people."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Accepted:
    """A turn that is on record, and whether this request put it there."""

    turn: Turn
    created: bool


@dataclass(frozen=True)
class Claim:
    """The right to run one turn, for one epoch."""

    turn_id: UUID
    organisation_id: int
    epoch: int


def from_now(seconds: float) -> ExpressionWrapper[Any]:
    """That many seconds from the database's now."""
    moment = CombinedExpression(Now(), "+", Value(timedelta(seconds=seconds), output_field=DurationField()))
    return ExpressionWrapper(moment, output_field=DateTimeField())


# -- Accept -----------------------------------------------------------------------------------------------------------


def accept(session: ChatSession, message: str, *, member: Membership, idempotency_key: str = "") -> Accepted:
    """Put a turn on record; when this returns, it is never lost.

    The same key with the same message in the same session gives the same turn again. Raises Conflict
    `idempotency_key_reused` where the key came with something else, and `agent_disabled`.
    """
    message = storable(message)
    for _ in range(ACCEPT_TRIES):
        if session.agent.is_enabled:
            with suppress(IntegrityError), transaction.atomic():
                return Accepted(_insert(session, message, member, idempotency_key), created=True)
        # The key is taken, or (then once more) another request took the number between our look and our insert.
        if idempotency_key:
            known = Turn.objects.filter(membership=member, idempotency_key=idempotency_key).first()
            if known is not None:
                return Accepted(_same_request(known, session, message), created=False)
        if not session.agent.is_enabled:
            raise Conflict("agent_disabled", f"The agent {session.agent.name} is switched off.")
    raise Conflict("busy", "Too many messages at once for this session: try again.")


def _insert(session: ChatSession, message: str, member: Membership, idempotency_key: str) -> Turn:
    last = Turn.objects.filter(session=session).aggregate(last=Coalesce(Max("seq"), 0))["last"]
    turn = Turn(
        organisation_id=session.organisation_id,
        session=session,
        seq=last + 1,
        membership=member,
        agent=session.agent,
        message=message,
        idempotency_key=idempotency_key,
        last_event=1,
    )
    turn.deadline_at = from_now(settings.TOOLHUB_QUEUE_SECONDS)
    turn.rang_at = Now()
    turn.save(force_insert=True)
    _insert_event(turn.organisation_id, turn.pk, 1, "accepted", {"seq": turn.seq})
    first_line = message.strip().splitlines()[0][:80] if message.strip() else ""
    ChatSession.objects.filter(pk=session.pk).update(active_at=Now(), title=session.title or first_line)
    ring_after_commit(turn.pk)
    return turn


def _same_request(known: Turn, session: ChatSession, message: str) -> Turn:
    if known.session_id != session.pk or known.message != message:
        raise Conflict("idempotency_key_reused", "This Idempotency-Key came with another message before.")
    return known


# -- Claim and hold ---------------------------------------------------------------------------------------------------


def claimable() -> Q:
    """Turns that a worker may take now, if no earlier turn of their session is open."""
    free = Q(status=TurnStatus.QUEUED) | Q(status=TurnStatus.RUNNING, lease_until__lt=Now())
    return free & (Q(next_attempt_at=None) | Q(next_attempt_at__lte=Now()))


def earlier_open_turn() -> Exists:
    return Exists(Turn.objects.filter(session=OuterRef("session"), seq__lt=OuterRef("seq"), status__in=OPEN_STATUSES))


def claim(turn_id: UUID, owner: str) -> Claim | None:
    """Take the turn, if it is free and the session's next. One conditional UPDATE decides, on any database.

    The epoch is read back in the same transaction: else a second claim by the same process could come between, and
    two threads would write under one epoch.
    """
    with system_scope(), transaction.atomic():
        taken = (
            Turn.objects.filter(claimable(), pk=turn_id, attempts__lt=settings.TOOLHUB_MAX_ATTEMPTS)
            .exclude(earlier_open_turn())
            .update(
                status=TurnStatus.RUNNING,
                owner=owner,
                epoch=F("epoch") + 1,
                attempts=F("attempts") + 1,
                last_event=F("last_event") + 1,
                lease_until=from_now(settings.TOOLHUB_LEASE_SECONDS),
                started_at=Coalesce(F("started_at"), Now()),
                deadline_at=Case(
                    When(started_at=None, then=from_now(settings.TOOLHUB_TURN_SECONDS)), default=F("deadline_at")
                ),
                next_attempt_at=None,
            )
        )
        if not taken:
            return None
        row = Turn.objects.values("organisation_id", "epoch", "last_event").get(pk=turn_id)
        claim = Claim(turn_id, row["organisation_id"], row["epoch"])
        _add_event(claim, row, "started" if claim.epoch == 1 else "attempt_restarted", {"epoch": claim.epoch})
    return claim


def renew(owner: str, turn_ids: Sequence[UUID]) -> None:
    """Hold on to these turns for another lease. One that is long past its deadline hangs, and is let go."""
    if not turn_ids:
        return
    with system_scope():
        in_time = Q(deadline_at__gt=from_now(-settings.TOOLHUB_LEASE_SECONDS))
        Turn.objects.filter(in_time, pk__in=turn_ids, owner=owner, status=TurnStatus.RUNNING).update(
            lease_until=from_now(settings.TOOLHUB_LEASE_SECONDS)
        )


def release(claim: Claim, *, wait: float = 0.0) -> None:
    """Give the turn back unfinished, in good order: another worker goes on with it, `wait` seconds from now."""
    with transaction.atomic():
        _fence(
            claim, status=TurnStatus.QUEUED, attempts=F("attempts") - 1, rang_at=None, next_attempt_at=from_now(wait)
        )


# -- Record -----------------------------------------------------------------------------------------------------------


def write_event(claim: Claim, type: str, payload: Mapping[str, Any]) -> None:
    with transaction.atomic():
        _add_event(claim, _fence(claim, last_event=F("last_event") + 1), type, payload)


def add_step(claim: Claim, event: str, **fields: Any) -> Step:
    """Store the turn's next step, finished or as an intent, with its event, in one transaction.

    Raises CancelRequested for an intent of a turn that was cancelled: what begins after a cancel never happens.
    """
    with transaction.atomic():
        turn = _fence(
            claim, last_event=F("last_event") + 1, last_step=F("last_step") + 1, **_progress(fields["status"])
        )
        if fields["status"] == StepStatus.STARTED and turn["cancel_requested_at"] is not None:
            raise CancelRequested(str(claim.turn_id))
        step = Step(
            organisation_id=claim.organisation_id,
            turn_id=claim.turn_id,
            index=turn["last_step"],
            epoch=claim.epoch,
            **fields,
        )
        if step.status != StepStatus.STARTED:
            step.ended_at = Now()
        step.save(force_insert=True)
        _add_event(claim, turn, event, {"step": step.index})
    return step


def record_model_step(claim: Claim, *, started_at: datetime, tool_set: ToolSet | None, **fields: Any) -> Step:
    """Store what the model said, before anything acts on it, and add its tokens to the turn's."""
    with transaction.atomic():
        turn = _fence(
            claim,
            last_event=F("last_event") + 1,
            last_step=F("last_step") + 1,
            rounds=F("rounds") + 1,
            input_tokens=F("input_tokens") + fields["input_tokens"],
            cached_tokens=F("cached_tokens") + fields["cached_tokens"],
            output_tokens=F("output_tokens") + fields["output_tokens"],
            **_progress(StepStatus.DONE),
        )
        step = Step(
            organisation_id=claim.organisation_id,
            turn_id=claim.turn_id,
            index=turn["last_step"],
            round=turn["rounds"],
            epoch=claim.epoch,
            kind=StepKind.MODEL,
            status=StepStatus.DONE,
            tool_set=tool_set,
            **fields,
        )
        step.ended_at = Now()
        step.save(force_insert=True)
        Step.objects.filter(pk=step.pk).update(started_at=started_at)
        _add_event(claim, turn, "model", {"step": step.index, "round": step.round})
    return step


def add_refused_steps(claim: Claim, calls: Sequence[Mapping[str, Any]], result: str) -> None:
    """Store calls that are not run, all with the same answer, in one transaction."""
    with transaction.atomic():
        turn = _fence(claim, last_event=F("last_event") + 1, last_step=F("last_step") + len(calls))
        first = turn["last_step"] - len(calls) + 1
        Step.objects.bulk_create(
            Step(
                organisation_id=claim.organisation_id,
                turn_id=claim.turn_id,
                index=index,
                epoch=claim.epoch,
                status=StepStatus.REFUSED,
                result=result,
                result_sent=result,
                ended_at=timezone.now(),
                **fields,
            )
            for index, fields in enumerate(calls, first)
        )
        _add_event(claim, turn, "tools_refused", {"step": first, "calls": len(calls)})


def finish_step(
    claim: Claim, step: Step, status: StepStatus, *, result: str, result_sent: str, malformed: bool = False
) -> None:
    """Store the outcome of a step that was started. The first outcome stays."""
    with transaction.atomic():
        turn = _fence(claim, last_event=F("last_event") + 1, **_progress(status))
        Step.objects.filter(pk=step.pk, status=StepStatus.STARTED).update(
            status=status, result=result, result_sent=result_sent, is_malformed=malformed, ended_at=Now()
        )
        _add_event(claim, turn, "tool_done", {"step": step.index, "status": status})


# -- End --------------------------------------------------------------------------------------------------------------


def finish(
    claim: Claim, status: TurnStatus, *, answer: str = "", error_code: str = "", error_message: str = ""
) -> None:
    """End the turn, and ring for the session's next one. One transaction."""
    with transaction.atomic():
        row = _fence(
            claim,
            last_event=F("last_event") + 1,
            status=status,
            answer=answer,
            error_code=error_code,
            error_message=storable(error_message),
            ended_at=Now(),
            lease_until=None,
            owner="",
        )
        close_open_steps(claim.turn_id)
        _add_event(claim, row, str(status), {"error_code": error_code} if error_code else {})
        ring_next(row["session_id"])


def cancel(turn: Turn, *, actor: Membership) -> None:
    """Stop a turn: a queued one ends here, a running one before its next effect. A second time changes nothing."""
    with transaction.atomic():
        requested = Turn.objects.filter(pk=turn.pk, status__in=OPEN_STATUSES, cancel_requested_at=None).update(
            cancel_requested_at=Now()
        )
        if requested:
            _end_unclaimed(
                Turn.objects.filter(pk=turn.pk, status=TurnStatus.QUEUED),
                TurnStatus.CANCELLED,
                "cancelled",
                f"Stopped by {actor}.",
            )
    turn.refresh_from_db()


def close_open_steps(turn_id: UUID) -> None:
    """Calls that a dead turn leaves behind: what they did is not known."""
    Step.objects.filter(turn_id=turn_id, status=StepStatus.STARTED).update(status=StepStatus.UNKNOWN, ended_at=Now())


def reap() -> None:
    """End the turns that nobody will: past their deadline, cancelled, or crashed too often. Safe in any worker."""
    with system_scope():
        orphaned = Q(status=TurnStatus.QUEUED) | Q(status=TurnStatus.RUNNING, lease_until__lt=Now())
        orphans = Turn.objects.filter(orphaned)
        _end_each(orphans.exclude(cancel_requested_at=None), TurnStatus.CANCELLED, "cancelled", "Stopped.")
        _end_each(orphans.filter(deadline_at__lt=Now()), TurnStatus.EXPIRED, "deadline", "The turn ran out of time.")
        _end_each(
            orphans.filter(status=TurnStatus.RUNNING, attempts__gte=settings.TOOLHUB_MAX_ATTEMPTS),
            TurnStatus.FAILED,
            "crash_loop",
            "The worker crashed on this turn again and again.",
        )


def _end_each(turns: Any, status: TurnStatus, code: str, message: str) -> None:
    for turn_id, organisation_id in turns.values_list("pk", "organisation_id")[:100]:
        with organisation_scope(organisation_id), transaction.atomic():
            lease_gone = Q(status=TurnStatus.QUEUED) | Q(status=TurnStatus.RUNNING, lease_until__lt=Now())
            _end_unclaimed(Turn.objects.filter(lease_gone, pk=turn_id), status, code, message)


def _end_unclaimed(turns: Any, status: TurnStatus, code: str, message: str) -> None:
    """End the one turn in `turns`, if it is still there; the new epoch shuts out whoever held it."""
    row = turns.values("pk").first()
    if row is None:
        return
    ended = turns.update(
        status=status,
        error_code=code,
        error_message=message,
        ended_at=Now(),
        epoch=F("epoch") + 1,
        last_event=F("last_event") + 1,
        lease_until=None,
        owner="",
    )
    if not ended:
        return
    turn = Turn.objects.only("organisation_id", "session_id", "last_event").get(pk=row["pk"])
    close_open_steps(turn.pk)
    _insert_event(turn.organisation_id, turn.pk, turn.last_event, str(status), {"error_code": code})
    ring_next(turn.session_id)


# -- Inside a transaction ---------------------------------------------------------------------------------------------


def _fence(claim: Claim, **changes: Any) -> Mapping[str, Any]:
    """Change the turn, if this claim still owns it, and return its counters. Raises LeaseLost.

    It is the first statement of each transaction, so that it also holds the row until the commit.
    """
    owned = Turn.objects.filter(pk=claim.turn_id, epoch=claim.epoch, status=TurnStatus.RUNNING)
    if not owned.update(**changes):
        raise LeaseLost(str(claim.turn_id))
    counters = Turn.objects.values("last_event", "last_step", "rounds", "session_id", "cancel_requested_at")
    return counters.get(pk=claim.turn_id)


def _progress(status: str) -> dict[str, Any]:
    """A finished step proves that the turn does not kill its worker: the count of attempts begins anew."""
    return {} if status == StepStatus.STARTED else {"attempts": 1}


def _add_event(claim: Claim, turn: Mapping[str, Any], type: str, payload: Mapping[str, Any]) -> None:
    _insert_event(claim.organisation_id, claim.turn_id, turn["last_event"], type, payload)


def _insert_event(organisation_id: int, turn_id: UUID, number: int, type: str, payload: Mapping[str, Any]) -> None:
    TurnEvent.objects.create(
        organisation_id=organisation_id, turn_id=turn_id, number=number, type=type, payload=dict(payload)
    )
    transaction.on_commit(lambda: announce(turn_id))


def ring_next(session_id: UUID) -> None:
    """Ring for the session's next queued turn, once this transaction is committed."""
    following = Turn.objects.filter(session_id=session_id, status=TurnStatus.QUEUED).order_by("seq")
    next_id = following.values_list("pk", flat=True).first()
    if next_id is not None:
        ring_after_commit(next_id)
