"""Rights on a session: who may see it, write into it, steer and delete it, and whose turns go on. For pages, REST and
workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.core.exceptions import PermissionDenied
from django.db.models import BooleanField, Exists, ExpressionWrapper, OuterRef, Q, QuerySet
from django.http import Http404
from rest_framework.request import Request

from capabilities.models import offered_to
from sessions.models import KEPT, ChatSession, Notice, SessionClient, Turn, TurnStatus
from toolhub.tenants.models import Access, ApiToken, Membership, Right, Scope

# -- Who sees a session ------------------------------------------------------------------------------------------------


def visible_sessions(member: Membership) -> QuerySet[ChatSession]:
    """Query the sessions that the member may see: the member's own, or the organisation's with the right `sessions`. A
    delegated right costs one query."""
    return ChatSession.objects.filter(visible_to(member))


def visible_to(member: Membership, session: str = "") -> Q:
    """Build the condition of `visible_sessions` for rows that hang on a session: `session` is the way to it, as in
    `turn__session__`.

    The condition is on the joined row, and no subquery: that would read every session of the organisation first.
    """
    own = {} if member.has_right(Right.SESSIONS) else {f"{session}membership": member}
    return Q(**{f"{session}deleted_at": None}, **own)


def kept_sessions_of(member: Membership) -> QuerySet[ChatSession]:
    """Query the member's own sessions that nobody deleted, without those that agents opened, or that a client's one
    request made."""
    return ChatSession.objects.filter(KEPT, membership=member, parent_turn=None, is_throwaway=False)


def session_or_404(member: Membership, session_id: UUID) -> ChatSession:
    """Return the session with its agent, model, provider and owner at hand. Somebody else's looks like a missing
    one."""
    session = (
        visible_sessions(member)
        .select_related("agent__model__provider", "membership__user", "parent_turn__agent", "parent_turn__session")
        .defer("agent__model__provider__api_key")
        .annotate(has_notices=Exists(Notice.objects.filter(session=OuterRef("pk"))))
        .filter(pk=session_id)
        .first()
    )
    if session is None:
        raise Http404("No such session.")
    return session


# -- Who changes it ----------------------------------------------------------------------------------------------------


def own_session(session: ChatSession) -> ChatSession:
    """Return the session that the member opened: this one, or the one at the top, where an agent opened this one by
    delegation. A query or two for each level."""
    while session.parent_turn is not None:
        session = session.parent_turn.session
    return session


def may_write(member: Membership, session: ChatSession) -> bool:
    """Return whether the member may write into the session: its own member alone, with whose rights its turns act, and
    nobody into one that an agent opened."""
    is_own = session.membership_id == member.pk and session.parent_turn_id is None
    return is_own and member.has_access(Access.MEMBER)


def takes_calls_alone(session: ChatSession) -> bool:
    """Return whether the session holds the single calls of an MCP client: no conversation that anybody could go on
    with."""
    return session.client == SessionClient.MCP


def may_stop(member: Membership, owner_id: int) -> bool:
    """Return whether the member may stop a turn of this owner: one's own, as far as one may chat; with the right
    `sessions` anybody's."""
    is_own = owner_id == member.pk and member.has_access(Access.MEMBER)
    return is_own or member.has_right(Right.SESSIONS)


def may_change_loads(member: Membership, session: ChatSession) -> bool:
    """Return whether the member may load and unload in the session: its own member may, and whoever has the right
    `sessions`."""
    if session.membership_id == member.pk:
        return member.has_access(Access.MEMBER)
    return member.has_right(Right.SESSIONS)


def check_may_change_loads(member: Membership, session: ChatSession) -> None:
    if not may_change_loads(member, session):
        raise PermissionDenied("You may look at this session, and not change what it has loaded.")


def may_delete(member: Membership, session: ChatSession) -> bool:
    """Return whether the member may delete the session: one's own, as far as one may chat; with the right `sessions`
    anybody's.

    One that an agent opened goes with the session that it works for.
    """
    return session.parent_turn_id is None and may_stop(member, session.membership_id)


def rights_in(member: Membership, session: ChatSession) -> dict[str, bool]:
    """Return what a page offers this member in the session: `may_write` a message, and `may_stop` for its turns. One
    query for a reader who is neither its member nor an operator."""
    may_talk = may_write(member, session) and not takes_calls_alone(session)
    return {"may_write": may_talk, "may_stop": may_stop(member, session.membership_id)}


def check_may_touch(request: Request, member: Membership, owner_id: int) -> None:
    """Raise PermissionDenied where a request changes what is another member's, with a token that is not one for
    administration."""
    token = request.auth
    if owner_id != member.pk and isinstance(token, ApiToken) and Scope.MANAGE not in token.scopes:
        raise PermissionDenied(f"This token lacks the scope {Scope.MANAGE.value}.")


# -- Whose turns go on -------------------------------------------------------------------------------------------------

#: Access levels of members who may chat.
CHATTING = tuple(access for access in Access if access.rank >= Access.MEMBER.rank)


@dataclass(frozen=True)
class Ending:
    """Ending of a turn that may not go on; `code` is for programs, the message for people."""

    status: TurnStatus
    code: str
    message: str


REMOVED = Ending(TurnStatus.CANCELLED, "member_removed", "The member was removed from the organisation.")
INACTIVE = Ending(TurnStatus.CANCELLED, "member_inactive", "The member may not sign in any more.")
DEMOTED = Ending(TurnStatus.CANCELLED, "member_is_viewer", "The member is a viewer now, and viewers do not chat.")

#: Columns of a turn that `turn_ending` reads, beside whether its agent is offered to its member.
_FACTS = (
    "cancel_requested_at",
    "membership__ended_at",
    "membership__user__is_active",
    "membership__access",
    "agent__is_enabled",
    "agent__name",
)


def member_may_not_chat(prefix: str = "membership__") -> Q:
    """Build the condition for rows whose member was removed, may not sign in, or is a viewer."""
    return (
        Q(**{f"{prefix}ended_at__isnull": False})
        | Q(**{f"{prefix}user__is_active": False})
        | ~Q(**{f"{prefix}access__in": CHATTING})
    )


def turn_may_not_go_on() -> Q:
    """Build the condition for turns whose member may not chat any more, or whose agent is switched off or not offered
    to the member."""
    return member_may_not_chat() | Q(agent__is_enabled=False) | ~_is_offered()


def _is_offered() -> Q:
    return offered_to(OuterRef("membership"), "agent")


def facts_of_turn(turn_id: UUID) -> Mapping[str, Any]:
    """Return the columns of a turn that `turn_ending` reads, by name, and when it was asked to stop. One query."""
    offered = ExpressionWrapper(_is_offered(), output_field=BooleanField())
    facts: Mapping[str, Any] = Turn.objects.annotate(is_offered=offered).values(*_FACTS, "is_offered").get(pk=turn_id)
    return facts


def member_ending(member: Membership) -> Ending | None:
    """Return the ending of this member's turns and schedules; None while they go on. Reads the member's user."""
    return _of_member(member.ended_at, member.user.is_active, member.access)


def turn_ending(row: Mapping[str, Any]) -> Ending | None:
    """Return the ending of a turn that may not go on, by its `facts_of_turn`; None while it may."""
    ending = _of_member(row["membership__ended_at"], row["membership__user__is_active"], row["membership__access"])
    if ending is None and not row["agent__is_enabled"]:
        return Ending(TurnStatus.FAILED, "agent_disabled", f"The agent {row['agent__name']} is switched off.")
    if ending is None and not row["is_offered"]:
        message = f"The agent {row['agent__name']} is not offered to the member any more."
        return Ending(TurnStatus.FAILED, "agent_not_offered", message)
    return ending


def _of_member(ended_at: object, is_active: bool, access: str) -> Ending | None:
    if ended_at is not None:
        return REMOVED
    if not is_active:
        return INACTIVE
    return None if access in CHATTING else DEMOTED
