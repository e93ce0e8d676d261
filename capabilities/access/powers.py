"""Everything that one member may use, and administer by category: now, and when grants that have an end have ended.

Compared before and after each write of configuration (`toolhub.tenants.authority`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from capabilities.contract.permission import ToolKey
from capabilities.models import Grant, Role, Tool
from capabilities.pipeline.permissions import (
    MemberPermissions,
    permissions_of_each,
    permissions_with_roles,
    tool_key,
    with_grants,
)
from toolhub.tenants.models import CATEGORY_RIGHTS, NOWHERE, Membership, Reach, Right


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
    since: datetime

    def beyond(self, other: MemberPowers) -> list[str]:
        """Names of the tools that this opens now or later, or administers, and `other` does not; sorted.

        A tool that `other` does not know is none: it is new, and not what anybody was kept from.
        """
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
        mine, theirs = self.tools[key], other.tools[key]
        if any(
            self.reaches[right].covers(mine.category) and not other.reaches[right].covers(theirs.category)
            for right in self.reaches
        ):
            return True
        if not self.permissions.decide(mine.key).allowed:
            return False
        return not other.permissions.decide(theirs.key).allowed or (mine.is_open and not theirs.is_open)

    def _later(self, other: MemberPowers) -> set[str]:
        """The same, at each moment at which a grant of either ends: only what such a grant names may differ then."""
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
            mine, theirs = self._permissions_at(moment), other._permissions_at(moment)
            found |= {
                self.tools[key].key.name
                for key in touched
                if mine.decide(self.tools[key].key).allowed and not theirs.decide(other.tools[key].key).allowed
            }
        return found

    def _permissions_at(self, moment: datetime) -> MemberPermissions:
        return with_grants(self.permissions, (each[:3] for each in self.grants if _lasts(each, moment)))


def _lasts(grant: GrantState, moment: datetime) -> bool:
    return grant.expires_at is None or grant.expires_at > moment


def read_powers(members: Collection[Membership], since: datetime) -> dict[int, MemberPowers]:
    """By key of the member. Three queries, one more for each member whose delegated rights were not asked for yet."""
    keys = [member.pk for member in members]
    permissions_by_member, grants, tools = permissions_of_each(keys), _grants(keys, since), _tools()
    return {
        member.pk: MemberPowers(
            with_grants(permissions_by_member[member.pk], (each[:3] for each in grants[member.pk])),
            tuple(grants[member.pk]),
            {right: member.reach(right) for right in sorted(CATEGORY_RIGHTS)},
            tools,
            since,
        )
        for member in members
    }


def powers_with_roles(roles: Iterable[Role], since: datetime) -> MemberPowers:
    """What these roles alone give. Two queries."""
    nowhere = dict.fromkeys(sorted(CATEGORY_RIGHTS), NOWHERE)
    return MemberPowers(permissions_with_roles(role.pk for role in roles), (), nowhere, _tools(), since)


def _grants(keys: Collection[int], since: datetime) -> dict[int, list[GrantState]]:
    in_force = Grant.objects.in_force(since).filter(membership__in=keys)
    found: dict[int, list[GrantState]] = {key: [] for key in keys}
    rows = in_force.order_by("pk").values_list("membership_id", "category_id", "tool_id", "effect", "expires_at")
    for key, category_id, tool_id, effect, expires_at in rows:
        found[key].append(GrantState(category_id, tool_id, effect, expires_at))
    return found


def _tools() -> dict[int, ToolState]:
    rows = Tool.objects.order_by("pk").values_list(
        "pk", "category_id", "name", "kind", "category__name", "is_enabled", "off_by_admin", "server__off_by_admin"
    )
    return {
        key: ToolState(
            tool_key(key, category_id, name, kind), category, (is_enabled or not off_by_admin) and not server_off
        )
        for key, category_id, name, kind, category, is_enabled, off_by_admin, server_off in rows
    }
