"""The provider that OPENAI_API_KEY or OPENAI_BASE_URL names: which agents follow it, and their way back."""

from __future__ import annotations

from collections.abc import Iterable

from django.conf import settings

from capabilities.common.registry_version import touch_registry
from capabilities.common.rights import configuration_write, require
from capabilities.models import Agent, LanguageModel
from toolhub.tenants.audit.writes import record
from toolhub.tenants.models import AuditEntry, Membership, Right

OFFLINE = "offline"
ENVIRONMENT = "environment"
#: Key in the audit where the environment moved an agent, and where that was undone: neither chose a model.
BECAUSE = "environment"


def environment_names_one() -> bool:
    return bool(settings.OPENAI_API_KEY or settings.OPENAI_BASE_URL)


def agents_left_behind() -> list[Agent]:
    """Agents that an earlier start moved to the provider of its environment, while this start's names none.

    By name, with model and provider at hand; without those whose model somebody chose. One query, or two.
    """
    if environment_names_one():
        return []
    agents = Agent.objects.filter(model__provider__slug=ENVIRONMENT).select_related("model__provider")
    return without_choice(agents.defer("prompt", "model__provider__api_key").order_by("name"))


def without_choice(agents: Iterable[Agent]) -> list[Agent]:
    """Agents whose model nobody chose: no member made them, or changed their model. One query, none for no agents."""
    by_id = {str(getattr(agent, "public_id", agent.pk)): agent for agent in agents}
    if not by_id:
        return []
    entries = AuditEntry.objects.filter(
        target_type="agent", target_id__in=list(by_id), action__in=("agent.create", "agent.update"), actor__isnull=False
    )
    chosen = {
        target
        for target, before, after in entries.values_list("target_id", "before", "after")
        if BECAUSE not in after and after.get("model", before.get("model")) != before.get("model")
    }
    return [agent for key, agent in by_id.items() if key not in chosen]


def move_agent(agent: Agent, model: LanguageModel, *, actor: Membership | None) -> None:
    """Let it use the model, on record as nobody's choice."""
    before = {"model": str(agent.model)}
    agent.model = model
    agent.save(update_fields=["model"])
    record("agent.update", agent, actor=actor, before=before, after={"model": str(model), BECAUSE: True})


@configuration_write()
def back_to_offline_model(*, actor: Membership | None) -> list[Agent]:
    """Let the agents that were left behind use the offline model again; returns them. Needs the right `providers`.
    Raises PermissionDenied without it."""
    require(actor, Right.PROVIDERS)
    model = LanguageModel.objects.select_related("provider").filter(provider__slug=OFFLINE).order_by("pk").first()
    agents = agents_left_behind() if model is not None else []
    for agent in agents:
        assert model is not None
        move_agent(agent, model, actor=actor)
    if agents:
        touch_registry(agents[0].organisation_id)
    return agents
