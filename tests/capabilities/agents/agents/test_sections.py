"""The sections of an agent: a line on each, and pictures of when tools are sent."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from capabilities.agents.agents.drafts import AgentDraft
from capabilities.agents.agents.sections import loading_of, pictures_of, sections_of
from capabilities.agents.agents.writes import OwnLine
from capabilities.language_models.providers.resolve import resolve_model
from capabilities.models import Agent, Dialect, LanguageModel, Provider
from tests.cast import allow_toolkit, make_agent, make_role, make_tool, make_toolkit
from tests.sessions.doors.chats.test_views import text_of
from toolhub.tenants.models import Membership

KEYS = ["name", "model", "prompt", "tools", "sending", "rights"]


def draft(own: dict[str, OwnLine] | None = None, toolkits: dict[str, bool] | None = None, **fields: Any) -> AgentDraft:
    provider = Provider(
        name="Vendor", slug="vendor", base_url="https://models.example.com/v1", **fields.pop("provider", {})
    )
    model = LanguageModel(name="clever", provider=provider, context_window=8_000)
    return AgentDraft(Agent(name="Clerk", model=model, **fields), own or {}, toolkits or {})


def line(of: AgentDraft, key: str) -> str:
    return {each.key: each.summary for each in sections_of(of, 7)}[key]


def boxes(of: AgentDraft, title: str) -> list[list[str]]:
    (picture,) = [each for each in pictures_of(of) if each.title == title]
    return [[words for words, _ in column.boxes] for column in picture.columns]


def test_each_section_has_one_line_in_the_order_of_the_page() -> None:
    assert [each.key for each in sections_of(draft(), 0)] == KEYS
    assert all(each.summary.count("\n") == 0 and len(each.summary) < 200 for each in sections_of(draft(), 0))


def test_who_may_not_see_the_prompt_has_no_line_on_it() -> None:
    assert [each.key for each in sections_of(draft(prompt="Secret."), None)] == [key for key in KEYS if key != "prompt"]


@pytest.mark.parametrize(
    ("of", "key", "word"),
    [
        (draft(is_enabled=False), "name", "switched off"),
        (draft(), "model", "clever of Vendor"),
        (draft(prompt="Be brief. " * 50), "prompt", "7 tokens: “Be brief."),
        (draft(), "prompt", "None"),
        (draft({"a": OwnLine(is_deferred=True), "b": OwnLine()}), "tools", "2 tools of its own (1 deferred)"),
        (draft({"a": OwnLine(is_pinned=True)}, {"kit": True, "other": False}), "tools", "2 toolkits, 1 initial"),
        (draft(tools_mode="all", starts_with_core=False), "tools", "Every tool of the catalogue; without the core"),
        (draft(offered_to="roles"), "rights", "nobody"),
        (draft(scope="member"), "rights", "only the member’s own"),
        (draft(client_approvals="hide"), "rights", "go without"),
    ],
)
def test_a_line_says_the_state(of: AgentDraft, key: str, word: str) -> None:
    assert word in line(of, key)


@pytest.mark.parametrize(
    ("mode", "columns"),
    [
        ("next_request", [1, 1, 2]),
        ("same_run", [1, 2, 2]),
        ("constant", [2, 2, 2]),
    ],
)
def test_the_picture_shows_from_when_on_loaded_tools_are_sent(mode: str, columns: list[int]) -> None:
    of = draft(toolkits={"kit": False}, loading_mode=mode)
    assert [len(column) for column in boxes(of, "Loading")] == columns


def test_without_anything_to_load_the_picture_shows_one_set_of_tools() -> None:
    assert boxes(draft(loading_mode="same_run"), "Loading") == [["first tools"]] * 3
    assert line(draft(loading_mode="same_run"), "sending").startswith("Nothing to load")


def test_a_mode_that_the_model_does_not_take_is_drawn_as_what_is_done_instead() -> None:
    takes = {"dialect": Dialect.RESPONSES, "takes_added_tools": True}
    found = [
        loading_of(of.agent, resolve_model(of.agent.model, of.agent))
        for of in (
            draft(loading_mode="native_search"),
            draft(loading_mode="native_search", provider=takes),
            draft(loading_mode="native_search", provider=takes | {"takes_tool_search": True}),
        )
    ]
    assert found == ["same_run", "native", "native_search"]


@pytest.mark.parametrize(
    ("fields", "deciding"),
    [
        ({}, ["nothing is left out"]),
        ({"routing_mode": "keywords"}, ["keywords"]),
        ({"routing_mode": "hybrid"}, ["keywords", "ranking"]),
        ({"routing_mode": "hybrid", "loading_mode": "constant"}, ["nothing is left out"]),
    ],
)
def test_the_picture_of_routing_shows_what_decides(fields: dict[str, Any], deciding: list[str]) -> None:
    assert boxes(draft(**fields), "Routing")[1] == deciding


def test_a_picture_says_in_words_what_it_shows() -> None:
    (loading, routing) = pictures_of(draft(toolkits={"kit": False}, routing_mode="hybrid", routing_tokens=700))
    assert "Next message: first tools, loaded tools." in loading.words
    assert "700" in routing.sentence


@pytest.mark.django_db
def test_the_page_and_the_form_have_the_same_sections(client: Client, alice: Membership, bob: Membership) -> None:
    acme = alice.organisation
    make_role(acme, bob)
    agent = make_agent(acme, slug="clerk", prompt="Speak softly.")
    allow_toolkit(agent, make_toolkit(acme, "kit", make_tool(acme, "kit_tool")))
    client.force_login(alice.user)

    page, form = client.get("/o/acme/agents/clerk/"), client.get("/o/acme/agents/clerk/edit/")

    for key in KEYS:
        assert f'id="summary-{key}"'.encode() in form.content
        assert (f'id="summary-{key}"'.encode() in page.content) == (key != "name")
        assert f'<section class="form-section stack" id="{key}">'.encode() in form.content
    for each in (page, form):
        assert text_of(each.content).count("is sent from the next message on.") == 1
    client.force_login(bob.user)
    seen = client.get("/o/acme/agents/clerk/").content
    assert (b"Speak softly" in seen, b'id="summary-prompt"' in seen, b'id="summary-tools"' in seen) == (
        False,
        False,
        True,
    )
