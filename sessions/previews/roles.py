"""Whom a change of roles changes, before it is saved: members, live sessions, tools won and lost, tokens.

A member's tools are the union of the roles, and a grant beats them all: so a tool that a role gains or loses is won or
lost only by members whose other roles do not open it, and who have no grant on it or its category. Members with the
same roles are looked at once, and sets of tools are whole numbers with a bit for each. The tools that load others need
no role that lists them; a role's deny counts. Eight or nine queries, whatever there is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import chain
from operator import or_
from typing import ClassVar

from django.db.models import Q

from capabilities.access.previews import NewRole
from capabilities.contract.permission import OPENING, Decision, RoleRules, ToolKey
from capabilities.models import AgentTool, Grant, Role, RoleMembership, Tool
from capabilities.pipeline.specs import is_meta_tool
from sessions.previews.concerned import (
    Bits,
    Difference,
    Group,
    Grouped,
    Keys,
    Stored,
    Usable,
    decision,
    grouped,
    live_sessions,
    members_in,
    opened,
    read_stored,
    sessions_told,
    standings_of,
    tokens_told,
    told,
)
from toolhub.tenants.models import Membership

#: What a role that is not there yet says.
NO_RULES = RoleRules("", "")


@dataclass(frozen=True)
class RoleChange:
    """One role by itself: the tools that it would open and close, by name."""

    name: str
    opened: tuple[str, ...]
    closed: tuple[str, ...]
    #: Of the current versions of the opened tools, less those of the closed ones, as far as they are switched on.
    tokens: int
    #: Who have it afterwards, and how many of these did not, and how many lose it.
    members: int
    given: int = 0
    taken: int = 0

    @property
    def is_same(self) -> bool:
        return not (self.opened or self.closed or self.given or self.taken)

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

    #: What pages draw it with.
    template: ClassVar[str] = "sessions/previews/_impact.html"

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
    def changes_somebody(self) -> bool:
        return bool(self.groups)

    @property
    def members(self) -> int:
        return self.concerned.members

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
    """What saving these roles would change, over all members who may sign in and have one of them, or would.

    A session is live while it has an open turn, or had one accepted in the last 24 hours. It counts where a tool that
    its member loses is among those that its agent was last sent, or where its agent would send one that its member
    wins: one of the agent's own or of the core categories that it starts with, switched on. Where nothing was sent
    yet, what the agent would send counts for what is lost, too. What was loaded beside counts once it was sent;
    sessions that other agents opened by delegation do not count.
    """
    catalogue = _read_catalogue()
    changed = {new.role.pk: new.role for new in wanted if new.role.pk}
    before = _stored(wanted)
    roles_after = _roles_after(before, wanted)
    rules = {each.role.pk: _rules_after(before, each, catalogue) for each in wanted}
    old = {new.role.pk: _before(before, new.role, catalogue) for new in wanted}
    new = {key: _opened(each, catalogue.tools) for key, each in rules.items()}
    touched = frozenset(chain.from_iterable(old[key] ^ new[key] for key in old))
    meta = _meta_touched({key: before.rules[key] for key in changed}, rules, catalogue.tools)
    if roles_after != before.roles_of:
        moved = {each.role.pk for each in wanted if each.given or each.taken}
        touched |= frozenset(chain.from_iterable(old[key] | new[key] for key in moved))
        meta |= frozenset(key for key, line in catalogue.tools.items() if line.is_meta)
    roles = tuple(_role_change(each, old, new, catalogue, roles_after) for each in wanted)
    if not (touched or meta) or not roles_after:
        return Impact(roles, unchanged=len(roles_after))
    bits = Bits(catalogue.tools, touched | meta)
    members = members_in(before.holders)
    differences = _differences(before, roles_after, bits, old, new)
    if meta:
        _add_meta(differences, before, roles_after, rules, bits, members)
    found = grouped(differences, bits, members)
    return Impact(
        roles,
        found,
        unchanged=len(differences) - found.members,
        sessions=_live_sessions(before, differences, bits) if found.groups else 0,
    )


def impact_of_revoking(grant: Grant) -> Impact:
    """What the member of a grant gains and loses when it is revoked. Twelve queries at most."""
    catalogue = _read_catalogue()
    named = {
        key
        for key, line in catalogue.tools.items()
        if line.is_meta or key == grant.tool_id or line.category_id == grant.category_id
    }
    bits = Bits(catalogue.tools, named)
    holders = Membership.objects.filter(pk=grant.membership_id, ended_at=None, user__is_active=True).values("pk")
    members = members_in(holders)
    before, after = read_stored(holders), read_stored(holders, without=grant)
    was, will = _usable(before, bits, members), _usable(after, bits, members)
    differences = {key: (will[key] & ~was[key], was[key] & ~will[key]) for key in members}
    found = grouped(differences, bits, members)
    return Impact((), found, sessions=_live_sessions(before, differences, bits) if found.groups else 0)


def impact_of_switching_off(names: Collection[str], *, actor: Membership) -> Impact:
    """What members other than the actor lose when these tools are switched off. Ten queries at most."""
    catalogue = _read_catalogue()
    bits = Bits(
        catalogue.tools, [key for key, line in catalogue.tools.items() if line.name in names and line.is_enabled]
    )
    holders = Membership.objects.filter(ended_at=None, user__is_active=True).exclude(pk=actor.pk).values("pk")
    members = members_in(holders)
    stored = read_stored(holders)
    differences = {key: (0, usable) for key, usable in _usable(stored, bits, members).items()}
    found = grouped(differences, bits, members)
    return Impact((), found, sessions=_live_sessions(stored, differences, bits) if found.groups else 0)


def _usable(stored: Stored, bits: Bits[Line], members: Mapping[int, Membership]) -> dict[int, int]:
    """Bits of the tools that each member may use. One query."""
    usable = Usable(stored, bits)
    meta = {key: ToolKey(key, line.category_id, line.name, True) for key, line in bits.lines.items() if line.is_meta}
    every = bits.of(meta)
    return {
        key: usable.by(key) & ~every | bits.of(tool for tool, of in meta.items() if standing.decide(of).allowed)
        for key, standing in standings_of(stored, members).items()
    }


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
    is_meta: bool


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
        for rule in new.rules or ():
            if rule.tool in tools:
                by_tool[tools[rule.tool]] = decision(rule.effect)
            elif rule.category in categories:
                by_category[categories[rule.category]] = decision(rule.effect)
        return RoleRules(new.role.slug, new.mode, by_category, by_tool)

    def tokens(self, keys: Iterable[int]) -> int:
        return sum(self.tools[key].tokens for key in keys if self.tools[key].is_enabled)


def _read_catalogue() -> Catalogue:
    rows = Tool.objects.values_list(
        "pk",
        "name",
        "kind",
        "category_id",
        "category__name",
        "category__is_core",
        "is_enabled",
        "current_version__tokens",
    )
    return Catalogue(
        {
            key: Line(name, category_id, category, is_core, is_enabled, tokens or 0, is_meta_tool(name, kind))
            for key, name, kind, category_id, category, is_core, is_enabled, tokens in rows
        }
    )


# -- What changes -----------------------------------------------------------------------------------------------------


def _stored(wanted: Sequence[NewRole]) -> Stored:
    """The members who may sign in and have one of these roles, or would get one. Three queries."""
    stored = [new.role for new in wanted if new.role.pk]
    held = RoleMembership.objects.filter(role__in=[role.pk for role in stored]).values("membership")
    given = frozenset(chain.from_iterable(new.given for new in wanted))
    active = Membership.objects.filter(ended_at=None, user__is_active=True)
    named = Q(pk__in=held) | Q(pk__in=given) if given else Q(pk__in=held)
    return read_stored(active.filter(named).values("pk"), stored)


def _roles_after(stored: Stored, wanted: Sequence[NewRole]) -> dict[int, Keys]:
    """Keys of the roles that each member would have. Whoever may not sign in has none."""
    found = dict(stored.roles_of)
    given = frozenset(chain.from_iterable(new.given for new in wanted))
    active = set(stored.holders.filter(pk__in=given).values_list("pk", flat=True)) if given else set()
    for new in wanted:
        for member in new.given & active:
            found[member] = found.get(member, frozenset()) | {new.role.pk}
        for member in new.taken & found.keys():
            found[member] -= {new.role.pk}
    return found


def _rules_after(stored: Stored, new: NewRole, catalogue: Catalogue) -> RoleRules:
    if new.rules is not None:
        return catalogue.compiled(new)
    return replace(stored.rules[new.role.pk], mode=new.mode)


def _before(stored: Stored, role: Role, catalogue: Catalogue) -> Keys:
    rules = stored.rules.get(role.pk) if role.pk else None
    return _opened(rules or NO_RULES, catalogue.tools)


def _opened(rules: RoleRules, tools: Mapping[int, Line]) -> Keys:
    """What the role opens. A tool that loads others counts as opened unless the role denies it: it needs no more."""
    named = {key: line for key, line in tools.items() if not line.is_meta}
    meta = (key for key, line in tools.items() if line.is_meta and not rules.denies(key, line.category_id))
    return opened(rules, named) | frozenset(meta)


def _meta_touched(
    old: Mapping[int, RoleRules], new: Mapping[int, RoleRules], tools: Mapping[int, Line]
) -> frozenset[int]:
    """Keys of the tools that load others, of which a changed role says something else than before."""

    def of(rules: RoleRules, key: int, line: Line) -> tuple[bool, bool, bool]:
        return rules.mode in OPENING, rules.opens(key, line.category_id), rules.denies(key, line.category_id)

    return frozenset(
        key
        for key, line in tools.items()
        if line.is_meta and any(of(old[role], key, line) != of(new[role], key, line) for role in old)
    )


def _role_change(
    wanted: NewRole,
    old: Mapping[int, Keys],
    new: Mapping[int, Keys],
    catalogue: Catalogue,
    roles_of: Mapping[int, Keys],
) -> RoleChange:
    key = wanted.role.pk
    opened, closed = new[key] - old[key], old[key] - new[key]
    return RoleChange(
        wanted.role.name,
        catalogue.names(opened),
        catalogue.names(closed),
        catalogue.tokens(opened) - catalogue.tokens(closed),
        sum(1 for roles in roles_of.values() if key in roles),
        len(wanted.given),
        len(wanted.taken),
    )


def _differences(
    stored: Stored,
    roles_after: Mapping[int, Keys],
    bits: Bits[Line],
    old: Mapping[int, Keys],
    new: Mapping[int, Keys],
) -> dict[int, Difference]:
    """For each member the tools won and lost: the roles' difference, less what a grant of the member's own decides."""
    was = {key: bits.of(_opened(rules, bits.lines)) for key, rules in stored.rules.items()}
    will = was | {key: bits.of(keys) for key, keys in new.items()}
    by_roles: dict[tuple[Keys, Keys], Difference] = {}
    found = {}
    for member, roles in roles_after.items():
        pair = (stored.roles_of.get(member, frozenset()), roles)
        if pair not in by_roles:
            before = reduce(or_, (was[role] for role in pair[0]), 0)
            after = reduce(or_, (will[role] for role in pair[1]), 0)
            by_roles[pair] = (after & ~before, before & ~after)
        won, lost = by_roles[pair]
        categories, tools = stored.grants_of.get(member, ((), ()))
        decided = bits.of_categories(categories) | bits.of(tools)
        found[member] = (won & ~decided, lost & ~decided)
    return found


def _add_meta(
    differences: dict[int, Difference],
    stored: Stored,
    roles_after: Mapping[int, Keys],
    new: Mapping[int, RoleRules],
    bits: Bits[Line],
    members: Mapping[int, Membership],
) -> None:
    """Put right what is won and lost of the tools that load others: whether one may be used hangs on all the roles.
    One query."""
    meta = {key: ToolKey(key, line.category_id, line.name, True) for key, line in bits.lines.items() if line.is_meta}
    every = bits.of(meta)
    after = replace(stored, rules={**stored.rules, **new}, roles_of=roles_after)
    was, will = standings_of(stored, members), {key: after.rights_of(key) for key in members}
    for member, standing in was.items():
        had = bits.of(key for key, tool in meta.items() if standing.decide(tool).allowed)
        after_it = replace(standing, rights=will[member])
        has = bits.of(key for key, tool in meta.items() if after_it.decide(tool).allowed)
        won, lost = differences.get(member, (0, 0))
        differences[member] = (won & ~every | has & ~had, lost & ~every | had & ~has)


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
