"""May this member use this tool? The rules, as a pure function of what roles and grants say.

Order: a grant that denies beats everything; a grant that allows adds to the roles; of the roles, any one that opens
the tool is enough. In a `listed` role, what is said of the tool beats what is said of its category. No role, no tool.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Decision = Literal["allow", "deny"]


@dataclass(frozen=True)
class RoleRules:
    """One role of a member: its mode, and what it lists, by key of category and tool."""

    slug: str
    mode: str
    categories: Mapping[int, Decision] = field(default_factory=dict)
    tools: Mapping[int, Decision] = field(default_factory=dict)

    def opens(self, tool_id: int, category_id: int) -> bool:
        if self.mode == "all":
            return True
        if self.mode != "listed":
            return False
        return self.tools.get(tool_id, self.categories.get(category_id, "deny")) == "allow"


@dataclass(frozen=True)
class Rights:
    """All that one member may use: the roles, and the member's own unexpired grants by key of category and tool.

    Where several grants of one member name the same thing, the deny is the one kept here.
    """

    roles: tuple[RoleRules, ...] = ()
    category_grants: Mapping[int, Decision] = field(default_factory=dict)
    tool_grants: Mapping[int, Decision] = field(default_factory=dict)

    @property
    def opens_nothing(self) -> bool:
        """Whether no role and no grant opens anything: nobody's rights, or nothing but denials."""
        allowed = {*self.tool_grants.values(), *self.category_grants.values()}
        return "allow" not in allowed and all(role.mode == "none" for role in self.roles)

    def denies(self, tool_id: int, category_id: int) -> bool:
        """Whether a grant of this member's own denies it."""
        return "deny" in (self.tool_grants.get(tool_id), self.category_grants.get(category_id))

    def decide(self, tool_id: int, category_id: int) -> Permission:
        if self.denies(tool_id, category_id):
            return Permission(False, "grants", "denied by a grant of this member")
        if "allow" in (self.tool_grants.get(tool_id), self.category_grants.get(category_id)):
            return Permission(True, "grants", "allowed by a grant of this member")
        for role in self.roles:
            if role.opens(tool_id, category_id):
                return Permission(True, "role", f"role {role.slug} allows it")
        if not self.roles:
            return Permission(False, "role", "this member has no role")
        return Permission(False, "role", "no role of this member allows it")


#: Nobody: no identity, no rights.
NO_RIGHTS = Rights()


@dataclass(frozen=True)
class Permission:
    """The answer, the stage that gave it, and why."""

    allowed: bool
    stage: Literal["role", "grants"]
    reason: str
