"""A quick question: one turn without tools, in a session whose agent has some."""

from __future__ import annotations

import pytest

from sessions.models import ChatSession, StepStatus, TurnStatus
from sessions.turns import accepting, ledger
from tests.scripted_openai import Say, ScriptedOpenAI, call
from tests.sessions.run_turns import run, tool_steps_of, work
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db(transaction=True)


def ask_quickly(session: ChatSession, message: str = "What is a pipe?", key: str = "") -> accepting.Accepted:
    with organisation_scope(session.organisation_id):
        return accepting.accept(session, message, member=session.membership, without_tools=True, idempotency_key=key)


def test_cx_38_it_is_sent_without_tools_and_the_next_message_with_all_of_them(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    provider.enqueue(Say("Hello."), Say("A pipe."), Say("Done."))

    run(session, "hello")
    turn = work(ask_quickly(session).turn)
    run(session, "Add a task")

    with_tools, quick, after = provider.requests
    assert (turn.status, turn.answer, turn.rounds) == (TurnStatus.DONE, "A pipe.", 1)
    assert "tools" not in quick
    assert quick["messages"][-1] == {"role": "user", "content": "What is a pipe?"}
    assert after["tools"] == with_tools["tools"]


def test_a_call_that_the_model_makes_up_is_refused_and_ends_the_turn(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    provider.enqueue(Say(calls=[call("task_create", {"title": "buy milk"})]))

    turn = work(ask_quickly(session).turn)

    assert [step.status for step in tool_steps_of(turn)] == [StepStatus.REFUSED]
    assert (turn.status, turn.error_code, turn.rounds, len(provider.requests)) == ("done", "max_rounds", 1, 1)


def test_the_same_key_with_and_without_tools_is_no_repetition(session: ChatSession) -> None:
    first = ask_quickly(session, key="k")

    assert not ask_quickly(session, key="k").created
    assert first.turn.without_tools
    with organisation_scope(session.organisation_id), pytest.raises(ledger.Conflict, match="Idempotency-Key"):
        accepting.accept(session, "What is a pipe?", member=session.membership, idempotency_key="k")
