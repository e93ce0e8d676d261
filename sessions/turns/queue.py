"""Choice of the waiting turn that a worker's free thread takes next: organisations take turns, and so do the members of
one.

The organisation that was served longest ago comes first, within it the member who was, and of this member's turns the
oldest; a turn that another agent waits for comes before the member's own. So nobody waits longer than one turn of each
other organisation, however many they have. An organisation or a member with as many running turns as it may have is
passed over: its turns wait. A turn that waits for other agents is not running, so a chain of agents cannot stop itself.

Choosing reads; the claim decides. What is chosen may be taken by another worker meanwhile, then the next one is tried.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection
from django.db.models import BooleanField, Case, F, OuterRef, Q, QuerySet, Subquery, Value, When
from django.db.models.functions import Coalesce, Now

from sessions.models import Turn, TurnStatus
from sessions.turns.fencing import Claim
from sessions.turns.leases import claim, due, next_in_session
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import system_scope

#: Times that a thread chooses anew when others took everything that it chose.
TRIES = 3
#: Columns that `look` reads of each running turn, and of each member whose turns wait.
COLUMNS = ("held", "turn", "organisation_id", "member", "since", "organisation_served", "member_served")
#: One thread of a process at a time chooses and claims, so that they do not all choose the same turn.
_choosing = threading.Lock()


@dataclass(frozen=True)
class Waiting:
    """The next turn of one member, and when this member and the organisation were last served."""

    turn_id: UUID
    organisation_id: int
    membership_id: int
    since: Any
    organisation_served: Any
    member_served: Any


@dataclass(frozen=True)
class Queue:
    """The next turn of each member who may have one more, and how many turns run now."""

    waiting: Sequence[Waiting]
    running_of_organisation: Counter[int]
    running_of_member: Counter[int]

    def room(self, organisation_id: int, membership_id: int) -> int:
        """Return the number of turns of this member that may run beside those that run now."""
        return min(
            settings.TOOLHUB_RUNNING_PER_ORGANISATION - self.running_of_organisation[organisation_id],
            settings.TOOLHUB_RUNNING_PER_MEMBER - self.running_of_member[membership_id],
        )


def claim_next(owner: str, is_leaving: Callable[[], bool] = lambda: False) -> Claim | None:
    """Take the turn whose organisation and member waited longest. None where no turn waits that may run, and where this
    process is on its way down by the time that the thread may choose."""
    with _choosing:
        for _ in range(0 if is_leaving() else TRIES):
            waiting = look().waiting
            for each in waiting:
                taken = claim(each.turn_id, owner)
                if taken is not None:
                    return taken
            if not waiting:
                break
    return None


def look() -> Queue:
    """The turns that a worker may take now, in the order in which they are to be taken: the first one of each
    organisation, then the second one of each, and so on. One query."""
    with connection.cursor() as cursor:
        cursor.execute(*_statement(connection.alias, settings.TOOLHUB_MAX_ATTEMPTS))
        rows = cursor.fetchall()
    running = [row for row in rows if row[0]]
    of_organisation, of_member = Counter(row[2] for row in running), Counter(row[3] for row in running)
    queue = Queue((), of_organisation, of_member)
    found = (Waiting(_uuid(row[1]), *row[2:]) for row in rows if not row[0] and row[1] is not None)
    allowed = [each for each in found if queue.room(each.organisation_id, each.membership_id) > 0]
    return Queue(fair_order(allowed, queue), of_organisation, of_member)


def within_limits(turns: Iterable[tuple[UUID, int, int]], now: Queue) -> list[UUID]:
    """Return those of these turns (id, organisation, membership) that may run beside each other and beside what runs
    now."""
    queue = Queue((), now.running_of_organisation.copy(), now.running_of_member.copy())
    found = []
    for turn_id, organisation_id, membership_id in turns:
        if queue.room(organisation_id, membership_id) > 0:
            queue.running_of_organisation[organisation_id] += 1
            queue.running_of_member[membership_id] += 1
            found.append(turn_id)
    return found


def fair_order(waiting: Iterable[Waiting], now: Queue) -> list[Waiting]:
    """Round after round: one turn of each organisation, those first that were served longest ago. Of two that were
    served in the same millisecond, the one with fewer running turns."""

    def of_organisation(each: Waiting) -> tuple[Any, ...]:
        return *_first(each.organisation_served), now.running_of_organisation[each.organisation_id]

    def of_member(each: Waiting) -> tuple[Any, ...]:
        return *_first(each.member_served), now.running_of_member[each.membership_id], each.since

    rounds = []
    for _, group in groupby(sorted(waiting, key=attrgetter("organisation_id")), attrgetter("organisation_id")):
        members = sorted(group, key=of_member)
        rounds += [(number, *of_organisation(each), each.since, each) for number, each in enumerate(members)]
    return [each for *_, each in sorted(rounds, key=lambda row: row[:-1])]


def _first(served: Any) -> tuple[bool, Any]:
    """A key to sort by: who was never served comes first."""
    return served is not None, served


def _uuid(value: Any) -> UUID:
    return value if isinstance(value, UUID) else UUID(value)  # SQLite keeps 32 digits


@lru_cache(maxsize=8)
def _statement(alias: str, max_attempts: int) -> tuple[str, tuple[Any, ...]]:
    """The query of `look`, compiled once: each turn that runs, as (True, its id, ...), and for each member with queued
    turns one row (False, the id of the next one or nothing, ...)."""
    with system_scope():
        query = _running(max_attempts).union(_next(max_attempts), all=True).using(alias).query
        sql, params = query.get_compiler(using=alias).as_sql()
    return sql, tuple(params)


def _running(max_attempts: int) -> QuerySet[Turn, Any]:
    """Turns that a worker holds, and those whose lease ran out: these wait to be taken again."""
    held = Case(When(lease_until__lt=Now(), then=Value(False)), default=Value(True), output_field=BooleanField())
    left = Q(lease_until__gte=Now()) | Q(attempts__lt=max_attempts)
    turns = Turn.objects.filter(left, ended_at=None, status=TurnStatus.RUNNING).order_by()
    return turns.annotate(
        held=held,
        turn=F("pk"),
        member=F("membership_id"),
        since=F("created_at"),
        organisation_served=_served(organisation=OuterRef("organisation")),
        member_served=_served(membership=OuterRef("membership")),
    ).values_list(*COLUMNS)


def _next(max_attempts: int) -> QuerySet[Membership, Any]:
    """Query, for each member with queued turns, the turn that comes next, or nothing where all have to wait still."""
    queued = Turn.objects.filter(status=TurnStatus.QUEUED)
    mine = queued.filter(organisation=OuterRef("organisation"), membership=OuterRef("pk")).order_by("created_at")
    free = mine.filter(next_in_session(), due(), attempts__lt=max_attempts).values("pk")
    members = Membership.objects.filter(pk__in=queued.order_by().values("membership")).order_by()
    return members.annotate(
        held=Value(False, output_field=BooleanField()),
        turn=Coalesce(Subquery(free.filter(parent_step__gt=0).order_by("parent_step")[:1]), Subquery(free[:1])),
        member=F("pk"),
        since=Subquery(mine.values("created_at")[:1]),
        organisation_served=_served(organisation=OuterRef("organisation")),
        member_served=_served(membership=OuterRef("pk")),
    ).values_list(*COLUMNS)


def _served(**whose: OuterRef) -> Subquery:
    """Build the subquery for the time at which a worker last took one of these turns."""
    served = Turn.objects.filter(claimed_at__isnull=False, **whose).order_by("-claimed_at")
    return Subquery(served.values("claimed_at")[:1])
