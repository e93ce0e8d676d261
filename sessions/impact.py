"""Whom a change of roles changes, before it is saved: members, live sessions, tools won and lost, tokens.

A member's tools are the union of the roles, and a grant beats them all: so a tool that a role gains or loses is won or
lost only by members whose other roles do not open it, and who have no grant on it or its category. Members with the
same roles are looked at once, and sets of tools are whole numbers with a bit for each. Eight queries, whatever the
number of members, tools and sessions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import reduce
from itertools import chain
from operator import or_
from typing import Any

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from capabilities.contract.loading import META_TOOLS
from capabilities.contract.permission import Decision, RoleRules
from capabilities.models import AgentTool, Effect, Grant, Role, RoleMembership, RoleMode, RoleRule, Tool, ToolKind
from capabilities.roles import Rule
from sessions.models import OPEN_STATUSES, ChatSession, Turn
from toolhub.tenants.models import Membership

#: A session counts as live for so long after its last turn was accepted.
LIVE = timedelta(hours=24)
MEMBERS_NAMED = 10
TOOLS_NAMED = 8
GROUPS_TOLD = 3
GROUPS_SHOWN = 8

Keys = frozenset[int]


@dataclass(frozen=True)
class NewRole:
    """What a role would be; `role` as it is stored, or one that is not there yet."""

    role: Role
    mode: str
    rules: tuple[Rule, ...]


@dataclass(frozen=True)
class Group:
    """Members who win and lose the same tools; all by name."""

    members: tuple[str, ...]
    won: tuple[str, ...]
    lost: tuple[str, ...]

    @property
    def members_told(self) -> str:
        return told(self.members, MEMBERS_NAMED)

    @property
    def won_told(self) -> str:
        return told(self.won)

    @property
    def lost_told(self) -> str:
        return told(self.lost)

    @property
    def sentence(self) -> str:
        """`4 members gain 2 tools`, `1 member loses file_write`."""
        one = len(self.members) == 1
        said = [
            f"{verb if one else plural} {_tools(names)}"
            for verb, plural, names in (("gains", "gain", self.won), ("loses", "lose", self.lost))
            if names
        ]
        return f"{_number(len(self.members), 'member')} {' and '.join(said)}"


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
        return f"{self.tokens:+,}" if self.tokens else "±0"


@dataclass(frozen=True)
class Impact:
    """What saving would do. `groups` are the first ones, the largest before the others."""

    roles: tuple[RoleChange, ...]
    groups: tuple[Group, ...] = ()
    #: Members who win or lose something, and are in none of `groups`.
    others: int = 0
    #: Members who have one of the roles, and win and lose nothing.
    unchanged: int = 0
    #: Live sessions of members who win or lose something, whose tools change with their next turn.
    sessions: int = 0

    @property
    def changes_tools(self) -> bool:
        return any(role.opened or role.closed for role in self.roles)

    @property
    def sentence(self) -> str:
        """`4 members gain 2 tools, 1 member loses file_write; 2 live sessions change at their next turn; ...`"""
        members = [group.sentence for group in self.groups[:GROUPS_TOLD]]
        rest = self.others + sum(len(group.members) for group in self.groups[GROUPS_TOLD:])
        members += [f"{rest:,} more win or lose others"] if rest else []
        parts = [", ".join(members) or "No member wins or loses a tool"]
        if self.sessions:
            one = self.sessions == 1
            verb, whose = ("changes", "its") if one else ("change", "their")
            parts.append(f"{_number(self.sessions, 'live session')} {verb} at {whose} next turn")
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
    before, changed = _stored(wanted), {new.role.pk: new for new in wanted if new.role.pk}
    old = {new.role.pk: before.opened(new.role.pk, catalogue.tools) for new in wanted}
    new = {each.role.pk: _opened(catalogue.compiled(each), catalogue.tools) for each in wanted}
    touched = frozenset(chain.from_iterable(old[key] ^ new[key] for key in old))
    roles = tuple(_role_change(each, old, new, catalogue, before) for each in wanted)
    if not touched or not changed:
        return Impact(roles, unchanged=len(before.roles_of))
    bits = Bits(catalogue, touched)
    differences = _differences(before, bits, old, new)
    members = _members(before.holders)
    groups: dict[tuple[int, int], list[str]] = {}
    for key, difference in differences.items():
        if any(difference):
            groups.setdefault(difference, []).append(str(members[key].user))
    largest = sorted(groups.items(), key=lambda group: (-len(group[1]), sorted(group[1])))
    return Impact(
        roles,
        tuple(
            Group(tuple(sorted(names)), bits.names(won), bits.names(lost))
            for (won, lost), names in largest[:GROUPS_SHOWN]
        ),
        others=sum(len(names) for _, names in largest[GROUPS_SHOWN:]),
        unchanged=len(differences) - sum(len(names) for names in groups.values()),
        sessions=_live_sessions(before.holders, differences, bits) if groups else 0,
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
                by_tool[tools[rule.tool]] = _decision(rule.effect)
            elif rule.category in categories:
                by_category[categories[rule.category]] = _decision(rule.effect)
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


# -- Roles, members and their grants as they are ----------------------------------------------------------------------


@dataclass(frozen=True)
class Stored:
    """The members concerned, with all their roles and grants."""

    #: Keys of the memberships, as a query.
    holders: QuerySet[Any]
    rules: Mapping[int, RoleRules]
    roles_of: Mapping[int, Keys]
    #: Keys of categories and of tools that a member's grants in force name, allowed or denied.
    grants_of: Mapping[int, tuple[Iterable[int], Iterable[int]]]

    def opened(self, role: int | None, tools: Mapping[int, Line]) -> Keys:
        rules = self.rules.get(role) if role else None
        return _opened(rules, tools) if rules else frozenset()


def _stored(wanted: Sequence[NewRole]) -> Stored:
    """Three queries."""
    changed = {new.role.pk: new.role for new in wanted if new.role.pk}
    active = RoleMembership.objects.filter(membership__ended_at=None, membership__user__is_active=True)
    holders = active.filter(role__in=list(changed)).values("membership")
    modes = {key: (role.slug, role.mode) for key, role in changed.items()}
    roles_of: dict[int, set[int]] = {}
    held = RoleMembership.objects.filter(membership__in=holders)
    for member, role_id, slug, mode in held.values_list("membership_id", "role_id", "role__slug", "role__mode"):
        roles_of.setdefault(member, set()).add(role_id)
        modes[role_id] = (slug, mode)
    rules: dict[int, tuple[dict[int, Decision], dict[int, Decision]]] = {key: ({}, {}) for key in modes}
    lines = RoleRule.objects.filter(role__in=list(modes))
    for role_id, category_id, tool_id, effect in lines.values_list("role_id", "category_id", "tool_id", "effect"):
        by_category, by_tool = rules[role_id]
        if tool_id is not None:
            by_tool[tool_id] = _decision(effect)
        elif category_id is not None:
            by_category[category_id] = _decision(effect)
    return Stored(
        holders,
        {key: RoleRules(slug, mode, *rules[key]) for key, (slug, mode) in modes.items()},
        {member: frozenset(roles) for member, roles in roles_of.items()},
        _grants(holders),
    )


def _grants(holders: QuerySet[Any]) -> dict[int, tuple[set[int], set[int]]]:
    in_force = Grant.objects.filter(Q(expires_at=None) | Q(expires_at__gt=Now()), membership__in=holders)
    found: dict[int, tuple[set[int], set[int]]] = {}
    for member, category_id, tool_id in in_force.values_list("membership_id", "category_id", "tool_id"):
        categories, tools = found.setdefault(member, (set(), set()))
        if category_id is not None:
            categories.add(category_id)
        else:
            tools.add(tool_id)
    return found


def _members(holders: QuerySet[Any]) -> dict[int, Membership]:
    return {each.pk: each for each in Membership.objects.select_related("user").filter(pk__in=holders)}


# -- What changes -----------------------------------------------------------------------------------------------------


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


class Bits:
    """Sets of the tools that a change touches, as whole numbers: one bit a tool, in the order of their names."""

    def __init__(self, catalogue: Catalogue, touched: Keys) -> None:
        self.lines = {key: catalogue.tools[key] for key in sorted(touched, key=lambda key: catalogue.tools[key].name)}
        self._bit = {key: 1 << place for place, key in enumerate(self.lines)}
        self._by_category: dict[int, int] = {}
        for key, line in self.lines.items():
            self._by_category[line.category_id] = self._by_category.get(line.category_id, 0) | self._bit[key]

    def of(self, keys: Iterable[int]) -> int:
        found = 0
        for key in keys:
            found |= self._bit.get(key, 0)
        return found

    def of_categories(self, keys: Iterable[int]) -> int:
        found = 0
        for key in keys:
            found |= self._by_category.get(key, 0)
        return found

    def names(self, bits: int) -> tuple[str, ...]:
        return tuple(line.name for key, line in self.lines.items() if bits & self._bit[key])


def _differences(
    stored: Stored, bits: Bits, old: Mapping[int, Keys], new: Mapping[int, Keys]
) -> dict[int, tuple[int, int]]:
    """For each member the tools won and lost: the roles' difference, less what a grant of the member's own decides."""
    was = {key: bits.of(_opened(rules, bits.lines)) for key, rules in stored.rules.items()}
    will = was | {key: bits.of(keys) for key, keys in new.items()}
    by_roles: dict[Keys, tuple[int, int]] = {}
    found = {}
    for member, roles in stored.roles_of.items():
        if roles not in by_roles:
            before, after = (reduce(or_, (opened[role] for role in roles)) for opened in (was, will))
            by_roles[roles] = (after & ~before, before & ~after)
        won, lost = by_roles[roles]
        categories, tools = stored.grants_of.get(member, ((), ()))
        decided = bits.of_categories(categories) | bits.of(tools)
        found[member] = (won & ~decided, lost & ~decided)
    return found


def _live_sessions(holders: QuerySet[Any], differences: Mapping[int, tuple[int, int]], bits: Bits) -> int:
    """How many live sessions have other tools at their next turn. Two queries."""
    is_open = Exists(Turn.objects.filter(session=OuterRef("pk"), status__in=OPEN_STATUSES))
    live = ChatSession.objects.filter(
        Q(active_at__gt=timezone.now() - LIVE) | Q(is_open), membership__in=holders, parent_turn=None
    )
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


def _opened(rules: RoleRules, tools: Mapping[int, Line]) -> Keys:
    if rules.mode == RoleMode.NONE:
        return frozenset()
    return frozenset(key for key, line in tools.items() if rules.opens(key, line.category_id))


def _decision(effect: str) -> Decision:
    """An effect as stored; anything but an allow counts as a deny."""
    return "allow" if effect == Effect.ALLOW else "deny"


def told(names: Sequence[str], most: int = TOOLS_NAMED) -> str:
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest:,} more" if rest > 0 else "")


def _tools(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names):,} tools"


def _number(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"
