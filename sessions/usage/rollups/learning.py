"""Facts learnt from the latest replies: how long an agent's are, and how a provider counts in comparison with us."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Sequence
from uuid import UUID

from capabilities.language_models.providers.learning import learn_token_factor
from capabilities.language_models.providers.resolve import provider_of
from capabilities.models import Agent
from sessions.models import Step, StepKind, Turn
from sessions.usage.rollups.reading import Batch

#: Replies of an agent that count, and how many there must be.
LATEST_REPLIES = 200
FEWEST_REPLIES = 20
#: Seconds for which a known length is not learned anew.
KEPT_SECONDS = 5.0

_learned_at: dict[int, float] = {}


def learn_from(turns: Sequence[Turn], batch: Batch) -> None:
    """Learn of the agents and models of turns that were just added. Three statements for each agent and each model."""
    for agent in {turn.agent_id: turn.agent for turn in turns}.values():
        last = _learned_at.get(agent.pk)
        if agent.output_p95 is None or last is None or time.monotonic() - last >= KEPT_SECONDS:
            _learned_at[agent.pk] = time.monotonic()
            learn_output_p95(agent)
    _learn_factors(turns, batch)


def learn_output_p95(agent: Agent) -> None:
    """Set the tokens that 95 of 100 of the agent's latest replies took at most; nothing where there are too few."""
    ended = Turn.objects.filter(agent=agent, ended_at__isnull=False).order_by("-ended_at")[:LATEST_REPLIES]
    replies = Step.objects.filter(turn__in=list(ended.values_list("pk", flat=True)), kind=StepKind.MODEL)
    lengths = sorted(replies.order_by("-pk").values_list("output_tokens", flat=True)[:LATEST_REPLIES])
    if len(lengths) >= FEWEST_REPLIES:
        found = lengths[math.ceil(0.95 * len(lengths)) - 1]
        Agent.objects.filter(pk=agent.pk).exclude(output_p95=found).update(output_p95=found)


def _learn_factors(turns: Sequence[Turn], batch: Batch) -> None:
    """Learn the token factors from the inputs that both the provider and we have counted."""
    counts: dict[tuple[UUID, str], list[tuple[int, int]]] = defaultdict(list)
    for step in (step for turn in turns for step in batch.steps[turn.pk] if step.kind == StepKind.MODEL):
        counted = step.tool_tokens + step.result_tokens + step.history_tokens
        provider = provider_of(step.origin)
        if provider and counted and step.input_tokens and not step.usage_estimated:
            counts[provider, step.model_name].append((counted, step.input_tokens))
    for key, pairs in counts.items():
        if (model := batch.models.get(key)) is not None and not model.is_offline:
            counted, reported = (sum(each) for each in zip(*pairs, strict=True))
            learn_token_factor(model.public_id, counted=counted, reported=reported, calls=len(pairs))
