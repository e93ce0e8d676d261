"""Adding a provider begins with a list: the address comes with the choice, by page and over REST."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from django.test import Client

from capabilities.language_models.providers.vendors import OFFLINE, PRESETS, VENDORS, Vendor, vendor_of
from capabilities.language_models.providers.writes import ProviderRefused, check_base_url
from capabilities.models import LanguageModel, Provider
from tests.cast import make_agent
from tests.rest import Rest
from toolhub.tenants.models import Membership, Organisation
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db
NEW = "/o/acme/providers/new/"
AZURE = "https://RESOURCE.openai.azure.com/openai/v1"


@pytest.fixture
def as_alice(client: Client, alice: Membership) -> Client:
    client.force_login(alice.user)
    return client


@pytest.mark.parametrize("vendor", [vendor for vendor in VENDORS if vendor.hosts], ids=lambda vendor: vendor.key)
def test_the_address_of_a_preset_is_one_of_its_vendors(vendor: Vendor) -> None:
    assert vendor_of(vendor.base_url) is vendor
    assert urlsplit(vendor.keys_url).scheme == "https"


def test_the_list_leads_to_a_form_with_the_address_and_where_keys_are_made(as_alice: Client) -> None:
    listed = as_alice.get(NEW).content.decode()
    form = as_alice.get(f"{NEW}?vendor=anthropic").content.decode()

    for vendor in PRESETS:
        assert f'href="{NEW}?vendor={vendor.key}"' in listed
    assert "<form" not in listed.split("<main", 1)[1]
    assert 'value="https://api.anthropic.com/v1"' in form
    assert 'href="https://console.anthropic.com/settings/keys"' in form
    assert "?vendor=openai" in as_alice.get(f"{NEW}?vendor=nobody").content.decode()


def test_a_key_is_pasted_and_its_models_come_next(as_alice: Client, acme: Organisation) -> None:
    answer = as_alice.post(
        f"{NEW}?vendor=openai",
        {"name": "OpenAI", "base_url": "https://api.openai.com/v1", "api_key": "sk-mine-12345678", "tool_limit": "128"},
    )

    assert (answer.status_code, answer["Location"]) == (302, "/o/acme/providers/openai/edit/#models")
    assert "platform.openai.com/api-keys" in as_alice.get(answer["Location"]).content.decode()
    with organisation_scope(acme):
        assert Provider.objects.get().api_key == "sk-mine-12345678"
        assert not LanguageModel.objects.exists()


def test_the_offline_model_is_a_choice(as_alice: Client, acme: Organisation) -> None:
    page = as_alice.get(f"{NEW}?vendor={OFFLINE.key}").content.decode()
    as_alice.post(NEW, {"name": "Offline model", "base_url": "", "model_name": "offline", "tool_limit": "128"})

    assert 'value="offline"' in page
    with organisation_scope(acme):
        assert Provider.objects.get().base_url == ""
        assert LanguageModel.objects.get().name == "offline"


def test_agents_need_the_model_that_they_would_use(as_alice: Client, acme: Organisation) -> None:
    agent = make_agent(acme)

    answer = as_alice.post(NEW, {"name": "Own", "base_url": "", "tool_limit": "128", "agents": [agent.slug]})

    assert answer.status_code == 422
    assert "Name the model that these agents" in answer.content.decode()


def test_the_name_of_ones_own_resource_has_to_be_put_in(as_alice: Client, alice: Membership) -> None:
    body = {"name": "Azure", "base_url": AZURE}

    page = as_alice.post(f"{NEW}?vendor=azure", body | {"tool_limit": "128"})
    rest = Rest(alice).post("providers", {"vendor": "azure"})

    assert page.status_code == 422
    assert "in place of RESOURCE" in page.content.decode()
    assert 'id="id_base_url_error"' in page.content.decode()
    assert rest.error == (400, "invalid", "base_url")
    with pytest.raises(ProviderRefused):
        check_base_url(AZURE)
    check_base_url(AZURE.replace("RESOURCE", "acme-resource"))


def test_over_rest_a_vendor_gives_name_and_address(alice: Membership, bob: Membership) -> None:
    api = Rest(alice)

    short = api.post("providers", {"vendor": "mistral", "api_key": "a-key-of-mistral"})
    own = api.post("providers", {"vendor": "openai", "name": "Ours", "base_url": "https://proxy.example.org/v1"})
    nameless = api.post("providers", {"base_url": "https://models.example.org/v1"})
    unknown = api.post("providers", {"vendor": "nobody"})
    changed = api.patch("providers/ours", {"vendor": "openai"})

    assert (
        short.json.items() >= {"name": "Mistral", "base_url": "https://api.mistral.ai/v1", "vendor": "mistral"}.items()
    )
    assert own.json.items() >= {"name": "Ours", "base_url": "https://proxy.example.org/v1", "vendor": "other"}.items()
    assert nameless.error == (400, "required", "name")
    assert unknown.error == (400, "invalid_choice", "vendor")
    assert changed.error == (400, "unknown_field", "vendor")
    assert Rest(bob).post("providers", {"vendor": "openai"}).status == 403
