"""The model of an agent as one value: whose word counts, and what is not in it."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from typing import Any
from uuid import uuid4

import pytest
from pytest_django import Settings

from capabilities.language_models.providers.resolve import ResolvedModel, ResolvedProvider, resolve_model
from capabilities.models import AUTO, Agent, LanguageModel, Provider
from sessions.loop.clients.transport import endpoint_of
from tests.cast import make_agent
from toolhub.tenants.models import Organisation
from toolhub.tenants.rows.scope import organisation_scope

OPENAI = Provider(slug="openai", name="OpenAI", base_url="https://api.openai.com/v1", api_key="sk-secret", tool_limit=9)


def test_a_model_is_resolved_with_its_provider_and_limits() -> None:
    model = LanguageModel(provider=OPENAI, name="gpt-5", context_window=400_000, max_rounds=7)

    assert resolve_model(model, Agent(max_rounds=3)) == ResolvedModel(
        provider=ResolvedProvider(
            OPENAI.public_id, "openai", "OpenAI", "https://api.openai.com/v1", True, AUTO, "sk-secret"
        ),
        name="gpt-5",
        context_window=400_000,
        tool_limit=9,
        max_rounds=7,
        public_id=model.public_id,
        max_output_tokens=37_500,
    )


@pytest.mark.parametrize(("own", "limit"), [(None, 9), (5, 5), (0, 0), (20, 20)])
def test_a_models_own_tool_limit_beats_its_providers(own: int | None, limit: int) -> None:
    assert resolve_model(LanguageModel(provider=OPENAI, tool_limit=own)).tool_limit == limit


@pytest.mark.parametrize(("own", "agents", "rounds"), [(2, 3, 2), (None, 3, 3), (None, None, 4)])
def test_a_models_own_rounds_beat_the_agents_and_those_the_setting(
    settings: Settings, own: int | None, agents: int | None, rounds: int
) -> None:
    settings.TOOLHUB_MAX_ROUNDS = 4

    model = LanguageModel(provider=OPENAI, max_rounds=own)

    assert resolve_model(model, Agent(max_rounds=agents)).max_rounds == rounds
    assert resolve_model(model).max_rounds == own or 4


@pytest.mark.parametrize(
    ("name", "url", "is_taken"),
    [
        ("gpt-5", OPENAI.base_url, True),
        ("gpt-5-2025-08-07", OPENAI.base_url, True),
        ("gpt-5-latest", OPENAI.base_url, True),
        ("gpt-5-mini", OPENAI.base_url, False),
        ("gpt-5.1", OPENAI.base_url, False),
        ("gpt-5", "https://api.example.org/v1", False),
        ("gpt-5", OPENAI.base_url + "/other-account", False),
    ],
)
def test_extras_go_back_to_the_same_family_at_the_same_address(name: str, url: str, is_taken: bool) -> None:
    first = resolve_model(LanguageModel(provider=OPENAI, name="gpt-5"))
    other = replace(first, name=name, provider=replace(first.provider, base_url=url))

    assert (other.takes_extras_of(first.origin), first.takes_extras_of(other.origin)) == (is_taken, is_taken)


def test_extras_go_back_to_no_other_provider_and_not_without_an_origin() -> None:
    first = resolve_model(LanguageModel(provider=OPENAI, name="gpt-5"))
    other = replace(first, provider=replace(first.provider, public_id=uuid4()))

    assert not other.takes_extras_of(first.origin)
    assert not first.takes_extras_of("")


def test_a_resolved_model_does_not_change_and_shows_no_key() -> None:
    resolved = resolve_model(LanguageModel(provider=OPENAI, name="gpt-5"))

    with pytest.raises(FrozenInstanceError):
        resolved.name = "gpt-6"  # type: ignore[misc]
    assert "sk-secret" not in repr(resolved)


@pytest.mark.django_db
def test_a_model_that_was_read_to_be_shown_has_no_key_and_cannot_be_called(
    acme: Organisation, django_assert_num_queries: Any
) -> None:
    make_agent(acme)
    with organisation_scope(acme):
        agent = Agent.objects.for_display().get()

        with django_assert_num_queries(0):
            resolved = resolve_model(agent.model, agent)

    assert resolved.provider.api_key is None
    with pytest.raises(ValueError, match="without its key"):
        endpoint_of(resolved)
