"""Leases of turns: a worker claims one, holds on to it, and gives it back.

A claim raises the turn's epoch and takes a lease. All times are the database's, so that workers need not agree on the
hour.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import (
    Case,
    DurationField,
    F,
    IntegerField,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    UUIDField,
    Value,
    When,
)
from django.db.models.functions import Coalesce, Now

from sessions.models import UNENDED, ChatSession, Door, Step, Turn, TurnStatus
from sessions.turns.fencing import COUNTERS, HELD, NEXT_EVENT, Claim, add_event, fence, from_now
from sessions.turns.spending import HAS_RESERVATION, has_reservation, owned_with_reservation, release_held
from toolhub.tenants.rows.scope import system_scope
from toolhub.tenants.rows.statements import Param, Update, param


def claimable() -> Q:
    """Turns that a worker may take now, if they are the first open ones of their sessions."""
    return due() & (Q(status=TurnStatus.QUEUED) | Q(status=TurnStatus.RUNNING, lease_until__lt=Now()))


def due() -> Q:
    """Turns that need not wait until a moment to come."""
    return Q(next_attempt_at=None) | Q(next_attempt_at__lte=Now())


def first_open_seq() -> Subquery:
    """The number of the first open turn in a turn's session, for an outer query over turns.

    A value, not NOT EXISTS: PostgreSQL makes a join of that, and, before it knows how many turns there are, compares
    each waiting turn with each open one.
    """
    first = Turn.objects.filter(UNENDED, session=OuterRef("session")).order_by("seq")
    return Subquery(first.values("seq")[:1])


def _from_the_start() -> Subquery:
    """0 for a turn in a session that holds text from outside, for an outer query over turns."""
    session = ChatSession.objects.filter(pk=OuterRef("session"), is_untrusted=True)
    return Subquery(session.values_list(Value(0, output_field=IntegerField())))


def next_in_session() -> Q:
    """Turns that none of their session keeps waiting: the first open one, and single calls of clients, which read
    nothing of the conversation and run side by side."""
    return Q(door=Door.MCP) | Q(seq=first_open_seq())


def _free() -> QuerySet[Turn]:
    """The turn with this key, if a worker may take it now."""
    few = Turn.objects.filter(claimable(), pk=param(Turn, "id", "turn"), attempts__lt=Param("most", IntegerField()))
    waiting = Step.objects.filter(pk=OuterRef("parent_step")).values("turn")
    return few.filter(next_in_session()).annotate(
        waiting_turn=Subquery(waiting, output_field=UUIDField()), **{HAS_RESERVATION: has_reservation()}
    )


_CLAIM = Update(
    _free,
    {
        "status": TurnStatus.RUNNING,
        "owner": None,
        "epoch": F("epoch") + 1,
        "attempts": F("attempts") + 1,
        "last_event": NEXT_EVENT,
        "lease_until": from_now(Param("lease", DurationField())),
        "claimed_at": Now(),
        "started_at": Coalesce(F("started_at"), Now()),
        "deadline_at": Case(
            When(started_at=None, then=from_now(Param("longest", DurationField()))), default=F("deadline_at")
        ),
        "next_attempt_at": Value(None),
        "draft": "",
        "untrusted_since": Coalesce(F("untrusted_since"), _from_the_start()),
    },
    ("organisation_id", "epoch", "last_event", "waiting_turn", HAS_RESERVATION),
)


def claim(turn_id: UUID, owner: str) -> Claim | None:
    """Take the turn, if it is free and the session's next. One conditional UPDATE decides, on any database, and says
    which epoch it gave: of two threads with one owner, each knows its own."""
    with system_scope(), transaction.atomic():
        rows = _CLAIM.rows(
            turn=turn_id,
            owner=owner,
            most=settings.TOOLHUB_MAX_ATTEMPTS,
            lease=timedelta(seconds=settings.TOOLHUB_LEASE_SECONDS),
            longest=timedelta(seconds=settings.TOOLHUB_TURN_SECONDS),
        )
        if not rows:
            return None
        (row,) = rows
        claim = Claim(turn_id, row["organisation_id"], row["epoch"], row["waiting_turn"])
        if row[HAS_RESERVATION]:  # a worker died in the middle of a model call
            release_held(turn_id)
        add_event(claim, row, "started" if claim.epoch == 1 else "attempt_restarted", {"epoch": claim.epoch})
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


_GIVEN_BACK = {"status": TurnStatus.QUEUED, "attempts": F("attempts") - 1, "rang_at": Value(None), "draft": ""}
_RETURNED = (*COUNTERS, HAS_RESERVATION)
_RELEASE = Update(owned_with_reservation, _GIVEN_BACK | {"next_attempt_at": Value(None)}, _RETURNED)
_RELEASE_UNTIL = Update(
    owned_with_reservation, _GIVEN_BACK | {"next_attempt_at": from_now(Param("wait", DurationField()))}, _RETURNED
)


def release(claim: Claim, *, wait: float = 0.0) -> None:
    """Give the turn back unfinished, in good order: another worker goes on with it, `wait` seconds from now."""
    with transaction.atomic():
        # Without a wait no moment: one that is now would still be to come for who claims within its millisecond.
        turn = fence(claim, _RELEASE_UNTIL, wait=timedelta(seconds=wait)) if wait else fence(claim, _RELEASE)
        if turn[HAS_RESERVATION]:
            release_held(claim.turn_id)


def release_reservation(claim: Claim) -> None:
    """Give back what is reserved for a model call that brought no reply: the turn goes on, or ends, without it."""
    with transaction.atomic():
        fence(claim, HELD)
        release_held(claim.turn_id)
