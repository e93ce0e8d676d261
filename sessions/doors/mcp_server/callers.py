"""McpCaller of the MCP server, by the token of a request, and the agent or toolkit that the request's address names."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from capabilities.models import Agent
from sessions.doors.chats.queries import agents_to_talk_to
from toolhub.tenants.models import ApiToken, Membership
from toolhub.tenants.rows.scope import organisation_scope

T = TypeVar("T")
#: Runs a function in a thread that may use the database, and returns what it returns.
InThread = Callable[[Callable[[], Any]], Awaitable[Any]]

PREFIX = "/mcp/"
_PATH = re.compile(r"/mcp/(?:toolkit/(?P<toolkit>[a-zA-Z0-9_-]{1,64})|(?P<agent>[a-z0-9][a-z0-9-]{0,62}))/?\Z")


@dataclass(frozen=True)
class Address:
    """Target that an address names: an agent, or a toolkit as this agent may load it."""

    agent: Agent
    toolkit: str = ""

    @property
    def name(self) -> str:
        """Slug of the agent, or `toolkit/<name>`."""
        return f"toolkit/{self.toolkit}" if self.toolkit else self.agent.slug


@dataclass(frozen=True)
class McpCaller:
    """A request's token with its member, the address that it came to, and where pages of this service are."""

    token: ApiToken
    address: Address
    #: `https://tools.example.com`, as the client called the service.
    site: str
    in_thread: InThread

    @property
    def member(self) -> Membership:
        return self.token.membership

    @property
    def organisation_id(self) -> int:
        return self.token.organisation_id

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread, in the organisation's scope, and return its result."""

        def scoped() -> T:
            with organisation_scope(self.organisation_id):
                return work()

        result: T = await self.in_thread(scoped)
        return result

    def page(self, path: str) -> str:
        """The absolute address of a page of this organisation's."""
        return f"{self.site}/o/{self.member.organisation.slug}/{path}"


def address_of(path: str, member: Membership) -> Address | None:
    """Return the target that the path names for the member, in the organisation in scope; None where it names nothing
    that the member may talk to. One query.

    A toolkit is there as far as an agent may load it: as the one of these agents that was made first.
    """
    match = _PATH.match(path)
    if match is None:
        return None
    agents = agents_to_talk_to(member).select_related("model__provider", "fallback_model__provider")
    toolkit = match["toolkit"] or ""
    named = agents.filter(agent_toolkits__toolkit__name=toolkit) if toolkit else agents.filter(slug=match["agent"])
    agent = named.first()
    return Address(agent, toolkit) if agent is not None else None
