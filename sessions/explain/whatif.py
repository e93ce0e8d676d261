"""What an agent sends for a member, from rows that were read once; and what it would send with one thing changed.

The rules are those of `selection` and `loading`: each question here runs them again, on what would be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property

from capabilities.contract.loading import META_TOOLS
from capabilities.models import Agent, AgentScope, LoadingMode
from capabilities.pipeline.candidates import OWN, Bundle, Candidate, Offer, Row, offer_from, rows_of
from capabilities.pipeline.permissions import Standing, standing_of
from capabilities.pipeline.specs import ToolSpec
from capabilities.pipeline.stages import Rank, Situation, limit_rank, narrowed, within_limit
from sessions.loading.loadable import Place, Reading, reading_of, why_not
from sessions.models import ChatSession, LoadSource
from sessions.selection.queries import Selection, clashing_loads, meta_tools, selected, situation_of
from sessions.selection.reach import Holdings, Load, bundles_sent, holdings_of

Touched = Callable[[ToolSpec], bool]
Revised = Callable[[ToolSpec], ToolSpec]


@dataclass(frozen=True)
class World:
    """All that decides what is sent: a member's standing, an agent's configuration, a session's loads, the tools."""

    session: ChatSession
    agent: Agent
    standing: Standing
    holdings: Holdings
    #: Every tool that the agent has or could load, and the meta-tools, by key.
    rows: Mapping[int, Row]

    # -- What is ------------------------------------------------------------------------------------------------------

    @cached_property
    def is_constant(self) -> bool:
        return self.agent.loading_mode == LoadingMode.CONSTANT

    @cached_property
    def at_hand(self) -> Offer:
        return self._offer(list(self.rows.values()), self.holdings)

    @cached_property
    def selection(self) -> Selection:
        return selected(self.session, self.agent, self.standing, self.holdings, self.at_hand)

    @cached_property
    def sent(self) -> frozenset[int]:
        return frozenset(tool.tool_id for tool in self.selection.tools)

    @cached_property
    def reading(self) -> Reading:
        """What could be loaded, as whoever loads would find it."""
        bundles = list(dict.fromkeys([*self.holdings.bundles, *self.holdings.loadable]))
        offer = offer_from(list(self.rows.values()), self.agent, bundles)
        return reading_of(Place(self.session, self.agent), self.holdings, self.standing, offer)

    @cached_property
    def loadable(self) -> frozenset[int]:
        return frozenset(each.spec.tool_id for each in self.reading.to_search) - self.sent

    @cached_property
    def offered(self) -> frozenset[int]:
        """Keys of what is brought or could be loaded, whoever may use it."""
        brought = {each.spec.tool_id for each in self.gathered.values()}
        return frozenset(key for key, row in self.rows.items() if not row.spec.is_meta or key in brought)

    @cached_property
    def situation(self) -> Situation:
        return situation_of(self.session, self.agent, self.standing)

    @cached_property
    def gathered(self) -> dict[str, Candidate]:
        """What was brought and not dropped again, in the order in which it stays where not all can."""
        brought = {each.spec.name: each for each in self.at_hand.candidates}
        verdicts = self.selection.verdicts
        kept = [brought[each.tool] for each in verdicts if each.stage == "gather" and each.kept]
        return {each.spec.name: each for each in sorted(kept, key=limit_rank)}

    @cached_property
    def _gone(self) -> frozenset[str]:
        """What a stage before the limit took out."""
        others = ("gather", "limit")
        return frozenset(each.tool for each in self.selection.verdicts if not each.kept and each.stage not in others)

    @cached_property
    def survivors(self) -> dict[str, int]:
        """What every stage before the limit lets through, with its place."""
        return {name: place for place, name in enumerate(each for each in self.gathered if each not in self._gone)}

    @cached_property
    def _places(self) -> dict[str, int]:
        """How many of the survivors come before each that was gathered."""
        found, count = {}, 0
        for name in self.gathered:
            found[name] = count
            count += name in self.survivors
        return found

    def place_of(self, spec: ToolSpec) -> int:
        """How many tools come before it; for what nothing brings, as if it came last."""
        return self._places.get(spec.name, len(self.survivors))

    def has_room_for(self, spec: ToolSpec) -> bool:
        return self.place_of(spec) < self.situation.tool_limit

    # -- What would be: another verdict of a stage --------------------------------------------------------------------

    def sends(
        self,
        spec: ToolSpec,
        *,
        situation: Situation | None = None,
        touched: Touched = lambda spec: False,
        revised: Revised = lambda spec: spec,
    ) -> bool:
        """Whether a gathered tool would be sent, in another situation or with other facts of the tools.

        `touched` says which other tools may come through, or not, for the same reason.
        """
        own = self.gathered.get(spec.name)
        if own is None or not self.has_room_for(spec):
            return False
        before = self._before(own, touched)
        return _kept(situation or self.situation, [replace(each, spec=revised(each.spec)) for each in (*before, own)])

    def sends_with_limit(self, spec: ToolSpec, limit: int) -> bool:
        """Whether a tool that only the limit keeps back would be sent under another one."""
        own = self.gathered.get(spec.name)
        if own is None or spec.name not in self.survivors:
            return False
        upto = [*self._before(own, lambda spec: False), own]
        model = copy(self.agent.model)
        model.tool_limit = limit
        return not within_limit(replace(self.situation, model=model), upto)

    def _before(self, own: Candidate, touched: Touched) -> list[Candidate]:
        """What comes before it, as far as it could be sent."""
        found = []
        for name, each in self.gathered.items():
            if each is own:
                break
            if name in self.survivors or touched(each.spec):
                found.append(each)
        return found

    # -- What would be: other tools at hand ---------------------------------------------------------------------------

    def sends_as_own(self, spec: ToolSpec) -> bool:
        """Whether the agent would send it, were it the last of its own tools; it is not gathered now."""
        before = [self.gathered[name] for name in self.survivors if limit_rank(self.gathered[name]) <= Rank.OWN]
        if len(before) >= self.situation.tool_limit or spec.is_meta:
            return False
        return _kept(self.situation, [*before, Candidate(spec, OWN)])

    def with_load(self, bundle: Bundle) -> frozenset[int]:
        """What would be sent with this loaded in the session; nothing where loading it is refused."""
        if self.is_constant or self._is_full or why_not(self.reading, bundle) is not None:
            return frozenset()
        load = Load(0, self.agent.pk, bundle, LoadSource.PERSON)
        return self._sent_of(replace(self.holdings, loads=(*self._standing_loads, load)), bundle)

    def with_initial(self, bundle: Bundle) -> frozenset[int]:
        """What would be sent, if the agent began with this toolkit; nothing where another side disagrees with it."""
        is_shared = any(each.spec.acts_as_organisation for each in self.reading.offer.tools_of(bundle))
        if self._is_full or (is_shared and self.agent.scope == AgentScope.MEMBER):
            return frozenset()
        initial = replace(bundle, is_initial=True)
        allowed = tuple(initial if each == bundle else each for each in self.holdings.allowed)
        loads = tuple(replace(load, bundle=initial) if load.bundle == bundle else load for load in self._standing_loads)
        return self._sent_of(replace(self.holdings, allowed=allowed, loads=loads), initial)

    def without_load(self, load: Load) -> frozenset[int]:
        """What would be sent with this unloaded."""
        loads = tuple(each for each in self.holdings.loads if each != load)
        return self._sent(list(self.rows.values()), replace(self.holdings, loads=loads))

    @property
    def _is_full(self) -> bool:
        """What is loaded last finds no room, even if the core makes way."""
        stay = [name for name in self.survivors if limit_rank(self.gathered[name]) <= Rank.LOADED]
        return len(stay) >= self.situation.tool_limit

    @cached_property
    def _standing_loads(self) -> tuple[Load, ...]:
        """Without those that are in conflict, and are not sent with the next turn."""
        fallen = [load for load, _ in clashing_loads(self.holdings, self.at_hand.clashes)]
        return tuple(each for each in self.holdings.loads if each not in fallen)

    def _sent_of(self, holdings: Holdings, bundle: Bundle) -> frozenset[int]:
        """As `_sent`, over no more rows than matter: what a stage took out stays out."""
        brought = {each.spec.tool_id for each in self.reading.offer.ways if _is_same(each.bundle, bundle)}
        rows = [row for key, row in self.rows.items() if key in brought or row.spec.name in self.survivors]
        offer = self._offer(rows, holdings)
        if any(_is_same(side.bundle, bundle) for clash in offer.clashes for side in (clash.existing, clash.candidate)):
            return frozenset()
        return self._sent(rows, holdings)

    def _sent(self, rows: Sequence[Row], holdings: Holdings) -> frozenset[int]:
        offer = self._offer(rows, holdings)
        selection = selected(self.session, self.agent, self.standing, holdings, offer)
        return frozenset(tool.tool_id for tool in selection.tools)

    def _offer(self, rows: Sequence[Row], holdings: Holdings) -> Offer:
        meta = meta_tools(self.agent, holdings, self.standing)
        return offer_from(rows, self.agent, bundles_sent(self.agent, holdings), meta=meta)


def read_world(session: ChatSession, agent: Agent) -> World:
    """Three queries, whatever there is. `agent` comes with its model and provider at hand."""
    holdings = holdings_of(session, agent)
    bundles = list(dict.fromkeys([*holdings.bundles, *holdings.loadable]))
    rows = rows_of(agent, bundles, sorted(META_TOOLS))
    return World(session, agent, standing_of(session.membership_id), holdings, {row.spec.tool_id: row for row in rows})


def with_scope(world: World, scope: AgentScope) -> Situation:
    agent = copy(world.agent)
    agent.scope = scope
    return situation_of(world.session, agent, world.standing)


def _kept(situation: Situation, candidates: Sequence[Candidate]) -> bool:
    """Whether the last of these comes through every stage."""
    kept, _ = narrowed(situation, candidates)
    return bool(kept) and kept[-1] is candidates[-1]


def _is_same(one: Bundle | None, other: Bundle) -> bool:
    return one is not None and (one.toolkit_id, one.tool_id) == (other.toolkit_id, other.tool_id)
