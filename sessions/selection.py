"""Which tools a turn's model calls carry: one pipeline, a verdict for each tool at each stage that looked at it.

`gather` is the only stage that adds; every later one only removes. Each stage is a function from candidates to
verdicts, so that a new one is one line in STAGES.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from capabilities.active import Candidate, ToolSpec, candidates_for, rights_of
from capabilities.contract.permission import Rights
from capabilities.contract.wire import canonical_json, sha256_hex
from capabilities.models import Agent
from capabilities.services import service_title
from sessions.models import ChatSession, ToolSet, Turn


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


@dataclass(frozen=True)
class Situation:
    """What the stages may look at."""

    rights: Rights
    tool_limit: int


Stage = Callable[[Situation, Sequence[Candidate]], list[Verdict]]


def select_tools(turn: Turn) -> Selection:
    """The tools of this turn. Three queries."""
    return select(turn.agent, rights_of(turn.membership_id))


def selection_preview(session: ChatSession) -> Selection:
    """The tools that a turn of this session would carry now. Three queries."""
    return select(session.agent, rights_of(session.membership_id))


def select(agent: Agent, rights: Rights) -> Selection:
    """`agent` comes with its model and provider at hand."""
    situation = Situation(rights, tool_limit(agent))
    candidates = candidates_for(agent)
    verdicts = [Verdict(each.spec.name, "gather", True, each.source) for each in candidates]
    for stage in STAGES:
        looked_at = stage(situation, candidates)
        verdicts += looked_at
        gone = {verdict.tool for verdict in looked_at if not verdict.kept}
        candidates = [each for each in candidates if each.spec.name not in gone]
    return Selection(tuple(each.spec for each in candidates), tuple(verdicts))


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


def permitted(situation: Situation, candidates: Sequence[Candidate]) -> list[Verdict]:
    found = [(each.spec, situation.rights.decide(each.spec.tool_id, each.spec.category_id)) for each in candidates]
    return [Verdict(spec.name, answer.stage, answer.allowed, answer.reason) for spec, answer in found]


def within_limit(situation: Situation, candidates: Sequence[Candidate]) -> list[Verdict]:
    reason = f"over the limit of {situation.tool_limit} tools"
    return [Verdict(each.spec.name, "limit", False, reason) for each in candidates[situation.tool_limit :]]


STAGES: tuple[Stage, ...] = (enabled, ready, permitted, within_limit)


def tool_limit(agent: Agent) -> int:
    """Tools that one request to the agent's model may carry: the model's own number, else its provider's (ZK-05)."""
    own = agent.model.tool_limit
    return agent.model.provider.tool_limit if own is None else own


def keep_tool_set(selection: Selection, organisation_id: int) -> ToolSet:
    """The stored row of these tool versions; made the first time. One or two queries."""
    version_ids = [tool.version_id for tool in selection.tools]
    found, _ = ToolSet.objects.get_or_create(
        organisation_id=organisation_id,
        key=sha256_hex(canonical_json(version_ids)),
        defaults={
            "sha256": selection.sha256,
            "wire": selection.wire,
            "tokens": selection.tokens,
            "version_ids": version_ids,
        },
    )
    return found
