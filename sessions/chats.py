"""A conversation begins here, and is changed here, whoever asks: a page or the REST API."""

from __future__ import annotations

from typing import Any

from django.db.models import F

from capabilities.models import Agent
from sessions.models import ChatSession
from toolhub.tenants.models import Access, Membership


def open_session(member: Membership, agent: Agent, *, title: str = "") -> ChatSession:
    """A new session of this member with an agent of the same organisation."""
    return ChatSession.objects.create(
        organisation_id=member.organisation_id, membership=member, agent=agent, title=title
    )


def change_session(session: ChatSession, *, title: str | None = None, shares_loads: bool | None = None) -> ChatSession:
    """Name it, or let its agents share what they load; what is not given stays."""
    changes: dict[str, Any] = {}
    if title is not None:
        changes["title"] = title
    if shares_loads is not None and shares_loads != session.shares_loads:
        changes |= {"shares_loads": shares_loads, "load_count": F("load_count") + 1}
    if changes:
        ChatSession.objects.filter(pk=session.pk).update(**changes)
        session.refresh_from_db(fields=list(changes))
    return session


def own_session(session: ChatSession) -> ChatSession:
    """The member's own session, above any that agents opened below it. A query or two for each level."""
    while session.parent_turn is not None:
        session = session.parent_turn.session
    return session


def may_write(member: Membership, session: ChatSession) -> bool:
    """A turn acts with the rights of its session's member, so nobody else writes into it; and into one that an agent
    opened, nobody does."""
    is_own = session.membership_id == member.pk and session.parent_turn_id is None
    return is_own and member.has_access(Access.MEMBER)
