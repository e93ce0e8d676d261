"""The stored definitions: what a role's list puts into a request, and which requests share the bytes of it."""

from __future__ import annotations

from typing import Any

import pytest

from capabilities.catalogue.tools.writes import Definition, update_tool
from capabilities.models import Agent, RoutingMode, Tool
from sessions.models import ChatSession, ToolSet
from tests.cast import give_tool, make_agent, make_category, make_role, make_session, make_tool
from tests.scripted_openai import Say, ScriptedOpenAI, call
from tests.sessions.run_turns import run, steps_of
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def chat(bob: Membership, provider: ScriptedOpenAI) -> ChatSession:
    """With an agent that has tasks and git of its own, of a catalogue with more."""
    acme = bob.organisation
    tasks = make_category(acme, "tasks", is_core=False, keywords=["task"])
    git = make_category(acme, "git", is_core=False, keywords=["commit"])
    own = [make_tool(acme, "task_create", category=tasks), make_tool(acme, "git_log", category=git)]
    make_tool(acme, "uuid", category=make_category(acme, "core", is_core=True))
    make_role(acme, bob)
    agent = make_agent(acme, provider.url, starts_with_core=False)
    for tool in own:
        give_tool(agent, tool)
    return make_session(bob, agent)


def names_in(request: Any) -> list[str]:
    return [each["function"]["name"] for each in request.get("tools", [])]


def sets_of(chat: ChatSession, message: str, provider: ScriptedOpenAI, *says: Say) -> list[ToolSet | None]:
    """The stored set of each model call of a turn."""
    provider.enqueue(*says, Say("Done."))
    turn = run(chat, message)
    with organisation_scope(chat.organisation_id):
        return [step.tool_set for step in steps_of(turn) if step.kind == "model"]


def test_cx_10_a_turn_s_request_carries_the_list_of_its_agent(chat: ChatSession, provider: ScriptedOpenAI) -> None:
    sets_of(chat, "go", provider)

    assert sorted(name for name in names_in(provider.requests[0]) if name != "read_result") == [
        "git_log",
        "task_create",
    ]


def test_cx_27_cx_28_every_round_and_every_session_with_the_same_tools_sends_the_same_bytes(
    chat: ChatSession, provider: ScriptedOpenAI
) -> None:
    rounds = sets_of(chat, "go", provider, Say(calls=[call("task_create", {"title": "x"})]))
    other = sets_of(make_session(chat.membership, chat.agent), "go", provider)

    assert len({each.pk for each in (*rounds, *other) if each is not None}) == 1
    assert [names_in(each) for each in provider.requests[1:]] == [names_in(provider.requests[0])] * 2
    first = rounds[0]
    assert first is not None
    assert all(first.wire.encode() in body for body in provider.bodies)


def test_cx_29_other_categories_of_the_next_message_are_another_entry_and_so_is_an_edited_tool(
    chat: ChatSession, alice: Membership, provider: ScriptedOpenAI
) -> None:
    with organisation_scope(chat.organisation_id):
        Agent.objects.update(routing_mode=RoutingMode.KEYWORDS)
    (tasks,) = sets_of(make_session(chat.membership, chat.agent), "a task", provider)
    (git,) = sets_of(make_session(chat.membership, chat.agent), "a commit", provider)
    (again,) = sets_of(make_session(chat.membership, chat.agent), "a task", provider)
    with organisation_scope(chat.organisation_id):
        tool = Tool.objects.get(name="task_create")
        schema = {"type": "object", "properties": {"title": {"type": "string"}}}
        update_tool(tool, Definition(tool.name, "Makes a task, anew.", schema), actor=alice)
    (edited,) = sets_of(make_session(chat.membership, chat.agent), "a task", provider)

    keys = [each.pk if each is not None else None for each in (tasks, git, again, edited)]
    assert keys[0] == keys[2]
    assert len(set(keys)) == 3
