"""Previews of a change of permissions, before it is saved: members, live sessions, tools won and lost, tokens.

The change is written by the function that saves it, what it makes is read, and it is taken back: so a preview says what
saving does, and refuses what saving refuses. Live sessions are asked for what their next turn would send, before and
after, by the selection of a turn. The number of queries is the same whatever there is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from django.db.models import QuerySet

from capabilities.access.grants.writes import revoke_grant
from capabilities.catalogue.tools.writes import set_tools_enabled
from capabilities.common.taken_back import taken_back
from capabilities.contract.permission import RoleRules
from capabilities.contract.spec import is_meta_tool
from capabilities.models import Grant, Role, Tool
from sessions.insight.previews.concerned import (
    SESSIONS_LOOKED_AT,
    Bits,
    Difference,
    Group,
    Grouped,
    Keys,
    Permissions,
    grouped,
    live_sessions,
    members_in,
    members_who,
    opened,
    read_permissions,
    sessions_text,
    some_of,
    tokens_text,
    usable_by,
)
from sessions.models import ChatSession, Turn
from sessions.selection.bulk import AgentTools, Setup, Shelf, read_setup, read_shelf
from sessions.selection.holdings import loads_in
from toolhub.tenants.models import Membership

#: Rules of a role that is not there.
NO_RULES = RoleRules("", "")


@dataclass(frozen=True)
class RoleChange:
    """One role by itself: the tools that it would open and close, by name."""

    name: str
    opened: tuple[str, ...]
    closed: tuple[str, ...]
    #: Tokens of the current versions of the opened tools, less those of the closed ones, as far as they are switched
    #: on.
    tokens: int
    #: Members who have it afterwards, and how many of these did not, and how many lose it.
    members: int
    given: int = 0
    taken: int = 0

    @property
    def is_same(self) -> bool:
        return not (self.opened or self.closed or self.given or self.taken)

    @property
    def opened_text(self) -> str:
        return some_of(self.opened)

    @property
    def closed_text(self) -> str:
        return some_of(self.closed)

    @property
    def tokens_text(self) -> str:
        return tokens_text(self.tokens)


@dataclass(frozen=True)
class Impact:
    """Impact of saving a change of permissions."""

    #: Template that pages draw it with.
    template: ClassVar[str] = "sessions/insight/previews/_impact.html"

    roles: tuple[RoleChange, ...]
    concerned: Grouped = field(default_factory=Grouped)
    #: Members who have one of the roles, and win and lose nothing.
    unchanged: int = 0
    #: Live sessions of members who win or lose something, whose tools change with their next turn; of those that were
    #: looked at.
    sessions: int = 0
    not_looked_at: int = 0

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
        """Sentence such as `4 members gain 2 tools, 1 member loses file_write; 2 live sessions change at their next
        turn; ...`."""
        parts = [self.concerned.sentence, *sessions_text(self.sessions, self.not_looked_at)]
        parts += [f"{role.tokens_text} tokens for {role.name}" for role in self.roles if role.tokens]
        return "; ".join(parts) + "."


def impact_of_roles(change: Callable[[], object], roles: Iterable[Role] = ()) -> Impact:
    """Preview this write, over all members who may sign in, and for these roles (and one that it adds).

    Raises what the write raises. A session is live while it has an open turn, or had one accepted in the last 24 hours;
    those that other agents opened by delegation do not count.
    """
    return _impact(change, members_who(), [role.pk for role in roles if role.pk])


def impact_of_revoking(grant: Grant, actor: Membership) -> Impact:
    """Preview what the member of a grant gains and loses when it is revoked."""
    again = Grant.objects.select_related("tool__category", "category", "membership__user").get(pk=grant.pk)
    return impact_on(Membership.objects.filter(pk=grant.membership_id), lambda: revoke_grant(again, actor=actor))


def impact_of_switching_off(names: Collection[str], *, actor: Membership) -> Impact:
    """Preview what members other than the actor lose when these tools are switched off."""
    others = Membership.objects.exclude(pk=actor.pk)
    return impact_on(others, lambda: set_tools_enabled(names, False, actor=actor))


def impact_on(members: QuerySet[Membership], change: Callable[[], object]) -> Impact:
    """Preview this write for these members, a query that finds the same before and after it.

    Raises what the write raises.
    """
    return _impact(change, members_who(members), [])


# -- Before and after -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ToolFacts:
    """One tool, as far as it matters here."""

    name: str
    category_id: int
    is_enabled: bool
    tokens: int
    is_meta: bool


@dataclass(frozen=True)
class Snapshot:
    """Stored state at one moment: every tool by its key, and what members may use."""

    tools: Mapping[int, ToolFacts]
    permissions: Permissions

    @property
    def is_on(self) -> dict[int, bool]:
        return {key: line.is_enabled for key, line in self.tools.items()}

    def usable(self, members: Iterable[int], bits: Bits[ToolFacts]) -> dict[int, int]:
        """Bits of the tools that each member may use, and that are switched on."""
        on = bits.of(key for key, line in self.tools.items() if line.is_enabled)
        return {member: usable & on for member, usable in usable_by(self.permissions, members, bits).items()}

    def opened_by(self, role: int) -> Keys:
        """Return the keys of the tools that the role opens. A tool that loads others counts as opened unless the role
        denies it."""
        rules = self.permissions.rules.get(role, NO_RULES)
        named = {key: line for key, line in self.tools.items() if not line.is_meta}
        meta = (key for key, line in self.tools.items() if line.is_meta and not rules.denies(key, line.category_id))
        return opened(rules, named) | frozenset(meta)


def _read(members: QuerySet[Membership], roles: Collection[int]) -> Snapshot:
    """Seven queries."""
    rows = Tool.objects.values_list("pk", "name", "kind", "category_id", "is_enabled", "current_version__tokens")
    tools = {
        key: ToolFacts(name, category_id, is_enabled, tokens or 0, is_meta_tool(name, kind))
        for key, name, kind, category_id, is_enabled, tokens in rows
    }
    return Snapshot(tools, read_permissions(members, roles))


def _impact(change: Callable[[], object], members: QuerySet[Membership], roles: list[int]) -> Impact:
    """Twenty-six queries, and those of the change: eight of them, with the change, hold the write lock."""
    before, people = _read(members, roles), members_in(members)
    with taken_back():
        made = change()
        if isinstance(made, Role) and made.pk not in roles:
            roles.append(made.pk)
        after = _read(members, roles)
    bits = Bits(before.tools, before.tools)
    was, will = before.usable(people, bits), after.usable(people, bits)
    differences = {key: (will[key] & ~was[key], was[key] & ~will[key]) for key in people}
    had, have = before.permissions.members_with(roles), after.permissions.members_with(roles)
    concerned = {member for holders in (*had.values(), *have.values()) for member in holders}
    sessions, not_looked_at = _sessions(before, after, differences, members)
    return Impact(
        tuple(_role_change(key, before, after, had[key], have[key]) for key in roles),
        grouped(differences, bits, people),
        sum(1 for member in concerned if not any(differences[member])),
        sessions,
        not_looked_at,
    )


def _role_change(key: int, before: Snapshot, after: Snapshot, had: set[int], have: set[int]) -> RoleChange:
    was, will = before.opened_by(key), after.opened_by(key)
    names = before.permissions.names if key in before.permissions.names else after.permissions.names

    def texts_of(keys: Keys) -> tuple[str, ...]:
        return tuple(sorted(before.tools[key].name for key in keys))

    def tokens(keys: Keys) -> int:
        return sum(before.tools[key].tokens for key in keys if before.tools[key].is_enabled)

    return RoleChange(
        names[key],
        texts_of(will - was),
        texts_of(was - will),
        tokens(will - was) - tokens(was - will),
        len(have),
        len(have - had),
        len(had - have),
    )


# -- Live sessions ----------------------------------------------------------------------------------------------------


def _sessions(
    before: Snapshot, after: Snapshot, differences: Mapping[int, Difference], members: QuerySet[Membership]
) -> tuple[int, int]:
    """Count the live sessions that have other tools at their next turn, and those that were not looked at. Ten
    queries."""
    live = live_sessions().filter(membership__in=members.values("pk")).order_by("-active_at", "pk")
    changed = [key for key, member in live.values_list("pk", "membership_id") if any(differences.get(member, ()))]
    looked_at = ChatSession.objects.filter(pk__in=changed[:SESSIONS_LOOKED_AT])
    sessions = {each.pk: each for each in looked_at}
    talks = agents_in(looked_at, sessions.values())
    setup = read_setup({agent for agents in talks.values() for agent in agents})
    loads = loads_in(looked_at)
    loaded = {key for rows in loads.values() for load, _ in rows for key in load.bundle.category_ids}
    shelf = read_shelf(
        setup.tools,
        setup.categories | loaded,
        every=setup.has_every_tool,
        with_definitions=setup.counts_anew,
    )
    sides = [(side, agents_of(setup, shelf.switched(side.is_on))) for side in (before, after)]
    count = 0
    for key, session in sessions.items():
        was, will = (
            [
                sent_by(agents[agent].selection(session, permissions, loads.get(key, ())))
                for agent in sorted(talks[key])
                for permissions in [side.permissions.of_member(session.membership_id)]
            ]
            for side, agents in sides
        )
        count += was != will
    return count, len(changed) - len(sessions)


def agents_in(sessions: QuerySet[ChatSession], rows: Iterable[ChatSession]) -> dict[Any, set[int]]:
    """Return for each of these sessions, by key, its agent, and those that it has talked to. One query."""
    found = {each.pk: {each.agent_id} for each in rows}
    talked = Turn.objects.filter(session__in=sessions.values("pk")).order_by()
    for key, agent in talked.values_list("session_id", "agent_id").distinct():
        found[key].add(agent)
    return found


def agents_of(setup: Setup, shelf: Shelf) -> dict[int, AgentTools]:
    return {key: AgentTools(setup, key, shelf) for key in setup.agents}


def sent_by(selection: Any) -> frozenset[Any]:
    """Return what a session gets of a selection: its tools, each with its overrides."""
    return frozenset((tool.tool_id, tool.overrides) for tool in selection.tools)
