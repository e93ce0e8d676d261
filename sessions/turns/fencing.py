"""What every write of a turn has in common: the claim it names, the fence it passes, the event it leaves.

Where one transaction writes to several turns, it holds a parent's row before a child's: so two of them can never wait
for each other.

LedgerError
├── LeaseLost         another worker owns the turn now, or it has ended
├── CancelRequested   the turn is to stop, or may not go on, so nothing new may start
└── Conflict          the request cannot be taken; `code` says why
    └── QueueFull     too many turns of the member or of the organisation wait already
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import DateTimeField, DurationField, ExpressionWrapper, F, Value
from django.db.models.expressions import CombinedExpression
from django.db.models.functions import Now

from sessions.access import TURN_FIELDS, turn_ending
from sessions.models import Turn, TurnEvent, TurnStatus
from sessions.turns.bell import announce

#: What tells whether a turn may start something new.
STOP_FIELDS = ("cancel_requested_at", *TURN_FIELDS)


class LedgerError(Exception):
    """Something that the ledger does not do."""


class LeaseLost(LedgerError):
    """Another worker owns the turn now, or it has ended: stop, and write nothing."""


class CancelRequested(LedgerError):
    """Somebody stopped the turn, or its member or agent may not go on: start nothing more, and end it."""


class Conflict(LedgerError):
    """The request cannot be taken; `code` is for programs, the message for people."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class QueueFull(Conflict):
    """Too many turns wait already; worth another try after `RETRY_AFTER` seconds."""

    def __init__(self, message: str) -> None:
        super().__init__("too_many_turns", message)


#: Seconds after which a request is worth another try that came while too many turns waited.
RETRY_AFTER = 10


@dataclass(frozen=True)
class Claim:
    """The right to run one turn, for one epoch."""

    turn_id: UUID
    organisation_id: int
    epoch: int
    #: The turn that waits for this one, if it was delegated.
    parent_id: UUID | None = None


def from_now(seconds: float) -> ExpressionWrapper[Any]:
    """That many seconds from the database's now."""
    moment = CombinedExpression(Now(), "+", Value(timedelta(seconds=seconds), output_field=DurationField()))
    return ExpressionWrapper(moment, output_field=DateTimeField())


# -- Inside a transaction ---------------------------------------------------------------------------------------------


def fence(claim: Claim, **changes: Any) -> Mapping[str, Any]:
    """Change the turn, if this claim still owns it, and return its counters. Raises LeaseLost.

    It is the first statement of each transaction, but for a parent's row, so that it also holds the row until the
    commit.
    """
    owned = Turn.objects.filter(pk=claim.turn_id, epoch=claim.epoch, status=TurnStatus.RUNNING)
    if not owned.update(**changes):
        raise LeaseLost(str(claim.turn_id))
    counters = ("last_event", "last_step", "rounds", "session_id")
    turn: Mapping[str, Any] = Turn.objects.values(*counters, *STOP_FIELDS).get(pk=claim.turn_id)
    return turn


def check_may_start(turn: Mapping[str, Any]) -> None:
    """Raise CancelRequested for a turn that was stopped, or that may not go on, by its `STOP_FIELDS`."""
    if turn["cancel_requested_at"] is not None or turn_ending(turn) is not None:
        raise CancelRequested


def hold(turn_id: UUID | None) -> None:
    """Keep others from writing to the turn until the commit. Nothing of it changes."""
    if turn_id is not None:
        Turn.objects.filter(pk=turn_id).update(epoch=F("epoch"))


def add_event(claim: Claim, turn: Mapping[str, Any], type: str, payload: Mapping[str, Any]) -> None:
    insert_event(claim.organisation_id, claim.turn_id, turn["last_event"], type, payload)


def insert_event(organisation_id: int, turn_id: UUID, number: int, type: str, payload: Mapping[str, Any]) -> None:
    TurnEvent.objects.create(
        organisation_id=organisation_id, turn_id=turn_id, number=number, type=type, payload=dict(payload)
    )
    transaction.on_commit(lambda: announce(turn_id))
