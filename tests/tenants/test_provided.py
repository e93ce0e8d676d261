from __future__ import annotations

import pytest

from toolhub.tenants.provided import Provided, ProvidedByKey


def made() -> Provided[[int], str]:
    @Provided
    def price(cents: int) -> str:
        """Return the price."""
        raise NotImplementedError

    return price


def test_a_call_runs_what_was_provided() -> None:
    price = made()
    price.provide(lambda cents: f"{cents / 100} EUR")

    assert (price(250), price.__doc__) == ("2.5 EUR", "Return the price.")


def test_a_call_before_it_was_provided_names_it() -> None:
    with pytest.raises(RuntimeError, match=r"test_provided\..*price"):
        made()(250)


def test_values_of_several_rooms_stand_in_the_order_in_which_they_were_provided() -> None:
    prices: ProvidedByKey[int] = ProvidedByKey("prices")
    prices.provide({"tea": 3})
    prices.provide({"coffee": 4, "cake": 5})

    assert list(prices.items()) == [("tea", 3), ("coffee", 4), ("cake", 5)]
    assert (prices["cake"], prices.get("milk"), "milk" in prices, len(prices)) == (5, None, False, 3)
    with pytest.raises(KeyError):
        prices["milk"]


@pytest.mark.parametrize("ask", [list, len, lambda prices: prices.get("tea"), lambda prices: "tea" in prices])
def test_values_of_which_none_was_provided_are_named(ask: object) -> None:
    assert callable(ask)

    with pytest.raises(RuntimeError, match="prices"):
        ask(ProvidedByKey[int]("prices"))
