"""Which model an agent's calls go to, at which provider and within which limits: one value for a whole turn.

A turn resolves it once, when a worker takes it, and reads nothing of the rows behind it any more: what somebody changes
meanwhile counts from the next turn on. Pages and previews resolve the same value, so they show what a turn would do.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from django.conf import settings

from capabilities.models import Agent, LanguageModel, Provider


@dataclass(frozen=True)
class ResolvedProvider:
    """Where a model is called, and with which key."""

    slug: str
    name: str
    #: Empty for the offline model of this service.
    base_url: str
    is_enabled: bool
    #: None where the row was read without it, as pages do: such a value shows a model, and cannot call it.
    api_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class ResolvedModel:
    """A model with all that a call of it depends on: the model's own word first, then the agent's, then the provider's
    or the setting's."""

    provider: ResolvedProvider
    #: As it goes over the wire.
    name: str
    #: Tokens that a request and its answer may take together.
    context_window: int
    #: Tools that one request may carry.
    tool_limit: int
    #: Model calls that one turn may take.
    max_rounds: int


def resolve_model(model: LanguageModel, agent: Agent | None = None) -> ResolvedModel:
    """The model as this agent calls it; without one, as it is by itself. No query where the provider is at hand."""
    provider, of_agent = model.provider, agent.max_rounds if agent else None
    return ResolvedModel(
        provider=resolve_provider(provider),
        name=model.name,
        context_window=model.context_window,
        tool_limit=provider.tool_limit if model.tool_limit is None else model.tool_limit,
        max_rounds=model.max_rounds or of_agent or int(settings.TOOLHUB_MAX_ROUNDS),
    )


def resolve_provider(provider: Provider) -> ResolvedProvider:
    """No query: a key that was not read is left out."""
    has_key = "api_key" not in provider.get_deferred_fields()
    return ResolvedProvider(
        slug=provider.slug,
        name=provider.name,
        base_url=provider.base_url,
        is_enabled=provider.is_enabled,
        api_key=provider.api_key if has_key else None,
    )
