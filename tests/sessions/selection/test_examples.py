"""An empty chat proposes what its agent can do, and a click sends it."""

from __future__ import annotations

import json

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
