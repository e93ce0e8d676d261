"""Common parts of every write of a turn: the claim it names, the fence it passes, the event it leaves.

Where one transaction writes to several turns, it holds a parent's row before a child's: so two of them can never wait
for each other.

LedgerError
├── LeaseLost         another worker owns the turn now, or it has ended
├── CancelRequested   the turn is to stop, or may not go on, so nothing new may start
└── Conflict          the request cannot be taken; `code` says why
    └── NoRoom        not now; `retry_after` says when it is worth another try
        ├── QueueFull     too many turns of the member or of the organisation wait already
        └── OverBudget    a budget is used up, or as many turns run as may at once
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import (
    Exists,
    F,
    OuterRef,
    QuerySet,
    Subquery,
)

from capabilities.common.moments import from_now as from_now
from sessions.access import turn_may_not_go_on
from sessions.models import Turn, TurnEvent, TurnStatus
from sessions.turns.bell import announce
from toolhub.tenants.models import Organisation
from toolhub.tenants.rows.statements import Insert, Update, param

#: Columns that a fence returns of the turn behind it.
COUNTERS = (
    "last_event",
    "last_step",
    "rounds",
    "session_id",
    "cancel_requested_at",
    "may_not_go_on",
    "registry",
    "untrusted_since",
)
NEXT_EVENT = F("last_event") + 1
NEXT_STEP = F("last_step") + 1


class LedgerError(Exception):
    """Request that the ledger does not carry out."""


class LeaseLost(LedgerError):
    """Another worker owns the turn now, or it has ended: stop, and write nothing."""


class CancelRequested(LedgerError):
    """Raised where somebody stopped the turn, or its member or agent may not go on: start nothing more, and end it."""


class Conflict(LedgerError):
    """The request cannot be taken; `code` is for programs, the message for people."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


#: Seconds after which a request is worth another try that came while too many turns waited, or ran.
RETRY_AFTER = 10


class NoRoom(Conflict):
    """Raised where there is no room for the request now; worth another try after `retry_after` seconds, None: not by
    itself."""

    def __init__(self, code: str, message: str, retry_after: int | None) -> None:
        super().__init__(code, message)
        self.retry_after = retry_after


class QueueFull(NoRoom):
    """Raised where too many turns wait already."""

    def __init__(self, message: str) -> None:
        super().__init__("too_many_turns", message, RETRY_AFTER)


class OverBudget(NoRoom):
    """A budget has no room for what was asked; a limit of turns at once has a `code` of its own."""

    def __init__(self, message: str, retry_after: int | None = None, code: str = "budget_exceeded") -> None:
        super().__init__(code, message, retry_after)


@dataclass(frozen=True)
class Claim:
    """The right to run one turn, for one epoch."""

    turn_id: UUID
    organisation_id: int
    epoch: int
    #: The turn that waits for this one, if it was delegated.
    parent_id: UUID | None = None


# -- Inside a transaction ---------------------------------------------------------------------------------------------


def owned() -> QuerySet[Any, Any]:
    """The turn of a claim, while the claim owns it, for a statement that is bound with `turn` and `epoch`.

    It says whether the turn's member may not chat any more, or its agent is switched off or not offered to the member,
    and the registry version of its organisation.
    """
    organisation = Organisation.objects.filter(pk=OuterRef("organisation_id"))
    return Turn.objects.filter(
        pk=param(Turn, "id", "turn"), epoch=param(Turn, "epoch"), status=TurnStatus.RUNNING
    ).annotate(
        may_not_go_on=Exists(Turn.objects.filter(turn_may_not_go_on(), pk=OuterRef("pk"))),
        registry=Subquery(organisation.values("registry_version")),
    )


def transition(**changes: Any) -> Update:
    """One way in which a claimed turn moves on. A change to None is bound when the turn does."""
    return Update(owned, changes, COUNTERS)


#: Nothing changes but that the row is held.
HELD = transition(epoch=F("epoch"))
EVENT = transition(last_event=NEXT_EVENT)


def fence(claim: Claim, to: Update, **values: Any) -> Mapping[str, Any]:
    """Move the turn on, if this claim still owns it, and return its `COUNTERS`. Raises LeaseLost. One query.

    It is the first statement of each transaction, but for a parent's row, so that it also holds the row until the
    commit.
    """
    rows = to.rows(turn=claim.turn_id, epoch=claim.epoch, **values)
    if not rows:
        raise LeaseLost(str(claim.turn_id))
    return rows[0]


def check_may_start(turn: Mapping[str, Any]) -> None:
    """Raise CancelRequested for a turn that was stopped, or that may not go on, by its `COUNTERS`."""
    if turn["cancel_requested_at"] is not None or turn["may_not_go_on"]:
        raise CancelRequested


def hold(turn_id: UUID | None) -> None:
    """Keep others from writing to the turn until the commit. Nothing of it changes."""
    if turn_id is not None:
        Turn.objects.filter(pk=turn_id).update(epoch=F("epoch"))


_EVENTS = Insert(TurnEvent, dict.fromkeys(("organisation", "turn", "number", "type", "payload")))


def add_event(claim: Claim, turn: Mapping[str, Any], type: str, payload: Mapping[str, Any]) -> None:
    """The event that a fence has counted. One query."""
    insert_event(claim.organisation_id, claim.turn_id, turn["last_event"], type, payload)


def insert_event(organisation_id: int, turn_id: UUID, number: int, type: str, payload: Mapping[str, Any]) -> None:
    insert_events(organisation_id, turn_id, number, (type, payload))


def insert_events(organisation_id: int, turn_id: UUID, last: int, *events: tuple[str, Mapping[str, Any]]) -> None:
    """Store these events, each a type and a payload, the last of them as number `last`. One query."""
    first = last - len(events) + 1
    _EVENTS.rows(
        *(
            {"organisation": organisation_id, "turn": turn_id, "number": number, "type": type, "payload": dict(payload)}
            for number, (type, payload) in enumerate(events, first)
        )
    )
    transaction.on_commit(lambda: announce(turn_id))
