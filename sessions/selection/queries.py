"""Tools that a session's model calls carry: the pipeline, with the session's loads and the tools that it was handed.

Turns call `select_tools`; `selection_preview` and `starting_selection` do the same work for pages and REST.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from capabilities.choosing.pipeline import stages as pipeline
from capabilities.choosing.pipeline.candidates import Candidate, Clash, Offer
from capabilities.choosing.pipeline.counts import counted_for
from capabilities.choosing.pipeline.namespaces import Namespace, namespaces_of
from capabilities.choosing.pipeline.permissions import MemberPermissions, permissions_at_version
from capabilities.choosing.pipeline.policies import Policies, policies_for
from capabilities.choosing.pipeline.routing import Decided, RoutingInputs, is_routed
from capabilities.choosing.pipeline.runtime_layers import layers_for
from capabilities.choosing.pipeline.stages import (
    PERMITTING_STAGES,
    SENDING_STAGES,
    Situation,
    Verdict,
    narrowed,
    searches_tools,
)
from capabilities.contract.loading import (
    CALL_TOOL,
    LIST_TOOLKITS,
    LOAD_CATEGORY,
    LOAD_TOOLS,
    READ_RESULT,
    SEARCH_TOOLS,
    UNLOAD_TOOLS,
)
from capabilities.language_models.providers.refused_tools import refusals_of
from capabilities.language_models.providers.resolve import ResolvedModel, resolve_model
from capabilities.models import Agent, LoadingMode
from sessions.models import ChatSession, Turn, UnloadReason
from sessions.selection.holdings import Holdings, Load, bundles_sent, holdings_of, in_reach, offer_at_hand
from sessions.selection.routing import routing_inputs
from sessions.selection.unattended import WhyAsks, why_asks_in
from toolhub.tenants.models import Membership


@dataclass(frozen=True)
class Selection(pipeline.Selection):
    """The tools of a session's model call, with what of its loads is to be put on record: `loading.settle` does."""

    #: Loads that hold no longer, and why.
    stale: tuple[tuple[Load, UnloadReason], ...] = ()
    #: Keys of initial toolkits that have no row yet.
    new_initial: tuple[int, ...] = ()
    load_count: int = 0


def select_tools(
    turn: Turn,
    model: ResolvedModel,
    decided: Decided | None = None,
    *,
    at: int | None = None,
    has_loads: bool = True,
) -> Selection:
    """The tools of this turn for its model, at the session's loads of now. Five queries at most, whatever
    there is, one more where the organisation has policies, one where the agent is routed, one where the provider
    searches, and those of `why_asks_in` where nobody attends the turn; where this process has read the organisation at
    this registry version two: the member's rights, and the loads. A quick question gets none, without a query.

    `decided` is what routing decided with the turn's first model call, `at` the registry version that the worker saw
    last, and `has_loads` whether the session has, or had, anything loaded.
    """
    if turn.without_tools:
        return Selection((), (), model.tokenizer.encoding, load_count=turn.session.load_count)
    agent = turn.agent
    permissions, now = permissions_at_version(turn.membership_id)
    policies = policies_for(permissions, now)
    holdings = holdings_of(turn.session, agent, during=turn, at=at, has_loads=has_loads)
    searches = searches_in(turn, model)
    offer = offer_at_hand(agent, holdings, meta_tools(agent, holdings, permissions, searches=searches), at=at)
    routing = routing_inputs(turn.session, agent, offer, turn.message, at=now, decided=decided)
    why_asks = why_asks_in(turn.session, agent, model, at=now) if turn.is_unattended else None
    return selected(
        turn.session,
        agent,
        permissions,
        holdings,
        offer,
        turn.message,
        policies=policies,
        model=model,
        routing=routing,
        why_asks=why_asks,
        reach=in_reach(agent, holdings, at=at).offer if searches else None,
        at=now,
    )


def searches_in(turn: Turn, model: ResolvedModel) -> bool:
    """Return whether the provider searches what the agent could load in this turn: not beside tools that a client
    brought, which no other request of the session has."""
    brings_tools = turn.asked is not None and bool(turn.asked.tools)
    return searches_tools(turn.agent, model) and not brings_tools


def searches_for(agent: Agent, model: ResolvedModel | None = None) -> bool:
    """Return whether the provider searches in a turn to come, with the agent's own model where none is given. No query
    where that is at hand."""
    if agent.loading_mode != LoadingMode.NATIVE_SEARCH:
        return False
    return searches_tools(agent, model or resolve_model(agent.model, agent))


def selection_preview(session: ChatSession, agent: Agent | None = None, message: str = "") -> Selection:
    """The tools that a turn of this session would carry now for this message; without one, all that it may carry.
    Queries as `select_tools`."""
    agent = agent or session.agent
    if session.tools_off:
        return Selection((), (), resolve_model(agent.model, agent).tokenizer.encoding, load_count=session.load_count)
    permissions, at = permissions_at_version(session.membership_id)
    holdings = holdings_of(session, agent, at=at)
    offer = offer_at_hand(agent, holdings, meta_tools(agent, holdings, permissions), at=at)
    policies = policies_for(permissions, at)
    routing = routing_inputs(session, agent, offer, message, at=at)
    reach = in_reach(agent, holdings, at=at).offer if searches_for(agent) else None
    return selected(
        session, agent, permissions, holdings, offer, message, policies=policies, routing=routing, reach=reach, at=at
    )


def starting_selection(member: Membership, agent: Agent, message: str = "") -> Selection:
    """The tools that the first turn of a new session would carry for this member and message; without one, all that it
    may carry. Queries as `select_tools`."""
    return selection_preview(new_session(member, agent), agent, message)


def new_session(member: Membership, agent: Agent) -> ChatSession:
    """A session that nobody has written to yet, and that is not stored."""
    return ChatSession(organisation_id=member.organisation_id, membership=member, agent=agent)


def selected(
    session: ChatSession,
    agent: Agent,
    permissions: MemberPermissions,
    holdings: Holdings,
    offer: Offer,
    message: str = "",
    *,
    policies: Policies,
    model: ResolvedModel | None = None,
    routing: RoutingInputs | None = None,
    why_asks: WhyAsks | None = None,
    reach: Offer | None = None,
    at: int | None = None,
) -> Selection:
    """Select from what was read already: `offer` is what is at hand; without a resolved model, `agent` has its own and
    the provider; without `routing`, no message leaves anything out; with `why_asks`, nobody attends the turn; with
    `reach`, all that is in reach, the provider searches. No query but what that takes."""
    clashing = clashing_loads(holdings, offer.clashes)
    left_out = frozenset(load.bundle for load, _ in clashing)
    situation = situation_of(
        session, agent, permissions, message, left_out, policies=policies, model=model, why_asks=why_asks, at=at
    )
    if reach is not None:
        situation = replace(situation, namespaces=searchable(situation, holdings, reach))
    found = pipeline.select(replace(situation, routing=routing), offer)
    fallen = [(load, reason) for load, reason in clashing if may_fall(load, agent)]
    gathered = [each for each in offer.candidates if each.bundle not in situation.left_out]
    return Selection(
        found.tools,
        found.verdicts,
        found.encoding,
        found.all_tools,
        found.routing,
        found.namespaces,
        (*holdings.stale, *fallen, *useless_loads(holdings, gathered, found.verdicts, agent)),
        tuple(each.toolkit_id for each in holdings.new_initial if each.toolkit_id is not None),
        session.load_count,
    )


def searchable(situation: Situation, holdings: Holdings, reach: Offer) -> tuple[Namespace, ...]:
    """Return the namespaces that the provider may search: tools in reach that are not sent as they are, and that this
    member may use."""
    sent = {None, *bundles_sent(situation.agent, holdings)}
    found, stages = [each for each in reach.candidates if each.bundle not in sent], PERMITTING_STAGES + SENDING_STAGES
    kept, _ = narrowed(situation, found, stages)
    specs = counted_for((each.spec for each in kept), situation.model)
    as_sent = [replace(each, spec=spec) for each, spec in zip(kept, specs, strict=True)]
    return namespaces_of(as_sent, situation.model.tokenizer.encoding)


def situation_of(
    session: ChatSession,
    agent: Agent,
    permissions: MemberPermissions,
    message: str = "",
    left_out: frozenset[Any] = frozenset(),
    *,
    policies: Policies,
    model: ResolvedModel | None = None,
    why_asks: WhyAsks | None = None,
    at: int | None = None,
) -> Situation:
    """Build the inputs of the stages for an agent in a session: with the model that a running turn has resolved, else
    with the agent's own. No query, but one for a model whose provider refused tools, and one where a definition is
    large: none where these were read before `at` this registry version."""
    model = model or resolve_model(agent.model, agent)
    given = session.delegated_tools
    delegated = None if given is None else frozenset(given)
    order = sent_before(session, agent)
    layers = partial(
        layers_for, session.organisation_id, provider_id=model.provider.public_id, agent_id=agent.pk, at=at
    )
    return Situation(
        permissions,
        agent,
        model,
        message,
        delegated,
        order,
        left_out,
        policies,
        why_asks,
        refusals=refusals_of(model, at=at),
        layers=layers,
    )


def sent_before(session: ChatSession, agent: Agent) -> list[int]:
    """Keys of the tools that this agent was last sent in this session, in their order."""
    stored = session.tool_order.get(str(agent.pk)) if isinstance(session.tool_order, dict) else None
    return [key for key in stored if isinstance(key, int)] if isinstance(stored, list) else []


def system_text(*parts: str) -> str:
    """The system message of a model call: the agent's prompt, and what stands behind it."""
    return "\n\n".join(part for part in parts if part)


# -- Loads ------------------------------------------------------------------------------------------------------------


def meta_tools(
    agent: Agent, holdings: Holdings, permissions: MemberPermissions, *, searches: bool | None = None
) -> list[str]:
    """Return the names of the meta-tools at the agent's hand: those that load others, where there is something to load;
    and the one that reads on in results, which is sent with any other tool. Where messages decide what is sent, the one
    that finds what they left out is there too. `searches` as for `loading_tools`."""
    names = loading_tools(agent, holdings, permissions, searches=searches)
    if is_routed(agent) and SEARCH_TOOLS not in names:
        names.append(SEARCH_TOOLS)
    return [*names, READ_RESULT]


def loading_tools(
    agent: Agent, holdings: Holdings, permissions: MemberPermissions, *, searches: bool | None = None
) -> list[str]:
    """Return the names of the tools that load others and that the agent gets: those that have something to load.

    Toolkits and deferred tools call for the first ones, unless the provider searches them (`searches`; None: as with
    the agent's own model); whole categories, which only the admin right opens, for `load_tool_category`, with agents
    that start with the core categories, where it lives, or load anything.
    """
    loads = bool(holdings.loadable)
    categories = bool(permissions.loads) and (loads or agent.starts_with_core)
    loads = loads and not (searches_for(agent) if searches is None else searches)
    if agent.loading_mode == LoadingMode.CONSTANT:
        names = [LIST_TOOLKITS, SEARCH_TOOLS, CALL_TOOL]
        return [*names, LOAD_CATEGORY, UNLOAD_TOOLS] if categories else names
    names = [LIST_TOOLKITS, LOAD_TOOLS, UNLOAD_TOOLS, SEARCH_TOOLS] if loads else []
    if categories:
        names += [LOAD_CATEGORY] if loads else [LIST_TOOLKITS, LOAD_CATEGORY, UNLOAD_TOOLS]
    return names


def clashing_loads(holdings: Holdings, clashes: Sequence[Clash]) -> list[tuple[Load, UnloadReason]]:
    """Loads that an edit brought into conflict with what stands before them: they fall, but for another agent's, which
    only this one goes without. Initial ones stay, and of a tool that both have, the first word counts."""
    bundles = {each.candidate.bundle for each in clashes}
    return [
        (load, UnloadReason.CONFLICT)
        for load in holdings.loads
        if load.bundle in bundles and not load.bundle.is_initial
    ]


def may_fall(load: Load, agent: Agent) -> bool:
    """Return whether this agent puts the end of the load on record: the load is its own, and has not ended yet."""
    return load.agent_id == agent.pk and not load.has_ended


def useless_loads(
    holdings: Holdings, candidates: Sequence[Candidate], verdicts: Sequence[Verdict], agent: Agent
) -> list[tuple[Load, UnloadReason]]:
    """Return this agent's loads of whose tools its member may use none any more, with the reason. An empty toolkit is
    harmless, and stays."""
    forbidden = {each.tool for each in verdicts if each.stage in ("role", "grants") and not each.kept}
    forbidden_by_bundle: dict[Any, list[bool]] = {}
    for each in candidates:
        forbidden_by_bundle.setdefault(each.bundle, []).append(each.spec.name in forbidden)
    return [
        (load, UnloadReason.NOT_PERMITTED)
        for load in holdings.loads
        if may_fall(load, agent) and not load.bundle.is_initial and all(forbidden_by_bundle.get(load.bundle, [False]))
    ]
