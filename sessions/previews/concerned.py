"""Whom a change of configuration concerns, read in bulk: what members may use, and the sessions that are live.

Sets of tools are whole numbers with a bit for each. Members with the same roles are looked at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import reduce
from operator import or_
from typing import Any, Generic, Protocol, TypeVar

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from capabilities.contract.permission import Decision, Rights, RoleRules
from capabilities.models import Effect, Grant, Role, RoleMembership, RoleMode, RoleRule
from capabilities.pipeline.permissions import Standing
from sessions.models import KEPT, OPEN_STATUSES, ChatSession, Turn
from toolhub.tenants.models import EVERYWHERE, NOWHERE, Access, AdminRight, Membership, Reach, Right

#: A session counts as live for so long after its last turn was accepted.
LIVE = timedelta(hours=24)
MEMBERS_NAMED = 10
TOOLS_NAMED = 8
GROUPS_TOLD = 3
GROUPS_SHOWN = 8

Keys = frozenset[int]
#: What is said of categories and of tools, by their keys.
Said = tuple[Mapping[int, Decision], Mapping[int, Decision]]
#: Bits of the tools won, and of those lost.
Difference = tuple[int, int]


def live_sessions() -> QuerySet[ChatSession]:
    """With an open turn, or one accepted in the last 24 hours; not those that agents opened by delegation."""
    is_open = Exists(Turn.objects.filter(session=OuterRef("pk"), status__in=OPEN_STATUSES))
    return ChatSession.objects.filter(KEPT, Q(active_at__gt=timezone.now() - LIVE) | Q(is_open), parent_turn=None)


# -- Sets of tools ----------------------------------------------------------------------------------------------------


class Named(Protocol):
    """A tool, as far as it matters here."""

    @property
    def name(self) -> str: ...
    @property
    def category_id(self) -> int: ...


T = TypeVar("T", bound=Named)


class Bits(Generic[T]):
    """Sets of some tools as whole numbers: one bit a tool, in the order of their names."""

    def __init__(self, tools: Mapping[int, T], touched: Iterable[int]) -> None:
        self.lines = {key: tools[key] for key in sorted(touched, key=lambda key: tools[key].name)}
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

    def opened(self, rules: RoleRules) -> int:
        return self.of(opened(rules, self.lines))


def opened(rules: RoleRules, tools: Mapping[int, Named]) -> Keys:
    if rules.mode == RoleMode.NONE:
        return frozenset()
    return frozenset(key for key, line in tools.items() if rules.opens(key, line.category_id))


# -- What members may use ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stored:
    """Members with all their roles and unexpired grants."""

    #: Keys of the memberships, as a query.
    holders: QuerySet[Any]
    rules: Mapping[int, RoleRules]
    roles_of: Mapping[int, Keys]
    grants_of: Mapping[int, Said]

    def rights_of(self, member: int) -> Rights:
        held = sorted(self.roles_of.get(member, ()), key=lambda role: role or 0)  # None: one that is not stored yet
        rules = tuple(self.rules[role] for role in held)
        return Rights(rules, *self.grants_of.get(member, ({}, {})))


def standings_of(stored: Stored, members: Mapping[int, Membership]) -> dict[int, Standing]:
    """What each of these members may use and load, by key. One query."""
    delegated: dict[int, Reach] = {}
    rights = AdminRight.objects.filter(membership__in=stored.holders, right=Right.LOAD_CATEGORIES)
    for key, category in rights.values_list("membership_id", "category"):
        delegated[key] = Reach(delegated.get(key, NOWHERE).categories | {category})
    return {
        key: Standing(
            stored.rights_of(key),
            EVERYWHERE if member.access in (Access.ADMIN, Access.OPERATOR) else delegated.get(key, NOWHERE),
        )
        for key, member in members.items()
    }


def read_stored(holders: QuerySet[Any], roles: Collection[Role] = (), *, without: Grant | None = None) -> Stored:
    """What these members have, and the rules of these roles even if none of them has one. Three queries.

    `without`: as if this grant were not there.
    """
    modes = {role.pk: (role.slug, role.mode) for role in roles}
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
            by_tool[tool_id] = decision(effect)
        elif category_id is not None:
            by_category[category_id] = decision(effect)
    return Stored(
        holders,
        {key: RoleRules(slug, mode, *rules[key]) for key, (slug, mode) in modes.items()},
        {member: frozenset(roles) for member, roles in roles_of.items()},
        _grants(holders, without),
    )


def _grants(holders: QuerySet[Any], without: Grant | None) -> dict[int, Said]:
    in_force = Grant.objects.filter(Q(expires_at=None) | Q(expires_at__gt=Now()), membership__in=holders)
    if without is not None:
        in_force = in_force.exclude(pk=without.pk)
    found: dict[int, tuple[dict[int, Decision], dict[int, Decision]]] = {}
    rows = in_force.values_list("membership_id", "category_id", "tool_id", "effect")
    for member, category_id, tool_id, effect in rows:
        categories, tools = found.setdefault(member, ({}, {}))
        said, key = (tools, tool_id) if category_id is None else (categories, category_id)
        if key is not None and said.get(key) != "deny":
            said[key] = decision(effect)
    return dict(found)


def decision(effect: str) -> Decision:
    """An effect as stored; anything but an allow counts as a deny."""
    return "allow" if effect == Effect.ALLOW else "deny"


class Usable(Generic[T]):
    """Bits of the tools that each member may use."""

    def __init__(self, stored: Stored, bits: Bits[T]) -> None:
        self._stored, self._bits = stored, bits
        self._opened = {key: bits.opened(rules) for key, rules in stored.rules.items()}
        self._by_roles: dict[Keys, int] = {}

    def by(self, member: int) -> int:
        roles = self._stored.roles_of.get(member, frozenset())
        if roles not in self._by_roles:
            self._by_roles[roles] = reduce(or_, (self._opened[role] for role in roles), 0)
        said = self._stored.grants_of.get(member, ({}, {}))
        return (self._by_roles[roles] | self._granted(said, "allow")) & ~self._granted(said, "deny")

    def _granted(self, said: Said, wanted: Decision) -> int:
        categories, tools = ([key for key, effect in each.items() if effect == wanted] for each in said)
        return self._bits.of_categories(categories) | self._bits.of(tools)


def members_in(holders: QuerySet[Any]) -> dict[int, Membership]:
    """With their users at hand. One query."""
    return {each.pk: each for each in Membership.objects.select_related("user").filter(pk__in=holders)}


# -- What is told of them ---------------------------------------------------------------------------------------------


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
        return f"{number_of(len(self.members), 'member')} {' and '.join(said)}"


@dataclass(frozen=True)
class Grouped:
    """Everybody who wins or loses something: the first groups, the largest before the others."""

    groups: tuple[Group, ...] = ()
    #: Members who win or lose something, and are in none of `groups`.
    others: int = 0

    @property
    def members(self) -> int:
        return self.others + sum(len(group.members) for group in self.groups)

    @property
    def sentence(self) -> str:
        """`4 members gain 2 tools, 1 member loses file_write, 3 more gain or lose others`."""
        said = [group.sentence for group in self.groups[:GROUPS_TOLD]]
        rest = self.others + sum(len(group.members) for group in self.groups[GROUPS_TOLD:])
        said += [f"{rest:,} more gain or lose others"] if rest else []
        return ", ".join(said) or "No member gains or loses a tool"


def grouped(differences: Mapping[int, Difference], bits: Bits[T], members: Mapping[int, Membership]) -> Grouped:
    """Of each member's difference, by key."""
    found: dict[Difference, list[str]] = {}
    for key, difference in differences.items():
        if any(difference):
            found.setdefault(difference, []).append(str(members[key].user))
    largest = sorted(found.items(), key=lambda group: (-len(group[1]), sorted(group[1])))
    return Grouped(
        tuple(
            Group(tuple(sorted(names)), bits.names(won), bits.names(lost))
            for (won, lost), names in largest[:GROUPS_SHOWN]
        ),
        others=sum(len(names) for _, names in largest[GROUPS_SHOWN:]),
    )


def sessions_told(count: int) -> list[str]:
    """`2 live sessions change at their next turn`; nothing for none."""
    verb, whose = ("changes", "its") if count == 1 else ("change", "their")
    return [f"{number_of(count, 'live session')} {verb} at {whose} next turn"] if count else []


def told(names: Sequence[str], most: int = TOOLS_NAMED) -> str:
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest:,} more" if rest > 0 else "")


def number_of(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def tokens_told(tokens: int) -> str:
    return f"{tokens:+,}" if tokens else "±0"


def _tools(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names):,} tools"
