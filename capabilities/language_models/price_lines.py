"""Prices as people read them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from capabilities.contract.pricing import Prices, Tier


@dataclass(frozen=True)
class PriceLine:
    """The prices of one tier in words, each with its name."""

    #: Tokens of input above which it counts; None for the first tier.
    above: int | None
    prices: Sequence[tuple[str, str]]


def price_lines(prices: Prices) -> list[PriceLine]:
    """A line for each tier, the first first."""
    return [PriceLine(None if tier is prices.tiers[0] else tier.above, _in_words(tier)) for tier in prices.tiers]


def _in_words(tier: Tier) -> list[tuple[str, str]]:
    named = (
        ("in", tier.input),
        ("out", tier.output),
        ("cached", tier.cached),
        ("written", tier.cache_write),
        ("thought", tier.reasoning),
    )
    return [(name, per_million(price)) for name, price in named if price is not None]


def per_million(price: Decimal) -> str:
    """$10.00, $0.05, $0.0833: two digits behind the point, or as many more as it has, six at most."""
    digits = f"{round(price, 6):,.6f}"
    whole, part = digits.split(".")
    return f"${whole}.{part[:2]}{part[2:].rstrip('0')}"
