"""Prices of a model's calls: the organisation's own, else the public list of genai-prices, else none.

A step's cost is stored with the step: what changes here later counts for later calls only.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from importlib.metadata import version as version_of
from typing import TYPE_CHECKING, Any
from uuid import UUID

from capabilities.common.memory import Memory
from capabilities.contract.pricing import PricedUse, Prices, Tier
from capabilities.language_models.price_lines import PriceLine, price_lines
from capabilities.language_models.providers.resolve import ResolvedModel
from capabilities.language_models.providers.vendors import OTHER
from capabilities.models import ModelPrice
from toolhub.tenants.rows.scope import current_scope

if TYPE_CHECKING:
    from genai_prices import types as genai

__all__ = ["Cost", "OwnPrice", "PricedUse", "cost_of", "input_at_most", "own_prices", "price_at", "worst_cost"]

PUBLIC_LIST = f"genai-prices {version_of('genai-prices')}"
#: How much more than our count of an input a provider may count: where what we count is compared with the provider's,
#: and before there is anything to compare.
MARGIN, MARGIN_UNLEARNED = 1.1, 1.35
#: Calls from which a model's factor is taken for learned.
ENOUGH_SAMPLES = 20
#: Tokens that a request takes beside its texts: roles, marks between messages.
REQUEST_TOKENS = 64


@dataclass(frozen=True)
class Cost:
    """Cost of a call: billionths of a dollar, and where the price is from."""

    nano: int
    source: str


@dataclass(frozen=True)
class PriceInForce:
    """Prices, and where they are from."""

    prices: Prices
    source: str

    @property
    def lines(self) -> list[PriceLine]:
        """Prices in words, a line for each tier."""
        return price_lines(self.prices)


@dataclass(frozen=True)
class OwnPrice:
    """Price of a model by an organisation, from a moment on."""

    valid_from: datetime
    #: None: from that moment on the public list counts again.
    prices: Prices | None

    @property
    def source(self) -> str:
        return f"own price from {self.valid_from:%Y-%m-%d %H:%M:%S} UTC"


OFFLINE = PriceInForce(Prices((Tier(Decimal(0), Decimal(0)),)), "offline model")


def cost_of(model: ResolvedModel, use: PricedUse, at: datetime, version: int | None) -> Cost | None:
    """Return the cost of a call that was made at this moment; None where the model's price is not known.

    `version` is the organisation's registry version, None where it is not known: then one query reads its prices.
    """
    price = price_at(model, at, version)
    return Cost(price.prices.cost(use), price.source) if price else None


def worst_cost(
    model: ResolvedModel, counted_input: int, output_cap: int, at: datetime, version: int | None
) -> Cost | None:
    """The dearest that a call may cost, of which we counted the input and limit the output: nothing of it read from the
    provider's cache, or all of it written there, at the dearest tier that it may reach. None without a price; queries
    as `cost_of`."""
    price = price_at(model, at, version)
    return Cost(price.prices.most(input_at_most(model, counted_input), output_cap), price.source) if price else None


def input_at_most(model: ResolvedModel, counted: int) -> int:
    """Tokens that the provider may count where we counted so many."""
    if model.is_offline:
        return counted
    margin = MARGIN if model.token_samples >= ENOUGH_SAMPLES else MARGIN_UNLEARNED
    return math.ceil(round(counted * max(model.token_factor, 1.0) * margin, 3)) + REQUEST_TOKENS


def price_at(model: ResolvedModel, at: datetime, version: int | None) -> PriceInForce | None:
    """The prices that count for a call at this moment: own ones before public ones. Queries as `cost_of`."""
    if model.is_offline:
        return OFFLINE
    own = in_force(own_prices(version).get(model.public_id, ()), at)
    if own is not None and own.prices is not None:
        return PriceInForce(own.prices, own.source)
    return public_price(model, at)


# -- Own prices -------------------------------------------------------------------------------------------------------

_own: Memory[Mapping[UUID, Sequence[OwnPrice]]] = Memory(256)


def own_prices(version: int | None) -> Mapping[UUID, Sequence[OwnPrice]]:
    """Return the own prices of the organisation in scope by the public id of their model, oldest first. One query; none
    where they were read before at this registry version."""
    return _read_own() if version is None else _own.get((current_scope(), version), _read_own)


def in_force(own: Sequence[OwnPrice], at: datetime) -> OwnPrice | None:
    """Return the newest price that has begun, of a model's own prices, oldest first; None where none has."""
    return next((each for each in reversed(own) if each.valid_from <= at), None)


def _read_own() -> dict[UUID, list[OwnPrice]]:
    found: dict[UUID, list[OwnPrice]] = {}
    for row in ModelPrice.objects.select_related("model").only(*_COLUMNS).order_by("valid_from"):
        found.setdefault(row.model.public_id, []).append(own_price_of(row))
    return found


_TIER = ("tier_above", "tier_input", "tier_output", "tier_cached", "tier_cache_write")
_COLUMNS = (
    *("organisation_id", "model__organisation_id", "model__public_id", "valid_from", "is_public"),
    *("input", "output", "cached", "cache_write", "reasoning", *_TIER),
)


def own_price_of(row: ModelPrice) -> OwnPrice:
    return OwnPrice(row.valid_from, None if row.is_public else prices_of(row))


def prices_of(row: ModelPrice) -> Prices:
    """A row's prices. What its tier leaves open costs as in the tier below."""
    first = Tier(row.input, row.output, row.cached, row.cache_write, row.reasoning)
    if row.tier_above is None:
        return Prices((first,))
    second = Tier(
        _either(row.tier_input, row.input),
        _either(row.tier_output, row.output),
        _either(row.tier_cached, row.cached),
        _either(row.tier_cache_write, row.cache_write),
        row.reasoning,
        row.tier_above,
    )
    return Prices((first, second))


def _either(first: Any, second: Any) -> Any:
    return second if first is None else first


# -- The public list --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Listed:
    """Prices of the public list, and when they count: from a day on, or at hours of the day."""

    #: None where they always count.
    constraint: genai.StartDateConstraint | genai.TimeOfDateConstraint | None
    #: None where the list has no price for input or for output.
    prices: Prices | None


@dataclass(frozen=True)
class _ListedModel:
    """Entry of the public list for one model: its name there, and its prices."""

    name: str = ""
    prices: Sequence[_Listed] = ()


def public_price(model: ResolvedModel, at: datetime) -> PriceInForce | None:
    """Return the price of this model in the public list at this moment; None where it does not know the vendor, the
    model, or a price for both input and output. No query."""
    listed = _listed_of(model).prices
    in_force = (each for each in reversed(listed) if each.constraint is None or each.constraint.active(at))
    # The last that has begun, and the first where none has: as genai-prices takes them.
    prices = next(in_force, listed[0]).prices if listed else None
    return PriceInForce(prices, PUBLIC_LIST) if prices else None


def public_name(model: ResolvedModel) -> str:
    """The name under which the public list has the model; "" where it does not know the vendor or the model. No
    query."""
    return _listed_of(model).name


def _listed_of(model: ResolvedModel) -> _ListedModel:
    is_known = model.vendor is not OTHER
    return _listed(model.vendor.prices if is_known else "", model.provider.base_url, model.name)


@lru_cache(1024)
def _listed(vendor: str, base_url: str, name: str) -> _ListedModel:
    """Return the list's entry for a model, of the vendor or else of the address's owner; an empty one without any."""
    # It takes 30 MB, which only a process spends that asks for a price.
    from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415 -- leaf

    every = get_snapshot().providers
    provider = next((each for each in every if _is_of(each, vendor, base_url)), None)
    info = provider.find_model(name, all_providers=every) if provider else None
    if info is None:
        return _ListedModel()
    if isinstance(info.prices, list):
        return _ListedModel(info.id, tuple(_Listed(each.constraint, _prices_from(each.prices)) for each in info.prices))
    return _ListedModel(info.id, (_Listed(None, _prices_from(info.prices)),))


def _is_of(provider: genai.Provider, vendor: str, base_url: str) -> bool:
    return provider.id == vendor if vendor else bool(re.match(provider.api_pattern, base_url))


#: genai-prices' names, in the order of `Tier`'s first fields.
_NAMES = ("input_mtok", "output_mtok", "cache_read_mtok", "cache_write_mtok", "output_reasoning_mtok")


def _prices_from(listed: genai.ModelPrice) -> Prices | None:
    named = vars(listed)
    prices: list[Any] = [named.get(name) for name in _NAMES]
    if prices[0] is None or prices[1] is None:
        return None
    starts = sorted({tier.start for price in prices for tier in getattr(price, "tiers", ())})
    tiers = [_tier_above(prices, start) for start in (-1, *starts)]
    return Prices(tiers, (named.get("requests_kcount") or Decimal(0)) / 1000)


def _tier_above(prices: Sequence[Any], start: int) -> Tier:
    sent, received, cached, written, thought = (_price_above(price, start) for price in prices)
    return Tier(sent, received, cached, written, thought, start)


def _price_above(price: Any, start: int) -> Any:
    """A price of the list in the tier that begins above so many tokens."""
    if not hasattr(price, "tiers"):
        return price
    return next((tier.price for tier in reversed(price.tiers) if tier.start <= start), price.base)
