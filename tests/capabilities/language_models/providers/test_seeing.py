"""Models that take images: by their names, and as a person says."""

from __future__ import annotations

import pytest
from django.test import Client

from capabilities.language_models.providers.resolve import resolve_model
from capabilities.language_models.providers.seeing import is_known_to_see
from capabilities.models import LanguageModel
from tests.cast import make_agent
from tests.rest import Rest
from tests.sessions.run_turns import a_model
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import organisation_scope


@pytest.mark.parametrize(
    "name",
    [
        *(
            "gpt-4o",
            "gpt-4o-mini-2024-07-18",
            "openai/gpt-4.1",
            "gpt-5.4-nano",
            "o1",
            "o3",
            "o4-mini",
            "chatgpt-4o-latest",
        ),
        *("claude-3-haiku-20240307", "claude-sonnet-4-5", "anthropic/claude-opus-4.1", "us.anthropic.claude-sonnet-4"),
        *("gemini-2.5-flash", "models/gemini-3-pro", "google/gemma-3-27b-it", "qwen2.5-vl-72b-instruct", "qwen3-vl:8b"),
        *("llama-3.2-11b-vision-instruct", "llama3.2-vision", "llama-4-scout", "pixtral-12b", "llava:13b", "grok-4"),
    ],
)
def test_models_that_are_known_to_take_images(name: str) -> None:
    assert is_known_to_see(name)


@pytest.mark.parametrize(
    "name",
    [
        *("gpt-3.5-turbo", "gpt-4", "o1-mini", "o3-mini", "gpt-oss-120b", "gpt-4o-audio-preview", "whisper-1"),
        *("llama-3.3-70b-versatile", "llama3.1:8b", "qwen3-coder", "deepseek-chat", "mistral-7b", "gemma-2-9b"),
        *("gemma3:1b", "command-r", "scripted", "my-claude-3", ""),
    ],
)
def test_others_count_as_taking_none(name: str) -> None:
    assert not is_known_to_see(name)


def test_a_persons_word_counts_before_the_name() -> None:
    told = [
        a_model(name=name, images_setting=setting) for name in ("gpt-4o", "scripted") for setting in (None, True, False)
    ]

    assert [model.takes_images for model in told] == [True, True, False, False, True, False]


@pytest.mark.django_db
def test_it_is_set_on_the_page_and_over_rest(client: Client, alice: Membership) -> None:
    agent = make_agent(alice.organisation, "https://api.example.org/v1")
    address = f"models/{agent.model.public_id}"
    client.force_login(alice.user)
    page = f"/o/acme/providers/scripted/models/{agent.model.public_id}/"

    def stored() -> tuple[bool | None, bool]:
        with organisation_scope(alice.organisation):
            model = LanguageModel.objects.select_related("provider").get(pk=agent.model_id)
            return model.takes_images, resolve_model(model).takes_images

    assert (Rest(alice).get(address).json["takes_images"], stored()) == (None, (None, False))
    assert Rest(alice).patch(address, {"takes_images": True}).status == 200
    assert stored() == (True, True)
    body = {"name": "scripted", "context_window": "128000", "takes_images": "false"}
    assert client.post(page, body).status_code == 302
    assert stored() == (False, False)
    assert '<option value="false" selected>' in client.get(page).content.decode()
    assert client.post(page, {**body, "takes_images": ""}).status_code == 302
    assert stored() == (None, False)
