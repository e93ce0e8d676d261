"""The audited writes of providers and their models: where they are reached, with which key, and who uses them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from django.db.models import Q, QuerySet

from capabilities.common.columns import audited, check_columns, columns_of, default_of
from capabilities.common.refused import ChangeRefused, check_slug
from capabilities.common.registry_version import touch_registry
from capabilities.common.rights import configuration_write, require
from capabilities.common.short_names import free_short_name
from capabilities.language_models.providers.knobs import check_knobs
from capabilities.language_models.providers.vendors import RESOURCE
from capabilities.models import Agent, ConnectionTest, LanguageModel, Provider
from capabilities.running.egress import Purpose
from capabilities.running.egress.web_addresses import check_web_address
from toolhub.tenants.audit.writes import record
from toolhub.tenants.models import Membership, Right

#: Columns of a provider but for its key, and of a model but for its provider.
PROVIDER_COLUMNS = tuple(name for name in columns_of(Provider) if name != "api_key")
MODEL_COLUMNS = columns_of(LanguageModel)


class ProviderRefused(ChangeRefused):
    """The provider or its model cannot be saved."""


@dataclass(frozen=True)
class ProviderContent:
    """Content of a provider's form. `api_key` is None to keep the stored key, "" to forget it.

    With a `model_name` the provider's first model is written too; "" leaves the models alone.
    """

    slug: str
    name: str
    base_url: str
    model_name: str = ""
    context_window: int = default_of(LanguageModel, "context_window")
    tool_limit: int = default_of(Provider, "tool_limit")
    is_enabled: bool = default_of(Provider, "is_enabled")
    api_key: str | None = None
    dialect: str = default_of(Provider, "dialect")
    #: Whether what routing sent stays in place for a session's later messages, for the sake of a prompt cache.
    keeps_routed_tools: bool = default_of(Provider, "keeps_routed_tools")
    #: Whether it takes tools in the middle of a conversation, and searches tools itself, though it is not known to.
    takes_added_tools: bool = default_of(Provider, "takes_added_tools")
    takes_tool_search: bool = default_of(Provider, "takes_tool_search")


@dataclass(frozen=True)
class ModelContent:
    """Content of a model's form. A limit that is None is left to the provider, or to the service; a `dialect` of "" to
    the provider, and any other setting of its calls that is empty to the vendor."""

    name: str
    context_window: int = default_of(LanguageModel, "context_window")
    tool_limit: int | None = None
    max_rounds: int | None = None
    takes_images: bool | None = None
    dialect: str = default_of(LanguageModel, "dialect")
    reasoning_effort: str = ""
    max_output_tokens: int | None = None
    temperature: float | None = None
    parallel_tool_calls: bool | None = None


def model_content(model: LanguageModel) -> ModelContent:
    """Content of a model as it is stored."""
    return ModelContent(**{name: getattr(model, name) for name in MODEL_COLUMNS})


@configuration_write()
def save_provider(
    provider: Provider | None, content: ProviderContent, *, agents: Iterable[Agent] = (), actor: Membership
) -> Provider:
    """Add or change a provider, maybe with its first model, and let these agents use that. Keys are never in the audit.

    Raises ProviderRefused for an address that may not be reached, a name in use, and a stored key that would go to
    another host than it was entered for.
    """
    require(actor, Right.PROVIDERS)
    check_base_url(content.base_url)
    is_new = provider is None
    if provider is None:
        provider = Provider(organisation_id=actor.organisation_id, api_key="")
    before = {} if is_new else _audited(provider)
    moved = not is_new and provider.base_url != content.base_url
    slug = content.slug or provider.slug or free_short_name(Provider.objects.all(), "slug", content.name)
    _check_slug(provider, slug)
    if not is_new and content.api_key is None and _moves(provider.base_url, content.base_url) and _has_key(provider):
        raise ProviderRefused(
            "api_key", "The address leads to another host now: enter the key again, or tick that it is removed."
        )
    _write(provider, replace(content, slug=slug))
    after = _audited(provider)
    if before != after or content.api_key is not None:  # else what was tested is as it was
        ConnectionTest.objects.filter(Q(language_model__provider=provider) | Q(provider=provider)).delete()
    if content.api_key is not None:
        after["api_key"] = "changed" if content.api_key else "removed"
    if moved:
        after |= _forget_learned(LanguageModel.objects.filter(provider=provider))
    if is_new or before != after:
        record("provider.create" if is_new else "provider.update", provider, actor=actor, before=before, after=after)
        touch_registry(provider.organisation_id)
    if content.model_name:
        first = LanguageModel.objects.filter(provider=provider).order_by("pk").first()
        stored = model_content(first) if first else ModelContent("")
        wanted = replace(stored, name=content.model_name, context_window=content.context_window)
        save_model(provider, first, wanted, agents=agents, actor=actor)
    return provider


@configuration_write("provider")
def delete_provider(provider: Provider, *, actor: Membership) -> None:
    """Delete a provider with its models and its key. Raises ChangeRefused while agents use one of them."""
    require(actor, Right.PROVIDERS)
    users = _agents_text(Q(model__provider=provider) | Q(fallback_model__provider=provider))
    if users:
        raise ProviderRefused(
            "provider", f"{users} would have no model: choose another model there first.", code="in_use"
        )
    language_models = list(
        LanguageModel.objects.filter(provider=provider).order_by("pk").values_list("name", flat=True)
    )
    record("provider.delete", provider, actor=actor, before=_audited(provider) | {"models": language_models})
    provider.delete()
    touch_registry(actor.organisation_id)


@configuration_write()
def save_model(
    provider: Provider,
    model: LanguageModel | None,
    content: ModelContent,
    *,
    agents: Iterable[Agent] = (),
    actor: Membership,
) -> LanguageModel:
    """Add or change one model of the provider, and let these agents use it. Raises PermissionDenied without the right
    `providers`; ProviderRefused for content that is not taken, and for a name that the provider has already."""
    require(actor, Right.PROVIDERS)
    check_columns(LanguageModel, content, MODEL_COLUMNS, ProviderRefused)
    check_knobs(content, content.context_window)
    is_new = model is None
    if model is None:
        model = LanguageModel(organisation_id=provider.organisation_id, provider=provider)
    same_name = LanguageModel.objects.filter(provider=provider, name=content.name)
    if same_name.exclude(pk=model.pk).exists():
        raise ProviderRefused("name", f"This provider has another model named {content.name}.", code="taken")
    before = {} if is_new else _model_fields(model)
    renamed = not is_new and model.name != content.name
    for name in MODEL_COLUMNS:
        setattr(model, name, getattr(content, name))
    # Never what a worker writes of it meanwhile: what was learned.
    model.save(update_fields=None if is_new else MODEL_COLUMNS)
    after = _model_fields(model)
    if before != after:  # else what was tested is as it was: who uses it is no part of that
        ConnectionTest.objects.filter(language_model=model).delete()
    if renamed:
        after |= _forget_learned(LanguageModel.objects.filter(pk=model.pk))
        model.learned, model.missing_since = [], None
    if before != after:
        record("model.create" if is_new else "model.update", model, actor=actor, before=before, after=after)
        touch_registry(model.organisation_id)
    for agent in agents:
        _use_model(agent, model, actor=actor)
    return model


@configuration_write("model")
def delete_model(model: LanguageModel, *, actor: Membership) -> None:
    """Raises ChangeRefused while agents use it."""
    require(actor, Right.PROVIDERS)
    users = _agents_text(Q(model=model) | Q(fallback_model=model))
    if users:
        raise ProviderRefused("model", f"{users} would have no model: choose another model there first.", code="in_use")
    record("model.delete", model, actor=actor, before=_model_fields(model))
    model.delete()
    touch_registry(actor.organisation_id)


def check_base_url(url: str) -> None:
    """Raise ProviderRefused for an address that no request would be let through to, as far as it says so itself.

    Names are looked up when a request is made, not here: what they lead to then is what counts.
    """
    if not url:
        return
    try:
        parsed = check_web_address(url, "base_url", purpose=Purpose.PROVIDER, ports=None)
    except ChangeRefused as error:
        raise ProviderRefused(error.field, str(error)) from error
    if RESOURCE in urlsplit(url).netloc:
        raise ProviderRefused("base_url", f"Put the name of your resource in place of {RESOURCE}.")
    if parsed.query or parsed.fragment:
        raise ProviderRefused(
            "base_url", "The address ends before any ? or #; it looks like https://api.example.org/v1."
        )


def _check_slug(provider: Provider, slug: str) -> None:
    check_slug(slug)
    if Provider.objects.filter(slug=slug).exclude(pk=provider.pk).exists():
        raise ProviderRefused("slug", f"There is a provider {slug} already.", code="taken")


def _write(provider: Provider, content: ProviderContent) -> None:
    check_columns(Provider, content, PROVIDER_COLUMNS, ProviderRefused)
    for name in PROVIDER_COLUMNS:
        setattr(provider, name, getattr(content, name))
    if content.api_key is not None:
        provider.api_key = content.api_key
    provider.save()


def _forget_learned(language_models: QuerySet[LanguageModel]) -> dict[str, str]:
    """Forget the lessons about another address or another model's name, and that the models are not listed. Return the
    change for the audit; empty where nothing was learned."""
    language_models.exclude(missing_since=None).update(missing_since=None)
    return {"learned": "forgotten"} if language_models.exclude(learned=[]).update(learned=[]) else {}


def _use_model(agent: Agent, model: LanguageModel, *, actor: Membership) -> None:
    if agent.model_id == model.pk:
        return
    before = {"model": str(agent.model)}
    agent.model = model
    agent.save(update_fields=["model"])
    record("agent.update", agent, actor=actor, before=before, after={"model": str(model)})
    touch_registry(agent.organisation_id)


def _agents_text(users: Q) -> str:
    """The first few names of these agents, those set aside too, as the beginning of a sentence; empty where there are
    none."""
    found = Agent.every.filter(users).order_by("name").values_list("name", "is_set_aside")[:4]
    names = [f"{name} (of the personal assistant, which is off)" if aside else name for name, aside in found]
    return ", ".join(names[:3]) + (" and others" if len(names) > 3 else "")


def _has_key(provider: Provider) -> bool:
    return Provider.objects.filter(pk=provider.pk).exclude(api_key="").exists()


def _moves(old: str, new: str) -> bool:
    """Return whether requests go to another host, port or scheme than before."""
    return bool(new) and urlsplit(old)[:2] != urlsplit(new)[:2]


def _audited(provider: Provider) -> dict[str, Any]:
    """Return the provider's fields for the audit: everything but the key."""
    return audited(provider, PROVIDER_COLUMNS)


def _model_fields(model: LanguageModel) -> dict[str, Any]:
    return {"provider": model.provider.slug} | audited(model, MODEL_COLUMNS)
