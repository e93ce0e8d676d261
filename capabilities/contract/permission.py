"""May this member use this tool? The rules, as a pure function of what roles and grants say.

Order: a grant that denies beats everything; a grant that allows adds to the roles; of the roles, any one that opens
the tool is enough. In a `listed` role, a rule for the tool beats a rule for its category. No role, no tool.

A meta-tool, one that loads others, needs no role that lists it: who may use anything may use it, unless a role denies
it and no other role opens it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

Decision = Literal["allow", "deny"]
#: The modes of roles that may open something.
OPENING = ("all", "listed")


class Permittable(Protocol):
    """A tool, as far as permission to use it goes. `is_meta`: whether it loads others."""

    @property
    def tool_id(self) -> int: ...
    @property
    def category_id(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def is_meta(self) -> bool: ...


class ToolKey(NamedTuple):
    """No more of a tool than that."""

    tool_id: int
    category_id: int
    name: str
    is_meta: bool


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
        return self.rule_for(tool_id, category_id) == "allow"

    def denies(self, tool_id: int, category_id: int) -> bool:
        """Return whether a rule of this role denies the tool. Without a rule it is not opened, and not denied."""
        return self.rule_for(tool_id, category_id) == "deny"

    def rule_for(self, tool_id: int, category_id: int) -> Decision | None:
        """Return the decision of the role's rules on the tool; None where they make none, or do not count."""
        if self.mode != "listed":
            return None
        return self.tools.get(tool_id, self.categories.get(category_id))


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
        """True where no role and no grant opens anything: nobody's rights, or nothing but denials."""
        allowed = {*self.tool_grants.values(), *self.category_grants.values()}
        return "allow" not in allowed and not any(role.mode in OPENING for role in self.roles)

    @property
    def allows_nothing(self) -> bool:
        """True where no role and no grant allows anything. One that allows what another denies counts as allowing."""
        if "allow" in {*self.tool_grants.values(), *self.category_grants.values()}:
            return False
        listed = (role for role in self.roles if role.mode == "listed")
        allowed = {effect for role in listed for effect in (*role.categories.values(), *role.tools.values())}
        return "allow" not in allowed and not any(role.mode == "all" for role in self.roles)

    def denies(self, tool_id: int, category_id: int) -> bool:
        """Return whether a grant of this member's own denies the tool."""
        return "deny" in (self.tool_grants.get(tool_id), self.category_grants.get(category_id))

    def decide(self, tool_id: int, category_id: int, *, is_meta: bool = False) -> Permission:
        """Decide on one tool; a meta-tool needs no more than that nothing denies it, and that something is open."""
        answer = self._decide_listed(tool_id, category_id)
        if not is_meta or answer.allowed or answer.stage == "grants" or self.opens_nothing:
            return answer
        for role in self.roles:
            if role.denies(tool_id, category_id):
                return Permission(False, "role", f"role {role.slug} denies it")
        return Permission(True, "role", "it gives nothing that the member may not use")

    def _decide_listed(self, tool_id: int, category_id: int) -> Permission:
        """Decide on a tool that needs a role or grant that names it or its category."""
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
