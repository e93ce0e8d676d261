"""A conversation begins here, whoever asks: a page or the REST API."""

from __future__ import annotations

from capabilities.models import Agent
from sessions.models import ChatSession
from toolhub.tenants.models import Membership


def open_session(member: Membership, agent: Agent, *, title: str = "") -> ChatSession:
    """A new session of this member with an agent of the same organisation."""
    return ChatSession.objects.create(
        organisation_id=member.organisation_id, membership=member, agent=agent, title=title
    )
