"""Members and live sessions that a change of configuration concerns, read in bulk, with what members may use.

Sets of tools are whole numbers with a bit for each. Members with the same roles are looked at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import reduce
from operator import or_
from typing import Generic, Protocol, TypeVar

from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from capabilities.choosing.pipeline.permissions import MemberPermissions
from capabilities.contract.permission import Decision, Rights, RoleRules, ToolKey
from capabilities.models import Effect, Grant, Role, RoleMembership, RoleMode, RoleRule
from sessions.models import BY_MEMBERS, KEPT, OPEN_STATUSES, UNENDED, ChatSession, Turn
from toolhub.tenants.models import EVERYWHERE, NOWHERE, Access, AdminRight, Membership, Reach, Right

#: A session counts as live for so long after its last turn was accepted.
LIVE = timedelta(hours=24)
#: Live sessions that a preview looks at, those used last; the others are counted.
SESSIONS_LOOKED_AT = 50
MEMBERS_NAMED = 10
TOOLS_NAMED = 8
GROUPS_NAMED = 3
GROUPS_SHOWN = 8

Keys = frozenset[int]
#: Decisions on categories and on tools, by their keys.
Decisions = tuple[dict[int, Decision], dict[int, Decision]]
#: Bits of the tools won, and of those lost.
Difference = tuple[int, int]


def live_sessions() -> QuerySet[ChatSession]:
    """Return the sessions with an open turn, or one accepted in the last 24 hours; not those that agents opened by
    delegation."""
    under_way = Turn.objects.filter(UNENDED, status__in=OPEN_STATUSES).values("session")
    lately = Q(active_at__gt=timezone.now() - LIVE)
    return ChatSession.objects.filter(KEPT, BY_MEMBERS, lately | Q(pk__in=under_way))


# -- Sets of tools ----------------------------------------------------------------------------------------------------


class Named(Protocol):
    """A tool, as far as it matters here."""

    @property
    def name(self) -> str: ...
    @property
    def category_id(self) -> int: ...
    @property
    def is_meta(self) -> bool: ...


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
class Permissions:
    """Members with all their roles, unexpired grants and the categories that they may load. Keys are those of rows."""

    #: Every role of the organisation: its name, and its rules.
    names: Mapping[int, str]
    rules: Mapping[int, RoleRules]
    roles_of: Mapping[int, Keys]
    grants_of: Mapping[int, Decisions]
    loads_of: Mapping[int, Reach]

    def of_member(self, member: int) -> MemberPermissions:
        rules = tuple(self.rules[role] for role in sorted(self.roles_of.get(member, ())))
        rights = Rights(rules, *self.grants_of.get(member, ({}, {})))
        return MemberPermissions(rights, self.loads_of.get(member, NOWHERE))

    def members_with(self, roles: Iterable[int]) -> dict[int, set[int]]:
        """Return the members who have each of these roles, by role."""
        return {role: {member for member, held in self.roles_of.items() if role in held} for role in roles}


def members_who(holders: QuerySet[Membership] | None = None) -> QuerySet[Membership]:
    """Return those of the holders, or of all members, who may sign in."""
    active = Membership.objects.filter(ended_at=None, user__is_active=True)
    return active if holders is None else active.filter(pk__in=holders.values("pk"))


def members_in(holders: QuerySet[Membership]) -> dict[int, Membership]:
    """Return the members by key, with their users at hand. One query."""
    return {each.pk: each for each in holders.select_related("user")}


def read_permissions(holders: QuerySet[Membership], roles: Iterable[int] = ()) -> Permissions:
    """Read what is stored for these members now, with the rules of their roles and of these. Six queries."""
    keys = holders.values("pk")
    stored = {
        key: (slug, name, mode) for key, slug, name, mode in Role.objects.values_list("pk", "slug", "name", "mode")
    }
    rules_of: dict[int, tuple[dict[int, Decision], dict[int, Decision]]] = {key: ({}, {}) for key in stored}
    held = RoleMembership.objects.filter(membership__in=keys)
    lines = RoleRule.objects.filter(Q(role__in=held.values("role")) | Q(role__in=list(roles)))
    columns = ("role_id", "category_id", "tool_id", "effect")
    for role, category_id, tool_id, effect in lines.values_list(*columns):
        _note(rules_of[role], category_id, tool_id, effect)
    roles_of: dict[int, set[int]] = {}
    for member, role in held.values_list("membership_id", "role_id"):
        roles_of.setdefault(member, set()).add(role)
    grants_of: dict[int, tuple[dict[int, Decision], dict[int, Decision]]] = {}
    in_force = Grant.objects.filter(Q(expires_at=None) | Q(expires_at__gt=Now()), membership__in=keys)
    for member, category_id, tool_id, effect in in_force.values_list(
        "membership_id", "category_id", "tool_id", "effect"
    ):
        _note(grants_of.setdefault(member, ({}, {})), category_id, tool_id, effect)
    loads_of: dict[int, Reach] = {}
    rights = AdminRight.objects.filter(membership__in=keys, right=Right.LOAD_CATEGORIES)
    for member, category in rights.values_list("membership_id", "category"):
        loads_of[member] = Reach(loads_of.get(member, NOWHERE).categories | {category})
    for member in holders.filter(access__in=[Access.ADMIN, Access.OPERATOR]).values_list("pk", flat=True):
        loads_of[member] = EVERYWHERE
    return Permissions(
        {key: name for key, (_, name, _) in stored.items()},
        {key: RoleRules(slug, mode, *rules_of[key]) for key, (slug, _, mode) in stored.items()},
        {member: frozenset(held) for member, held in roles_of.items()},
        dict(grants_of),
        loads_of,
    )


def _note(decisions: Decisions, category_id: int | None, tool_id: int | None, effect: str) -> None:
    """Note a decision. Where the same thing is named twice, the deny is kept; anything but an allow counts as one."""
    kept, key = (decisions[1], tool_id) if category_id is None else (decisions[0], category_id)
    if key is not None and kept.get(key) != "deny":
        kept[key] = "allow" if effect == Effect.ALLOW else "deny"


def usable_by(stored: Permissions, members: Iterable[int], bits: Bits[T]) -> dict[int, int]:
    """Bits of the tools that each of these members may use, as `MemberPermissions.decide` says of each tool. No query.

    Members with the same roles are looked at once. The tools that load others are decided for each member: whether one
    may be used hangs on all the roles.
    """
    meta = {key: line for key, line in bits.lines.items() if line.is_meta}
    every = bits.of(meta)
    keys = {key: ToolKey(key, line.category_id, line.name, True) for key, line in meta.items()}
    by_role = {key: bits.opened(rules) for key, rules in stored.rules.items()}
    by_roles: dict[Keys, int] = {}
    found = {}
    for member in members:
        roles = stored.roles_of.get(member, frozenset())
        if roles not in by_roles:
            by_roles[roles] = reduce(or_, (by_role[role] for role in roles), 0)
        grants = stored.grants_of.get(member, ({}, {}))
        usable = (by_roles[roles] | _granted(grants, "allow", bits)) & ~_granted(grants, "deny", bits) & ~every
        permissions = stored.of_member(member)
        found[member] = usable | bits.of(key for key, of in keys.items() if permissions.decide(of).allowed)
    return found


def _granted(grants: Decisions, wanted: Decision, bits: Bits[T]) -> int:
    categories, tools = ([key for key, effect in each.items() if effect == wanted] for each in grants)
    return bits.of_categories(categories) | bits.of(tools)


# -- Sentences about them ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Group:
    """Members who win and lose the same tools; all by name."""

    members: tuple[str, ...]
    won: tuple[str, ...]
    lost: tuple[str, ...]

    @property
    def members_text(self) -> str:
        return some_of(self.members, MEMBERS_NAMED)

    @property
    def gained_text(self) -> str:
        return some_of(self.won)

    @property
    def lost_text(self) -> str:
        return some_of(self.lost)

    @property
    def sentence(self) -> str:
        """Sentence such as `4 members gain 2 tools`, `1 member loses file_write`."""
        one = len(self.members) == 1
        parts = [
            f"{verb if one else plural} {_tools(names)}"
            for verb, plural, names in (("gains", "gain", self.won), ("loses", "lose", self.lost))
            if names
        ]
        return f"{number_of(len(self.members), 'member')} {' and '.join(parts)}"


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
        """Sentence such as `4 members gain 2 tools, 1 member loses file_write, 3 more gain or lose others`."""
        parts = [group.sentence for group in self.groups[:GROUPS_NAMED]]
        rest = self.others + sum(len(group.members) for group in self.groups[GROUPS_NAMED:])
        parts += [f"{rest:,} more gain or lose others"] if rest else []
        return ", ".join(parts) or "No member gains or loses a tool"


def grouped(differences: Mapping[int, Difference], bits: Bits[T], members: Mapping[int, Membership]) -> Grouped:
    """Group the members by their difference, given by each member's key."""
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


def sessions_text(count: int, not_looked_at: int = 0) -> list[str]:
    """Return parts such as `2 live sessions change at their next turn`, `950 more live sessions were not looked at`;
    nothing for none."""
    verb, whose = ("changes", "its") if count == 1 else ("change", "their")
    parts = [f"{number_of(count, 'live session')} {verb} at {whose} next turn"] if count else []
    if not_looked_at:
        parts.append(
            f"{number_of(not_looked_at, 'more live session')} {'was' if not_looked_at == 1 else 'were'} not looked at"
        )
    return parts


def some_of(names: Sequence[str], most: int = TOOLS_NAMED) -> str:
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest:,} more" if rest > 0 else "")


def number_of(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def tokens_text(tokens: int) -> str:
    return f"{tokens:+,}" if tokens else "±0"


def _tools(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names):,} tools"
