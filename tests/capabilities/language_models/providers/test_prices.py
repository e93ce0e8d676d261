"""Which prices a model's calls cost: own, public, none."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from genai_prices import Usage, calc_price
from genai_prices.data_snapshot import get_snapshot
from pytest_django import DjangoAssertNumQueries

from capabilities.language_models.providers.prices import Cost, PricedUse, cost_of, input_at_most, price_at, worst_cost
from capabilities.language_models.providers.resolve import ResolvedModel, resolve_model
from capabilities.models import LanguageModel, ModelPrice, Provider
from toolhub.tenants.models import Organisation
from toolhub.tenants.rows.scope import organisation_scope

NOW = datetime(2026, 11, 22, 20, 0, tzinfo=UTC)
OPENAI = "https://api.openai.com/v1"


def make_model(organisation: Organisation, name: str = "gpt-6-astra", base_url: str = OPENAI) -> LanguageModel:
    with organisation_scope(organisation):
        provider, _ = Provider.objects.get_or_create(
            organisation=organisation, slug="priced", defaults={"name": "Priced", "base_url": base_url}
        )
        return LanguageModel.objects.create(organisation=organisation, provider=provider, name=name)


def unsaved(name: str, base_url: str = OPENAI) -> ResolvedModel:
    return resolve_model(LanguageModel(provider=Provider(slug="x", name="X", base_url=base_url), name=name))


def set_price(model: LanguageModel, at: datetime = NOW, **prices: Any) -> ModelPrice:
    prices = {"input": "3", "output": "5"} | prices
    organisation_id = model.organisation_id
    with organisation_scope(organisation_id):
        return ModelPrice.objects.create(organisation_id=organisation_id, model=model, valid_from=at, **prices)


def dollars(model: ResolvedModel, use: PricedUse, at: datetime = NOW, version: int | None = None) -> Decimal | None:
    cost = cost_of(model, use, at, version)
    return Decimal(cost.nano) / 10**9 if cost else None


@pytest.mark.django_db
class TestPublicPrices:
    @pytest.mark.parametrize(("tokens", "price"), [(272_000, "2.72"), (272_001, "5.44002")])
    def test_one_token_more_doubles_the_price_of_the_whole_input(
        self, acme: Organisation, tokens: int, price: str
    ) -> None:
        with organisation_scope(acme):
            assert dollars(unsaved("gpt-6-astra"), PricedUse(tokens)) == Decimal(price)

    @pytest.mark.parametrize(
        ("use", "price"),
        [
            (PricedUse(100_000, cached=100_000), "0.1"),
            (PricedUse(100_000, cache_written=100_000), "1.25"),
            (PricedUse(100_000, cached=90_000, cache_written=5_000), "0.2025"),
            (PricedUse(0, output=1_000), "0.05"),
            (PricedUse(0, output=1_000, reasoning=600), "0.05"),
            (PricedUse(300_000, cached=200_000, output=1_000), "2.475"),
            (PricedUse(10, cached=1_000), "0.00001"),
        ],
    )
    def test_cached_and_written_input_have_their_own_prices(
        self, acme: Organisation, use: PricedUse, price: str
    ) -> None:
        with organisation_scope(acme):
            assert dollars(unsaved("gpt-6-astra"), use) == Decimal(price)

    @pytest.mark.parametrize(
        "name", ["no-such-model", "ft:gpt-4o:acme", "openai/gpt-6-astra", "text-embedding-3-small"]
    )
    def test_a_model_that_the_list_does_not_know_or_not_as_a_chat_model_has_no_price(
        self, acme: Organisation, name: str
    ) -> None:
        with organisation_scope(acme):
            assert cost_of(unsaved(name), PricedUse(1_000), NOW, None) is None
            assert worst_cost(unsaved(name), 1_000, 1_000, NOW, None) is None

    def test_a_known_name_at_an_unknown_address_has_no_price(self, acme: Organisation) -> None:
        with organisation_scope(acme):
            assert cost_of(unsaved("gpt-6-astra", "https://models.example.org/v1"), PricedUse(1), NOW, None) is None

    def test_a_vendor_that_only_the_price_list_knows_is_found_by_its_address(self, acme: Organisation) -> None:
        provider = next(each for each in get_snapshot().providers if each.id == "cerebras")
        name = next(each.id for each in provider.models if getattr(each.prices, "input_mtok", None))

        with organisation_scope(acme):
            cost = cost_of(unsaved(name, "https://api.cerebras.ai/v1"), PricedUse(1_000_000), NOW, None)

        assert cost
        assert cost.nano > 0

    def test_a_date_behind_the_name_is_the_same_model(self, acme: Organisation) -> None:
        with organisation_scope(acme):
            assert dollars(unsaved("gpt-6-astra-2026-09-01"), PricedUse(1_000)) == Decimal("0.01")

    def test_the_source_names_the_list_and_its_version(self, acme: Organisation) -> None:
        with organisation_scope(acme):
            cost = cost_of(unsaved("gpt-6-astra"), PricedUse(1), NOW, None)

        assert cost == Cost(10_000, "genai-prices 0.2.3")

    def test_the_offline_model_costs_nothing(self, acme: Organisation) -> None:
        with organisation_scope(acme):
            assert cost_of(unsaved("offline", ""), PricedUse(10**6, output=10**6), NOW, None) == Cost(
                0, "offline model"
            )

    @pytest.mark.parametrize("hour", [1, 12, 18])
    @pytest.mark.parametrize("day", [datetime(2024, 6, 1, tzinfo=UTC), datetime(2025, 6, 1, tzinfo=UTC), NOW])
    def test_every_listed_model_costs_what_genai_prices_says(
        self, acme: Organisation, day: datetime, hour: int
    ) -> None:
        at, wrong, compared = day.replace(hour=hour), [], 0
        use = PricedUse(300_000, cached=120_000, cache_written=30_000, output=7_000, reasoning=2_000)
        usage = Usage(
            input_tokens=300_000,
            cache_read_tokens=120_000,
            cache_write_tokens=30_000,
            output_tokens=7_000,
            output_reasoning_tokens=2_000,
        )
        for vendor, address in {"openai": OPENAI, "deepseek": "https://api.deepseek.com/v1"}.items():
            provider = next(each for each in get_snapshot().providers if each.id == vendor)
            for info in provider.models:
                model = unsaved(info.id, address)
                with organisation_scope(acme):
                    cost = cost_of(model, use, at, None)
                if cost is None:
                    continue
                listed = calc_price(usage, info.id, provider_id=vendor, genai_request_timestamp=at).total_price
                compared += 1
                if cost.nano != round(listed * 10**9):
                    wrong.append((info.id, cost.nano, listed))

        assert wrong == []
        assert compared > 60


@pytest.mark.django_db
class TestOwnPrices:
    def test_an_own_price_beats_the_public_one_from_its_moment_on(self, acme: Organisation) -> None:
        model = make_model(acme)
        set_price(model, at=NOW)

        with organisation_scope(acme):
            resolved = resolve_model(model)
            before, after = NOW - timedelta(microseconds=1), NOW
            assert dollars(resolved, PricedUse(1_000_000 // 4), before) == Decimal("2.5")
            assert dollars(resolved, PricedUse(1_000_000 // 4), after) == Decimal("0.75")

    def test_a_later_price_counts_from_then_on_and_what_was_before_stays(self, acme: Organisation) -> None:
        model = make_model(acme)
        use, later = PricedUse(1_000_000, output=1_000_000), NOW + timedelta(days=30)
        set_price(model, at=NOW)

        with organisation_scope(acme):
            first = cost_of(resolve_model(model), use, NOW + timedelta(days=1), None)
            set_price(model, at=later, input="4")

            assert cost_of(resolve_model(model), use, NOW + timedelta(days=1), None) == first
            assert first == Cost(8 * 10**9, "own price from 2026-11-22 20:00:00 UTC")
            assert dollars(resolve_model(model), use, later) == Decimal(9)

    def test_its_tier_counts_above_its_tokens_and_leaves_open_what_stays(self, acme: Organisation) -> None:
        model = make_model(acme)
        set_price(model, cached="1", tier_above=1_000, tier_input="6")

        with organisation_scope(acme):
            price = price_at(resolve_model(model), NOW, None)

        assert price
        assert price.prices.cost(PricedUse(1_000, cached=500, output=10)) == 500 * 3_000 + 500 * 1_000 + 10 * 5_000
        assert price.prices.cost(PricedUse(1_001, cached=500, output=10)) == 501 * 6_000 + 500 * 1_000 + 10 * 5_000

    def test_a_model_without_a_public_price_may_have_an_own_one(self, acme: Organisation) -> None:
        model = make_model(acme, "house-model", "https://models.example.org/v1")
        set_price(model)

        with organisation_scope(acme):
            assert dollars(resolve_model(model), PricedUse(1_000_000)) == Decimal(3)

    def test_another_organisations_price_is_not_read(self, acme: Organisation, globex: Organisation) -> None:
        set_price(make_model(acme))
        other = make_model(globex)

        with organisation_scope(globex):
            assert dollars(resolve_model(other), PricedUse(1_000)) == Decimal("0.01")

    def test_prices_are_read_once_a_registry_version(
        self, acme: Organisation, django_assert_num_queries: DjangoAssertNumQueries
    ) -> None:
        model = make_model(acme)
        set_price(model)
        resolved = resolve_model(model)

        with organisation_scope(acme):
            with django_assert_num_queries(1):
                assert dollars(resolved, PricedUse(1_000_000), version=7) == Decimal(3)
            with django_assert_num_queries(0):
                assert dollars(resolved, PricedUse(1_000_000), version=7) == Decimal(3)
            set_price(model, at=NOW - timedelta(days=1), input="9")
            with django_assert_num_queries(1):
                assert dollars(resolved, PricedUse(1_000_000), NOW - timedelta(hours=1), version=8) == Decimal(9)


@pytest.mark.django_db
class TestTheDearest:
    def test_nothing_is_taken_for_cached_and_all_of_it_may_be_written(self, acme: Organisation) -> None:
        model = replace(unsaved("gpt-6-astra"), token_samples=20)

        with organisation_scope(acme):
            worst = worst_cost(model, 10_000, 500, NOW, None)

        assert worst
        assert worst.nano == (11_064 * Decimal("12.5") + 500 * 50) * 1_000

    def test_a_count_near_a_tier_reserves_the_tier(self, acme: Organisation) -> None:
        model = replace(unsaved("gpt-6-astra"), token_samples=20)

        with organisation_scope(acme):
            far, near = (worst_cost(model, tokens, 0, NOW, None) for tokens in (200_000, 250_000))

        assert far
        assert near
        assert far.nano == (220_064 * Decimal("12.5")) * 1_000
        assert near.nano == (275_064 * 25) * 1_000

    @pytest.mark.parametrize(
        ("factor", "samples", "most"), [(1.0, 0, 1_414), (1.0, 20, 1_164), (1.3, 20, 1_494), (0.8, 20, 1_164)]
    )
    def test_a_learned_factor_raises_what_an_input_may_be(self, factor: float, samples: int, most: int) -> None:
        model = replace(unsaved("gpt-6-astra"), token_factor=factor, token_samples=samples)

        assert input_at_most(model, 1_000) == most
