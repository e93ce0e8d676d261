"""The roles of members of higher access than somebody's. Below access `admin` nobody changes what such a role says.

Compared before and after each write of configuration (`toolhub.tenants.authority`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from capabilities.models import RoleMembership, RoleRule
from toolhub.tenants.authority import ASK_AN_ADMIN, higher_than, outranked
from toolhub.tenants.models import Membership


@dataclass(frozen=True)
class RolesAbove:
    """Holders of the roles of members of higher access, and what these roles say."""

    #: By keys of role and member.
    holders: Mapping[tuple[int, int], Membership]
    #: By key of the role: its words, mode and rules.
    contents: Mapping[int, Any]
    #: By key of the role: why it may not be changed.
    reasons: Mapping[int, str]

    def why_changed(self, before: RolesAbove) -> str:
        """A sentence on the first role that says something else than before, or that a member has or had alone."""
        for key, content in before.contents.items():
            if self.contents.get(key, content) != content:
                return before.reasons[key]
        differ = self.holders.keys() ^ before.holders.keys()
        return outranked({**self.holders, **before.holders}[min(differ)]) if differ else ""


def read_roles_above(actor: Membership) -> RolesAbove:
    """Two queries, none for an admin."""
    lines = _lines_above(actor)
    rules: dict[int, set[Any]] = {line.role_id: set() for line in lines}
    if rules:
        found = RoleRule.objects.filter(role__in=list(rules))
        for key, *rule in found.values_list("role_id", "category_id", "tool_id", "effect"):
            rules[key].add(tuple(rule))
    return RolesAbove(
        {(line.role_id, line.membership_id): line.membership for line in lines},
        {line.role_id: (*_words(line.role), frozenset(rules[line.role_id])) for line in lines},
        _reasons(lines),
    )


def locked_roles(actor: Membership) -> dict[int, str]:
    """Why the actor may not change what a role says, by key of each such role. One query, none for an admin."""
    return _reasons(_lines_above(actor))


def _lines_above(actor: Membership) -> list[RoleMembership]:
    above = higher_than(actor)
    if not above:
        return []
    lines = RoleMembership.objects.filter(membership__access__in=above, membership__ended_at=None)
    return list(lines.select_related("role", "membership__user").order_by("-pk"))


def _reasons(lines: list[RoleMembership]) -> dict[int, str]:
    return {
        line.role_id: f"{line.membership} has the role {line.role} and more access than you: "
        f"you may not change what it says. {ASK_AN_ADMIN}"
        for line in lines
    }


def _words(role: Any) -> tuple[str, ...]:
    return role.slug, role.name, role.description, role.mode
