from __future__ import annotations

from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.db import connection
from django.test import Client

from capabilities.common.refused import ChangeRefused
from capabilities.language_models.providers.writes import (
    ModelContent,
    ProviderContent,
    delete_model,
    delete_provider,
    save_model,
    save_provider,
)
from capabilities.models import Agent, LanguageModel, Provider
from tests.cast import make_agent, make_token
from toolhub.tenants.models import AuditEntry, Membership, Organisation
from toolhub.tenants.rows.scope import organisation_scope

JSON = "application/json"


@pytest.fixture
def provider(alice: Membership, in_acme: Organisation) -> Provider:
    content = ProviderContent(
        "openai", "OpenAI", "https://api.openai.com/v1", "gpt-5-mini", api_key="sk-key-of-mine-1234"
    )
    return save_provider(None, content, actor=alice)


def test_a_provider_has_several_models_with_their_own_limits(alice: Membership, provider: Provider) -> None:
    save_model(provider, None, ModelContent("gpt-5", 400_000, tool_limit=64, max_rounds=12), actor=alice)

    rows = LanguageModel.objects.order_by("pk").values_list("name", "context_window", "tool_limit", "max_rounds")
    assert list(rows) == [("gpt-5-mini", 128_000, None, None), ("gpt-5", 400_000, 64, 12)]
    assert [row.action for row in AuditEntry.objects.order_by("pk")] == [
        "provider.create",
        "model.create",
        "model.create",
    ]


def test_a_model_is_changed_and_agents_are_moved_to_it(
    alice: Membership, provider: Provider, acme: Organisation
) -> None:
    model = provider.models.get()
    agent = make_agent(acme)

    save_model(provider, model, ModelContent("gpt-6", 200_000), agents=[agent], actor=alice)

    assert Agent.objects.get().model.name == "gpt-6"
    assert AuditEntry.objects.get(action="model.update").before["name"] == "gpt-5-mini"


@pytest.mark.parametrize("flag", ["keeps_routed_tools", "takes_added_tools", "takes_tool_search"])
def test_whether_tools_stay_or_are_added_is_set_in_the_form_and_over_rest_and_audited(
    flag: str, client: Client, alice: Membership, provider: Provider
) -> None:
    client.force_login(alice.user)
    rest = Client(headers={"Authorization": f"Bearer {make_token(alice)}"})
    at, form = "/api/v1/providers/openai", {"slug": "openai", "name": "OpenAI", "tool_limit": "9", "base_url": ""}

    told = [rest.get(at).json()[flag]]
    told.append(rest.patch(at, {flag: True}, JSON).json()[flag])
    told.append(rest.patch(at, {"name": "Other"}, JSON).json()[flag])
    page = client.get("/o/acme/providers/openai/edit/").content.decode()
    answers = [client.post("/o/acme/providers/openai/edit/", form)]
    told.append(rest.get(at).json()[flag])
    answers.append(client.post("/o/acme/providers/openai/edit/", form | {flag: "on"}))
    told.append(rest.get(at).json()[flag])

    assert (told, [each.status_code for each in answers]) == ([False, True, True, False, True], [302, 302])
    assert '<details class="fold" open>' in page
    changes = AuditEntry.objects.filter(action="provider.update").order_by("pk").values_list("before", "after")
    assert [(before[flag], after[flag]) for before, after in changes if before[flag] != after[flag]] == [
        (False, True),
        (True, False),
        (False, True),
    ]


def test_the_key_stays_out_of_the_audit(alice: Membership, provider: Provider) -> None:
    delete_provider(provider, actor=alice)

    assert "sk-key" not in str(list(AuditEntry.objects.values_list("before", "after")))


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"name": "gpt-5-mini"}, "name"),
        ({"context_window": 10}, "context_window"),
        ({"tool_limit": -1}, "tool_limit"),
        ({"max_rounds": 26}, "max_rounds"),
    ],
)
def test_an_invalid_model_is_not_created(
    alice: Membership, provider: Provider, fields: dict[str, Any], field: str
) -> None:
    with pytest.raises(ChangeRefused) as refused:
        save_model(provider, None, ModelContent(**({"name": "other"} | fields)), actor=alice)

    assert refused.value.field == field
    assert LanguageModel.objects.count() == 1


def test_a_model_that_agents_use_cannot_be_deleted(alice: Membership, provider: Provider, acme: Organisation) -> None:
    model = provider.models.get()
    make_agent(acme, model=model)

    with pytest.raises(ChangeRefused, match="Starter would have no model") as refused:
        delete_model(model, actor=alice)
    with pytest.raises(ChangeRefused, match="Starter would have no model"):
        delete_provider(provider, actor=alice)

    assert refused.value.code == "in_use"


def test_an_unused_model_and_provider_can_be_deleted(alice: Membership, provider: Provider) -> None:
    delete_model(provider.models.get(), actor=alice)
    delete_provider(provider, actor=alice)

    assert not Provider.objects.filter(slug="openai").exists()
    assert [row.action for row in AuditEntry.objects.order_by("pk")][2:] == ["model.delete", "provider.delete"]


def test_everything_but_the_key_can_be_changed_when_the_stored_one_cannot_be_read(
    client: Client, alice: Membership, provider: Provider, acme: Organisation
) -> None:
    """What an admin does after TOOLHUB_FIELD_KEYS was lost: change, use, remove, and enter the key again."""
    agent, model = make_agent(acme), provider.models.get()
    lost = Fernet(Fernet.generate_key()).encrypt(b"sk-lost").decode()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE capabilities_provider SET api_key = %s WHERE id = %s", [lost, provider.pk])
    client.force_login(alice.user)
    at, rest = "/o/acme/providers/openai", Client(headers={"Authorization": f"Bearer {make_token(alice)}"})
    limits = {"name": "changed", "context_window": "9000"}

    page = client.get(f"{at}/edit/").content.decode()
    answers = [
        client.post(f"{at}/models/{model.public_id}/", limits | {"agents": [agent.slug]}),
        client.post(f"{at}/models/new/", limits | {"name": "second", "agents": [agent.slug]}),
        client.post(f"{at}/models/{model.public_id}/delete/"),
        client.post(f"{at}/edit/", {"slug": "openai", "name": "Renamed", "tool_limit": "9"}),
        rest.patch("/api/v1/providers/openai", {"name": "By REST"}, JSON),
        rest.post("/api/v1/models", {"provider": "openai", "name": "third"}, JSON),
        rest.get("/api/v1/models"),
    ]
    third = answers[-2].json()["id"]
    answers.append(rest.patch(f"/api/v1/models/{third}", {"context_window": 5000}, JSON))
    answers.append(rest.delete(f"/api/v1/models/{third}"))

    assert "a key that cannot be read any more" in page
    assert [answer.status_code for answer in answers] == [302, 302, 302, 302, 200, 201, 200, 200, 204]
    again = {"slug": "openai", "name": "OpenAI", "api_key": "sk-entered-again-1", "tool_limit": "9"}
    assert client.post(f"{at}/edit/", again).status_code == 302
    assert Provider.objects.get(slug="openai").api_key == "sk-entered-again-1"
    with connection.cursor() as cursor:
        cursor.execute("UPDATE capabilities_provider SET api_key = %s WHERE id = %s", [lost, provider.pk])
    with organisation_scope(acme):
        Agent.objects.update(model=LanguageModel.objects.exclude(provider=provider)[0])
    assert client.post(f"{at}/delete/").status_code == 302
    assert not Provider.objects.filter(slug="openai").exists()
