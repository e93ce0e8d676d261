"""Inputs that decide what an agent sends for a member, read once; and its selection, as it is or with one thing
changed.

No rule is here: a question runs the selection of a turn, on these inputs or on changed ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from capabilities.choosing.pipeline.candidates import Bundle, Candidate, Offer, Row, offer_from
from capabilities.choosing.pipeline.permissions import MemberPermissions, permissions_at_version
from capabilities.choosing.pipeline.policies import Policies, policies_for
from capabilities.choosing.pipeline.routing import RoutingInputs, is_routed
from capabilities.choosing.pipeline.stages import Situation, Verdict, limit_rank
from capabilities.contract.spec import ToolSpec
from capabilities.models import Agent, LoadingMode
from sessions.models import ChatSession
from sessions.selection.holdings import Holdings, Load, bundles_sent, holdings_of, in_reach
from sessions.selection.loading.loadable import LoadInputs, LoadTarget, reading_of
from sessions.selection.queries import Selection, clashing_loads, meta_tools, searches_for, selected, situation_of
from sessions.selection.routing import routing_inputs
from sessions.selection.unattended import WhyAsks, why_asks_in


@dataclass(frozen=True)
class Inputs:
    """A member's permissions, an agent's configuration, a session's loads, the tools."""

    session: ChatSession
    agent: Agent
    permissions: MemberPermissions
    policies: Policies
    holdings: Holdings
    #: Every tool that the agent has or could load, and the meta-tools, by key.
    rows: Mapping[int, Row]
    #: Every way to these tools; None where it is to be found anew, of rows that were changed.
    offer: Offer | None = None
    #: The message, empty for all that may be sent; and what it is routed by, where messages decide.
    message: str = ""
    routing: RoutingInputs | None = None
    #: Reason why every call of a tool asks a person, in a turn that nobody attends; None where somebody answers.
    why_asks: WhyAsks | None = None
    #: The registry version that all of it was read at.
    at: int | None = None

    @cached_property
    def is_constant(self) -> bool:
        return self.agent.loading_mode == LoadingMode.CONSTANT

    @cached_property
    def searches(self) -> bool:
        """True where the provider of the agent's model searches what could be loaded."""
        return searches_for(self.agent)

    @cached_property
    def at_hand(self) -> Offer:
        meta = meta_tools(self.agent, self.holdings, self.permissions)
        bundles = bundles_sent(self.agent, self.holdings)
        return offer_from(list(self.rows.values()), self.agent, bundles, meta=meta)

    @cached_property
    def selection(self) -> Selection:
        own = (self.session, self.agent, self.permissions, self.holdings)
        return selected(
            *own,
            self.at_hand,
            self.message,
            policies=self.policies,
            routing=self._routing,
            why_asks=self.why_asks,
            reach=self.reading.offer if self.searches else None,
            at=self.at,
        )

    @property
    def _routing(self) -> RoutingInputs | None:
        """Inputs of routing with what a change brings: the ranking is among all that the agent has."""
        if self.routing is None or not is_routed(self.agent):
            return None
        known = {spec.tool_id for spec in self.routing.specs}
        new = [spec for spec in self.at_hand.routable if spec.tool_id not in known]
        specs = sorted((*self.routing.specs, *new), key=lambda spec: spec.name)
        return replace(self.routing, specs=tuple(specs))

    @cached_property
    def sent(self) -> frozenset[int]:
        return frozenset(tool.tool_id for tool in self.selection.tools)

    @cached_property
    def reading(self) -> LoadInputs:
        """Tools that could be loaded, as whoever loads would find them."""
        bundles = list(dict.fromkeys([*self.holdings.bundles, *self.holdings.loadable]))
        offer = self.offer or offer_from(list(self.rows.values()), self.agent, bundles)
        place = LoadTarget(self.session, self.agent)
        return reading_of(place, self.holdings, self.permissions, self.policies, offer, self.why_asks, at=self.at)

    @cached_property
    def loadable(self) -> frozenset[int]:
        return frozenset(each.spec.tool_id for each in self.reading.to_search) - self.sent

    @cached_property
    def offered(self) -> frozenset[int]:
        """Keys of what is brought or could be loaded, whoever may use it."""
        gathered = {each.spec.tool_id for each in self.gathered.values()}
        return frozenset(key for key, row in self.rows.items() if not row.spec.is_meta or key in gathered)

    @cached_property
    def situation(self) -> Situation:
        own = (self.session, self.agent, self.permissions, self.message)
        return situation_of(*own, policies=self.policies, why_asks=self.why_asks, at=self.at)

    @cached_property
    def by_router(self) -> dict[str, Verdict]:
        """Verdicts of routing by the tool's name; none for a tool that was stopped before."""
        return {each.tool: each for each in self.selection.verdicts if each.stage == "router"}

    @cached_property
    def gathered(self) -> dict[str, Candidate]:
        """Candidates that were brought and not dropped again, by name, in the order in which they stay where not all
        can."""
        candidates = {each.spec.name: each for each in self.at_hand.candidates}
        verdicts = self.selection.verdicts
        kept = [candidates[each.tool] for each in verdicts if each.stage == "gather" and each.kept]
        return {each.spec.name: each for each in sorted(kept, key=limit_rank)}

    @cached_property
    def survivors(self) -> dict[str, int]:
        """Names of the tools that every stage before the limit lets through, each with its place."""
        others = ("gather", "limit")
        gone = {each.tool for each in self.selection.verdicts if not each.kept and each.stage not in others}
        return {name: place for place, name in enumerate(each for each in self.gathered if each not in gone)}

    @cached_property
    def _places(self) -> dict[str, int]:
        """Number of survivors that come before each that was gathered, by name."""
        found, count = {}, 0
        for name in self.gathered:
            found[name] = count
            count += name in self.survivors
        return found

    def place_of(self, spec: ToolSpec) -> int:
        """Return the number of tools that come before it; for what nothing brings, as if it came last."""
        return self._places.get(spec.name, len(self.survivors))

    def has_room_for(self, spec: ToolSpec) -> bool:
        return self.place_of(spec) < self.situation.model.tool_limit

    # -- With one thing changed ---------------------------------------------------------------------------------------

    def changed(
        self, keys: frozenset[int] = frozenset(), *, row: Callable[[Row], Row] = lambda row: row, **fields: Any
    ) -> Inputs:
        """Return these inputs with the given fields, and with rows changed by `row`.

        Only rows that can matter are kept: what is sent now or was next to be, these keys, and what loads others. What
        a stage took out stays out, and what the limit cut off, as long as nothing makes room.
        """
        keep = sorted((self._front | self._meta | keys) & self.rows.keys(), key=self._positions.__getitem__)
        rows = {key: row(self.rows[key]) for key in keep}
        holdings = replace(self.holdings, loads=self.lasting_loads)
        return replace(self, **{"rows": rows, "holdings": holdings, "offer": None, **fields})

    @cached_property
    def _front(self) -> frozenset[int]:
        """Keys of the survivors that the limit lets through."""
        names = list(self.survivors)[: self.situation.model.tool_limit]
        return frozenset(self.gathered[name].spec.tool_id for name in names)

    @cached_property
    def last_place(self) -> int:
        """Last place among the agent's own tools."""
        return max((row.place for row in self.rows.values() if row.place is not None), default=0)

    @cached_property
    def _meta(self) -> frozenset[int]:
        return frozenset(key for key, row in self.rows.items() if row.spec.is_meta)

    @cached_property
    def _positions(self) -> dict[int, int]:
        """The order of the rows, by key."""
        return {key: number for number, key in enumerate(self.rows)}

    @cached_property
    def lasting_loads(self) -> tuple[Load, ...]:
        """Loads without those that are in conflict, and are not sent with the next turn."""
        fallen = [load for load, _ in clashing_loads(self.holdings, self.at_hand.clashes)]
        return tuple(each for each in self.holdings.loads if each not in fallen)

    def brought_by(self, bundle: Bundle) -> frozenset[int]:
        """Keys of the tools of something that could be loaded."""
        return frozenset(each.spec.tool_id for each in self.reading.offer.tools_of(bundle))

    def clashes_with(self, bundle: Bundle) -> bool:
        sides = [side.bundle for clash in self.at_hand.clashes for side in (clash.existing, clash.candidate)]
        return any(is_same(side, bundle) for side in sides)


def read_inputs(session: ChatSession, agent: Agent, message: str = "", *, is_unattended: bool = False) -> Inputs:
    """Read the inputs for a turn with this message, or for any. Queries as `select_tools`. `agent` comes with its model
    and provider at hand."""
    permissions, at = permissions_at_version(session.membership_id)
    holdings = holdings_of(session, agent, at=at)
    reach = in_reach(agent, holdings, at=at)
    policies = policies_for(permissions, at)
    why_asks = why_asks_in(session, agent, at=at) if is_unattended else None
    found = Inputs(session, agent, permissions, policies, holdings, reach.rows, reach.offer, message, why_asks=why_asks)
    found = replace(found, at=at)
    return replace(found, routing=routing_inputs(session, agent, found.at_hand, message, at=at))


def is_same(one: Bundle | None, other: Bundle) -> bool:
    return one is not None and (one.toolkit_id, one.tool_id) == (other.toolkit_id, other.tool_id)
