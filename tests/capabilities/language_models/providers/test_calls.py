"""How a model is called, as it is set on providers, models and agents: by form and over REST, checked and on record."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from capabilities.agents.agents.writes import agent_content, update_agent
from capabilities.common.refused import ChangeRefused
from capabilities.language_models.providers.resolve import resolve_model
from capabilities.language_models.providers.writes import ModelContent, save_model
from capabilities.models import Agent, LanguageModel
from tests.cast import make_agent
from tests.rest import Rest
from toolhub.tenants.models import AuditEntry, Membership, Organisation
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db
CALLS: dict[str, Any] = {
    "reasoning_effort": "low",
    "max_output_tokens": 4000,
    "temperature": 0.0,
    "parallel_tool_calls": False,
}
POSTED = CALLS | {"temperature": "0", "parallel_tool_calls": "false"}
BLANK: dict[str, Any] = {
    "reasoning_effort": "",
    "max_output_tokens": None,
    "temperature": None,
    "parallel_tool_calls": None,
}


@pytest.fixture
def agent(acme: Organisation) -> Agent:
    return make_agent(acme, base_url="https://api.openai.com/v1")


def calls_of(row: LanguageModel | Agent) -> dict[str, Any]:
    row.refresh_from_db()
    return {name: getattr(row, name) for name in CALLS}


def test_the_forms_set_it_and_say_what_blank_means(
    client: Client, agent: Agent, acme: Organisation, alice: Membership
) -> None:
    client.force_login(alice.user)
    model, agent_page = agent.model, f"/o/acme/agents/{agent.slug}/edit/"
    model_page = f"/o/acme/providers/{model.provider.slug}/models/{model.public_id}/"

    saved = client.post(model_page, {"name": "m", "context_window": 8000, "dialect": "responses", **POSTED})
    shown = client.get(agent_page).content.decode()
    with organisation_scope(acme):
        assert calls_of(model) == CALLS
        assert model.dialect == "responses"
        assert calls_of(agent) == BLANK
    body = {
        "name": "A",
        "model": model.public_id,
        "loading_mode": "next_request",
        "scope": "organisation",
        "starts_with_core": "on",
    }
    of_agent = client.post(agent_page, body | {"reasoning_effort": " High ", "parallel_tool_calls": "true"})
    with organisation_scope(acme):
        agent.refresh_from_db()
        resolved = resolve_model(LanguageModel.objects.select_related("provider").get(), agent)

    assert (saved.status_code, of_agent.status_code) == (302, 302)
    for words in ("now low.", "now 4,000.", "now 0.", "What the model says, now one in a reply"):
        assert words in shown
    assert resolved.reasoning_effort == "high"
    assert (resolved.max_output_tokens, resolved.temperature, resolved.parallel_tool_calls) == (4000, 0.0, True)
    assert "reasoning effort <code>high</code>" in client.get(f"/o/acme/agents/{agent.slug}/").content.decode()


def test_rest_sets_it_and_leaves_what_is_left_out(agent: Agent, acme: Organisation, alice: Membership) -> None:
    api, model = Rest(alice), agent.model

    of_model = api.patch(f"models/{model.public_id}", CALLS | {"dialect": "chat"})
    renamed = api.patch(f"models/{model.public_id}", {"name": "renamed"})
    of_agent = api.patch(f"agents/{agent.slug}", {"reasoning_effort": "high", "temperature": 1.5})
    agent_renamed = api.patch(f"agents/{agent.slug}", {"name": "Renamed"})
    of_provider = api.patch(f"providers/{model.provider.slug}", {"dialect": "responses"})

    assert of_model.json.items() >= (CALLS | {"dialect": "chat"}).items()
    assert renamed.json == of_model.json | {"name": "renamed"}
    assert of_agent.json.items() >= (BLANK | {"reasoning_effort": "high", "temperature": 1.5}).items()
    assert agent_renamed.json == of_agent.json | {"name": "Renamed"}
    assert of_provider.json["dialect"] == "responses"
    with organisation_scope(acme):
        told = {row.action: row.after for row in AuditEntry.objects.order_by("-pk")}
    assert told["model.update"].items() >= (CALLS | {"dialect": "chat"}).items()
    assert told["agent.update"]["temperature"] == 1.5
    assert told["provider.update"]["dialect"] == "responses"


@pytest.mark.parametrize(
    ("calls", "field", "words"),
    [
        ({"reasoning_effort": "as high as it gets"}, "reasoning_effort", "one word"),
        ({"reasoning_effort": "9"}, "reasoning_effort", "one word"),
        ({"max_output_tokens": 0}, "max_output_tokens", ""),
        ({"max_output_tokens": 4001}, "max_output_tokens", "from 1 to 4,000. That is half of"),
        ({"temperature": -0.1}, "temperature", ""),
        ({"temperature": 2.1}, "temperature", ""),
        ({"temperature": float("nan")}, "temperature", ""),
        ({"dialect": "telepathy"}, "dialect", ""),
    ],
)
def test_a_value_that_no_call_can_carry_is_refused_beside_its_field(
    client: Client, agent: Agent, acme: Organisation, alice: Membership, calls: dict[str, Any], field: str, words: str
) -> None:
    client.force_login(alice.user)
    model = agent.model
    page = f"/o/acme/providers/{model.provider.slug}/models/{model.public_id}/"
    sent = {name: value for name, value in calls.items() if str(value) != "nan"}  # which JSON does not know

    form = client.post(page, {"name": "m", "context_window": 8000} | calls)
    rest = Rest(alice).patch(f"models/{model.public_id}", sent | {"context_window": 8000}) if sent else None

    assert form.status_code == 422
    assert f'id="id_{field}_error"' in form.content.decode()
    assert words in form.content.decode()
    assert rest is None or (rest.status, rest.error[2]) == (400, field)
    with organisation_scope(acme):
        with pytest.raises(ChangeRefused) as refused:
            save_model(model.provider, model, ModelContent("m", 8000, **calls), actor=alice)
        assert refused.value.field == field
        assert calls_of(model) == BLANK


def test_an_agents_answer_is_at_most_half_of_its_models_window(
    agent: Agent, acme: Organisation, alice: Membership
) -> None:
    api = Rest(alice)
    api.patch(f"models/{agent.model.public_id}", {"context_window": 8000})

    refused = api.patch(f"agents/{agent.slug}", {"max_output_tokens": 4001})
    taken = api.patch(f"agents/{agent.slug}", {"max_output_tokens": 4000})

    assert refused.error == (400, "invalid", "max_output_tokens")
    assert taken.json["max_output_tokens"] == 4000


def test_a_window_that_shrinks_cuts_the_agents_number_and_nothing_else(
    agent: Agent, acme: Organisation, alice: Membership
) -> None:
    with organisation_scope(acme):
        Agent.objects.update(max_output_tokens=60_000)
        agent = Agent.objects.for_display().get()
        model = agent.model

        save_model(model.provider, model, ModelContent("m", 8000), actor=alice)
        update_agent(Agent.objects.for_display().get(), agent_content(agent), actor=alice)

        agent = Agent.objects.for_display().get()
        assert resolve_model(agent.model, agent).max_output_tokens == 4000
        assert agent.max_output_tokens == 60_000
