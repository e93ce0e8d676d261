"""Own prices: on the pages, over REST, and in the audit."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
import time_machine
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from capabilities.common.refused import ChangeRefused
from capabilities.language_models.price_lines import per_million
from capabilities.language_models.prices.queries import priced_models
from capabilities.language_models.prices.writes import PriceContent, add_price, remove_price
from capabilities.language_models.providers.prices import PricedUse, cost_of
from capabilities.language_models.providers.resolve import resolve_model
from capabilities.models import LanguageModel, ModelPrice
from tests.capabilities.language_models.providers.test_prices import make_model
from tests.rest import Rest
from tests.sessions.doors.chats.test_views import delegate
from tests.sessions.doors.chats.test_views import text_of as text_of_bytes
from toolhub.tenants.models import AuditEntry, Membership, Organisation, Right
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db

ONE = PriceContent(input=Decimal(3), output=Decimal(5))


@pytest.fixture
def model(acme: Organisation) -> LanguageModel:
    return make_model(acme)


@pytest.fixture
def add(model: LanguageModel, alice: Membership) -> Callable[..., ModelPrice]:
    def added(**fields: Any) -> ModelPrice:
        with organisation_scope(model.organisation_id):
            return add_price(model, PriceContent(**({"input": Decimal(3), "output": Decimal(5)} | fields)), actor=alice)

    return added


@pytest.fixture
def as_alice(client: Client, alice: Membership) -> Client:
    client.force_login(alice.user)
    return client


def nano(model: LanguageModel, at: datetime) -> int | None:
    """What a million tokens of input cost by then, with the registry version as it is."""
    with organisation_scope(model.organisation_id):
        version = Organisation.objects.get(pk=model.organisation_id).registry_version
        cost = cost_of(resolve_model(model), PricedUse(1_000_000), at, version)
    return cost.nano if cost else None


def text_of(reply: Any) -> str:
    """What a reader reads of a page."""
    return text_of_bytes(reply.content)


def page_of(model: LanguageModel, rest: str = "") -> str:
    return f"/o/acme/prices/{model.public_id}/{rest}"


class TestWrites:
    def test_a_price_counts_from_its_moment_and_is_on_record(
        self, acme: Organisation, model: LanguageModel, add: Callable[..., ModelPrice]
    ) -> None:
        before = acme.registry_version

        price = add(note=" By contract. ")

        assert nano(model, timezone.now()) == 3 * 10**9
        assert nano(model, price.valid_from - timedelta(seconds=1)) == 20 * 10**9
        acme.refresh_from_db()
        assert acme.registry_version == before + 1
        with organisation_scope(acme):
            entry = AuditEntry.objects.get(action="price.create")
        assert entry.after == {
            "model": "Priced: gpt-6-astra",
            "valid_from": price.valid_from.isoformat(),
            "input": "3",
            "output": "5",
            "note": "By contract.",
        }

    @pytest.mark.parametrize(
        ("fields", "field", "code"),
        [
            ({"valid_from": datetime(2026, 1, 1, tzinfo=UTC)}, "valid_from", "invalid"),
            ({"input": None}, "input", "invalid"),
            ({"output": None}, "output", "invalid"),
            ({"input": Decimal(-1)}, "input", "invalid"),
            ({"input": Decimal("NaN")}, "input", "invalid"),
            ({"cached": Decimal("Infinity")}, "cached", "invalid"),
            ({"output": Decimal("1000000.01")}, "output", "invalid"),
            ({"reasoning": Decimal("0.0000001")}, "reasoning", "invalid"),
            ({"tier_input": Decimal(1)}, "tier_above", "invalid"),
            ({"tier_above": 1000}, "tier_input", "invalid"),
            ({"tier_above": 0, "tier_input": Decimal(1)}, "tier_above", "invalid"),
            ({"note": "x" * 201}, "note", "invalid"),
        ],
    )
    def test_what_no_price_can_be_is_refused(
        self, add: Callable[..., ModelPrice], fields: dict[str, Any], field: str, code: str
    ) -> None:
        with pytest.raises(ChangeRefused) as refused:
            add(**fields)

        assert (refused.value.field, refused.value.code) == (field, code)

    def test_one_moment_has_one_price(self, add: Callable[..., ModelPrice]) -> None:
        moment = timezone.now() + timedelta(days=1)
        add(valid_from=moment)

        with pytest.raises(ChangeRefused, match="begins at this moment already"):
            add(valid_from=moment)

    def test_only_a_price_that_has_not_begun_is_taken_back(
        self, add: Callable[..., ModelPrice], alice: Membership, acme: Organisation
    ) -> None:
        begun, coming = add(), add(valid_from=timezone.now() + timedelta(days=1))

        with organisation_scope(acme):
            remove_price(coming, actor=alice)
            with pytest.raises(ChangeRefused, match="has begun"):
                remove_price(begun, actor=alice)

            assert list(ModelPrice.objects.values_list("pk", flat=True)) == [begun.pk]
            assert AuditEntry.objects.filter(action="price.delete").count() == 1

    def test_the_public_price_counts_again_when_that_is_said(
        self, model: LanguageModel, add: Callable[..., ModelPrice]
    ) -> None:
        own = add()
        again = add(is_public=True, valid_from=timezone.now() + timedelta(days=2))

        assert nano(model, own.valid_from) == 3 * 10**9
        assert nano(model, again.valid_from) == 20 * 10**9
        with organisation_scope(model.organisation_id):
            (priced,) = priced_models([model], again.valid_from)
        assert not priced.has_own
        assert priced.counts == priced.public


class TestPages:
    def test_the_list_says_which_price_counts(
        self, as_alice: Client, acme: Organisation, model: LanguageModel, add: Callable[..., ModelPrice]
    ) -> None:
        make_model(acme, "house-model")

        before = text_of(as_alice.get("/o/acme/prices/"))
        add(tier_above=1_000, tier_input=Decimal("3.5"))
        after = text_of(as_alice.get("/o/acme/prices/"))

        assert "gpt-6-astra Priced Public $10.00 in $50.00 out $1.00 cached $12.50 written" in before
        assert "above 272,000 tok $20.00 in $75.00 out" in before
        assert "none of its own Public" in before
        assert "house-model Priced not known" in before
        assert "none of its own No price" in before
        assert "$3.00 in $5.00 out above 1,000 tok $3.50 in $5.00 out since" in after
        assert "Own" in after

    def test_the_list_asks_as_often_for_one_model_as_for_three(
        self, as_alice: Client, acme: Organisation, model: LanguageModel, add: Callable[..., ModelPrice]
    ) -> None:
        counts = []
        for names in ([], ["b", "c"]):
            for name in names:
                make_model(acme, name)
            add()
            with CaptureQueriesContext(connection) as captured:
                assert as_alice.get("/o/acme/prices/").status_code == 200
            counts.append(len(captured))

        assert counts[0] == counts[1]

    def test_a_price_is_added_with_the_form(self, as_alice: Client, acme: Organisation, model: LanguageModel) -> None:
        reply = as_alice.post(page_of(model), {"input": "1.25", "output": "10", "cached": "0.125"}, follow=True)

        assert "gpt-6-astra has a price of its own." in text_of(reply)
        assert "$1.25 in $10.00 out $0.125 cached Counts" in text_of(reply)

    @time_machine.travel(datetime(2026, 11, 22, 12, tzinfo=UTC), tick=False)
    def test_the_moment_is_in_the_organisations_zone(
        self, as_alice: Client, acme: Organisation, model: LanguageModel
    ) -> None:
        Organisation.objects.update(time_zone="America/New_York")

        page = as_alice.get(page_of(model))
        as_alice.post(page_of(model), {"input": "1", "output": "2", "begins": "2026-12-01T00:00"})

        assert "From (America/New_York)" in text_of(page)
        with organisation_scope(acme):
            assert ModelPrice.objects.get().valid_from == datetime(2026, 12, 1, 5, tzinfo=UTC)

    def test_what_is_wrong_stands_beside_its_field(self, as_alice: Client, model: LanguageModel) -> None:
        reply = as_alice.post(page_of(model), {"input": "1", "output": "2", "begins": "2020-01-01T00:00"})

        assert reply.status_code == 422
        assert "This moment has passed" in text_of(reply)

        reply = as_alice.post(page_of(model), {"input": "1", "output": "2", "tier_input": "-3"})

        assert "greater than or equal to 0" in text_of(reply)

    @pytest.mark.parametrize("moment", ["0001-01-01T00:00", "9999-12-31T23:59"])
    @pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "America/Los_Angeles"])
    def test_a_moment_at_an_end_of_the_calendar_is_refused_beside_its_field(
        self, as_alice: Client, acme: Organisation, model: LanguageModel, moment: str, zone: str
    ) -> None:
        Organisation.objects.filter(pk=acme.pk).update(time_zone=zone)

        reply = as_alice.post(page_of(model), {"input": "1", "output": "2", "begins": moment})

        assert reply.status_code == 422
        assert reply.context["form"].errors["begins"]

    def test_a_price_to_come_is_taken_back_and_the_public_one_called_back(
        self, as_alice: Client, acme: Organisation, model: LanguageModel, add: Callable[..., ModelPrice]
    ) -> None:
        add()
        coming = add(valid_from=timezone.now() + timedelta(days=1))

        taken = as_alice.post(page_of(model, f"{coming.public_id}/remove/"), follow=True)
        public = as_alice.post(page_of(model, "public/"), follow=True)

        assert "The price is taken back." in text_of(taken)
        assert "the public price of gpt-6-astra counts" in text_of(public)
        assert "A call costs by its public price now" in text_of(public)

    def test_the_offline_model_takes_no_price(self, as_alice: Client, acme: Organisation) -> None:
        offline = make_model(acme, "offline", "")

        page = text_of(as_alice.get(page_of(offline)))

        assert "this service costs nothing" in page
        assert "Add a price" not in page

    @pytest.mark.parametrize(("right", "status"), [(None, 403), (Right.PROVIDERS, 403), (Right.BUDGETS, 200)])
    def test_it_takes_the_right_budgets(
        self, client: Client, model: LanguageModel, bob: Membership, right: Right | None, status: int
    ) -> None:
        if right:
            delegate(bob, right)
        client.force_login(bob.user)

        assert client.get("/o/acme/prices/").status_code == status
        assert client.get(page_of(model)).status_code == status

    def test_another_organisation_has_no_such_model(
        self, client: Client, model: LanguageModel, charlie: Membership, add: Callable[..., ModelPrice]
    ) -> None:
        price = add(valid_from=timezone.now() + timedelta(days=1))
        client.force_login(charlie.user)

        for rest in ("", "public/", f"{price.public_id}/remove/"):
            assert client.post(f"/o/globex/prices/{model.public_id}/{rest}", {"input": 1}).status_code == 404
            assert client.post(page_of(model, rest), {"input": 1}).status_code == 404
        with organisation_scope(model.organisation_id):
            assert ModelPrice.objects.count() == 1


class TestRest:
    def test_prices_are_listed_added_and_taken_back(self, alice: Membership, model: LanguageModel) -> None:
        rest, url = Rest(alice), f"models/{model.public_id}/prices"
        moment = (timezone.now() + timedelta(days=1)).isoformat()

        now = rest.post(url, {"input": "3", "output": "5.5", "tier_above": 1000, "tier_input": "6"})
        coming = rest.post(url, {"input": "4", "output": "5", "valid_from": moment})

        assert (now.status, coming.status) == (201, 201)
        assert (now.json["input"], now.json["cached"], now.json["created_by"]) == ("3.000000", None, alice.user.email)
        assert [each["input"] for each in rest.get(url).json["results"]] == ["4.000000", "3.000000"]
        (shown,) = rest.get("prices").json["results"]
        assert shown["has_own"] is True
        assert shown["counts"]["tiers"][1] == {
            "above": 1000,
            "input": "6.000000",
            "output": "5.500000",
            "cached": None,
            "cache_write": None,
            "reasoning": None,
        }
        assert shown["public"]["price_source"] == "genai-prices 0.2.3"
        assert rest.delete(f"{url}/{coming.json['id']}").status == 204
        assert rest.delete(f"{url}/{now.json['id']}").status == 409

    def test_invalid_input_is_refused_with_its_field(self, alice: Membership, model: LanguageModel) -> None:
        reply = Rest(alice).post(f"models/{model.public_id}/prices", {"input": "3"})

        assert (reply.status, reply.json["error"]["field"]) == (400, "output")


@pytest.mark.parametrize(
    ("price", "text"),
    [
        ("10", "$10.00"),
        ("0.05", "$0.05"),
        ("0.08333333333333334", "$0.083333"),
        ("1234.5", "$1,234.50"),
        ("0", "$0.00"),
    ],
)
def test_a_price_has_two_digits_or_as_many_as_it_needs(price: str, text: str) -> None:
    assert per_million(Decimal(price)) == text


def test_a_models_page_says_how_it_is_counted_and_what_it_costs(as_alice: Client, model: LanguageModel) -> None:
    page = f"/o/acme/providers/priced/models/{model.public_id}/"

    before = text_of(as_alice.get(page))
    with organisation_scope(model.organisation_id):
        LanguageModel.objects.update(token_factor=1.084, token_samples=12, name="claude-opus-5")
    after = text_of(as_alice.get(page))

    assert "by o200k The provider counts not known" in before
    assert "A call costs $10.00 in $50.00 out" in before
    assert "o200k it stands in: the vendor keeps" in after
    assert "108 tokens of input for each 100 of ours" in after
    assert "12 calls, too few to go by" in after
    assert "A call costs no price is known" in after
