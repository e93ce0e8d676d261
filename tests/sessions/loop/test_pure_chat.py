"""CX-04: an agent without tools never enters the tool loop."""

from __future__ import annotations

import pytest

from sessions.models import ChatSession, StepKind, TurnStatus
from tests.cast import make_agent, make_role, make_session
from tests.scripted_openai import Say, ScriptedOpenAI, call
from tests.sessions.run_turns import run, steps_of
from toolhub.tenants.models import Membership

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def talk(bob: Membership, provider: ScriptedOpenAI) -> ChatSession:
    """Bob may use every tool, and the agent has none."""
    make_role(bob.organisation, bob)
    return make_session(bob, make_agent(bob.organisation, provider.url))


def test_cx_04_an_agent_without_tools_is_asked_once_and_sends_none(talk: ChatSession, provider: ScriptedOpenAI) -> None:
    provider.enqueue(Say("Hello!"))

    turn = run(talk, "Hello")

    assert (turn.status, turn.answer, turn.rounds) == (TurnStatus.DONE, "Hello!", 1)
    assert ["tools" in request for request in provider.requests] == [False]


def test_cx_04_a_call_that_is_made_up_beside_words_is_left_out(talk: ChatSession, provider: ScriptedOpenAI) -> None:
    provider.enqueue(Say("It is sunny.", calls=[call("weather_current", {"place": "Berlin"})]), Say("Yes."))

    turn = run(talk, "What is the weather?")
    again = run(talk, "Sure?")

    assert (turn.answer, turn.rounds, again.answer) == ("It is sunny.", 1, "Yes.")
    assert [(step.kind, step.tool_calls) for step in steps_of(turn)] == [(StepKind.MODEL, [])]
    assert [message["role"] for message in provider.requests[1]["messages"]][-3:] == ["user", "assistant", "user"]


def test_cx_04_a_call_that_is_made_up_and_nothing_else_ends_the_turn(
    talk: ChatSession, provider: ScriptedOpenAI
) -> None:
    provider.enqueue(Say(calls=[call("weather_current", {"place": "Berlin"})]))

    turn = run(talk, "What is the weather?")

    assert (turn.status, turn.error_code, turn.rounds) == (TurnStatus.FAILED, "empty_answer", 1)
    assert "this agent has none" in turn.error_message
