"""An agent's configuration before and after a change, and what it sends from either: one side of a preview."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.db.models import CharField, Q, Value

from capabilities.contract.loading import META_TOOLS
from capabilities.contract.permission import NO_RIGHTS
from capabilities.models import Agent, AgentTool, AgentToolkit, Tool, ToolkitTool
from capabilities.pipeline.candidates import Bundle, Candidate, Offer, Row, offer_from
from capabilities.pipeline.permissions import Standing
from capabilities.pipeline.specs import NO_OVERRIDES, SPEC, Overrides, ToolSpec, spec_annotations
from capabilities.pipeline.stages import Situation, Verdict, enabled, in_scope, narrowed, ready
from sessions.previews.concerned import Bits
from sessions.selection.queries import (
    Selection,
    clashing_loads,
    may_fall,
    meta_tools,
    new_session,
    selected,
    useless_loads,
)
from sessions.selection.reach import Holdings, Load, bundles_sent, holdings_from
from toolhub.tenants.models import NOWHERE, Membership

#: What keeps a tool from everybody.
STAGES = (enabled, ready, in_scope)
NOBODY = Standing(NO_RIGHTS, NOWHERE)


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


def read_setup(agents: Collection[int]) -> Setup:
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
    found = {each.pk: each for each in Agent.objects.for_display().filter(pk__in=agents)}
    return Setup(found, own, deferred, allowed, kits)


@dataclass(frozen=True)
class Shelf:
    """The tools that any of this is about, by category and name, and which of them are core."""

    specs: Mapping[int, ToolSpec]
    core: frozenset[int]


def read_shelf(tools: Collection[int], categories: Collection[int]) -> Shelf:
    """Without the definitions themselves. One query."""
    core = Q(category__is_core=True)
    wanted = core | Q(pk__in=tools) | Q(category__in=categories) | Q(name__in=META_TOOLS)
    rows = Tool.objects.filter(wanted, current_version__isnull=False).annotate(
        **spec_annotations(), no_wire=Value("", output_field=CharField()), no_words=Value("", output_field=CharField())
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
        self._at_first = at_first = Holdings(tuple(self._allowed.values()), self._deferred, (), ())
        start = self._offer(at_first.initial, meta_tools(self.agent, at_first, NOBODY))
        within = list(dict.fromkeys([*at_first.bundles, *at_first.loadable]))
        self._reach = self._offer(within, ())
        self.starts_with = self._bits_of(self._sendable(start.candidates))
        self.reaches = self._bits_of(self._sendable(self._reach.candidates))
        #: The overrides in force of what is in reach.
        self.overrides = {each.spec.tool_id: each.spec.overrides for each in self._reach.candidates}

    def starting_selection(self, member: Membership, standing: Standing) -> Selection:
        """What the first turn of a new session carries for this member, as `selection` decides it. No query."""
        holdings = self._at_first
        offer = self._offer(bundles_sent(self.agent, holdings), meta_tools(self.agent, holdings, standing))
        return selected(new_session(member, self.agent), self.agent, standing, holdings, offer)

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
        at_hand = bundles_sent(self.agent, holdings)
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
        return Situation(NOBODY, self.agent, self.agent.model)

    def _offer(self, bundles: Sequence[Bundle], meta: Sequence[str]) -> Offer:
        return offer_from(self._rows, self.agent, bundles, meta=meta)

    def _sendable(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        return narrowed(self._situation, candidates, STAGES)[0]

    def _bits_of(self, candidates: Iterable[Candidate]) -> int:
        return self._bits.of(each.spec.tool_id for each in candidates)
