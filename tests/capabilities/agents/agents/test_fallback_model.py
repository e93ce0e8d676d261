"""An agent's second model, as it is set by form and over REST."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from capabilities.models import Agent, LanguageModel
from tests.cast import make_agent
from tests.rest import Rest
from toolhub.tenants.models import AuditEntry, Membership, Organisation
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db
FORM = {"name": "A", "loading_mode": "next_request", "scope": "organisation", "starts_with_core": "on"}


@pytest.fixture
def agent(acme: Organisation) -> Agent:
    return make_agent(acme, base_url="https://api.openai.com/v1")


@pytest.fixture
def spare(agent: Agent) -> LanguageModel:
    with organisation_scope(agent.organisation_id):
        model: LanguageModel = LanguageModel.objects.create(
            organisation_id=agent.organisation_id, provider=agent.model.provider, name="spare"
        )
    return model


def second_of(agent: Agent) -> LanguageModel | None:
    with organisation_scope(agent.organisation_id):
        return Agent.objects.select_related("fallback_model").get(pk=agent.pk).fallback_model


def test_the_form_sets_it_and_takes_it_back(
    client: Client, alice: Membership, agent: Agent, spare: LanguageModel
) -> None:
    client.force_login(alice.user)
    url = f"/o/acme/agents/{agent.slug}/"
    body = FORM | {"model": agent.model.public_id}

    assert client.post(f"{url}edit/", body | {"fallback_model": spare.public_id}).status_code == 302
    assert second_of(agent) == spare
    assert "else spare" in " ".join(client.get(url).content.decode().split())
    assert f'<option value="{spare.public_id}" selected' in client.get(f"{url}edit/").content.decode()

    assert client.post(f"{url}edit/", body | {"fallback_model": ""}).status_code == 302
    assert second_of(agent) is None


def test_rest_sets_it_keeps_it_and_takes_it_back(alice: Membership, agent: Agent, spare: LanguageModel) -> None:
    api, url = Rest(alice), f"agents/{agent.slug}"

    replies = [
        api.patch(url, {"fallback_model": "spare"}),
        api.patch(url, {"name": "Renamed"}),
        api.patch(url, {"fallback_model": ""}),
    ]

    told = [(reply.json["fallback_provider"], reply.json["fallback_model"]) for reply in replies]
    assert told == [(spare.provider.slug, "spare"), (spare.provider.slug, "spare"), ("", "")]
    with organisation_scope(agent.organisation_id):
        entries = AuditEntry.objects.filter(action="agent.update").order_by("pk")
        assert [entry.after.get("fallback_model") for entry in entries] == [str(spare), str(spare), ""]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"fallback_model": "scripted"}, "fallback_model"),
        ({"fallback_model": "nothing"}, "fallback_model"),
        ({"fallback_model": "spare", "fallback_provider": "nobody"}, "fallback_provider"),
    ],
)
@pytest.mark.usefixtures("spare")
def test_a_second_model_that_cannot_be_is_refused(
    alice: Membership, agent: Agent, body: dict[str, Any], field: str
) -> None:
    reply = Rest(alice).patch(f"agents/{agent.slug}", body)

    assert reply.status in (400, 409)
    assert reply.error[2] == field
    assert second_of(agent) is None


def test_a_model_of_another_organisation_is_none(
    client: Client, alice: Membership, agent: Agent, globex: Organisation
) -> None:
    theirs = make_agent(globex, base_url="https://api.openai.com/v1").model
    client.force_login(alice.user)
    body = FORM | {"model": agent.model.public_id, "fallback_model": theirs.public_id}

    page = client.post(f"/o/acme/agents/{agent.slug}/edit/", body)

    assert "There is no such model." in page.content.decode()
    assert second_of(agent) is None


def test_a_second_model_is_not_removed_under_its_agent(alice: Membership, agent: Agent, spare: LanguageModel) -> None:
    with organisation_scope(agent.organisation_id):
        Agent.objects.update(fallback_model=spare)

    reply = Rest(alice).delete(f"models/{spare.public_id}")

    assert reply.error[:2] == (409, "in_use")
