"""A conversation begins here, and is changed here, whoever asks: a page or the REST API."""

from __future__ import annotations

from django.db import transaction

from capabilities.models import Agent
from sessions.access import may_stop
from sessions.loading import share_loads
from sessions.models import ChatSession
from toolhub.tenants.models import Access, Membership


def open_session(member: Membership, agent: Agent, *, title: str = "") -> ChatSession:
    """A new session of this member with an agent of the same organisation."""
    return ChatSession.objects.create(
        organisation_id=member.organisation_id, membership=member, agent=agent, title=title
    )


@transaction.atomic
def change_session(
    session: ChatSession, *, actor: Membership, title: str | None = None, shares_loads: bool | None = None
) -> ChatSession:
    """Name it, or let its agents share what they load; what is not given stays."""
    if title is not None:
        ChatSession.objects.filter(pk=session.pk).update(title=title)
    if shares_loads is not None:
        share_loads(session, shares_loads, actor=actor)
    session.refresh_from_db(fields=["title", "shares_loads", "load_count"])
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


def rights_in(member: Membership, session: ChatSession) -> dict[str, bool]:
    """What a page offers this member in the session: `may_write`, and `may_stop` for its turns. One query for who
    is neither its member nor an operator."""
    return {"may_write": may_write(member, session), "may_stop": may_stop(member, session.membership_id)}
