"""Prices of models, as pages and REST show them: the public one, the own one with its moment, and which one counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import QuerySet
from django.http import Http404
from django.utils import timezone

from capabilities.language_models.price_lines import PriceLine, price_lines
from capabilities.language_models.providers.prices import (
    OFFLINE,
    OwnPrice,
    PriceInForce,
    in_force,
    own_price_of,
    public_price,
)
from capabilities.language_models.providers.queries import models_by_name
from capabilities.language_models.providers.resolve import resolve_model
from capabilities.models import LanguageModel, ModelPrice
from toolhub.tenants.rows.keyset import Keyset, Page

ORDER = ("provider__name", "name", "pk")


@dataclass(frozen=True)
class PricedModel:
    """A model with what it costs now."""

    model: LanguageModel
    public: PriceInForce | None
    #: The newest own price that has begun, and the first that has not.
    own: OwnPrice | None
    coming: OwnPrice | None
    is_offline: bool

    @property
    def counts(self) -> PriceInForce | None:
        """Price of a call that counts now; None where nothing is known."""
        if self.is_offline:
            return OFFLINE
        if self.own is not None and self.own.prices is not None:
            return PriceInForce(self.own.prices, self.own.source)
        return self.public

    @property
    def has_own(self) -> bool:
        return self.own is not None and self.own.prices is not None

    @property
    def own_lines(self) -> list[PriceLine]:
        return price_lines(self.own.prices) if self.own and self.own.prices else []


def priced_models(language_models: Sequence[LanguageModel], at: datetime | None = None) -> list[PricedModel]:
    """These models with their prices. One query."""
    now = at or timezone.now()
    own: dict[int, list[OwnPrice]] = {}
    for row in ModelPrice.objects.filter(model__in=language_models).order_by("valid_from"):
        own.setdefault(row.model_id, []).append(own_price_of(row))
    return [_priced(model, own.get(model.pk, []), now) for model in language_models]


def _priced(model: LanguageModel, own: Sequence[OwnPrice], now: datetime) -> PricedModel:
    resolved = resolve_model(model)
    coming = next((each for each in own if each.valid_from > now), None)
    public = None if resolved.is_offline else public_price(resolved, now)
    return PricedModel(model, public, in_force(own, now), coming, resolved.is_offline)


def priced_page(*, after: str = "", before: str = "") -> Page[PricedModel]:
    """Models by provider and name, with their prices. Two queries."""
    page = Keyset(models_by_name(), ORDER).page(after, before)
    return Page(priced_models(page.rows), page.after, page.before)


def priced_model_or_404(model_id: UUID) -> LanguageModel:
    """Return the model with its provider, whose key is not read. Raises Http404."""
    model = models_by_name().filter(public_id=model_id).first()
    if model is None:
        raise Http404("No such model.")
    return model


def prices_of_model(model: LanguageModel) -> QuerySet[ModelPrice]:
    """Own prices of the model, the newest first, with the members who added them."""
    return ModelPrice.objects.filter(model=model).select_related("created_by__user").order_by("-valid_from")


def price_or_404(model: LanguageModel, price_id: UUID) -> ModelPrice:
    """Return the price of this id. Raises Http404 where the model has none."""
    price = ModelPrice.objects.select_related("model__provider").filter(model=model, public_id=price_id).first()
    if price is None:
        raise Http404("No such price.")
    return price


@dataclass(frozen=True)
class ShownPrice:
    """One own price of a model's page."""

    row: ModelPrice
    lines: Sequence[PriceLine]
    #: `coming`, `counts` or `over`.
    state: str


def shown_prices(rows: Sequence[ModelPrice], counts: OwnPrice | None) -> list[ShownPrice]:
    """No query."""
    now = timezone.now()

    def state(row: ModelPrice) -> str:
        if row.valid_from > now:
            return "coming"
        return "counts" if counts is not None and row.valid_from == counts.valid_from else "over"

    return [
        ShownPrice(row, price_lines(prices) if (prices := own_price_of(row).prices) else [], state(row)) for row in rows
    ]
