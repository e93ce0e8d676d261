"""What keeps a call back before it begins, through whole turns."""

from __future__ import annotations

import json

import pytest

from capabilities.contract.decisions import Decision, Verb
from sessions.loop.calls import preparing
from sessions.loop.calls.preparing import Prepared
from sessions.models import ChatSession, StepStatus, TurnStatus
from tests.scripted_openai import Say, ScriptedOpenAI, call
from tests.sessions.run_turns import run, tool_steps_of

pytestmark = pytest.mark.django_db(transaction=True)


def says(verb: Verb, sentence: str) -> preparing.Decider:
    """A decider with this word on the calls of task_create."""

    def decide(ready: Prepared) -> Decision | None:
        return Decision(verb, "test", for_model=sentence) if ready.spec.name == "task_create" else None

    return decide


def test_a_decider_that_denies_keeps_the_call_from_running(
    session: ChatSession, provider: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparing, "DECIDERS", (says(Verb.ALLOW, ""), says(Verb.DENY, "Frozen until Monday.")))
    calls = [call("task_create", {"title": "buy milk"}), call("calculator", {"expression": "1+1"})]
    provider.enqueue(Say(calls=calls), Say("Well."))

    turn = run(session)

    refused, done = tool_steps_of(turn)
    assert turn.status == TurnStatus.DONE
    assert (refused.status, done.status) == (StepStatus.REFUSED, StepStatus.DONE)
    assert json.loads(refused.result_sent) == {
        "success": False,
        "error": "Frozen until Monday.",
        "denied_tool": "task_create",
    }


def test_a_call_that_nobody_keeps_back_runs(
    session: ChatSession, provider: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparing, "DECIDERS", (says(Verb.ALLOW, ""),))
    provider.enqueue(Say(calls=[call("task_create", {"title": "buy milk"})]), Say("Added."))

    (done,) = tool_steps_of(run(session))

    assert done.status == StepStatus.DONE
