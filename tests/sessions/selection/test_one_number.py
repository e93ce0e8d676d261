"""How many tokens of definitions a turn starts with is one number: on every page, over REST, in a preview and in the
turn itself, whatever family the agent's model is of."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from django.test import Client

from capabilities.common.memory import forget_everything
from capabilities.common.registry_version import touch_registry
from capabilities.common.tokens import CL100K, O200K, QWEN, count_tokens
from capabilities.contract.wire import canonical_json
from capabilities.models import Agent, Dialect, LanguageModel, LoadingMode, Provider, Tool
from sessions.models import ChatSession, Step, StepKind
from sessions.selection.queries import selection_preview
from sessions.selection.starts import start_of
from tests.cast import (
    allow_toolkit,
    make_agent,
    make_category,
    make_meta_tools,
    make_role,
    make_session,
    make_tool,
    make_toolkit,
)
from tests.rest import Rest
from tests.scripted_openai import Say, ScriptedOpenAI
from tests.sessions.doors.chats.test_views import delegate, text_of
from tests.sessions.run_turns import run
from toolhub.tenants.models import Membership, Right
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db(transaction=True)

FAMILIES = [("gpt-6-astra", O200K), ("gpt-4", CL100K), ("qwen3-32b", QWEN)]


@pytest.fixture
def begun(bob: Membership, provider: ScriptedOpenAI) -> ChatSession:
    """A session with tools whose words each family counts otherwise, and with a toolkit that can be loaded."""
    acme = bob.organisation
    make_meta_tools(acme)
    make_tool(acme, "greet", description="Grüße jemanden: 你好世界, добрый день, καλημέρα.")
    make_tool(acme, "part", description="Verabschiede jemanden: 再见, до свидания.")
    agent = make_agent(acme, provider.url, starts_with_core=True)
    kit = make_toolkit(acme, "kit", make_tool(acme, "wave", description="Winke jemandem zu: 挥手."))
    allow_toolkit(agent, kit)
    make_role(acme, bob)
    delegate(bob, Right.AGENTS)
    delegate(bob, Right.POLICIES)
    return make_session(bob, agent)


def speak(session: ChatSession, name: str) -> None:
    """Let the session's agent use a model of this name."""
    with organisation_scope(session.organisation_id):
        LanguageModel.objects.update(name=name)
        session.agent = Agent.objects.select_related("model__provider").get(pk=session.agent_id)


def number(page: str, pattern: str) -> int:
    """The number that stands for N in what the page says."""
    found = re.search(pattern.replace("N", r"([\d,]+)"), page)
    assert found, page
    return int(found[1].replace(",", ""))


def pages(client: Client, session: ChatSession) -> dict[str, int]:
    """What each page says, by its name."""

    def page(path: str, **query: Any) -> str:
        reply = client.get(f"/o/acme/{path}", query, follow=True)
        assert reply.status_code == 200
        return text_of(reply.content)

    slug = session.agent.slug
    chat = page(f"sessions/{session.pk}/")
    edit = client.post(f"/o/acme/agents/{slug}/edit/", {**form_of(client, slug), "preview": "1"})
    as_it_is = {**form_of(client, slug), "starts_with_core": "on", "allowed_toolkits": "kit"}
    cost = client.post(f"/o/acme/agents/{slug}/edit/", {**as_it_is, "cost": "1"})
    definitions = r"Definitions N tok"
    return {
        "the form": number(page(f"agents/{slug}/edit/"), definitions),
        "the cost beside the form": number(text_of(cost.content), definitions),
        "the cost on the agent's page": number(page(f"agents/{slug}/"), definitions),
        "the agent's page": number(page(f"agents/{slug}/"), "· N tok on every round of your turns"),
        "the chip of a chat": number(chat, r"\d+ tools? · N tok"),
        "Explain": number(page("explain/", session=str(session.pk)), r"\(N tok\) in the next turn"),
        "the preview of an edit": number(text_of(edit.content), r"N → [\d,]+ tok at the start"),
    }


def form_of(client: Client, slug: str) -> dict[str, Any]:
    """The agent's form as it is filled in, but that it does not start with the core."""
    form = client.get(f"/o/acme/agents/{slug}/edit/").context["form"]
    filled = {field.html_name: field.value() for field in form if field.value() not in (None, "", [], False)}
    return {name: value for name, value in filled.items() if name != "starts_with_core"}


def rest(member: Membership, session: ChatSession) -> dict[str, int]:
    """What REST says, by what is asked."""
    api = Rest(member)
    carried = api.get(f"sessions/{session.pk}/tools").json
    explained = api.get("explain", session=str(session.pk)).json
    edit = json.dumps({"starts_with_core": False}).encode()
    dry = api.ask("PATCH", f"agents/{session.agent.slug}", edit, query={"dry_run": "true"})
    (agent,) = dry.json["agents"]
    return {"sessions/tools": carried["tokens"], "explain": explained["tokens"], "a dry run": agent["tokens_before"]}


def let_search(session: ChatSession) -> None:
    """Let the provider of the session's agent search what can be loaded, which is in no core category."""
    home = make_category(session.organisation, "later", is_core=False)
    with organisation_scope(session.organisation_id):
        Tool.objects.filter(name="wave").update(category=home)
        Provider.objects.update(dialect=Dialect.RESPONSES, takes_tool_search=True, takes_added_tools=True)
        Agent.objects.update(loading_mode=LoadingMode.NATIVE_SEARCH)
        touch_registry(session.organisation_id)
    speak(session, "scripted")


def test_everything_says_one_number_where_the_provider_searches_tools(
    client: Client, bob: Membership, begun: ChatSession, provider: ScriptedOpenAI
) -> None:
    client.force_login(bob.user)
    let_search(begun)
    with organisation_scope(begun.organisation_id):
        selection, start = selection_preview(begun), start_of(begun.agent, bob)
    (kit,) = selection.namespaces
    assert ([tool.name for tool in kit.tools], kit.tokens > 0) == (["wave"], True)

    said = {"the selection": selection.tokens, "the start": start.tokens, **pages(client, begun), **rest(bob, begun)}
    run(begun, "hello")

    with organisation_scope(begun.organisation_id):
        step = Step.objects.select_related("tool_set").get(turn__session=begun, kind=StepKind.MODEL)
    assert step.tool_set
    said |= {"the step": step.tool_tokens, "without the router": step.all_tool_tokens, "the set": step.tool_set.tokens}
    counted = sum(count_tokens(tool.wire, O200K) for tool in selection.tools) + kit.tokens
    assert said == dict.fromkeys(said, counted)


@pytest.mark.parametrize(("name", "encoding"), FAMILIES)
def test_everything_says_one_number_for_what_a_turn_starts_with(
    client: Client, bob: Membership, begun: ChatSession, provider: ScriptedOpenAI, name: str, encoding: str
) -> None:
    client.force_login(bob.user)
    speak(begun, name)
    with organisation_scope(begun.organisation_id):
        selection = selection_preview(begun)
        start = start_of(begun.agent, bob)
    counted = sum(count_tokens(tool.wire, encoding) for tool in selection.tools)
    provider.enqueue(Say("Good day."))

    said = {
        "the selection": selection.tokens,
        "the start": start.tokens,
        **pages(client, begun),
        **rest(bob, begun),
    }
    run(begun, "hello")

    with organisation_scope(begun.organisation_id):
        step = Step.objects.select_related("tool_set").get(turn__session=begun, kind=StepKind.MODEL)
    assert step.tool_set
    said |= {"the step": step.tool_tokens, "without the router": step.all_tool_tokens, "the set": step.tool_set.tokens}
    sent = json.loads(provider.bodies[-1])["tools"]
    said["what went out"] = sum(count_tokens(canonical_json(each), encoding) for each in sent)
    assert said == dict.fromkeys(said, counted)
    assert len(said) >= 12


@pytest.mark.parametrize(("name", "encoding"), FAMILIES)
def test_a_preview_that_is_the_first_to_count_in_its_process_says_the_same_number(
    client: Client, bob: Membership, begun: ChatSession, name: str, encoding: str
) -> None:
    client.force_login(bob.user)
    speak(begun, name)
    form = form_of(client, begun.agent.slug)
    forget_everything()

    edit = client.post(f"/o/acme/agents/{begun.agent.slug}/edit/", {**form, "preview": "1"})

    with organisation_scope(begun.organisation_id):
        counted = sum(count_tokens(tool.wire, encoding) for tool in selection_preview(begun).tools)
        assert start_of(begun.agent, bob).tokens == counted > 0
    assert number(text_of(edit.content), r"N → [\d,]+ tok at the start") == counted
