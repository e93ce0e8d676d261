"""The audited writes of providers: where models are reached, with which key, and which agents use them."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from django.db import transaction

from capabilities.egress import EgressRefused, Guard, check_url
from capabilities.models import Agent, LanguageModel, Provider
from toolhub.tenants.audit import record
from toolhub.tenants.models import Membership


class ProviderRefused(ValueError):
    """The provider cannot be saved; `field` is at fault, the message says what to change."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True)
class ProviderContent:
    """What a provider's form says. `api_key` is None to keep the stored key, "" to forget it."""

    slug: str
    name: str
    base_url: str
    model_name: str
    context_window: int
    is_enabled: bool = True
    api_key: str | None = None


@transaction.atomic
def save_provider(
    provider: Provider | None, content: ProviderContent, *, agents: Iterable[Agent] = (), actor: Membership
) -> Provider:
    """Add or change a provider and its first model, and let these agents use that model. Keys are never in the audit.

    Raises ProviderRefused for an address that may not be reached, a name in use, and a stored key that would go to
    another host than it was entered for.
    """
    check_base_url(content.base_url)
    is_new = provider is None
    if provider is None:
        provider = Provider(organisation_id=actor.organisation_id, api_key="")
    before = {} if is_new else _told(provider, _first_model(provider))
    twins = Provider.objects.filter(organisation_id=provider.organisation_id, slug=content.slug)
    if twins.exclude(pk=provider.pk).exists():
        raise ProviderRefused("slug", f"There is a provider {content.slug} already.")
    if not is_new and content.api_key is None and _moves(provider.base_url, content.base_url) and _has_key(provider):
        raise ProviderRefused(
            "api_key", "The address leads to another host now: enter the key again, or tick that it is removed."
        )
    _write(provider, content)
    model = _write_model(provider, content)
    after = _told(provider, model)
    if content.api_key is not None:
        after["api_key"] = "changed" if content.api_key else "removed"
    if is_new or before != after:
        record("provider.create" if is_new else "provider.update", provider, actor=actor, before=before, after=after)
    for agent in agents:
        _use_model(agent, model, actor=actor)
    return provider


def check_base_url(url: str) -> None:
    """Raise ProviderRefused for an address that no request would be let through to, as far as it says so itself.

    Names are looked up when a request is made, not here: what they lead to then is what counts.
    """
    if not url:
        return
    try:
        parsed = check_url(url)
        if parsed.query or parsed.fragment:
            raise EgressRefused("The address ends before any ? or #; it looks like https://api.example.org/v1.")
        address = "127.0.0.1" if parsed.host.removesuffix(".") == "localhost" else parsed.host.strip("[]")
        ipaddress.ip_address(address)
    except EgressRefused as error:
        raise ProviderRefused("base_url", str(error)) from error
    except ValueError:
        return  # a name
    port = parsed.port or (443 if parsed.scheme == "https" else 80)
    try:
        Guard(ports=None).check(parsed.host, address, port)
    except EgressRefused as error:
        raise ProviderRefused(
            "base_url",
            f"{parsed.host} is a private address. Whoever runs this service lets it through with the setting "
            f"TOOLHUB_PRIVATE_HOSTS={parsed.host}:{port}.",
        ) from error


def _write(provider: Provider, content: ProviderContent) -> None:
    provider.slug, provider.name = content.slug, content.name
    provider.base_url, provider.is_enabled = content.base_url, content.is_enabled
    if content.api_key is not None:
        provider.api_key = content.api_key
    provider.save()


def _write_model(provider: Provider, content: ProviderContent) -> LanguageModel:
    model = _first_model(provider) or LanguageModel(organisation_id=provider.organisation_id, provider=provider)
    twins = LanguageModel.objects.filter(provider=provider, name=content.model_name)
    if twins.exclude(pk=model.pk).exists():
        raise ProviderRefused("model_name", f"This provider has another model named {content.model_name}.")
    model.name, model.context_window = content.model_name, content.context_window
    model.save()
    return model


def _use_model(agent: Agent, model: LanguageModel, *, actor: Membership) -> None:
    if agent.model_id == model.pk:
        return
    before = {"model": str(agent.model)}
    agent.model = model
    agent.save(update_fields=["model"])
    record("agent.update", agent, actor=actor, before=before, after={"model": str(model)})


def _first_model(provider: Provider) -> LanguageModel | None:
    return LanguageModel.objects.filter(provider=provider).order_by("pk").first()


def _has_key(provider: Provider) -> bool:
    return Provider.objects.filter(pk=provider.pk).exclude(api_key="").exists()


def _moves(old: str, new: str) -> bool:
    """Whether requests go to another host, port or scheme than before."""
    return bool(new) and urlsplit(old)[:2] != urlsplit(new)[:2]


def _told(provider: Provider, model: LanguageModel | None) -> dict[str, Any]:
    """What the audit says of it: everything but the key."""
    return {
        "slug": provider.slug,
        "name": provider.name,
        "base_url": provider.base_url,
        "is_enabled": provider.is_enabled,
        "model": model.name if model else "",
        "context_window": model.context_window if model else None,
    }
