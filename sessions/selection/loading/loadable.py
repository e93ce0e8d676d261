"""Bundles that a member could load for an agent in a session, and the reasons against a load. Reads only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from capabilities.access.policies.catalogue import CatalogueTool
from capabilities.choosing.pipeline.candidates import Bundle, Candidate, Offer
from capabilities.choosing.pipeline.counts import tool_tokens
from capabilities.choosing.pipeline.permissions import MemberPermissions, permissions_at_version
from capabilities.choosing.pipeline.policies import Policies, policies_for
from capabilities.choosing.pipeline.stages import LOADABLE_STAGES, SENDING_STAGES, Situation, narrowed
from capabilities.contract.loading import LOAD_CATEGORY, META_CATEGORY
from capabilities.contract.policy import PolicyTool
from capabilities.contract.spec import ToolSpec
from capabilities.language_models.providers.resolve import ResolvedModel, resolve_model
from capabilities.models import Agent, AgentScope, Toolkit
from capabilities.running.registry import registry
from sessions.models import ChatSession
from sessions.selection.holdings import Holdings, bundles_sent, holdings_of, in_reach
from sessions.selection.queries import meta_tools, searches_for, situation_of
from sessions.selection.unattended import WhyAsks, why_asks_in


@dataclass(frozen=True)
class LoadTarget:
    """Place of loads: an agent in a session."""

    session: ChatSession
    agent: Agent
    #: Model that a running turn has resolved; without it, the agent's own.
    model: ResolvedModel | None = field(default=None, compare=False)
    #: Whether it is for a turn that nobody attends, and for one whose client brought tools of its own.
    is_unattended: bool = False
    brings_tools: bool = False


@dataclass(frozen=True)
class LoadResult:
    """Result of a load or an unload: a status, and a sentence for whoever asked."""

    status: str
    name: str
    message: str
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def is_there(self) -> bool:
        """True where the wanted state holds now."""
        return self.status in ("loaded", "already_loaded", "unloaded", "not_loaded")

    def as_dict(self) -> dict[str, Any]:
        return {"status": self.status, "toolkit": self.name, "message": self.message, **self.more}


@dataclass(frozen=True)
class Loadable:
    """Bundle that this member could load here, with those of its tools that the member may use."""

    bundle: Bundle
    tools: tuple[Candidate, ...]
    is_loaded: bool
    #: Tokens of the definitions, as the family of the agent's model counts them.
    tokens: int

    @property
    def needs_set_up(self) -> list[str]:
        return [each.spec.name for each in self.tools if not each.spec.is_ready]


@dataclass(frozen=True)
class LoadInputs:
    """One look at a place: what is there, what could be, and what its member may do with it."""

    place: LoadTarget
    holdings: Holdings
    permissions: MemberPermissions
    policies: Policies
    offer: Offer
    #: Keys of the tools in the offer that the member may use here.
    usable: frozenset[int]
    #: For a turn that nobody attends, why every call of a tool asks a person; else None.
    why_asks: WhyAsks | None = None
    #: The registry version that all of it was read at.
    at: int | None = None

    @property
    def situation(self) -> Situation:
        """Inputs of the stages at this place."""
        place = self.place
        return situation_of(
            place.session,
            place.agent,
            self.permissions,
            policies=self.policies,
            model=place.model,
            why_asks=self.why_asks,
            at=self.at,
        )

    def why_not_taken(self, candidate: Candidate) -> str:
        """Return why the definition does not go out to this place's model; "" where it does."""
        _, verdicts = narrowed(self.situation, [candidate], SENDING_STAGES)
        return verdicts[0].reason if verdicts else ""

    def why_unanswered(self, spec: ToolSpec) -> str:
        """Return why the tool is left out of a turn that nobody attends; "" where it is not."""
        return self.why_asks(spec) if self.why_asks is not None else ""

    @property
    def loadable(self) -> list[Loadable]:
        """Bundles that could be loaded, in the agent's order. One without a tool that the member may use is not
        listed."""
        found = [self.loadable_of(bundle) for bundle in self.holdings.loadable]
        return [each for each in found if each.tools]

    @property
    def to_search(self) -> list[Candidate]:
        """Tools that the member may use, that can be had, and that are not sent as they are: in the order of the
        offer."""
        sent = {None, *bundles_sent(self.place.agent, self.holdings)}
        usable = self.usable
        return [each for each in self.offer.candidates if each.spec.tool_id in usable and each.bundle not in sent]

    @cached_property
    def searches(self) -> bool:
        """True where the provider itself searches what could be loaded here."""
        return not self.place.brings_tools and searches_for(self.place.agent, self.place.model)

    @cached_property
    def at_hand(self) -> Mapping[int, Candidate]:
        """Tools that are there already, by their keys: the first way to each."""
        loaded = {None, *self.holdings.bundles}
        return {way.spec.tool_id: way for way in reversed(self.offer.ways) if way.bundle in loaded}

    def why_not_sent(self, tool: PolicyTool) -> str:
        """Return the policy that keeps the tool from this place's model, and why, as a text; "" for none."""
        model = self.place.model or resolve_model(self.place.agent.model, self.place.agent)
        return self.policies.why_not(tool, model.provider.public_id)

    @cached_property
    def loads_categories(self) -> bool:
        """True where the agent gets the tool that loads whole categories, as far as policies go."""
        tool = CatalogueTool(LOAD_CATEGORY, META_CATEGORY, registry.tools[LOAD_CATEGORY].effect)
        names = meta_tools(self.place.agent, self.holdings, self.permissions, searches=self.searches)
        return LOAD_CATEGORY in names and not self.why_not_sent(tool)

    def loadable_of(self, bundle: Bundle) -> Loadable:
        tools = self.usable_of(bundle)
        return Loadable(bundle, tools, bundle in self.holdings.bundles, self.tokens_of(tools))

    def tokens_of(self, tools: Iterable[Candidate]) -> int:
        """Count the tokens of their definitions, as the family of the agent's model counts them."""
        agent = self.place.agent
        return tool_tokens((each.spec for each in tools), self.place.model or resolve_model(agent.model, agent))

    def usable_of(self, bundle: Bundle) -> tuple[Candidate, ...]:
        return tuple(each for each in self.offer.tools_of(bundle) if each.spec.tool_id in self.usable)


def read_place(place: LoadTarget, *more: Bundle) -> LoadInputs:
    """Read what is loaded and could be loaded at this place; each of `more` is looked at too, as if it could be loaded.
    Queries as `select_tools`."""
    permissions, at = permissions_at_version(place.session.membership_id)
    holdings = holdings_of(place.session, place.agent, at=at)
    policies = policies_for(permissions, at)
    offer = in_reach(place.agent, holdings, more, at=at).offer
    why_asks = why_asks_in(place.session, place.agent, place.model, at=at) if place.is_unattended else None
    return reading_of(place, holdings, permissions, policies, offer, why_asks, at=at)


def reading_of(
    place: LoadTarget,
    holdings: Holdings,
    permissions: MemberPermissions,
    policies: Policies,
    offer: Offer,
    why_asks: WhyAsks | None = None,
    *,
    at: int | None = None,
) -> LoadInputs:
    """Build the inputs of a load from what was read already: `offer` is all that is in reach."""
    reading = LoadInputs(place, holdings, permissions, policies, offer, frozenset(), why_asks, at)
    usable, _ = narrowed(reading.situation, offer.candidates, LOADABLE_STAGES)
    return replace(reading, usable=frozenset(each.spec.tool_id for each in usable))


# -- What refuses it --------------------------------------------------------------------------------------------------


def why_not(reading: LoadInputs, bundle: Bundle) -> LoadResult | None:
    """Return the result that would refuse to load the bundle here; None where nothing does."""
    return _shared_only(reading, bundle) or _forbidden(reading, bundle) or _conflict(reading, bundle)


def not_loadable(reading: LoadInputs, name: str) -> LoadResult:
    """Build the result for a toolkit that is missing, or not for this agent; it names the toolkits that could be
    loaded."""
    allowed = {"allowed": [each.bundle.name for each in reading.loadable]}
    if Toolkit.objects.filter(name=name).exists():
        return LoadResult("not_allowed", name, f"This agent may not load the toolkit {name}.", allowed)
    return LoadResult("unknown", name, f"There is no toolkit {name[:100]}.", allowed)


def _shared_only(reading: LoadInputs, bundle: Bundle) -> LoadResult | None:
    if reading.place.agent.scope != AgentScope.MEMBER:
        return None
    specs = [each.spec for each in reading.offer.tools_of(bundle)]
    tools = [spec.name for spec in specs if spec.acts_as_organisation]
    if not tools:
        return None
    message = "This agent acts only with its member's own credentials; these tools use the organisation's."
    return LoadResult("scope_incompatible", bundle.name, message, {"tools": tools})


def _forbidden(reading: LoadInputs, bundle: Bundle) -> LoadResult | None:
    tools = reading.offer.tools_of(bundle)
    if not tools or reading.usable_of(bundle):
        return None
    allowed = {"allowed": [each.bundle.name for each in reading.loadable]}
    permitted = (each.spec for each in tools if reading.permissions.decide(each.spec).allowed)
    policy = next((reason for spec in permitted if (reason := reading.why_not_sent(spec))), "")
    message = f"Access denied: this member may use none of the tools of {bundle.name}."
    if policy:
        message = f"Not loaded: {policy}."
    elif any(reading.why_unanswered(each.spec) for each in tools):
        message = f"Not loaded: calls of the tools of {bundle.name} ask a person, and nobody answers here."
    return LoadResult("not_allowed", bundle.name, message, allowed)


def _conflict(reading: LoadInputs, bundle: Bundle) -> LoadResult | None:
    """Return a conflict where one of the bundle's tools is there already under other overrides; else None."""
    for candidate in reading.offer.tools_of(bundle):
        known = reading.at_hand.get(candidate.spec.tool_id)
        if known is not None and known.spec.overrides != candidate.spec.overrides:
            message = (
                f"Not loaded: {known.source} and {candidate.source} both have {candidate.spec.name}, "
                "with different overrides. Unload the one first, or have the toolkits agree."
            )
            sides = {"existing": _side(known), "candidate": _side(candidate)}
            return LoadResult("conflict", bundle.name, message, {"tool": candidate.spec.name, **sides})
    return None


def _side(candidate: Candidate) -> dict[str, Any]:
    return {"from": candidate.source, "overrides": candidate.spec.overrides.values}
