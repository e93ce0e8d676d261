"""Whom a change of an agent or a toolkit changes, before it is saved: tools won and lost, live sessions, tokens.

What would be is read from what would be: the change is written in a transaction that is taken back, so that a preview
never says anything else than what saving does, and refuses what saving refuses. Only the configuration is read in
there; what it means for members and sessions is worked out afterwards, with the same functions that select a turn's
tools. The number of queries is the same whatever the number of agents, sessions, members and tools.

Tools that are switched off or need set-up are offered to nobody here. Sessions with the same loads are looked at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django.db import transaction
from django.db.models import CharField, Exists, OuterRef, Q, QuerySet, Value

from capabilities.active import NO_OVERRIDES, SPEC, Overrides, Standing, ToolSpec
from capabilities.agents import AgentContent, update_agent
from capabilities.contract.loading import META_TOOLS
from capabilities.contract.permission import NO_RIGHTS
from capabilities.models import Agent, AgentTool, AgentToolkit, LoadingMode, Tool, Toolkit, ToolkitTool
from capabilities.offers import Bundle, Candidate, Offer, Row, offer_from
from capabilities.queries.agents import agents_by_name
from capabilities.services import is_ready
from capabilities.toolkits import ToolkitContent, overrides_in_words, update_toolkit
from sessions.concerned import (
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
    tokens_told,
    told,
)
from sessions.models import ChatSession, Turn
from sessions.reach import Holdings, Load, holdings_from, loads_in
from sessions.selection import (
    Situation,
    Verdict,
    clashing_loads,
    enabled,
    in_scope,
    may_fall,
    meta_tools,
    narrowed,
    ready,
    tool_limit,
    useless_loads,
    within_limit,
)
from toolhub.tenants.models import EVERYWHERE, NOWHERE, Access, AdminRight, Membership, Reach, Right

AGENTS_SHOWN = 8
OVERRIDES_SHOWN = 12
#: What keeps a tool from everybody.
STAGES = (enabled, ready, in_scope)
NOBODY = Standing(NO_RIGHTS, NOWHERE)


@dataclass(frozen=True)
class AgentChange:
    """One agent by itself: what it sends at the start of a session, and what could be loaded beside, by name."""

    name: str
    sent: tuple[str, ...]
    no_longer_sent: tuple[str, ...]
    loadable: tuple[str, ...]
    no_longer_loadable: tuple[str, ...]
    #: Of all the definitions that a session would begin with, as far as one request may carry them.
    tokens_before: int
    tokens_after: int
    #: How many tools do not fit into one request any more.
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
    before = _read(agents)
    after = _if(lambda: update_agent(_again(agent), content, actor=actor), lambda: _read(agents))
    return _impact(before, after)


def impact_of_toolkit(toolkit: Toolkit, content: ToolkitContent, *, actor: Membership) -> OfferImpact:
    """The same, over all agents that may load the toolkit: where there is none, nobody feels anything."""
    agents = list(AgentToolkit.objects.filter(toolkit=toolkit).values_list("agent_id", flat=True))
    before = _read(agents)
    again = Toolkit.objects.get(pk=toolkit.pk)
    after = _if(lambda: update_toolkit(again, content, actor=actor), lambda: _read(agents))
    return _impact(before, after)


def _again(agent: Agent) -> Agent:
    """A second one to write on."""
    return agents_by_name().get(pk=agent.pk)


def _if(change: Callable[[], Any], read: Callable[[], Setup]) -> Setup:
    """What is there once the change is made, which is then taken back. Raises what the change raises."""
    with transaction.atomic():
        change()
        found = read()
        transaction.set_rollback(True)
    return found


# -- The configuration ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setup:
    """Some agents with all that brings them tools. Keys are those of agents, tools and toolkits."""

    agents: Mapping[int, Agent]
    #: The agent's own tools: place, and whether deferred.
    own: Mapping[int, Mapping[int, tuple[int, bool]]]
    #: Deferred ones, and toolkits that the agent may load, each in the agent's order.
    deferred: Mapping[int, tuple[Bundle, ...]]
    allowed: Mapping[int, Mapping[int, Bundle]]
    #: What these toolkits list: place, and overrides.
    kits: Mapping[int, Mapping[int, tuple[int, Overrides]]]

    @property
    def told(self) -> list[Any]:
        """All of it that counts, in its order; words do not."""
        modes = {key: (each.starts_with_core, each.scope, each.loading_mode) for key, each in self.agents.items()}
        own = {key: list(lines.items()) for key, lines in self.own.items()}
        allowed = {
            key: [(kit, each.is_initial, each.category_ids) for kit, each in bundles.items()]
            for key, bundles in self.allowed.items()
        }
        return [modes, own, allowed, {key: list(lines.items()) for key, lines in self.kits.items()}]

    @property
    def tools(self) -> set[int]:
        return {tool for lines in (*self.own.values(), *self.kits.values()) for tool in lines}

    @property
    def categories(self) -> set[int]:
        return {key for bundles in self.allowed.values() for each in bundles.values() for key in each.category_ids}


def _read(agents: Collection[int]) -> Setup:
    """Four queries."""
    own: dict[int, dict[int, tuple[int, bool]]] = {key: {} for key in agents}
    deferred: dict[int, tuple[Bundle, ...]] = dict.fromkeys(agents, ())
    tools = AgentTool.objects.filter(agent__in=agents).order_by("position", "tool__category__name", "tool__name")
    for agent, tool, name, is_deferred in tools.values_list("agent_id", "tool_id", "tool__name", "is_deferred"):
        own[agent][tool] = (len(own[agent]) + 1, is_deferred)
        if is_deferred:
            deferred[agent] += (Bundle(name, tool_id=tool),)
    allowed: dict[int, dict[int, Bundle]] = {key: {} for key in agents}
    lines = AgentToolkit.objects.filter(agent__in=agents).order_by("position", "toolkit__name")
    for agent, kit, name, is_initial, category in lines.values_list(
        "agent_id", "toolkit_id", "toolkit__name", "is_initial", "toolkit__toolkit_categories__category_id"
    ):
        known = allowed[agent].setdefault(kit, Bundle(name, kit, is_initial=is_initial))
        if category is not None:
            allowed[agent][kit] = replace(known, category_ids=known.category_ids | {category})
    kits: dict[int, dict[int, tuple[int, Overrides]]] = {kit: {} for bundles in allowed.values() for kit in bundles}
    listed = ToolkitTool.objects.filter(toolkit__in=kits).order_by("position", "tool__name")
    for kit, tool, timeout, chars in listed.values_list("toolkit_id", "tool_id", "timeout", "max_result_chars"):
        kits[kit][tool] = (len(kits[kit]) + 1, (timeout, chars))
    found = {each.pk: each for each in agents_by_name().filter(pk__in=agents)}
    return Setup(found, own, deferred, allowed, kits)


@dataclass(frozen=True)
class Shelf:
    """The tools that any of this is about, by category and name, and which of them are core."""

    specs: Mapping[int, ToolSpec]
    core: frozenset[int]


def _read_shelf(tools: Collection[int], categories: Collection[int]) -> Shelf:
    """Without the definitions themselves. One query."""
    core = Q(category__is_core=True)
    wanted = core | Q(pk__in=tools) | Q(category__in=categories) | Q(name__in=META_TOOLS)
    rows = Tool.objects.filter(wanted, current_version__isnull=False).annotate(
        is_ready=is_ready(), no_wire=Value("", output_field=CharField()), no_words=Value("", output_field=CharField())
    )
    light = {"current_version__wire": "no_wire", "current_version__instructions": "no_words"}
    columns = [light.get(name, name) for name in SPEC]
    specs: dict[int, ToolSpec] = {}
    is_core = set()
    for *values, flag in rows.values_list(*columns, "category__is_core"):
        specs[values[0]] = ToolSpec(*values)
        if flag:
            is_core.add(values[0])
    order = sorted(specs, key=lambda key: (specs[key].category, specs[key].name))
    return Shelf({key: specs[key] for key in order}, frozenset(is_core))


# -- One agent, before or after ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sent:
    """What a session's next turn carries: bits, overrides of those that have some, and the bundles that fall."""

    tools: int
    overrides: Mapping[int, Overrides]
    dropped: frozenset[Bundle]

    def differs(self, other: Sent, usable: int, bits: Bits[ToolSpec]) -> bool:
        if (self.tools ^ other.tools) & usable:
            return True
        changed = self.overrides.items() ^ other.overrides.items()
        return bool(bits.of(key for key, _ in changed) & self.tools & usable)


class Side:
    """An agent as one set-up has it, and what it sends."""

    def __init__(self, setup: Setup, key: int, shelf: Shelf, bits: Bits[ToolSpec]) -> None:
        self.agent = setup.agents[key]
        self._allowed, self._deferred = dict(setup.allowed[key]), setup.deferred[key]
        self._shelf, self._bits = shelf, bits
        own, kits = setup.own[key], {kit: setup.kits[kit] for kit in self._allowed}
        self._rows = [
            Row(
                spec,
                tool in shelf.core,
                own[tool][0] if tool in own else None,
                tool in own and own[tool][1],
                {kit: lines[tool] for kit, lines in kits.items() if tool in lines},
            )
            for tool, spec in shelf.specs.items()
        ]
        self._known: dict[Any, Sent] = {}
        at_first = Holdings(tuple(self._allowed.values()), self._deferred, (), ())
        self._start = self._offer(at_first.initial, meta_tools(self.agent, at_first, NOBODY))
        within = list(dict.fromkeys([*at_first.bundles, *at_first.loadable]))
        self._reach = self._offer(within, ())
        self.starts_with = self._bits_of(self._sendable(self._start.candidates))
        self.reaches = self._bits_of(self._sendable(self._reach.candidates))
        #: The overrides in force of what is in reach.
        self.overrides = {each.spec.tool_id: each.spec.overrides for each in self._reach.candidates}

    def weight(self) -> tuple[int, int]:
        """Tokens of what a session begins with, and how many tools do not fit."""
        offered = self._sendable(self._start.candidates)
        kept, _ = narrowed(self._situation, offered, (within_limit,))
        return sum(each.spec.tokens for each in kept), len(offered) - len(kept)

    def holdings(self, rows: Iterable[tuple[Load, bool]], *, shares: bool) -> Holdings:
        """Of a session's rows, those that are this agent's, or all where it shares them."""
        own = [row for row in rows if shares or row[0].agent_id == self.agent.pk]
        return holdings_from(self.agent, self._allowed, self._deferred, own)

    def sent(self, holdings: Holdings, standing: Standing, usable: int) -> Sent:
        loads = tuple((load.bundle, load.agent_id) for load in holdings.loads)
        key = (loads, usable, bool(standing.loads))
        if key not in self._known:
            self._known[key] = self._sent(holdings, standing, usable)
        return self._known[key]

    def _sent(self, holdings: Holdings, standing: Standing, usable: int) -> Sent:
        at_hand = holdings.initial if self.agent.loading_mode == LoadingMode.CONSTANT else holdings.bundles
        meta = meta_tools(self.agent, holdings, standing)
        offer = self._offer(at_hand, meta)
        clashing = clashing_loads(holdings, offer.clashes)
        without = {load.bundle for load, _ in clashing}
        candidates = [each for each in offer.candidates if each.bundle not in without]
        sendable = self._sendable(candidates)
        forbidden = [
            Verdict(each.spec.name, "role", False, "")
            for each in sendable
            if not self._bits.of([each.spec.tool_id]) & usable
        ]
        useless = {load.bundle for load, _ in useless_loads(holdings, candidates, forbidden, self.agent)}
        fallen = useless | {load.bundle for load, _ in clashing if may_fall(load, self.agent)}
        specs = [each.spec for each in sendable]
        overrides = {spec.tool_id: spec.overrides for spec in specs if spec.overrides != NO_OVERRIDES}
        return Sent(self._bits_of(sendable), overrides, frozenset(fallen))

    @property
    def _situation(self) -> Situation:
        return Situation(NOBODY, tool_limit(self.agent), self.agent.scope)

    def _offer(self, bundles: Sequence[Bundle], meta: Sequence[str]) -> Offer:
        return offer_from(self._rows, self.agent, bundles, meta=meta)

    def _sendable(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        return narrowed(self._situation, candidates, STAGES)[0]

    def _bits_of(self, candidates: Iterable[Candidate]) -> int:
        return self._bits.of(each.spec.tool_id for each in candidates)


def _agent_change(before: Side, after: Side, bits: Bits[ToolSpec]) -> AgentChange:
    was, will = before.starts_with, after.starts_with
    could, can = before.reaches & ~was, after.reaches & ~will
    tokens_before, _ = before.weight()
    tokens_after, over = after.weight()
    return AgentChange(
        str(before.agent),
        bits.names(will & ~was),
        bits.names(was & ~will),
        bits.names(can & ~could),
        bits.names(could & ~can),
        tokens_before,
        tokens_after,
        over,
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


def _impact(before: Setup, after: Setup) -> OfferImpact:
    """Twelve queries, whatever there is."""
    if before.told == after.told:
        return OfferImpact(is_felt=False)
    concerned = _sessions_with(before.agents)
    live = _read_live(concerned, before.agents)
    loads = loads_in(concerned)
    loaded = {key for rows in loads.values() for load, _ in rows for key in load.bundle.category_ids}
    shelf = _read_shelf(before.tools | after.tools, before.categories | after.categories | loaded)
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
    agents = [_agent_change(*sides[key], bits) for key in before.agents]
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
    delegated: dict[int, Reach] = {}
    rights = AdminRight.objects.filter(membership__in=holders, right=Right.LOAD_CATEGORIES)
    for key, category in rights.values_list("membership_id", "category"):
        delegated[key] = Reach(delegated.get(key, NOWHERE).categories | {category})
    usable, standings = Usable(stored, bits), {}
    for key, member in members.items():
        is_wide = member.access in (Access.ADMIN, Access.OPERATOR)
        standings[key] = Standing(stored.rights_of(key), EVERYWHERE if is_wide else delegated.get(key, NOWHERE))
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
