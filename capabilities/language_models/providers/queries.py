"""Providers and models, as pages show them. Keys stay where they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import BooleanField, Case, Exists, OuterRef, Prefetch, Q, QuerySet, Value, When
from django.http import Http404
from django.utils import timezone

from capabilities.common.secrets import SecretUnreadable, masked
from capabilities.common.tokens import Tokenizer
from capabilities.language_models.providers.lessons import Lesson, lessons_of
from capabilities.language_models.providers.prices import ENOUGH_SAMPLES, PriceInForce, price_at
from capabilities.language_models.providers.resolve import resolve_model
from capabilities.models import Agent, ConnectionTest, LanguageModel, Provider

#: Models that Home names.
MAX_MISSING = 5


def providers_shown() -> Sequence[Provider]:
    """Providers with their models, these models' agents and tests; keys stay where they are. Four queries."""
    language_models = LanguageModel.objects.order_by("pk").prefetch_related(
        Prefetch("agents", Agent.objects.only("organisation_id", "name", "slug", "model_id").order_by("name")),
        "connection_tests",
    )
    return list(
        Provider.objects.defer("api_key")
        .annotate(has_key=Case(When(api_key="", then=Value(False)), default=Value(True), output_field=BooleanField()))
        .prefetch_related(Prefetch("models", language_models))
        .order_by("name", "pk")
    )


def provider_or_404(slug: str) -> Provider:
    """Return the provider without its key. Raises Http404."""
    provider = Provider.objects.defer("api_key").filter(slug=slug).first()
    if provider is None:
        raise Http404("No such provider.")
    return provider


def model_or_404(provider: Provider, model_id: UUID) -> LanguageModel:
    """Return the model of this provider, whose key is not read. Raises Http404."""
    model = models_by_name().filter(provider=provider, public_id=model_id).first()
    if model is None:
        raise Http404("No such model.")
    return model


def models_by_name() -> QuerySet[LanguageModel]:
    """Models by the name of their provider, which is at hand, and by their own."""
    language_models = LanguageModel.objects.select_related("provider").defer("provider__api_key")
    return language_models.order_by("provider__name", "name")


def models_of(provider: Provider) -> Sequence[LanguageModel]:
    """Models of the provider, each with the agents that use it and the result of its last test. Three queries."""
    agents = Agent.objects.only("organisation_id", "name", "slug", "model_id").order_by("name")
    language_models = LanguageModel.objects.filter(provider=provider)
    language_models = language_models.prefetch_related(Prefetch("agents", agents), "connection_tests")
    return list(language_models.order_by("pk"))


@dataclass(frozen=True)
class ListedModels:
    """Models that the last test of a provider read from its list; `test` is None without one."""

    test: ConnectionTest | None
    #: Models of the list that are not added yet: `name` and `context_window`. Names are text from outside.
    choices: Sequence[Mapping[str, Any]]
    added_count: int


def listed_models_shown(provider: Provider) -> ListedModels:
    """Two queries, one where nothing was read."""
    test = ConnectionTest.objects.filter(provider=provider).first()
    listed = test.findings.get("models", []) if test else []
    known = set(LanguageModel.objects.filter(provider=provider).values_list("name", flat=True)) if listed else set()
    choices = sorted((each for each in listed if each["name"] not in known), key=lambda each: each["name"])
    return ListedModels(test, choices, len(listed) - len(choices))


@dataclass(frozen=True)
class MissingModel:
    """A model that its provider does not list any more, while agents use it."""

    provider: Provider
    name: str
    agent_names: Sequence[str]


def missing_models() -> list[MissingModel]:
    """The first few, by provider and name. One query, two where there are any."""
    used = Exists(Agent.objects.filter(Q(model=OuterRef("pk")) | Q(fallback_model=OuterRef("pk"))))
    language_models = list(models_by_name().exclude(missing_since=None).filter(used)[:MAX_MISSING])
    if not language_models:
        return []
    users = Agent.objects.filter(Q(model__in=language_models) | Q(fallback_model__in=language_models)).order_by("name")
    rows = list(users.values_list("name", "model_id", "fallback_model_id"))
    return [
        MissingModel(model.provider, model.name, [name for name, *used in rows if model.pk in used][:4])
        for model in language_models
    ]


@dataclass(frozen=True)
class CountedBy:
    """Count of a model's tokens (its tokenizer, and the learned factor), and the price of its calls now."""

    tokenizer: Tokenizer
    #: Tokens of the provider for a hundred of ours, and the calls that this was learned from; None before the first.
    percent: int | None
    calls: int
    #: Whether these calls are enough to go by.
    is_learned: bool
    price: PriceInForce | None


def counted_by(model: LanguageModel) -> CountedBy:
    """One query, for the organisation's own prices."""
    resolved = resolve_model(model)
    percent = round(resolved.token_factor * 100) if resolved.token_samples else None
    return CountedBy(
        resolved.tokenizer,
        percent,
        resolved.token_samples,
        resolved.token_samples >= ENOUGH_SAMPLES,
        price_at(resolved, timezone.now(), None),
    )


@dataclass(frozen=True)
class ShownLesson:
    """One thing that a refusal taught of a model. `lesson.because` is text from outside."""

    lesson: Lesson
    #: When; None where it is not known.
    at: datetime | None


def lessons_shown(model: LanguageModel) -> list[ShownLesson]:
    """The newest first. No query."""
    return [ShownLesson(lesson, _moment(lesson.at)) for lesson in reversed(lessons_of(model.learned))]


def _moment(text: str) -> datetime | None:
    with suppress(ValueError):
        moment = datetime.fromisoformat(text)
        return moment if moment.tzinfo else None
    return None


def shown_key(provider: Provider) -> str:
    """The mask of the provider's key, "" where there is none; a sentence where it cannot be read."""
    try:
        key = Provider.objects.values_list("api_key", flat=True).get(pk=provider.pk)
    except SecretUnreadable:
        return "a key that cannot be read any more; enter it again"
    return masked(key)
