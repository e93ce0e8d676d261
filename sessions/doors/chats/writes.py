"""A conversation begins here, and is changed and deleted here, whoever asks: a page or the REST API."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import Count, Exists, OuterRef, Q, Sum
from django.db.models.functions import Now

from capabilities.models import Agent
from sessions.access import Ending, may_delete
from sessions.models import (
    KEPT,
    NOT_ROLLED_UP,
    OPEN_STATUSES,
    THROWAWAY,
    ChatSession,
    Reminder,
    Schedule,
    Turn,
    TurnStatus,
)
from sessions.selection.loading.writes import share_loads
from sessions.turns.endings import stop_turn
from sessions.turns.fencing import from_now
from sessions.turns.spending import release_of_session
from sessions.turns.sweeping import Backoff, each_item
from toolhub.tenants.audit.writes import record
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import system_scope
from toolhub.tenants.rows.statements import Insert

#: Deleted sessions whose rows one sweep removes.
AT_ONCE = 20
#: Seconds that they wait at most for their usage to be added to the hourly sums.
WAIT_FOR_USAGE = 24 * 3600
removal_backoff = Backoff("removing a deleted session")


_SESSION = Insert.whole(ChatSession)


def open_session(
    member: Membership, agent: Agent, *, title: str = "", client: str = "", is_throwaway: bool = False
) -> ChatSession:
    """A new session of this member with an agent of the same organisation; `client` is one of SessionClient, or empty
    where the member opens it. One query."""
    session = ChatSession(
        organisation_id=member.organisation_id,
        membership=member,
        agent=agent,
        title=title,
        client=client,
        is_throwaway=is_throwaway,
    )
    _SESSION.add(session)
    return session


@transaction.atomic
def change_session(
    session: ChatSession,
    *,
    actor: Membership,
    title: str | None = None,
    shares_loads: bool | None = None,
    tools_off: bool | None = None,
) -> ChatSession:
    """Name it, let its agents share what they load, or switch its tools off or on, from the next message on; what is
    not given stays."""
    if title is not None:
        ChatSession.objects.filter(pk=session.pk).update(title=title)
    if tools_off is not None:
        ChatSession.objects.filter(pk=session.pk).update(tools_off=tools_off)
    if shares_loads is not None:
        share_loads(session, shares_loads, actor=actor)
    session.refresh_from_db(fields=["title", "tools_off", "shares_loads", "load_count"])
    return session


@transaction.atomic
def delete_session(session: ChatSession, *, actor: Membership) -> None:
    """Hide the session from everybody, with those that its agents opened; its open turns are stopped, its schedules and
    reminders stay and go on elsewhere. `remove_deleted` takes the rows. A second time changes nothing.

    Raises PermissionDenied.
    """
    if session.parent_turn_id is not None:
        raise PermissionDenied("An agent opened this session; it goes with the session that it works for.")
    if not may_delete(actor, session):
        raise PermissionDenied("Only its own member deletes a session, or somebody with the admin right sessions.")
    if not ChatSession.objects.filter(KEPT, pk=session.pk).update(deleted_at=Now()):
        return
    # The audit keeps no title: it begins with the words of a message.
    cost = Turn.objects.filter(session=session).aggregate(
        turns=Count("pk"), input_tokens=Sum("input_tokens", default=0), output_tokens=Sum("output_tokens", default=0)
    )
    session.title = ""
    record("session.delete", session, actor=actor, before={"member": str(session.membership), **cost})
    ending = Ending(TurnStatus.CANCELLED, "cancelled", f"{actor} deleted the session.")
    for turn_id in open_turns([session.pk]):
        stop_turn(turn_id, ending)
    family = [session.pk, *_hide_below(session)]
    Schedule.objects.filter(session__in=family).update(session=None)
    Reminder.objects.filter(session__in=family).update(session=None)


def _hide_below(session: ChatSession) -> list[UUID]:
    """Hide the sessions that its agents opened, and those below them; returns their keys. Two queries a level."""
    found: list[UUID] = []
    level: list[UUID] = [session.pk]
    while level:
        below = ChatSession.objects.filter(parent_turn__session__in=level)
        level = list(below.values_list("pk", flat=True))
        ChatSession.objects.filter(pk__in=level).update(deleted_at=Now())
        found += level
    return found


def open_turns(sessions: Sequence[UUID]) -> list[UUID]:
    turns = Turn.objects.filter(session__in=sessions, status__in=OPEN_STATUSES).order_by("-seq")
    return list(turns.values_list("pk", flat=True))


def hide_throwaways() -> None:
    """Delete the sessions of single requests of clients that are as old as TOOLHUB_THROWAWAY_DAYS and in which no turn
    is open; some at a time. Their usage stays in the hourly sums. Safe in any worker."""
    of_session = Turn.objects.filter(session=OuterRef("pk"), status__in=OPEN_STATUSES)
    with system_scope():
        old = ChatSession.objects.filter(
            KEPT, THROWAWAY, active_at__lt=from_now(-settings.TOOLHUB_THROWAWAY_DAYS * 24 * 3600)
        )
        found = list(old.exclude(Exists(of_session)).order_by("active_at").values_list("pk", flat=True)[:AT_ONCE])
        if found:
            ChatSession.objects.filter(KEPT, pk__in=found).update(deleted_at=Now())


def remove_deleted() -> None:
    """Remove the rows of deleted sessions in which no turn is open any more, and whose usage stands in the hourly sums;
    some at a time. Safe in any worker.

    Usage that cannot be added delays it by a day at most.
    """
    of_session = Turn.objects.filter(session=OuterRef("pk"))
    is_open = of_session.filter(status__in=OPEN_STATUSES)
    is_uncounted = Q(Exists(of_session.filter(NOT_ROLLED_UP))) & Q(deleted_at__gt=from_now(-WAIT_FOR_USAGE))
    with system_scope():
        found = ChatSession.objects.filter(~KEPT).exclude(Exists(is_open)).exclude(is_uncounted)
        found = found.exclude(pk__in=removal_backoff.paused())
        # Those that agents opened first: they hang on a turn of the session above.
        found = found.order_by("-depth", "deleted_at", "pk")
        each_item(removal_backoff, list(found.values_list("pk", "organisation_id")[:AT_ONCE]), _remove)


@transaction.atomic
def _remove(session_id: UUID) -> None:
    release_of_session(session_id)
    ChatSession.objects.get(pk=session_id).delete()
