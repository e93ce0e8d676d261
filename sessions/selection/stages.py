"""Which tools a turn's model calls carry: one pipeline, a verdict for each tool at each stage that looked at it.

`gather` is the only stage that adds; every later one only removes. Each stage is a function from candidates to
verdicts, so that a new one is one line in STAGES.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any

from capabilities.contract.loading import (
    CALL_TOOL,
    LIST_TOOLKITS,
    LOAD_CATEGORY,
    LOAD_TOOLS,
    SEARCH_TOOLS,
    UNLOAD_TOOLS,
)
from capabilities.contract.wire import canonical_json, sha256_hex
from capabilities.models import Agent, AgentScope, LoadingMode
from capabilities.pipeline.candidates import OWN, Candidate, Clash, Offer
from capabilities.pipeline.permissions import Standing, standing_of
from capabilities.pipeline.specs import NO_OVERRIDES, ToolSpec
from capabilities.services.writes import service_title
from sessions.models import ChatSession, ToolSet, Turn, UnloadReason
from sessions.selection.reach import Holdings, Load, holdings_of, offer_at_hand
from toolhub.tenants.models import Membership


@dataclass(frozen=True)
class Verdict:
    """Why a tool is or is not in a selection."""

    tool: str
    stage: str
    kept: bool
    reason: str


@dataclass(frozen=True)
class Selection:
    """The tools of a model call, in the order they are sent, and how it came to them."""

    tools: tuple[ToolSpec, ...]
    verdicts: tuple[Verdict, ...]
    #: What of the session's rows holds no longer, and why; what is not on record yet. `loading.settle` sees to both.
    stale: tuple[tuple[Load, UnloadReason], ...] = ()
    new_initial: tuple[int, ...] = ()
    load_count: int = 0

    @cached_property
    def wire(self) -> str:
        """The `tools` array as it is sent."""
        return "[" + ",".join(tool.wire for tool in self.tools) + "]"

    @property
    def sha256(self) -> str:
        return sha256_hex(self.wire)

    @property
    def tokens(self) -> int:
        return sum(tool.tokens for tool in self.tools)

    @property
    def overrides(self) -> dict[str, list[float | None]]:
        """As a ToolSet keeps them."""
        return {str(tool.version_id): [*tool.overrides] for tool in self.tools if tool.overrides != NO_OVERRIDES}

    @property
    def instructions(self) -> str:
        """What these tools tell the model beside, each under its name (MR-41)."""
        told = [f"{tool.name}: {tool.instructions.strip()}" for tool in self.tools if tool.instructions.strip()]
        return "\n\n".join(told)

    @property
    def over_limit(self) -> list[str]:
        """Names of the tools that fell off the end."""
        return [each.tool for each in self.verdicts if each.stage == "limit" and not each.kept]


@dataclass(frozen=True)
class Situation:
    """What the stages may look at."""

    standing: Standing
    tool_limit: int
    scope: str = AgentScope.ORGANISATION
    #: For a session by delegation: keys of the tools that it was given.
    delegated: frozenset[int] | None = None


Stage = Callable[[Situation, Sequence[Candidate]], list[Verdict]]


def select_tools(turn: Turn) -> Selection:
    """The tools of this turn, at the session's loads of now. Three queries, whatever there is."""
    return select(turn.session, turn.agent, standing_of(turn.membership_id), during=turn)


def selection_preview(session: ChatSession, agent: Agent | None = None) -> Selection:
    """The tools that a turn of this session would carry now. Three queries."""
    return select(session, agent or session.agent, standing_of(session.membership_id))


def starting_selection(member: Membership, agent: Agent) -> Selection:
    """The tools that the first turn of a new session would carry for this member. Three queries."""
    return select(new_session(member, agent), agent, standing_of(member))


def new_session(member: Membership, agent: Agent) -> ChatSession:
    """A session that nobody has written to yet, and that is not stored."""
    return ChatSession(organisation_id=member.organisation_id, membership=member, agent=agent)


def select(session: ChatSession, agent: Agent, standing: Standing, *, during: Turn | None = None) -> Selection:
    """`agent` comes with its model and provider at hand."""
    holdings = holdings_of(session, agent, during=during)
    offer = offer_at_hand(agent, holdings, meta_tools(agent, holdings, standing))
    return selected(session, agent, standing, holdings, offer)


def selected(session: ChatSession, agent: Agent, standing: Standing, holdings: Holdings, offer: Offer) -> Selection:
    """The same of what was read already: `offer` is what is at hand."""
    clashing = clashing_loads(holdings, offer.clashes)
    dropped = {load.bundle for load, _ in clashing}
    own = [(load, reason) for load, reason in clashing if may_fall(load, agent)]
    candidates = in_order([each for each in offer.candidates if each.bundle not in dropped], session, agent)
    verdicts = [Verdict(each.spec.name, "gather", True, each.source) for each in candidates]
    verdicts += [
        Verdict(each.spec.name, "gather", False, f"{each.source} clashes with what is there")
        for each in offer.candidates
        if each.bundle in dropped
    ]
    kept, looked_at = narrowed(situation_of(session, agent, standing), candidates)
    return Selection(
        tuple(each.spec for each in kept),
        (*verdicts, *looked_at),
        (*holdings.stale, *own, *useless_loads(holdings, candidates, looked_at, agent)),
        tuple(each.toolkit_id for each in holdings.new_initial if each.toolkit_id is not None),
        session.load_count,
    )


def situation_of(session: ChatSession | None, agent: Agent, standing: Standing) -> Situation:
    given = session.delegated_tools if session is not None else None
    return Situation(standing, tool_limit(agent), agent.scope, None if given is None else frozenset(given))


def narrowed(
    situation: Situation, candidates: Sequence[Candidate], stages: Sequence[Stage] | None = None
) -> tuple[list[Candidate], list[Verdict]]:
    """What is left after every stage (or after these), and what each of them said."""
    verdicts: list[Verdict] = []
    for stage in STAGES if stages is None else stages:
        looked_at = stage(situation, candidates)
        verdicts += looked_at
        gone = {verdict.tool for verdict in looked_at if not verdict.kept}
        candidates = [each for each in candidates if each.spec.name not in gone]
    return list(candidates), verdicts


# -- Gather -----------------------------------------------------------------------------------------------------------


def meta_tools(agent: Agent, holdings: Holdings, standing: Standing) -> list[str]:
    """Which tools that load others the agent gets: those that have something to load (MR-04, MR-05).

    Toolkits and deferred tools call for the first ones; whole categories, which only the admin right opens, for
    `load_tool_category`, with agents that start with the core categories, where it lives (ZK-24), or load anything.
    """
    loads = bool(holdings.loadable)
    categories = bool(standing.loads) and (loads or agent.starts_with_core)
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
    """Whether its end is this agent's to put on record: it is the agent's own, and has not ended yet."""
    return load.agent_id == agent.pk and not load.has_ended


def useless_loads(
    holdings: Holdings, candidates: Sequence[Candidate], verdicts: Sequence[Verdict], agent: Agent
) -> list[tuple[Load, UnloadReason]]:
    """This agent's loads of whose tools its member may use none any more. An empty toolkit is harmless, and stays."""
    forbidden = {each.tool for each in verdicts if each.stage in ("role", "grants") and not each.kept}
    brought: dict[Any, list[bool]] = {}
    for each in candidates:
        brought.setdefault(each.bundle, []).append(each.spec.name in forbidden)
    return [
        (load, UnloadReason.NOT_PERMITTED)
        for load in holdings.loads
        if may_fall(load, agent) and not load.bundle.is_initial and all(brought.get(load.bundle, [False]))
    ]


def in_order(candidates: Sequence[Candidate], session: ChatSession, agent: Agent) -> list[Candidate]:
    """In the order in which they were last sent to this agent in this session; what is new comes behind."""
    stored = session.tool_order.get(str(agent.pk)) if isinstance(session.tool_order, dict) else None
    if not isinstance(stored, list):
        return list(candidates)
    place = {key: number for number, key in enumerate(stored) if isinstance(key, int)}
    return sorted(candidates, key=lambda each: place.get(each.spec.tool_id, len(place)))


# -- Narrow -----------------------------------------------------------------------------------------------------------


def enabled(situation: Situation, candidates: Sequence[Candidate]) -> list[Verdict]:
    return [
        Verdict(each.spec.name, "enabled", False, "switched off in the catalogue")
        for each in candidates
        if not each.spec.is_enabled
    ]


def ready(situation: Situation, candidates: Sequence[Candidate]) -> list[Verdict]:
    return [
        Verdict(each.spec.name, "set-up", False, f"needs set-up: {service_title(each.spec.service)}")
        for each in candidates
        if not each.spec.is_ready
    ]


def in_scope(situation: Situation, candidates: Sequence[Candidate]) -> list[Verdict]:
    if situation.scope != AgentScope.MEMBER:
        return []
    reason = "acts with a credential of the whole organisation, and the agent is the member's own"
    return [Verdict(each.spec.name, "scope", False, reason) for each in candidates if each.spec.acts_as_organisation]


def delegated(situation: Situation, candidates: Sequence[Candidate]) -> list[Verdict]:
    given = situation.delegated
    if given is None:
        return []
    reason = "the agent that delegated does not reach it"
    return [
        Verdict(each.spec.name, "delegation", False, reason)
        for each in candidates
        if each.spec.tool_id not in given and not each.spec.is_meta
    ]


def permitted(situation: Situation, candidates: Sequence[Candidate]) -> list[Verdict]:
    found = [(each.spec, situation.standing.decide(each.spec)) for each in candidates]
    return [Verdict(spec.name, answer.stage, answer.allowed, answer.reason) for spec, answer in found]


def within_limit(situation: Situation, candidates: Sequence[Candidate]) -> list[Verdict]:
    """The lowest ranked fall off. What stays keeps its place."""
    over = {each.spec.tool_id for each in sorted(candidates, key=limit_rank)[situation.tool_limit :]}
    reason = f"over the limit of {situation.tool_limit} tools"
    return [Verdict(each.spec.name, "limit", False, reason) for each in candidates if each.spec.tool_id in over]


class Rank(IntEnum):
    """Who stays where not all can; within a rank the order counts."""

    #: What loads others: without it nothing more could be had (ZK-02, ZK-04).
    META = 0
    OWN = 1
    #: Somebody wanted it.
    LOADED = 2
    CORE = 3


def limit_rank(candidate: Candidate) -> Rank:
    if candidate.spec.is_meta:
        return Rank.META
    if candidate.bundle is not None:
        return Rank.LOADED
    return Rank.OWN if candidate.source == OWN else Rank.CORE


STAGES: tuple[Stage, ...] = (enabled, ready, in_scope, delegated, permitted, within_limit)
#: What keeps a tool from being loaded; one that only needs set-up is listed, and says so.
LOADABLE_STAGES: tuple[Stage, ...] = (enabled, in_scope, delegated, permitted)


def tool_limit(agent: Agent) -> int:
    """Tools that one request to the agent's model may carry: the model's own number, else its provider's (ZK-05)."""
    own = agent.model.tool_limit
    return agent.model.provider.tool_limit if own is None else own


def keep_tool_set(selection: Selection, organisation_id: int) -> ToolSet:
    """The stored row of these tool versions under these overrides; made the first time. One or two queries."""
    version_ids = [tool.version_id for tool in selection.tools]
    overrides = selection.overrides
    found, _ = ToolSet.objects.get_or_create(
        organisation_id=organisation_id,
        key=sha256_hex(canonical_json([version_ids, overrides] if overrides else version_ids)),
        defaults={
            "sha256": selection.sha256,
            "wire": selection.wire,
            "tokens": selection.tokens,
            "version_ids": version_ids,
            "overrides": overrides,
            "instructions": selection.instructions,
        },
    )
    return found
