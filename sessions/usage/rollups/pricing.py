"""Cost that a stored call would have had with another input, at the prices of its time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from capabilities.contract.pricing import PricedUse, Prices
from capabilities.language_models.providers.prices import price_at
from capabilities.language_models.providers.resolve import ResolvedModel
from sessions.usage.rollups.rules import InputUse, Rates

#: Rates are whole numbers: prices have at most 6 places, those of the public list seldom more.
_SCALE = 10**9


@dataclass(frozen=True)
class CallPrice:
    """The prices of a model at one moment."""

    prices: Prices

    @property
    def rates(self) -> Rates:
        """Rates of the model's lowest tier."""
        new, read, written, _, _ = self.prices.tiers[0].parts
        return Rates(int(new * _SCALE), int(read * _SCALE), int(written * _SCALE))

    def cost(self, use: InputUse, output: int, reasoning: int) -> int:
        """Billionths of a dollar."""
        return self.prices.cost(PricedUse(use.input, use.cached, use.cache_written, output, reasoning))


def price_of_call(model: ResolvedModel | None, at: datetime, version: int | None) -> CallPrice | None:
    """Return the price of a call; None where the model is gone or has no price. Queries as `prices.price_at`."""
    found = price_at(model, at, version) if model is not None else None
    return CallPrice(found.prices) if found is not None else None
