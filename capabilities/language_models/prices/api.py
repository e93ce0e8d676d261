"""REST: what models cost, and an organisation's own prices."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from capabilities.common.api import refusals
from capabilities.contract.pricing import Prices, Tier
from capabilities.language_models.prices.queries import (
    PricedModel,
    price_or_404,
    priced_model_or_404,
    priced_models,
    prices_of_model,
)
from capabilities.language_models.prices.writes import (
    DECIMALS,
    MAX_NOTE,
    MAX_PRICE,
    MAX_TIER,
    PriceContent,
    add_price,
    remove_price,
)
from capabilities.language_models.providers.prices import PriceInForce
from capabilities.language_models.providers.queries import models_by_name
from capabilities.models import LanguageModel, ModelPrice
from toolhub.tenants.models import Right
from toolhub.tenants.rest.api import ErrorOut, api_member, checked, paged
from toolhub.tenants.rest.paging import PAGE_PARAMETERS, page

PER_MILLION = "US dollars for a million tokens."


def _price(help_text: str = PER_MILLION, **fields: Any) -> serializers.DecimalField:
    return serializers.DecimalField(
        max_digits=14, decimal_places=DECIMALS, min_value=0, max_value=MAX_PRICE, help_text=help_text, **fields
    )


def _optional(help_text: str) -> serializers.DecimalField:
    return _price(help_text, allow_null=True, default=None)


class PriceIn(serializers.Serializer[Any]):
    valid_from = serializers.DateTimeField(
        allow_null=True, default=None, help_text="Null: from now on. It may not have passed."
    )
    is_public = serializers.BooleanField(
        default=False, help_text="From then on the public price list counts again; no price is given."
    )
    input = _optional(f"{PER_MILLION} Needed unless `is_public`, as `output`.")
    output = _optional(PER_MILLION)
    cached = _optional("Of the input, what the provider's cache was read for. Null: as other input.")
    cache_write = _optional("Of the input, what the provider's cache was written with. Null: as other input.")
    reasoning = _optional("Of the output, what the model thought. Null: as other output.")
    tier_above = serializers.IntegerField(
        min_value=1,
        max_value=MAX_TIER,
        allow_null=True,
        default=None,
        help_text="Tokens of one input above which all of a call's tokens cost the prices of the tier.",
    )
    tier_input = _optional("Null, here and below: as in the first tier.")
    tier_output = _optional(PER_MILLION)
    tier_cached = _optional(PER_MILLION)
    tier_cache_write = _optional(PER_MILLION)
    note = serializers.CharField(max_length=MAX_NOTE, allow_blank=True, default="")


class PriceOut(PriceIn):
    id = serializers.UUIDField(source="public_id")
    valid_from = serializers.DateTimeField()
    created_at = serializers.DateTimeField()
    created_by = serializers.SerializerMethodField(help_text="E-mail address; null where the member is gone.")

    def get_created_by(self, price: ModelPrice) -> str | None:
        return price.created_by.user.email if price.created_by else None


class TierOut(serializers.Serializer[Any]):
    above = serializers.IntegerField(allow_null=True, help_text="Tokens of input; null for the first tier.")
    input = serializers.CharField(help_text=PER_MILLION)
    output = serializers.CharField(help_text=PER_MILLION)
    cached = serializers.CharField(allow_null=True)
    cache_write = serializers.CharField(allow_null=True)
    reasoning = serializers.CharField(allow_null=True)


class PriceListOut(serializers.Serializer[Any]):
    price_source = serializers.CharField(help_text="As on a step: the price list with its version, or the own price.")
    tiers = TierOut(many=True)


class ModelPricesOut(serializers.Serializer[Any]):
    model = serializers.UUIDField(help_text="As `models` names it.")
    name = serializers.CharField()
    provider = serializers.CharField()
    counts = serializers.SerializerMethodField(help_text="What a call costs by now; null where nothing is known.")
    public = serializers.SerializerMethodField(help_text="What the public price list says of it; null for nothing.")
    has_own = serializers.BooleanField(help_text="Whether an own price counts.")

    @extend_schema_field(PriceListOut(allow_null=True))
    def get_counts(self, found: dict[str, Any]) -> Any:
        return _listed(found["counts"])

    @extend_schema_field(PriceListOut(allow_null=True))
    def get_public(self, found: dict[str, Any]) -> Any:
        return _listed(found["public"])


def _listed(price: PriceInForce | None) -> dict[str, Any] | None:
    return {"price_source": price.source, "tiers": tiers_shown(price.prices)} if price else None


def tiers_shown(prices: Prices) -> list[dict[str, Any]]:
    return [_tier(tier, is_first=tier is prices.tiers[0]) for tier in prices.tiers]


def _tier(tier: Tier, *, is_first: bool) -> dict[str, Any]:
    names = ("input", "output", "cached", "cache_write", "reasoning")
    prices = {name: _text(getattr(tier, name)) for name in names}
    return {"above": None if is_first else tier.above, **prices}


def _text(price: Decimal | None) -> str | None:
    return None if price is None else f"{round(price, DECIMALS):f}"


def shown_model(found: PricedModel) -> dict[str, Any]:
    body = {
        "model": found.model.public_id,
        "name": found.model.name,
        "provider": found.model.provider.slug,
        "counts": found.counts,
        "public": found.public,
        "has_own": found.has_own,
    }
    return dict(ModelPricesOut(body).data)


class PriceList(APIView):
    @extend_schema(
        operation_id="prices_list",
        summary="What models cost",
        parameters=PAGE_PARAMETERS,
        responses=paged(ModelPricesOut),
    )
    def get(self, request: Request) -> Response:
        """Each model with its public price, and with the one that counts now. Needs the right `budgets`."""
        api_member(request, right=Right.BUDGETS)
        priced: dict[int, PricedModel] = {}

        def complete(language_models: list[LanguageModel]) -> None:
            priced.update((found.model.pk, found) for found in priced_models(language_models))

        return Response(
            page(request, models_by_name(), "pk", lambda row: shown_model(priced[row.pk]), complete=complete)
        )


class ModelPriceList(APIView):
    @extend_schema(
        operation_id="model_prices_list",
        summary="A model's own prices",
        parameters=PAGE_PARAMETERS,
        responses=paged(PriceOut),
    )
    def get(self, request: Request, model_id: UUID) -> Response:
        """The last added first; of those that have begun, the one with the latest `valid_from` counts. Needs the right
        `budgets`."""
        api_member(request, right=Right.BUDGETS)
        rows = prices_of_model(priced_model_or_404(model_id))
        return Response(page(request, rows, "pk", lambda row: PriceOut(row).data, newest_first=True))

    @extend_schema(
        operation_id="model_prices_create",
        summary="Say what a model costs",
        request=PriceIn,
        responses={201: PriceOut, 404: ErrorOut},
    )
    def post(self, request: Request, model_id: UUID) -> Response:
        """Add a price that counts for calls from `valid_from` on; earlier calls keep their cost. Needs the right
        `budgets`."""
        member = api_member(request, right=Right.BUDGETS)
        model = priced_model_or_404(model_id)
        with refusals():
            price = add_price(model, PriceContent(**checked(PriceIn, request)), actor=member)
        return Response(PriceOut(price).data, status.HTTP_201_CREATED)


class ModelPriceDetail(APIView):
    @extend_schema(
        operation_id="model_prices_delete",
        summary="Take back a price that has not begun",
        responses={204: None, 404: ErrorOut},
    )
    def delete(self, request: Request, model_id: UUID, price_id: UUID) -> Response:
        """Refused (409 `in_use`) for one that has begun: calls were paid by it. Needs the right `budgets`."""
        member = api_member(request, right=Right.BUDGETS)
        price = price_or_404(priced_model_or_404(model_id), price_id)
        with refusals():
            remove_price(price, actor=member)
        return Response(status=status.HTTP_204_NO_CONTENT)
