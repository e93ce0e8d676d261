"""The audited writes of own prices. A price is added and never changed: what a step cost stays what it cost."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.utils import timezone

from capabilities.common.refused import ChangeRefused
from capabilities.common.registry_version import touch_registry
from capabilities.common.rights import configuration_write, require
from capabilities.models import LanguageModel, ModelPrice
from toolhub.tenants.audit.writes import record
from toolhub.tenants.models import Membership, Right

#: US dollars for a million tokens, at most; and digits behind the point.
MAX_PRICE = Decimal(1_000_000)
DECIMALS = 6
MAX_NOTE = 200
#: Tokens that an input can have at most.
MAX_TIER = 100_000_000
#: Prices that one model may have.
MAX_PRICES = 500


@dataclass(frozen=True)
class PriceContent:
    """Prices in US dollars for a million tokens. None: as an empty field of `ModelPrice`; a moment of None is now.

    With `is_public` the public list counts again from that moment on, and no price is given.
    """

    valid_from: datetime | None = None
    is_public: bool = False
    input: Decimal | None = None
    output: Decimal | None = None
    cached: Decimal | None = None
    cache_write: Decimal | None = None
    reasoning: Decimal | None = None
    tier_above: int | None = None
    tier_input: Decimal | None = None
    tier_output: Decimal | None = None
    tier_cached: Decimal | None = None
    tier_cache_write: Decimal | None = None
    note: str = ""


PRICES = ("input", "output", "cached", "cache_write", "reasoning")
TIER_PRICES = ("tier_input", "tier_output", "tier_cached", "tier_cache_write")


@configuration_write("input")
def add_price(model: LanguageModel, content: PriceContent, *, actor: Membership) -> ModelPrice:
    """Add the model's price from a moment on. Raises ChangeRefused for a number that no price can be, and for a moment
    that has passed or has a price already."""
    require(actor, Right.BUDGETS)
    now = timezone.now()
    begins = content.valid_from or now
    _check_moment(model, begins, now)
    if content.is_public:
        content = PriceContent(begins, is_public=True, input=Decimal(0), output=Decimal(0), note=content.note)
    _check(content)
    fields = asdict(content) | {"valid_from": begins, "note": content.note.strip()}
    price = ModelPrice.objects.create(organisation_id=model.organisation_id, model=model, created_by=actor, **fields)
    record("price.create", price, actor=actor, after=_audited(price))
    touch_registry(model.organisation_id)
    return price


@configuration_write("price")
def remove_price(price: ModelPrice, *, actor: Membership) -> None:
    """Take back a price that has not begun yet. Raises ChangeRefused for one that has: calls were paid by it."""
    require(actor, Right.BUDGETS)
    if price.valid_from <= timezone.now():
        raise ChangeRefused(
            "price", "This price has begun, and what was called cost so much. Add one that replaces it.", code="in_use"
        )
    record("price.delete", price, actor=actor, before=_audited(price))
    price.delete()
    touch_registry(actor.organisation_id)


def _check_moment(model: LanguageModel, begins: datetime, now: datetime) -> None:
    if begins < now:
        raise ChangeRefused("valid_from", "This moment has passed, and what was called since keeps its cost.")
    own = ModelPrice.objects.filter(model=model)
    if own.filter(valid_from=begins).exists():
        raise ChangeRefused("valid_from", "A price of this model begins at this moment already.", code="taken")
    if own.count() >= MAX_PRICES:
        raise ChangeRefused("valid_from", f"A model has at most {MAX_PRICES} prices of its own.")


def _check(content: PriceContent) -> None:
    """Raise ChangeRefused for a price that is missing, out of range, or of no tier."""
    for name in ("input", "output"):
        if getattr(content, name) is None:
            raise ChangeRefused(name, "Give a price; 0 where it costs nothing.")
    for name in (*PRICES, *TIER_PRICES):
        _check_price(name, getattr(content, name))
    named = [name for name in TIER_PRICES if getattr(content, name) is not None]
    if content.tier_above is None and named:
        raise ChangeRefused("tier_above", "Say above how many tokens of input these prices count.")
    if content.tier_above is not None and not named:
        raise ChangeRefused("tier_input", "Give at least one price that is another one above so many tokens.")
    if content.tier_above is not None and not 1 <= content.tier_above <= MAX_TIER:
        raise ChangeRefused("tier_above", f"Give a whole number from 1 to {MAX_TIER:,}.")
    if len(content.note.strip()) > MAX_NOTE:
        raise ChangeRefused("note", f"Keep it under {MAX_NOTE} characters.")


def _check_price(name: str, price: Decimal | None) -> None:
    if price is None:
        return
    if not price.is_finite() or not 0 <= price <= MAX_PRICE:
        raise ChangeRefused(name, f"Give US dollars for a million tokens, from 0 to {MAX_PRICE:,}.")
    if price != round(price, DECIMALS):
        raise ChangeRefused(name, f"Give at most {DECIMALS} digits behind the point.")


def _audited(price: ModelPrice) -> dict[str, Any]:
    """Return the fields of the price for the audit, and its model."""
    values: dict[str, Any] = {"model": str(price.model), "valid_from": price.valid_from.isoformat()}
    if price.is_public:
        values["is_public"] = True
    else:
        prices = {name: getattr(price, name) for name in (*PRICES, "tier_above", *TIER_PRICES)}
        values |= {name: str(value) for name, value in prices.items() if value is not None}
    return values | ({"note": price.note} if price.note else {})
