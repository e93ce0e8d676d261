"""An empty chat proposes what its agent can do, and a click sends it."""

from __future__ import annotations

import datetime
import json
from typing import Any

import pytest
from django.test import Client

from capabilities.running.registry import registry
from sessions.models import ChatSession, Turn
from sessions.selection.examples import EXAMPLES, examples_for
from tests.cast import PASSWORD, make_turn
from toolhub.embedded.offline_model.replies import reply
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import organisation_scope


def definitions() -> list[object]:
    """Of every core tool: what an agent with all of them sends."""
    core = {name for name, category in registry.categories.items() if category.is_core}
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": json.loads(tool.parameters_text),
            },
        }
        for tool in registry.tools.values()
        if tool.category in core
    ]


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_offline_model_serves_each_example_with_its_tool(name: str) -> None:
    answer = reply({"messages": [{"role": "user", "content": EXAMPLES[name]}], "tools": definitions()})

    assert [call.name for call in answer.calls] == [name]


TOMORROW = datetime.date.today() + datetime.timedelta(days=1)
FRIDAY = TOMORROW + datetime.timedelta(days=(4 - TOMORROW.weekday()) % 7)
WORDINGS: list[tuple[str, str, dict[str, Any]]] = [
    (EXAMPLES["task_create"], "task_create", {"title": "buy milk", "due": f"{TOMORROW}"}),
    ("Add a task: water the plants on Friday", "task_create", {"title": "water the plants", "due": f"{FRIDAY}"}),
    ("Add buy bread to my todo list", "task_create", {"title": "buy bread"}),
    ('Create a task "fix the bike" with high priority', "task_create", {"title": "fix the bike", "priority": "high"}),
    ("list my tasks", "task_list", {}),
    ("Which tasks are due tomorrow?", "task_list", {"due_before": f"{TOMORROW}"}),
    ("I finished task 3", "task_complete", {"number": 3}),
    (EXAMPLES["grocery_add"], "grocery_add", {"items": [{"name": "eggs"}, {"name": "flour"}]}),
    ("add 6 eggs to my shopping list", "grocery_add", {"items": [{"name": "eggs", "quantity": 6}]}),
    ("What's on the grocery list?", "grocery_list", {}),
    (EXAMPLES["memory_store"], "memory_store", {"text": "I like tea"}),
    ("What do you remember about tea?", "memory_search", {"query": "tea"}),
    ("What is on my calendar on Friday?", "calendar_list", {"start": f"{FRIDAY}", "end": f"{FRIDAY}"}),
    ("what are my reminders", "reminders_list", {}),
    ("cancel reminder 2", "reminders_remove", {"number": 2}),
    (EXAMPLES["weather_current"], "weather_current", {"place": "Berlin"}),
    ("Will it rain in Oslo tomorrow?", "weather_current", {"place": "Oslo"}),
    (EXAMPLES["web_search"], "web_search", {"query": "solar eclipses"}),
    ("read the file notes.txt", "file_read", {"path": "notes.txt"}),
    (EXAMPLES["calculator"], "calculator", {"expression": "12 * 17"}),
    ("what day is it today", "current_time", {}),
]


@pytest.mark.parametrize(("message", "name", "arguments"), WORDINGS, ids=[each[0] for each in WORDINGS])
def test_the_offline_model_fills_what_the_tools_of_the_service_take(
    message: str, name: str, arguments: dict[str, Any]
) -> None:
    answer = reply({"messages": [{"role": "user", "content": message}], "tools": definitions()})

    assert [(call.name, call.arguments) for call in answer.calls] == [(name, arguments)]


@pytest.mark.parametrize("message", [EXAMPLES["reminders_add"], "Remind me tomorrow at 9 to call Ann"])
def test_the_offline_model_reads_the_moment_of_a_reminder(message: str) -> None:
    [call] = reply({"messages": [{"role": "user", "content": message}], "tools": definitions()}).calls

    assert (call.name, call.arguments["text"], call.arguments["when"][:16]) == (
        "reminders_add",
        "call Ann",
        f"{TOMORROW}T09:00",
    )


@pytest.mark.parametrize(
    "message", ["delete task 3", "remove milk from my list", "My task is hard", "Compose a haiku about rain"]
)
def test_the_offline_model_calls_none_of_the_tools_for_what_they_do_not_do(message: str) -> None:
    """Where nothing is found, neither by the search for tools nor in a list."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": message}]
    called = []
    while calls := reply({"messages": messages, "tools": definitions()}).calls:
        called += [each.name for each in calls]
        function = {"name": called[-1], "arguments": "{}"}
        made = {"role": "assistant", "tool_calls": [{"id": str(len(called)), "type": "function", "function": function}]}
        messages += [made, {"role": "tool", "tool_call_id": str(len(called)), "content": "{}"}]

    assert set(called) <= {"search_tools", "task_list", "grocery_list"}


def test_examples_are_of_tools_that_are_sent_and_at_most_four() -> None:
    assert examples_for([]) == []
    assert examples_for(["unknown", "calculator"]) == [EXAMPLES["calculator"]]
    assert examples_for(EXAMPLES) == list(EXAMPLES.values())[:4]


@pytest.mark.django_db
def test_an_empty_chat_shows_them_to_its_member_and_a_click_sends_one_without_script(
    bob: Membership, alice: Membership, session: ChatSession
) -> None:
    client, address = Client(), f"/o/acme/sessions/{session.pk}/"
    assert client.login(email=bob.user.email, password=PASSWORD)

    page = client.get(address).content.decode()

    shown = [message for message in EXAMPLES.values() if f">{message}</button>" in page]
    assert shown == [EXAMPLES["task_create"], EXAMPLES["calculator"]]
    reader = Client()
    assert reader.login(email=alice.user.email, password=PASSWORD)
    assert 'class="examples"' not in reader.get(address).content.decode()

    assert client.post(f"{address}turns/", {"message": shown[0], "key": ""}).status_code == 302
    with organisation_scope(bob.organisation):
        assert Turn.objects.get(session=session).message == shown[0]
    assert 'class="examples"' not in client.get(address).content.decode()


@pytest.mark.django_db
def test_a_chat_that_began_shows_none(bob: Membership, session: ChatSession) -> None:
    make_turn(session, "hello")
    client = Client()
    assert client.login(email=bob.user.email, password=PASSWORD)

    for address in (f"/o/acme/sessions/{session.pk}/", f"/o/acme/sessions/{session.pk}/?before=1"):
        assert 'class="examples"' not in client.get(address).content.decode()
