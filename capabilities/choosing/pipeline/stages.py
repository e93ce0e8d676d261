"""Pipeline that selects the tools of a model call: a verdict for each tool at each stage that looked at it.

`gather` is the only stage that adds; every later one only removes. Each stage is a function from candidates to
verdicts, so that a new one is one line in STAGES. It knows no session: what one adds comes with the `Situation`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cached_property
from typing import Any

from capabilities.choosing.pipeline.bringing import OWN
from capabilities.choosing.pipeline.candidates import Bundle, Candidate, Offer
from capabilities.choosing.pipeline.counts import counted_for, sent_sha256, tool_tokens
from capabilities.choosing.pipeline.namespaces import Namespace
from capabilities.choosing.pipeline.permissions import MemberPermissions
from capabilities.choosing.pipeline.policies import NO_POLICIES, Policies
from capabilities.choosing.pipeline.routing import Routed, RoutingInputs, routed
from capabilities.choosing.pipeline.runtime_layers import Layers, in_force
from capabilities.common.tokens import O200K
from capabilities.contract.envelope import NO_OVERRIDES
from capabilities.contract.loading import CREATE_TOOL, READ_RESULT
from capabilities.contract.policy import PolicyLayer
from capabilities.contract.spec import ToolSpec
from capabilities.contract.tool_size import KNOB, LEAST, why_too_large
from capabilities.contract.wire import SEARCH, sha256_hex
from capabilities.language_models.providers.refused_tools import Refusals
from capabilities.language_models.providers.resolve import ResolvedModel
from capabilities.models import Agent, AgentScope, LoadingMode
from capabilities.running.services.writes import set_up_title


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
    #: Encoding by which the tools' tokens are counted.
    encoding: str = O200K
    #: Tools that would be sent if the message left nothing out.
    all_tools: tuple[ToolSpec, ...] = ()
    #: Record of routing, as the step of the model call keeps it; empty where it did not look.
    routing: Mapping[str, Any] = field(default_factory=dict)
    #: Namespaces that the provider searches, behind the tools.
    namespaces: tuple[Namespace, ...] = ()

    @cached_property
    def wire(self) -> str:
        """The `tools` array as it is sent."""
        return "[" + ",".join([*(tool.sent for tool in self.tools), *self.searched]) + "]"

    @property
    def searched(self) -> list[str]:
        """The entries of the `tools` array that the provider searches, and the one by which it does."""
        return [*(each.wire for each in self.namespaces), SEARCH] if self.namespaces else []

    @property
    def searched_tools(self) -> list[ToolSpec]:
        """The tools that the provider may find, in their order."""
        return [tool for each in self.namespaces for tool in each.tools]

    @property
    def all_sent(self) -> list[ToolSpec]:
        """All tools whose definitions go out, in their order."""
        return [*self.tools, *self.searched_tools]

    @property
    def sha256(self) -> str:
        return sha256_hex(self.wire)

    @property
    def tokens(self) -> int:
        """Tokens of the definitions, and of the parts of namespaces that a model sees, as its family counts them."""
        return sum(tool.tokens for tool in self.tools) + self._namespace_tokens

    @property
    def all_tokens(self) -> int:
        """Tokens of all that would be sent if the message left nothing out."""
        return sum(tool.tokens for tool in self.all_tools) + self._namespace_tokens

    @property
    def _namespace_tokens(self) -> int:
        return sum(each.tokens for each in self.namespaces)

    @property
    def overrides(self) -> dict[str, dict[str, float | int]]:
        """Overrides of the tools sent, by the key of their version, as a ToolSet keeps them."""
        return {str(tool.version_id): tool.overrides.values for tool in self.all_sent if tool.overrides != NO_OVERRIDES}

    @property
    def instructions(self) -> str:
        """Instructions of these tools for the model, each under its tool's name."""
        lines = [f"{tool.name}: {tool.instructions.strip()}" for tool in self.tools if tool.instructions.strip()]
        return "\n\n".join(lines)

    @property
    def over_limit(self) -> list[str]:
        """Names of the tools that fell off the end."""
        return [each.tool for each in self.verdicts if each.stage == "limit" and not each.kept]

    @property
    def lasting_verdicts(self) -> Sequence[Verdict]:
        """Verdicts that do not change with the message, in an order that stays too: as a VerdictSet keeps them."""
        if not self.routing:
            return self.verdicts
        verdicts = [each for each in self.verdicts if each.stage not in ("router", "limit")]
        return sorted(verdicts, key=lambda each: each.tool)


@dataclass(frozen=True)
class Situation:
    """Facts that the stages look at: who asks which agent and model, with which message, and what a session adds."""

    permissions: MemberPermissions
    agent: Agent
    model: ResolvedModel
    #: Empty where nothing was said, as on a page.
    message: str = ""
    #: For a session by delegation: keys of the tools that it was given.
    delegated: frozenset[int] | None = None
    #: Keys of the tools that were sent last, in their order: what is new comes behind them.
    sent_before: Sequence[int] = ()
    #: Loads that are in conflict with what stands before them.
    left_out: frozenset[Bundle] = field(default_factory=frozenset)
    #: The organisation's policy and those of its providers.
    policies: Policies = NO_POLICIES
    #: For a turn that nobody attends: why each call of a tool would ask a person, "" where not each one does. None
    #: where somebody answers.
    why_asks: Callable[[ToolSpec], str] | None = None
    #: Inputs of routing; None where nothing may be left out, as on a page that says what may be sent.
    routing: RoutingInputs | None = None
    #: Namespaces that the provider may search besides, in their order.
    namespaces: tuple[Namespace, ...] = ()
    #: Refusals of the model's provider, by the key of the tool.
    refusals: Refusals = field(default_factory=dict)
    #: The runtime settings around a call, read where a definition is large.
    layers: Callable[[], Layers] | None = None


Stage = Callable[[Situation, Sequence[Candidate]], list[Verdict]]


def select(situation: Situation, offer: Offer) -> Selection:
    """Select the tools to send from an offer, in its order, with the verdicts of all stages. No query."""
    gathered = in_order([each for each in offer.candidates if each.bundle not in situation.left_out], situation)
    verdicts = [Verdict(each.spec.name, "gather", True, each.source) for each in gathered]
    verdicts += [
        Verdict(each.spec.name, "gather", False, f"{each.source} clashes with what is there")
        for each in offer.candidates
        if each.bundle in situation.left_out
    ]
    at = STAGES.index(router)
    permitted_ones, looked_at = narrowed(situation, gathered, STAGES[:at])
    by_message = _routed(situation, permitted_ones)
    needed = [each for each in permitted_ones if each.spec.name not in by_message.dropped]
    kept, over = narrowed(situation, needed, STAGES[at + 1 :])
    unrouted = [each for each in permitted_ones if each.spec.name not in by_message.extra]
    everything = narrowed(situation, unrouted, STAGES[at + 1 :])[0] if by_message.dropped else kept
    all_tools = counted_for(_readable(everything), situation.model)
    namespaces, too_many = _searchable(situation, len(kept))
    tools = counted_for((each.spec for each in kept), situation.model)
    verdicts = [*verdicts, *looked_at, *_verdicts_of(by_message), *over, *too_many, *_searched(namespaces)]
    encoding = situation.model.tokenizer.encoding
    found = Selection(tools, tuple(verdicts), encoding, all_tools, by_message.record, namespaces)
    if found.routing:
        found = replace(found, routing={**found.routing, "all_tokens": found.all_tokens})
    return _without_reader(found) if len(kept) == 1 and is_reader(kept[0].spec) and not namespaces else found


def _searchable(situation: Situation, count: int) -> tuple[tuple[Namespace, ...], list[Verdict]]:
    """The namespaces that a request takes behind so many tools, with the entry that searches them; and verdicts on the
    tools of those that it does not take."""
    room = max(0, situation.model.tool_limit - count - 1)
    reason = f"over the limit of {situation.model.tool_limit} tools"
    dropped = [tool.name for each in situation.namespaces[room:] for tool in each.tools]
    return situation.namespaces[:room], [Verdict(name, "limit", False, reason) for name in dropped]


def _searched(namespaces: Sequence[Namespace]) -> list[Verdict]:
    reasons = ((tool.name, f"the provider searches it in {each.name}") for each in namespaces for tool in each.tools)
    return [Verdict(name, "search", True, reason) for name, reason in reasons]


def _routed(situation: Situation, candidates: Sequence[Candidate]) -> Routed:
    return routed(
        situation.agent,
        situation.message,
        situation.routing,
        candidates,
        keeps_sent=situation.model.provider.keeps_routed_tools or adds_tools(situation.agent, situation.model),
        tokens_of=lambda spec: tool_tokens([spec], situation.model),
    )


def adds_tools(agent: Agent, model: ResolvedModel) -> bool:
    """Return whether tools that the agent loads are added to the conversation with this model."""
    return LoadingMode(agent.loading_mode).is_native and not model.why_no_added_tools


def searches_tools(agent: Agent, model: ResolvedModel) -> bool:
    """Return whether this model's provider searches the tools that the agent could load."""
    return agent.loading_mode == LoadingMode.NATIVE_SEARCH and not model.why_no_tool_search


def _verdicts_of(by_message: Routed) -> list[Verdict]:
    kept = [Verdict(name, "router", True, reason) for name, reason in by_message.kept.items()]
    return kept + [Verdict(name, "router", False, reason) for name, reason in by_message.dropped.items()]


def _readable(candidates: Sequence[Candidate]) -> tuple[ToolSpec, ...]:
    """Return the tools of the candidates, without the reader where nothing else is sent."""
    return tuple(each.spec for each in candidates if len(candidates) > 1 or not is_reader(each.spec))


def is_reader(spec: ToolSpec) -> bool:
    """Return whether it is the tool that reads on in results of others."""
    return spec.is_meta and spec.name == READ_RESULT


def _without_reader(selection: Selection) -> Selection:
    """Nothing is sent where nothing else is: there is no result that could be read."""
    why = Verdict(READ_RESULT, "gather", False, "no other tool is sent whose results it could read")
    verdicts = (*(each for each in selection.verdicts if each.tool != READ_RESULT), why)
    return replace(selection, tools=(), verdicts=verdicts)


def in_order(candidates: Sequence[Candidate], situation: Situation) -> list[Candidate]:
    """Sort the candidates by the order in which they were sent last; new ones come behind."""
    position = {key: number for number, key in enumerate(situation.sent_before)}
    return sorted(candidates, key=lambda each: position.get(each.spec.tool_id, len(position)))


def narrowed(
    situation: Situation, candidates: Sequence[Candidate], stages: Sequence[Stage] | None = None
) -> tuple[list[Candidate], list[Verdict]]:
    """Return the candidates that are left after every stage (or after these), and the verdicts of each of them."""
    verdicts: list[Verdict] = []
    for stage in STAGES if stages is None else stages:
        stage_verdicts = stage(situation, candidates)
        verdicts += stage_verdicts
        dropped = {verdict.tool for verdict in stage_verdicts if not verdict.kept}
        if dropped:
            candidates = [each for each in candidates if each.spec.name not in dropped]
    return list(candidates), verdicts


# -- Narrow -----------------------------------------------------------------------------------------------------------


def enabled(situation: Situation, candidates: Sequence[Candidate]) -> list[Verdict]:
    reasons = ((each.spec.name, why_not_enabled(each.spec)) for each in candidates)
    return [Verdict(name, "enabled", False, reason) for name, reason in reasons if reason]


def why_not_enabled(spec: ToolSpec) -> str:
    """Why the catalogue lets nobody have it now; "" where it does."""
    reasons = []
    if not spec.is_enabled:
        reasons.append(f"switched off in the catalogue{spec.off_because}")
    if not spec.is_in_force:
        reasons.append("no version of it is in force")
    elif spec.quarantine:
        reasons.append(f"kept back until somebody decides: {spec.quarantine.rstrip('.')}")
    return ", and ".join(reasons)


def ready(situation: Situation, candidates: Sequence[Candidate]) -> list[Verdict]:
    return [
        Verdict(each.spec.name, "set-up", False, _why_not_ready(each.spec))
        for each in candidates
        if not each.spec.is_ready
    ]


def _why_not_ready(spec: ToolSpec) -> str:
    if spec.name == CREATE_TOOL:
        return "the organisation does not let agents make tools"
    return f"needs set-up: {set_up_title(spec.service)}"


def in_scope(situation: Situation, candidates: Sequence[Candidate]) -> list[Verdict]:
    if situation.agent.scope != AgentScope.MEMBER:
        return []
    reason = "acts with a credential of the whole organisation, and the agent is the member's own"
    return [Verdict(each.spec.name, "scope", False, reason) for each in candidates if each.spec.acts_as_organisation]


def delegated(situation: Situation, candidates: Sequence[Candidate]) -> list[Verdict]:
    """Remove tools that the agent that delegated does not reach."""
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
    found = [(each.spec, situation.permissions.decide(each.spec)) for each in candidates]
    return [Verdict(spec.name, answer.stage, answer.allowed, answer.reason) for spec, answer in found]


def policy(situation: Situation, candidates: Sequence[Candidate]) -> list[Verdict]:
    """Verdicts of the organisation's policy; empty where there is none."""
    return _layer_verdicts("policy", situation.policies.organisation, candidates)


def provider_policy(situation: Situation, candidates: Sequence[Candidate]) -> list[Verdict]:
    """Verdicts of the policy of the model's provider; empty where there is none."""
    return _layer_verdicts(
        "provider_policy", situation.policies.providers.get(situation.model.provider.public_id), candidates
    )


def _layer_verdicts(stage: str, layer: PolicyLayer | None, candidates: Sequence[Candidate]) -> list[Verdict]:
    if layer is None:
        return []
    found = [(each.spec.name, layer.rules.ruling(each.spec)) for each in candidates]
    return [Verdict(name, stage, ruling.kept, f"{layer.title} {ruling.reason}") for name, ruling in found]


def answerable(situation: Situation, candidates: Sequence[Candidate]) -> list[Verdict]:
    """Refuse the tools that an unattended turn goes without; empty where somebody answers."""
    if situation.why_asks is None:
        return []
    found = [(each.spec.name, situation.why_asks(each.spec)) for each in candidates]
    return [Verdict(name, "approval", False, reason) for name, reason in found if reason]


def taken(situation: Situation, candidates: Sequence[Candidate]) -> list[Verdict]:
    """Refuse the tools that the model's provider refused, and that would be sent in the same form again."""
    found = (
        [(each.spec, situation.refusals.get(each.spec.tool_id)) for each in candidates] if situation.refusals else []
    )
    provider = situation.model.provider.name
    return [
        Verdict(spec.name, "refused", False, f"{provider} refuses its definition: {refused.words}")
        for spec, refused in found
        if refused is not None and refused.sha256 in ("", sent_sha256(spec, situation.model))
    ]


def of_size(situation: Situation, candidates: Sequence[Candidate]) -> list[Verdict]:
    """Refuse the tools that are too large to be sent at all. Nothing is read where no definition is large."""
    large = [each.spec for each in candidates if each.spec.tokens > LEAST // 2]
    found = [spec for spec in counted_for(large, situation.model) if spec.tokens > LEAST]
    layers = situation.layers() if found and situation.layers is not None else ()
    reasons = ((spec, why_too_large(spec.tokens, in_force(spec, layers).envelope.knob(KNOB))) for spec in found)
    return [Verdict(spec.name, "size", False, reason) for spec, reason in reasons if reason]


def taken_when_loaded(situation: Situation, candidates: Sequence[Candidate]) -> list[Verdict]:
    """Apply `taken` and `of_size` to tools that could be loaded; empty for an agent that searches and calls them, and
    is never sent them."""
    if situation.agent.loading_mode == LoadingMode.CONSTANT:
        return []
    return [*taken(situation, candidates), *of_size(situation, candidates)]


def router(situation: Situation, candidates: Sequence[Candidate]) -> list[Verdict]:
    """Verdicts on the agent's own and the core tools: whether the message needs them."""
    return _verdicts_of(_routed(situation, candidates))


def within_limit(situation: Situation, candidates: Sequence[Candidate]) -> list[Verdict]:
    """The lowest ranked fall off. What stays keeps its place."""
    over = {each.spec.tool_id for each in sorted(candidates, key=limit_rank)[situation.model.tool_limit :]}
    reason = f"over the limit of {situation.model.tool_limit} tools"
    return [Verdict(each.spec.name, "limit", False, reason) for each in candidates if each.spec.tool_id in over]


class Rank(IntEnum):
    """Rank by which tools stay where not all can; within a rank the order counts."""

    #: Tools that load others: without them nothing more could be had.
    META = 0
    OWN = 1
    #: Somebody wanted it.
    LOADED = 2
    #: Tools that read on in the results of others.
    READER = 3
    CORE = 4


def limit_rank(candidate: Candidate) -> Rank:
    if candidate.spec.is_meta:
        return Rank.READER if is_reader(candidate.spec) else Rank.META
    if candidate.bundle is not None:
        return Rank.LOADED
    return Rank.OWN if candidate.source == OWN else Rank.CORE


STAGES: tuple[Stage, ...] = (
    enabled,
    ready,
    in_scope,
    delegated,
    permitted,
    policy,
    provider_policy,
    answerable,
    taken,
    of_size,
    router,
    within_limit,
)
#: Stages that let a member use a tool, whatever the message and however many the model takes.
PERMITTING_STAGES: tuple[Stage, ...] = STAGES[: STAGES.index(taken)]
#: Stages that a definition goes out through, whoever calls the tool.
SENDING_STAGES: tuple[Stage, ...] = (taken, of_size)
#: Stages that keep a tool from being loaded; one that only needs set-up is listed, and says so.
LOADABLE_STAGES: tuple[Stage, ...] = (
    enabled,
    in_scope,
    delegated,
    permitted,
    policy,
    provider_policy,
    answerable,
    taken_when_loaded,
)
