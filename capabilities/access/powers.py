"""Everything that one member may use, and administer by category: now, and when grants that have an end have ended.

Compared before and after each write of configuration (`toolhub.tenants.authority`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from capabilities.choosing.pipeline.permissions import (
    MemberPermissions,
    permissions_of_each,
    permissions_with_roles,
    tool_key,
    with_grants,
)
from capabilities.contract.permission import ToolKey
from capabilities.models import Agent, Grant, Offer, Role, RoleMembership, Tool
from toolhub.tenants.models import CATEGORY_RIGHTS, NOWHERE, Membership, Reach, Right
from toolhub.tenants.rows.statements import Select

#: As the name of an agent: whoever it is not offered to learns no more of it.
HIDDEN_AGENT = "an agent that is not offered to you"


class ToolState(NamedTuple):
    """A tool; whether somebody below access `admin` may switch it on, if it is not on."""

    key: ToolKey
    category: str
    is_open: bool


class GrantState(NamedTuple):
    """One grant in force, and its end."""

    category_id: int | None
    tool_id: int | None
    effect: str
    expires_at: datetime | None

    def names(self, tool: ToolKey) -> bool:
        return tool.tool_id == self.tool_id or tool.category_id == self.category_id


@dataclass(frozen=True)
class MemberPowers:
    """See the module. `since`: the moment from which on it says so."""

    permissions: MemberPermissions
    grants: tuple[GrantState, ...]
    reaches: Mapping[Right, Reach]
    tools: Mapping[int, ToolState]
    #: By key of each agent, whether it is offered to the member.
    agents: Mapping[int, bool]
    since: datetime

    def beyond(self, other: MemberPowers) -> list[str]:
        """Names of the tools that this opens now or later, or administers, and `other` does not; sorted. Behind them
        one name for all agents that are offered here and not there.

        A tool or agent that `other` does not know is none: it is new, and not what anybody was kept from.
        """
        return [*self._tools_beyond(other), *([HIDDEN_AGENT] if self._has_agents_beyond(other) else [])]

    def _has_agents_beyond(self, other: MemberPowers) -> bool:
        return any(offered and other.agents.get(key) is False for key, offered in self.agents.items())

    def _tools_beyond(self, other: MemberPowers) -> list[str]:
        if (self.permissions, self.grants, self.reaches, self.tools) == (
            other.permissions,
            other.grants,
            other.reaches,
            other.tools,
        ):
            return []
        found = {state.key.name for key, state in self.tools.items() if key in other.tools and self._adds(other, key)}
        return sorted(found | self._later(other))

    def _adds(self, other: MemberPowers, key: int) -> bool:
        own, others = self.tools[key], other.tools[key]
        if any(
            self.reaches[right].covers(own.category) and not other.reaches[right].covers(others.category)
            for right in self.reaches
        ):
            return True
        if not self.permissions.decide(own.key).allowed:
            return False
        return not other.permissions.decide(others.key).allowed or (own.is_open and not others.is_open)

    def _later(self, other: MemberPowers) -> set[str]:
        """Return the names of tools that this opens and `other` does not, at each moment at which a grant of either
        ends: only what such a grant names may differ then."""
        ends = sorted({each.expires_at for each in (*self.grants, *other.grants) if each.expires_at is not None})
        if not ends:
            return set()
        ending = [each for each in (*self.grants, *other.grants) if each.expires_at is not None]
        touched = [
            key
            for key, state in self.tools.items()
            if key in other.tools
            and (state.key.is_meta or any(each.names(state.key) or each.names(other.tools[key].key) for each in ending))
        ]
        found = set()
        for moment in ends:
            own, others = self._permissions_at(moment), other._permissions_at(moment)
            found |= {
                self.tools[key].key.name
                for key in touched
                if own.decide(self.tools[key].key).allowed and not others.decide(other.tools[key].key).allowed
            }
        return found

    def _permissions_at(self, moment: datetime) -> MemberPermissions:
        return with_grants(self.permissions, (each[:3] for each in self.grants if _lasts(each, moment)))


def _lasts(grant: GrantState, moment: datetime) -> bool:
    return grant.expires_at is None or grant.expires_at > moment


def read_powers(members: Collection[Membership], since: datetime) -> dict[int, MemberPowers]:
    """Return the powers by key of the member. Five queries, one more for each member whose delegated rights were not
    asked for yet."""
    keys = [member.pk for member in members]
    permissions_by_member, grants, tools = permissions_of_each(keys), _grants(keys, since), _tools()
    roles: dict[int, set[int]] = {key: set() for key in keys}
    for key, role in RoleMembership.objects.filter(membership__in=keys).values_list("membership_id", "role_id"):
        roles[key].add(role)
    agents = _agents()
    return {
        member.pk: MemberPowers(
            with_grants(permissions_by_member[member.pk], (each[:3] for each in grants[member.pk])),
            tuple(grants[member.pk]),
            {right: member.reach(right) for right in sorted(CATEGORY_RIGHTS)},
            tools,
            _offered(agents, roles[member.pk]),
            since,
        )
        for member in members
    }


def powers_with_roles(roles: Iterable[Role], since: datetime) -> MemberPowers:
    """Return the powers that these roles alone give. Three queries."""
    nowhere = dict.fromkeys(sorted(CATEGORY_RIGHTS), NOWHERE)
    keys = {role.pk for role in roles}
    return MemberPowers(permissions_with_roles(keys), (), nowhere, _tools(), _offered(_agents(), keys), since)


def _grants(keys: Collection[int], since: datetime) -> dict[int, list[GrantState]]:
    in_force = Grant.objects.in_force(since).filter(membership__in=keys)
    found: dict[int, list[GrantState]] = {key: [] for key in keys}
    rows = in_force.order_by("pk").values_list("membership_id", "category_id", "tool_id", "effect", "expires_at")
    for key, category_id, tool_id, effect, expires_at in rows:
        found[key].append(GrantState(category_id, tool_id, effect, expires_at))
    return found


_TOOLS = Select(
    lambda: Tool.objects.order_by("pk").values_list(
        "pk", "category_id", "name", "kind", "category__name", "is_enabled", "off_by_admin", "server__off_by_admin"
    )
)
_AGENTS = Select(lambda: Agent.objects.order_by("pk").values_list("pk", "offered_to", "agent_rooms__role"))


def _tools() -> dict[int, ToolState]:
    return {
        key: ToolState(
            tool_key(key, category_id, name, kind), category, (is_enabled or not off_by_admin) and not server_off
        )
        for key, category_id, name, kind, category, is_enabled, off_by_admin, server_off in _TOOLS.rows()
    }


def _agents() -> dict[int, frozenset[int] | None]:
    """The roles that each agent is offered to, by its key; None for everybody. One query."""
    found: dict[int, frozenset[int] | None] = {}
    for key, offer, role in _AGENTS.rows():
        known = found.get(key) or frozenset()
        found[key] = None if offer == Offer.EVERYBODY else known | ({role} if role else set())
    return found


def _offered(agents: Mapping[int, frozenset[int] | None], roles: Collection[int]) -> dict[int, bool]:
    return {key: rooms is None or not rooms.isdisjoint(roles) for key, rooms in agents.items()}
