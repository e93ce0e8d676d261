"""Selections of many sessions, from rows that are read once: the selection of a turn, for previews.

The number of queries is the same whatever the number of agents, sessions and tools. Definitions are not read, unless a
model's family counts their tokens otherwise than they are stored.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from django.db.models import CharField, Q, Value

from capabilities.choosing.pipeline.candidates import Bundle, Candidate, Offer, Row, offer_from
from capabilities.choosing.pipeline.permissions import MemberPermissions
from capabilities.choosing.pipeline.policies import Policies, read_policies
from capabilities.choosing.pipeline.specs import SPEC, spec_annotations, spec_of
from capabilities.choosing.pipeline.stages import Situation, enabled, in_scope, narrowed, policy, provider_policy, ready
from capabilities.common.tokens import O200K, tokenizer_of
from capabilities.contract.envelope import Overrides, overrides_of
from capabilities.contract.loading import META_TOOLS
from capabilities.contract.permission import NO_RIGHTS
from capabilities.contract.spec import ToolSpec
from capabilities.language_models.providers.resolve import resolve_model
from capabilities.models import Agent, AgentTool, AgentToolkit, Tool, ToolkitTool
from sessions.models import ChatSession
from sessions.selection.holdings import Holdings, Load, bundles_sent, holdings_from
from sessions.selection.queries import Selection, meta_tools, new_session, searches_for, selected
from sessions.selection.routing import routing_inputs
from toolhub.tenants.models import NOWHERE, Membership

#: Stages that keep a tool from everybody.
FOR_ALL = (enabled, ready, in_scope, policy, provider_policy)
NOBODY = MemberPermissions(NO_RIGHTS, NOWHERE)


@dataclass(frozen=True)
class Setup:
    """Some agents with all that brings them tools. Keys are those of agents, tools and toolkits."""

    agents: Mapping[int, Agent]
    #: The agent's own tools: place, and whether deferred.
    own: Mapping[int, Mapping[int, tuple[int, bool]]]
    #: Deferred ones, and toolkits that the agent may load, each in the agent's order.
    deferred: Mapping[int, tuple[Bundle, ...]]
    allowed: Mapping[int, Mapping[int, Bundle]]
    #: Tools that these toolkits list: place, and overrides.
    kits: Mapping[int, Mapping[int, tuple[int, Overrides]]]
    policies: Policies
    #: Those of the agent's own tools that routing never leaves out, where messages are routed.
    pinned: Mapping[int, frozenset[int]] = field(default_factory=dict)

    @property
    def content(self) -> list[Any]:
        """All of it that counts, in its order; words do not."""
        modes = {
            key: (each.starts_with_core, each.tools_mode, each.scope, each.loading_mode)
            for key, each in self.agents.items()
        }
        own = {key: list(self.own[key].items()) for key in self.agents}
        allowed = {
            key: [(kit, each.is_initial, each.category_ids) for kit, each in self.allowed[key].items()]
            for key in self.agents
        }
        return [modes, own, allowed, {key: list(lines.items()) for key, lines in self.kits.items()}, self.policies]

    @property
    def counts_anew(self) -> bool:
        """True where a model counts otherwise than tokens are stored: then it takes the definitions themselves."""
        return any(tokenizer_of(agent.model.name).encoding != O200K for agent in self.agents.values())

    @property
    def has_every_tool(self) -> bool:
        return any(agent.has_every_tool for agent in self.agents.values())

    @property
    def tools(self) -> set[int]:
        return {tool for lines in (*self.own.values(), *self.kits.values()) for tool in lines}

    @property
    def categories(self) -> set[int]:
        return {key for bundles in self.allowed.values() for each in bundles.values() for key in each.category_ids}


def read_setup(agents: Collection[int]) -> Setup:
    """Read the setup of those of the agents that exist, with the policies that they are under. Five queries."""
    own: dict[int, dict[int, tuple[int, bool]]] = {key: {} for key in agents}
    deferred: dict[int, tuple[Bundle, ...]] = dict.fromkeys(agents, ())
    tools = AgentTool.objects.filter(agent__in=agents).order_by("position", "tool__category__name", "tool__name")
    for agent, tool, name, is_deferred in tools.values_list("agent_id", "tool_id", "tool__name", "is_deferred"):
        own[agent][tool] = (len(own[agent]) + 1, is_deferred)
        if is_deferred:
            deferred[agent] += (Bundle(name, tool_id=tool),)
    allowed: dict[int, dict[int, Bundle]] = {key: {} for key in agents}
    lines = AgentToolkit.objects.filter(agent__in=agents).order_by("position", "toolkit__name")
    for agent, kit, name, text, is_initial, category in lines.values_list(
        *("agent_id", "toolkit_id", "toolkit__name", "toolkit__description"),
        *("is_initial", "toolkit__toolkit_categories__category_id"),
    ):
        known = allowed[agent].setdefault(kit, Bundle(name, kit, is_initial=is_initial, description=text))
        if category is not None:
            allowed[agent][kit] = replace(known, category_ids=known.category_ids | {category})
    kits: dict[int, dict[int, tuple[int, Overrides]]] = {kit: {} for bundles in allowed.values() for kit in bundles}
    listed = ToolkitTool.objects.filter(toolkit__in=kits).order_by("position", "tool__name")
    for kit, tool, *overrides in listed.values_list("toolkit_id", "tool_id", "timeout", "max_result_chars", "knobs"):
        kits[kit][tool] = (len(kits[kit]) + 1, overrides_of(*overrides))
    found = {each.pk: each for each in Agent.objects.for_display().filter(pk__in=agents)}
    return Setup(found, own, deferred, allowed, kits, read_policies())


@dataclass(frozen=True)
class Shelf:
    """The tools that any of this is about, by category and name, and which of them are core."""

    specs: Mapping[int, ToolSpec]
    core: frozenset[int]

    @cached_property
    def places(self) -> Mapping[int, int]:
        """Place of each tool, by category and name."""
        return {key: place for place, key in enumerate(self.specs)}

    @cached_property
    def of_category(self) -> Mapping[int, Sequence[int]]:
        found = defaultdict(list)
        for key, spec in self.specs.items():
            found[spec.category_id].append(key)
        return found

    @cached_property
    def meta(self) -> frozenset[int]:
        return frozenset(key for key, spec in self.specs.items() if spec.is_meta)

    def joined(self, other: Shelf) -> Shelf:
        """Return a shelf with the tools of another added, in the same order."""
        if not other.specs:
            return self
        return Shelf(_in_order({**other.specs, **self.specs}), self.core | other.core)

    def switched(self, is_on: Mapping[int, bool]) -> Shelf:
        """Return this shelf with tools switched on and off, by key."""
        specs = {key: replace(spec, is_enabled=is_on.get(key, spec.is_enabled)) for key, spec in self.specs.items()}
        return replace(self, specs=specs)


NO_SHELF = Shelf({}, frozenset())
#: Columns of a tool that are not read, and what stands in for them.
_LIGHT = {"current_version__wire": "no_wire", "current_version__instructions": "no_words"}


def _in_order(specs: Mapping[int, ToolSpec]) -> dict[int, ToolSpec]:
    order = sorted(specs, key=lambda key: (specs[key].category, specs[key].name))
    return {key: specs[key] for key in order}


def read_shelf(
    tools: Collection[int], categories: Collection[int], *, every: bool = False, with_definitions: bool = False
) -> Shelf:
    """Read the shelf, `every`: of the whole catalogue. Without the definitions themselves, unless they are asked for.
    One query."""
    core = Q(category__is_core=True)
    wanted = Q() if every else core | Q(pk__in=tools) | Q(category__in=categories) | Q(name__in=META_TOOLS)
    rows = Tool.objects.filter(wanted, current_version__isnull=False).annotate(
        **spec_annotations(), no_wire=Value("", output_field=CharField()), no_words=Value("", output_field=CharField())
    )
    light = {} if with_definitions else _LIGHT
    columns = [light.get(name, name) for name in SPEC]
    specs: dict[int, ToolSpec] = {}
    is_core = set()
    for *values, flag in rows.values_list(*columns, "category__is_core"):
        specs[values[0]] = spec_of(values)
        if flag:
            is_core.add(values[0])
    return Shelf(_in_order(specs), frozenset(is_core))


class AgentTools:
    """One agent as a set-up has it, and what it would send. No query.

    Offers that were built are kept in `offers`, where that is given: for the same lists of the agent, the same tools.
    """

    def __init__(self, setup: Setup, key: int, shelf: Shelf, offers: dict[Hashable, Offer] | None = None) -> None:
        self._offers = offers
        self.agent = setup.agents[key]
        self._allowed, self._deferred = dict(setup.allowed[key]), setup.deferred[key]
        self._own, self._shelf, self._rows = setup.own[key], shelf, dict[int, Row]()
        self._policies, self._pinned = setup.policies, setup.pinned.get(key, frozenset())
        self._kits: dict[int, dict[int, tuple[int, Overrides]]] = defaultdict(dict)
        for kit in self._allowed:
            for tool, line in setup.kits[kit].items():
                self._kits[tool][kit] = line
        self._at_first = Holdings(tuple(self._allowed.values()), self._deferred, (), ())

    @cached_property
    def starts_with(self) -> frozenset[int]:
        """Keys of what a session begins with, whoever may use it."""
        start = self._offer(self._at_first.initial, meta_tools(self.agent, self._at_first, NOBODY))
        return frozenset(each.spec.tool_id for each in self._for_all(start))

    @cached_property
    def reaches(self) -> frozenset[int]:
        """Keys of what the agent has or could load, whoever may use it."""
        return frozenset(each.spec.tool_id for each in self._for_all(self._reach))

    @cached_property
    def overrides(self) -> dict[int, Overrides]:
        """The overrides in force of what is in reach."""
        return {each.spec.tool_id: each.spec.overrides for each in self._reach.candidates}

    @cached_property
    def _reach(self) -> Offer:
        return self._reached(self._at_first)

    def _reached(self, holdings: Holdings) -> Offer:
        return self._offer(list(dict.fromkeys([*holdings.bundles, *holdings.loadable])), ())

    def starting_selection(
        self, member: Membership, permissions: MemberPermissions, message: str = "", *, at: int | None = None
    ) -> Selection:
        """Return the selection that the first turn of a new session would carry for this member and message; without
        one, all that it may carry. With a message, one query more, as `routing_inputs` says of `at`."""
        return self._selection(new_session(member, self.agent), permissions, self._at_first, message, at)

    def selection(
        self, session: ChatSession, permissions: MemberPermissions, rows: Iterable[tuple[Load, bool]]
    ) -> Selection:
        """Return the selection that a turn of this session would carry now; `rows` are its loads, as `loads_in` reads
        them."""
        own = [row for row in rows if session.shares_loads or row[0].agent_id == self.agent.pk]
        return self._selection(session, permissions, holdings_from(self.agent, self._allowed, self._deferred, own))

    def _selection(
        self,
        session: ChatSession,
        permissions: MemberPermissions,
        holdings: Holdings,
        message: str = "",
        at: int | None = None,
    ) -> Selection:
        offer = self._offer_at_hand(holdings, permissions)
        reach = self._reached(holdings) if searches_for(self.agent) else None
        return selected(
            session,
            self.agent,
            permissions,
            holdings,
            offer,
            message,
            policies=self._policies,
            routing=routing_inputs(session, self.agent, offer, message, at=at),
            reach=reach,
            at=at,
        )

    def starts_with_for(self, permissions: MemberPermissions) -> Iterable[ToolSpec]:
        """Return the tools of the first turn of a new session that a member's roles and grants allow."""
        offer = self._offer_at_hand(self._at_first, permissions)
        return (each.spec for each in offer.candidates if permissions.decide(each.spec).allowed)

    def _offer_at_hand(self, holdings: Holdings, permissions: MemberPermissions) -> Offer:
        bundles, meta = bundles_sent(self.agent, holdings), meta_tools(self.agent, holdings, permissions)
        if self._offers is None:
            return self._offer(bundles, meta)
        key = (tuple(bundles), tuple(meta))
        if key not in self._offers:
            self._offers[key] = self._offer(bundles, meta)
        return self._offers[key]

    def _offer(self, bundles: Sequence[Bundle], meta: Sequence[str]) -> Offer:
        """Build the offer from the tools that these bundles bring alone: there may be ten thousand others."""
        keys = {*self._own, *self._shelf.core, *self._shelf.meta}
        if self.agent.has_every_tool:
            keys.update(self._shelf.specs)
        for each in bundles:
            if each.tool_id is not None:
                keys.add(each.tool_id)
            keys.update(*(self._shelf.of_category.get(category, ()) for category in each.category_ids))
        kits = {each.toolkit_id for each in bundles}
        keys.update(tool for tool, lines in self._kits.items() if not kits.isdisjoint(lines))
        there = sorted(keys & self._shelf.places.keys(), key=self._shelf.places.__getitem__)
        return offer_from([self._row(key) for key in there], self.agent, bundles, meta=meta)

    def _row(self, tool: int) -> Row:
        row = self._rows.get(tool)
        if row is None:
            place, is_deferred = self._own.get(tool, (None, False))
            row = self._rows[tool] = Row(
                self._shelf.specs[tool],
                tool in self._shelf.core,
                place,
                is_deferred,
                self._kits.get(tool, {}),
                tool in self._pinned,
            )
        return row

    def _for_all(self, offer: Offer) -> list[Candidate]:
        situation = Situation(NOBODY, self.agent, resolve_model(self.agent.model, self.agent), policies=self._policies)
        return narrowed(situation, offer.candidates, FOR_ALL)[0]
