"""Agents, providers and models, as pages show them. Keys stay where they are."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from django.db.models import BooleanField, Case, Count, Prefetch, QuerySet, Value, When
from django.http import Http404

from capabilities.catalogue.tools.search import by_match, matching, page_of
from capabilities.common.secrets import SecretUnreadable, masked
from capabilities.models import Agent, AgentTool, AgentToolkit, LanguageModel, Provider, Tool
from capabilities.toolkits.queries import shown_toolkits

#: Tools that a search among them finds, at most.
TOOLS_FOUND = 50


def providers_shown() -> Sequence[Provider]:
    """Providers with their models, these models' agents and tests; keys stay where they are. Four queries."""
    models = LanguageModel.objects.order_by("pk").prefetch_related(
        Prefetch("agents", Agent.objects.only("organisation_id", "name", "slug", "model_id").order_by("name")),
        "connection_tests",
    )
    return list(
        Provider.objects.defer("api_key")
        .annotate(has_key=Case(When(api_key="", then=Value(False)), default=Value(True), output_field=BooleanField()))
        .prefetch_related(Prefetch("models", models))
        .order_by("name", "pk")
    )


def provider_or_404(slug: str) -> Provider:
    """Without its key."""
    provider = Provider.objects.defer("api_key").filter(slug=slug).first()
    if provider is None:
        raise Http404("No such provider.")
    return provider


def model_or_404(provider: Provider, model_id: UUID) -> LanguageModel:
    """Of this provider, whose key is not read."""
    model = models_by_name().filter(provider=provider, public_id=model_id).first()
    if model is None:
        raise Http404("No such model.")
    return model


def models_by_name() -> QuerySet[LanguageModel]:
    """With their provider at hand."""
    models = LanguageModel.objects.select_related("provider").defer("provider__api_key")
    return models.order_by("provider__name", "name")


def models_of(provider: Provider) -> Sequence[LanguageModel]:
    """With the agents that use each, and what its last test showed. Three queries."""
    agents = Agent.objects.only("organisation_id", "name", "slug", "model_id").order_by("name")
    models = LanguageModel.objects.filter(provider=provider)
    models = models.prefetch_related(Prefetch("agents", agents), "connection_tests")
    return list(models.order_by("pk"))


def shown_key(provider: Provider) -> str:
    """The mask of the provider's key, "" where there is none; a sentence where it cannot be read."""
    try:
        key = Provider.objects.values_list("api_key", flat=True).get(pk=provider.pk)
    except SecretUnreadable:
        return "a key that cannot be read any more; enter it again"
    return masked(key)


def agents_by_name() -> QuerySet[Agent]:
    """With model and provider at hand."""
    return Agent.objects.select_related("model__provider").defer("model__provider__api_key").order_by("name", "pk")


def agents_shown() -> Sequence[Agent]:
    """With how many tools of their own each has, and its toolkits' lines. Two queries."""
    toolkits = AgentToolkit.objects.select_related("toolkit").order_by("position", "toolkit__name")
    agents = agents_by_name().annotate(own_count=Count("agent_tools"))
    return list(agents.prefetch_related(Prefetch("agent_toolkits", toolkits)))


def agent_or_404(slug: str) -> Agent:
    agent = agents_by_name().filter(slug=slug).first()
    if agent is None:
        raise Http404("No such agent.")
    return agent


def toolkits_of_agent(agent: Agent) -> Sequence[AgentToolkit]:
    """What the agent may load, in its order, each with its numbers. Three queries."""
    lines = AgentToolkit.objects.filter(agent=agent).order_by("position", "toolkit__name")
    return list(lines.prefetch_related(Prefetch("toolkit", shown_toolkits())))


def deferred_tools_of(agent: Agent) -> list[str]:
    """Names of its own tools that are not sent before they are loaded, in its order. One query."""
    lines = AgentTool.objects.filter(agent=agent, is_deferred=True).order_by("position", "tool__name")
    return list(lines.values_list("tool__name", flat=True))


def tools_named_like(q: str) -> list[Tool]:
    """The first tools in which every word stands, those first that they name. One query."""
    tools = Tool.objects.select_related("category", "current_version").defer(
        "current_version__wire", "current_version__parameters", "current_version__description"
    )
    return list(page_of(matching(tools, q).annotate(place=by_match(q)), limit=TOOLS_FOUND).rows)
