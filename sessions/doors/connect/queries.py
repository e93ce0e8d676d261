"""Agents and toolkits that a client can be connected to."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Exists, OuterRef

from capabilities.models import AgentToolkit, Toolkit
from sessions.doors.chats.queries import agents_to_talk_to
from toolhub.tenants.models import Membership

#: Before the name of a toolkit, in addresses of MCP servers and of this page.
TOOLKIT = "toolkit/"


@dataclass(frozen=True)
class Target:
    """An agent or a toolkit, as addresses name it: `everyday`, `toolkit/devops`."""

    address: str
    name: str

    @property
    def is_toolkit(self) -> bool:
        return self.address.startswith(TOOLKIT)

    @property
    def short_name(self) -> str:
        return self.address.removeprefix(TOOLKIT)


def agent_targets(member: Membership) -> list[Target]:
    """The agents that the member may talk to, in the order they were made. One query."""
    return [Target(slug, name) for slug, name in agents_to_talk_to(member).values_list("slug", "name")]


def toolkit_targets(member: Membership) -> list[Target]:
    """The toolkits that an agent may load which the member may talk to, by name. What of one a member gets depends on
    what the member may use. One query."""
    agents = agents_to_talk_to(member).order_by().values("pk")
    lines = AgentToolkit.objects.filter(toolkit=OuterRef("pk"), agent__in=agents)
    names = Toolkit.objects.filter(Exists(lines)).order_by("name").values_list("name", flat=True)
    return [Target(f"{TOOLKIT}{name}", name) for name in names]
