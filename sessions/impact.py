"""Whom a change of roles changes, before it is saved: members, live sessions, tools won and lost, tokens.

A member's tools are the union of the roles, and a grant beats them all: so a tool that a role gains or loses is won or
lost only by members whose other roles do not open it, and who have no grant on it or its category. Members with the
same roles are looked at once, and sets of tools are whole numbers with a bit for each. Eight queries, whatever the
number of members, tools and sessions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import chain
from operator import or_

from capabilities.contract.loading import META_TOOLS
from capabilities.contract.permission import Decision, RoleRules
from capabilities.models import AgentTool, Role, RoleMembership, Tool, ToolKind
from capabilities.roles import Rule
from sessions.concerned import (
    Bits,
    Difference,
    Group,
    Grouped,
    Keys,
    Stored,
    decision,
    grouped,
    live_sessions,
    members_in,
    opened,
    read_stored,
    sessions_told,
    tokens_told,
    told,
)


@dataclass(frozen=True)
class NewRole:
    """What a role would be; `role` as it is stored, or one that is not there yet."""

    role: Role
    mode: str
    rules: tuple[Rule, ...]


@dataclass(frozen=True)
class RoleChange:
    """One role by itself: the tools that it would open and close, by name."""

    name: str
    opened: tuple[str, ...]
    closed: tuple[str, ...]
    #: Of the current versions of the opened tools, less those of the closed ones, as far as they are switched on.
    tokens: int
    members: int

    @property
    def opened_told(self) -> str:
        return told(self.opened)

    @property
    def closed_told(self) -> str:
        return told(self.closed)

    @property
    def tokens_told(self) -> str:
        return tokens_told(self.tokens)


@dataclass(frozen=True)
class Impact:
    """What saving would do."""

    roles: tuple[RoleChange, ...]
    concerned: Grouped = field(default_factory=Grouped)
    #: Members who have one of the roles, and win and lose nothing.
    unchanged: int = 0
    #: Live sessions of members who win or lose something, whose tools change with their next turn.
    sessions: int = 0

    @property
    def groups(self) -> tuple[Group, ...]:
        return self.concerned.groups

    @property
    def others(self) -> int:
        return self.concerned.others

    @property
    def changes_tools(self) -> bool:
        return any(role.opened or role.closed for role in self.roles)

    @property
    def sentence(self) -> str:
        """`4 members gain 2 tools, 1 member loses file_write; 2 live sessions change at their next turn; ...`"""
        parts = [self.concerned.sentence, *sessions_told(self.sessions)]
        parts += [f"{role.tokens_told} tokens for {role.name}" for role in self.roles if role.tokens]
        return "; ".join(parts) + "."


def impact_of(wanted: Sequence[NewRole]) -> Impact:
    """What saving these roles would change, over all members who may sign in and have one of them.

    A session is live while it has an open turn, or had one accepted in the last 24 hours. It counts where a tool that
    its member loses is among those that its agent was last sent, or where its agent would send one that its member
    wins: one of the agent's own or of the core categories that it starts with, switched on. Where nothing was sent
    yet, what the agent would send counts for what is lost, too. What was loaded beside counts once it was sent;
    sessions that other agents opened by delegation do not count.
    """
    catalogue = _read_catalogue()
    changed = {new.role.pk: new.role for new in wanted if new.role.pk}
    before = _stored(changed)
    old = {new.role.pk: _before(before, new.role, catalogue) for new in wanted}
    new = {each.role.pk: opened(catalogue.compiled(each), catalogue.tools) for each in wanted}
    touched = frozenset(chain.from_iterable(old[key] ^ new[key] for key in old))
    roles = tuple(_role_change(each, old, new, catalogue, before) for each in wanted)
    if not touched or not changed:
        return Impact(roles, unchanged=len(before.roles_of))
    bits = Bits(catalogue.tools, touched)
    differences = _differences(before, bits, old, new)
    found = grouped(differences, bits, members_in(before.holders))
    return Impact(
        roles,
        found,
        unchanged=len(differences) - found.members,
        sessions=_live_sessions(before, differences, bits) if found.groups else 0,
    )


# -- The catalogue ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """One tool, as far as it matters here."""

    name: str
    category_id: int
    category: str
    is_core: bool
    is_enabled: bool
    tokens: int


@dataclass(frozen=True)
class Catalogue:
    """Every tool by its key."""

    tools: Mapping[int, Line]

    def names(self, keys: Iterable[int]) -> tuple[str, ...]:
        return tuple(sorted(self.tools[key].name for key in keys))

    def compiled(self, new: NewRole) -> RoleRules:
        """The rules by key; what names nothing that is there says nothing."""
        tools = {line.name: key for key, line in self.tools.items()}
        categories = {line.category: line.category_id for line in self.tools.values()}
        by_category: dict[int, Decision] = {}
        by_tool: dict[int, Decision] = {}
        for rule in new.rules:
            if rule.tool in tools:
                by_tool[tools[rule.tool]] = decision(rule.effect)
            elif rule.category in categories:
                by_category[categories[rule.category]] = decision(rule.effect)
        return RoleRules(new.role.slug, new.mode, by_category, by_tool)

    def tokens(self, keys: Iterable[int]) -> int:
        return sum(self.tools[key].tokens for key in keys if self.tools[key].is_enabled)


def _read_catalogue() -> Catalogue:
    # The tools that load others need no role that names them.
    rows = Tool.objects.exclude(name__in=META_TOOLS, kind=ToolKind.BUILTIN).values_list(
        "pk", "name", "category_id", "category__name", "category__is_core", "is_enabled", "current_version__tokens"
    )
    return Catalogue(
        {
            key: Line(name, category_id, category, is_core, is_enabled, tokens or 0)
            for key, name, category_id, category, is_core, is_enabled, tokens in rows
        }
    )


# -- What changes -----------------------------------------------------------------------------------------------------


def _stored(changed: Mapping[int, Role]) -> Stored:
    """The members who may sign in and have one of these roles. Three queries."""
    active = RoleMembership.objects.filter(membership__ended_at=None, membership__user__is_active=True)
    return read_stored(active.filter(role__in=list(changed)).values("membership"), list(changed.values()))


def _before(stored: Stored, role: Role, catalogue: Catalogue) -> Keys:
    rules = stored.rules.get(role.pk) if role.pk else None
    return opened(rules, catalogue.tools) if rules else frozenset()


def _role_change(
    wanted: NewRole,
    old: Mapping[int, Keys],
    new: Mapping[int, Keys],
    catalogue: Catalogue,
    stored: Stored,
) -> RoleChange:
    key = wanted.role.pk
    opened, closed = new[key] - old[key], old[key] - new[key]
    return RoleChange(
        wanted.role.name,
        catalogue.names(opened),
        catalogue.names(closed),
        catalogue.tokens(opened) - catalogue.tokens(closed),
        sum(1 for roles in stored.roles_of.values() if key in roles),
    )


def _differences(
    stored: Stored, bits: Bits[Line], old: Mapping[int, Keys], new: Mapping[int, Keys]
) -> dict[int, Difference]:
    """For each member the tools won and lost: the roles' difference, less what a grant of the member's own decides."""
    was = {key: bits.opened(rules) for key, rules in stored.rules.items()}
    will = was | {key: bits.of(keys) for key, keys in new.items()}
    by_roles: dict[Keys, Difference] = {}
    found = {}
    for member, roles in stored.roles_of.items():
        if roles not in by_roles:
            before, after = (reduce(or_, (each[role] for role in roles)) for each in (was, will))
            by_roles[roles] = (after & ~before, before & ~after)
        won, lost = by_roles[roles]
        categories, tools = stored.grants_of.get(member, ((), ()))
        decided = bits.of_categories(categories) | bits.of(tools)
        found[member] = (won & ~decided, lost & ~decided)
    return found


def _live_sessions(stored: Stored, differences: Mapping[int, Difference], bits: Bits[Line]) -> int:
    """How many live sessions have other tools at their next turn. Two queries."""
    live = live_sessions().filter(membership__in=stored.holders)
    sessions = list(live.values_list("membership_id", "agent_id", "agent__starts_with_core", "tool_order"))
    own: dict[int, list[int]] = {}
    lines = AgentTool.objects.filter(agent__in={agent for _, agent, _, _ in sessions}, is_deferred=False)
    for agent, tool in lines.values_list("agent_id", "tool_id"):
        own.setdefault(agent, []).append(tool)
    core = bits.of(key for key, line in bits.lines.items() if line.is_core)
    enabled = bits.of(key for key, line in bits.lines.items() if line.is_enabled)
    count = 0
    for member, agent, has_core, order in sessions:
        won, lost = differences.get(member, (0, 0))
        offered = enabled & (bits.of(own.get(agent, ())) | (core if has_core else 0))
        sent = bits.of(order[str(agent)]) if str(agent) in order else offered
        count += bool(won & offered or lost & sent)
    return count
