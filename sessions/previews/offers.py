"""Whom a change of an agent or a toolkit changes, before it is saved: tools won and lost, live sessions, tokens.

What would be is read from what would be: the change is written in a transaction that is taken back, so that a preview
never says anything else than what saving does, and refuses what saving refuses. Only the configuration is read in
there; what it means for members and sessions is worked out afterwards, with the same functions that select a turn's
tools. The number of queries is the same whatever the number of agents, sessions, members and tools.

Tools that are switched off or need set-up are offered to nobody here. Sessions with the same loads are looked at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet

from capabilities.agents.writes import AgentContent, update_agent
from capabilities.models import Agent, AgentToolkit, Toolkit
from capabilities.pipeline.permissions import Standing, standing_of
from capabilities.pipeline.specs import ToolSpec
from capabilities.toolkits.writes import ToolkitContent, overrides_in_words, update_toolkit
from sessions.models import ChatSession, Turn
from sessions.previews.concerned import (
    Bits,
    Difference,
    Grouped,
    Usable,
    grouped,
    live_sessions,
    members_in,
    number_of,
    read_stored,
    sessions_told,
    standings_of,
    tokens_told,
    told,
)
from sessions.previews.offer_sides import Sent, Setup, Shelf, Side, read_setup, read_shelf
from sessions.selection.reach import Holdings, loads_in
from toolhub.tenants.models import Membership

AGENTS_SHOWN = 8
OVERRIDES_SHOWN = 12


@dataclass(frozen=True)
class AgentChange:
    """One agent by itself: what it sends at the start of a session, and what could be loaded beside, by name."""

    name: str
    sent: tuple[str, ...]
    no_longer_sent: tuple[str, ...]
    loadable: tuple[str, ...]
    no_longer_loadable: tuple[str, ...]
    #: Of what a new session of the actor's sends with its first turn.
    tokens_before: int
    tokens_after: int
    #: How many tools of that first turn would not fit into one request.
    over_limit: int = 0

    @property
    def is_one(self) -> bool:
        """Whether anything about it changes."""
        return any((self.sent, self.no_longer_sent, self.loadable, self.no_longer_loadable, self.tokens))

    @property
    def tokens(self) -> int:
        return self.tokens_after - self.tokens_before

    @property
    def tokens_told(self) -> str:
        return tokens_told(self.tokens)

    @property
    def lines(self) -> list[tuple[str, str, bool]]:
        """What changes: words, names, and whether it is won."""
        found = [
            ("sends at the start", self.sent, True),
            ("no longer sends at the start", self.no_longer_sent, False),
            ("can load", self.loadable, True),
            ("can no longer load", self.no_longer_loadable, False),
        ]
        return [(f"{words} {len(names):,}:", told(names), is_won) for words, names, is_won in found if names]


@dataclass(frozen=True)
class OverrideChange:
    """A tool that stays, with another timeout or another length of its results."""

    tool: str
    before: str
    after: str


@dataclass(frozen=True)
class OfferImpact:
    """What saving would do."""

    #: What pages draw it with.
    template: ClassVar[str] = "sessions/previews/_offer_impact.html"

    #: Whether anything but words differs from what is stored; if not, nobody feels it.
    is_felt: bool
    #: The first agents concerned, by name, and how many more there are.
    agents: tuple[AgentChange, ...] = ()
    other_agents: int = 0
    concerned: Grouped = field(default_factory=Grouped)
    #: Members with a live session with one of these agents for whom nothing changes.
    unchanged: int = 0
    #: Live sessions that are sent other tools, or the same ones with other overrides, with their next turn.
    sessions: int = 0
    #: What these have loaded and would lose.
    dropped: int = 0
    overrides: tuple[OverrideChange, ...] = ()
    other_overrides: int = 0

    @property
    def changes_somebody(self) -> bool:
        return self.is_felt

    @property
    def members(self) -> int:
        return self.concerned.members

    @property
    def sentence(self) -> str:
        """`1 member loses docker; 2 live sessions change at their next turn; 1 load is dropped; -90 tokens for Ops.`"""
        parts = [self.concerned.sentence, *sessions_told(self.sessions)]
        if self.dropped:
            parts.append(f"{number_of(self.dropped, 'load')} {'is' if self.dropped == 1 else 'are'} dropped")
        overrides = len(self.overrides) + self.other_overrides
        if overrides:
            parts.append(f"{number_of(overrides, 'tool')} with other overrides")
        parts += [f"{each.tokens_told} tokens at the start for {each.name}" for each in self.agents[:3] if each.tokens]
        return "; ".join(parts) + "."


def impact_of_agent(agent: Agent, content: AgentContent, *, actor: Membership) -> OfferImpact:
    """What saving this content would change. Raises ChangeRefused for what could not be saved."""
    agents = [agent.pk]
    before = read_setup(agents)
    after = _if(lambda: update_agent(_again(agent), content, actor=actor), lambda: read_setup(agents))
    return _impact(before, after, actor)


def impact_of_toolkit(toolkit: Toolkit, content: ToolkitContent, *, actor: Membership) -> OfferImpact:
    """The same, over all agents that may load the toolkit: where there is none, nobody feels anything."""
    agents = list(AgentToolkit.objects.filter(toolkit=toolkit).values_list("agent_id", flat=True))
    before = read_setup(agents)
    again = Toolkit.objects.get(pk=toolkit.pk)
    after = _if(lambda: update_toolkit(again, content, actor=actor), lambda: read_setup(agents))
    return _impact(before, after, actor)


def _again(agent: Agent) -> Agent:
    """A second one to write on."""
    return Agent.objects.for_display().get(pk=agent.pk)


def _if(change: Callable[[], Any], read: Callable[[], Setup]) -> Setup:
    """What is there once the change is made, which is then taken back. Raises what the change raises."""
    with transaction.atomic():
        change()
        found = read()
        transaction.set_rollback(True)
    return found


def _agent_change(
    before: Side, after: Side, bits: Bits[ToolSpec], actor: Membership, standing: Standing
) -> AgentChange:
    was, will = before.starts_with, after.starts_with
    could, can = before.reaches & ~was, after.reaches & ~will
    sent_before, sent_after = (side.starting_selection(actor, standing) for side in (before, after))
    return AgentChange(
        str(before.agent),
        bits.names(will & ~was),
        bits.names(was & ~will),
        bits.names(can & ~could),
        bits.names(could & ~can),
        sent_before.tokens,
        sent_after.tokens,
        len(sent_after.over_limit),
    )


def _override_changes(pairs: Iterable[tuple[Side, Side]], shelf: Shelf) -> list[OverrideChange]:
    """Tools that stay in an agent's reach, under other overrides. Each change once, by name."""
    found = {
        (shelf.specs[tool].name, said, after.overrides[tool])
        for before, after in pairs
        for tool, said in before.overrides.items()
        if after.overrides.get(tool, said) != said
    }
    told_all = [OverrideChange(name, *map(overrides_in_words, values)) for name, *values in found]
    return sorted(told_all, key=lambda each: (each.tool, each.before, each.after))


# -- Members and sessions ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LiveSession:
    """One that talks with some of the agents concerned."""

    member: int
    shares: bool
    agents: set[int]


def _impact(before: Setup, after: Setup, actor: Membership) -> OfferImpact:
    """Thirteen queries, whatever there is."""
    if before.told == after.told:
        return OfferImpact(is_felt=False)
    concerned = _sessions_with(before.agents)
    live = _read_live(concerned, before.agents)
    loads = loads_in(concerned)
    loaded = {key for rows in loads.values() for load, _ in rows for key in load.bundle.category_ids}
    shelf = read_shelf(before.tools | after.tools, before.categories | after.categories | loaded)
    bits = Bits(shelf.specs, shelf.specs)
    sides = {key: (Side(before, key, shelf, bits), Side(after, key, shelf, bits)) for key in before.agents}
    people = _read_people(concerned.values("membership"), bits)
    differences: dict[int, Difference] = dict.fromkeys(people.members, (0, 0))
    touched, sessions, dropped = set(), 0, 0
    for session, each in live.items():
        if each.member not in people.members:
            continue  # it began since
        standing, usable = people.standings[each.member], people.usable[each.member]
        changes = False
        for key in each.agents:
            old, new = sides[key]
            won, lost = differences[each.member]
            won |= new.reaches & ~old.reaches & usable
            lost |= old.reaches & ~new.reaches & usable
            differences[each.member] = (won, lost)
            rows = loads.get(session, ())
            had, has = (side.holdings(rows, shares=each.shares) for side in (old, new))
            was, will = old.sent(had, standing, usable), new.sent(has, standing, usable)
            changes = changes or was.differs(will, usable, bits)
            dropped += len(_fallen(has, will) - _fallen(had, was))
        sessions += changes
        if changes or any(differences[each.member]):
            touched.add(each.member)
    standing = standing_of(actor)
    agents = [_agent_change(*sides[key], bits, actor, standing) for key in before.agents]
    changed = [each for each in agents if each.is_one]
    overrides = _override_changes(((old, new) for old, new in sides.values()), shelf)
    return OfferImpact(
        True,
        tuple(changed[:AGENTS_SHOWN]),
        len(changed[AGENTS_SHOWN:]),
        grouped(differences, bits, people.members),
        len(people.members) - len(touched),
        sessions,
        dropped,
        tuple(overrides[:OVERRIDES_SHOWN]),
        len(overrides[OVERRIDES_SHOWN:]),
    )


def _fallen(holdings: Holdings, sent: Sent) -> set[int]:
    """Keys of the loads that the next turn drops."""
    gone = {load.id for load, _ in holdings.stale}
    return gone | {load.id for load in holdings.loads if load.bundle in sent.dropped}


def _sessions_with(agents: Collection[int]) -> QuerySet[ChatSession]:
    """Live sessions, of members who may sign in, that begin with one of these agents or have talked to one."""
    talked = Exists(Turn.objects.filter(session=OuterRef("pk"), agent__in=agents))
    live = live_sessions().filter(membership__ended_at=None, membership__user__is_active=True)
    return live.filter(Q(agent__in=agents) | Q(talked))


def _read_live(sessions: QuerySet[ChatSession], agents: Collection[int]) -> dict[Any, LiveSession]:
    """By key. Two queries."""
    found: dict[Any, LiveSession] = {}
    for key, member, shares, agent in sessions.values_list("pk", "membership_id", "shares_loads", "agent_id"):
        found[key] = LiveSession(member, shares, {agent} & set(agents))
    talked = Turn.objects.filter(agent__in=agents, session__in=sessions.values("pk")).order_by()
    for key, agent in talked.values_list("session_id", "agent_id").distinct():
        if key in found:
            found[key].agents.add(agent)
    return found


@dataclass(frozen=True)
class People:
    """Members by key: who they are, what they stand for, and bits of what they may use."""

    members: Mapping[int, Membership]
    standings: Mapping[int, Standing]
    usable: Mapping[int, int]


def _read_people(holders: QuerySet[Any], bits: Bits[ToolSpec]) -> People:
    """Five queries."""
    stored, members = read_stored(holders), members_in(holders)
    standings, usable = standings_of(stored, members), Usable(stored, bits)
    meta = {key: spec for key, spec in bits.lines.items() if spec.is_meta}
    every = bits.of(meta)
    return People(
        members,
        standings,
        {
            key: usable.by(key) & ~every | bits.of(tool for tool, spec in meta.items() if standing.decide(spec).allowed)
            for key, standing in standings.items()
        },
    )
