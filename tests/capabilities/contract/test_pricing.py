"""What a call costs by a list of prices: parts, tiers, rounding."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capabilities.contract.pricing import PricedUse, Prices, Tier

PRICES = Prices((Tier(Decimal(2), Decimal(8), Decimal("0.2"), Decimal("2.5"), Decimal(6)),))
CLIFF = Prices((Tier(Decimal(10), Decimal(50)), Tier(Decimal(20), Decimal(75), above=1_000)))
MILLION = 1_000_000


@pytest.mark.parametrize(
    ("use", "dollars"),
    [
        (PricedUse(MILLION), "2"),
        (PricedUse(MILLION, cached=MILLION), "0.2"),
        (PricedUse(MILLION, cache_written=MILLION), "2.5"),
        (PricedUse(MILLION, cached=500_000, cache_written=100_000), "1.15"),
        (PricedUse(0, output=MILLION), "8"),
        (PricedUse(0, output=MILLION, reasoning=250_000), "7.5"),
    ],
)
def test_each_part_of_a_call_has_its_own_price(use: PricedUse, dollars: str) -> None:
    assert Decimal(PRICES.cost(use)) / 10**9 == Decimal(dollars)


def test_tokens_without_a_price_of_their_own_cost_as_the_tokens_they_are_part_of() -> None:
    prices = Prices((Tier(Decimal(2), Decimal(8)),))

    assert prices.cost(PricedUse(100, 50, 50, 10, 10)) == prices.cost(PricedUse(100, output=10)) == 280_000


@pytest.mark.parametrize(
    ("given_use", "counted"),
    [
        (PricedUse(100, cached=300), PricedUse(100, cached=100)),
        (PricedUse(100, cached=80, cache_written=80), PricedUse(100, cached=80, cache_written=20)),
        (PricedUse(100, output=10, reasoning=11), PricedUse(100, output=10, reasoning=10)),
        (PricedUse(-5, cached=-5, cache_written=-5, output=-5, reasoning=-5), PricedUse(0)),
    ],
)
def test_an_impossible_part_counts_as_the_most_that_is_possible(given_use: PricedUse, counted: PricedUse) -> None:
    assert PRICES.cost(given_use) == PRICES.cost(counted)


@pytest.mark.parametrize(("tokens", "price"), [(1_000, 10), (1_001, 20)])
def test_a_tier_is_paid_for_all_tokens_of_the_call(tokens: int, price: int) -> None:
    assert CLIFF.cost(PricedUse(tokens)) == tokens * price * 1_000


@pytest.mark.parametrize(("price", "nano"), [("0.0005", 0), ("0.0015", 2), ("0.0025", 2), ("0.00251", 3)])
def test_a_call_is_rounded_once_half_to_even(price: str, nano: int) -> None:
    prices = Prices((Tier(Decimal(price), Decimal(price)),))

    assert prices.cost(PricedUse(1)) == nano


def test_two_halves_are_added_before_they_are_rounded() -> None:
    prices = Prices((Tier(Decimal("0.0005"), Decimal("0.0005")),))

    assert prices.cost(PricedUse(1, output=1)) == 1


def test_a_call_may_cost_something_by_itself() -> None:
    assert Prices(PRICES.tiers, call=Decimal("0.005")).cost(PricedUse(0)) == 5_000_000


@pytest.mark.parametrize("prices", [PRICES, CLIFF, Prices(CLIFF.tiers, Decimal("0.01"))])
@given(parts=st.lists(st.integers(0, 3_000), min_size=5, max_size=5), more=st.integers(0, 50))
def test_no_call_costs_more_than_the_most(prices: Prices, parts: list[int], more: int) -> None:
    use = PricedUse(*parts)

    assert prices.cost(use) <= prices.most(use.input + more, use.output + more)


def test_the_most_of_a_call_is_that_of_the_dearest_tier_in_reach() -> None:
    cheaper_above = Prices((Tier(Decimal(10), Decimal(1)), Tier(Decimal(1), Decimal(1), above=100)))

    assert cheaper_above.most(101, 0) == 1_010_000
    assert CLIFF.most(1_000, 1) < CLIFF.most(1_001, 1)
    assert PRICES.most(100, 0) == 250_000


def test_parts_make_up_the_whole() -> None:
    def whole(*parts: Any) -> int:
        return sum(PricedUse(*parts).parts)

    assert whole(100, 30, 20, 50, 10) == 150
