"""Changes of the model: how many tools it takes, and one that its provider refused."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from functools import partial

from capabilities.language_models.providers.writes import model_content, save_model
from capabilities.models import LanguageModel
from sessions.insight.explain.inputs import Inputs
from sessions.insight.explain.remedies.ways import Blocked, Page, Way
from toolhub.tenants.models import Membership


def raise_limit(blocked: Blocked) -> Iterator[Way]:
    """Let the model take so many tools that this one fits in behind those before it. Of these, only what is sent now is
    looked at, and one more."""
    model, limit = blocked.inputs.agent.model, blocked.inputs.place_of(blocked.tool.spec) + 1
    yield Way(
        f"the model {model.name} takes {limit:,} tools or more",
        Page("model_update", (model.provider.slug, str(model.public_id))),
        partial(_with_room_for, blocked),
        partial(_save_limit, model, limit),
    )


def _with_room_for(blocked: Blocked) -> Inputs:
    agent = copy(blocked.inputs.agent)
    agent.model = copy(agent.model)
    agent.model.tool_limit = blocked.inputs.situation.model.tool_limit + 1
    return blocked.inputs.changed(frozenset({blocked.tool.spec.tool_id}), agent=agent)


def _save_limit(model: LanguageModel, limit: int, actor: Membership) -> LanguageModel:
    content = replace(model_content(model), tool_limit=limit)
    return save_model(model.provider, copy(model), content, actor=actor)


def send_again(blocked: Blocked) -> Iterator[Way]:
    """Send it once more: the provider may take it by now."""
    model, spec = blocked.inputs.agent.model, blocked.tool.spec
    yield Way(
        f"{model.provider.name} takes it by now: it is sent to {model.name} again",
        Page("tool_detail", (spec.name,)),
        partial(_without_refusals, blocked),
    )


def _without_refusals(blocked: Blocked) -> Inputs | None:
    if not blocked.inputs.has_room_for(blocked.tool.spec):
        return None
    agent = copy(blocked.inputs.agent)
    agent.model = copy(agent.model)
    agent.model.refuses_tools = False
    return blocked.inputs.changed(frozenset({blocked.tool.spec.tool_id}), agent=agent)
