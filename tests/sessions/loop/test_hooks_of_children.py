"""Hooks where one agent asks another: in the child's turn, before it is asked, and on its answer."""

from __future__ import annotations

import json

import pytest

from capabilities.models import Agent
from sessions.models import ChatSession, StepStatus, TurnStatus
from tests.scripted_openai import Say, ScriptedOpenAI, call
from tests.sessions.loop.calls.test_delegation import ask, boss, children_of, coder, coder_says, session
from tests.sessions.loop.hooks.test_phases import hook, only_step
from tests.sessions.run_turns import accept, tool_steps_of, work, work_all
from tests.sessions.steps import reread

__all__ = ["boss", "coder", "coder_says", "session"]
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.usefixtures("coder")
def test_a_childs_turn_has_hooks_too(
    session: ChatSession, provider: ScriptedOpenAI, coder_says: ScriptedOpenAI
) -> None:
    hook(session, "append_prompt", "prompt", text="In French.", when={"agents": ["coder"]})
    hook(session, "block_tool", "freeze", message="Frozen.", when={"tools": ["calculator"], "agents": ["coder"]})
    provider.enqueue(Say(calls=[ask()]), Say("Done."))
    coder_says.enqueue(Say(calls=[call("calculator", {"expression": "1+1"})]), Say("I could not."))

    turn = work(accept(session))
    work_all()

    (child,) = children_of(turn)
    assert only_step(child).status == StepStatus.REFUSED
    assert coder_says.requests[0]["messages"][0] == {"role": "system", "content": "In French."}
    assert all(each["role"] != "system" for each in provider.requests[0]["messages"])


@pytest.mark.usefixtures("coder")
def test_an_agent_is_not_asked_where_a_hook_blocks_it(
    session: ChatSession, provider: ScriptedOpenAI, coder_says: ScriptedOpenAI
) -> None:
    hook(session, "block_tool", message="Work alone today.", when={"tools": ["spawn_agent"]})
    provider.enqueue(Say(calls=[ask()]), Say("Alone then."))

    turn = work(accept(session))
    work_all()

    (step,) = tool_steps_of(turn)
    assert (step.status, json.loads(step.result)["error"]) == (StepStatus.REFUSED, "Work alone today.")
    assert children_of(turn) == []
    assert coder_says.requests == []


def test_what_another_agent_answers_passes_the_hooks(
    session: ChatSession, coder: Agent, provider: ScriptedOpenAI, coder_says: ScriptedOpenAI
) -> None:
    hook(session, "set_field", field="answer", value="hidden", when={"tools": ["group:agents"]})
    provider.enqueue(Say(calls=[ask()]), Say("Done."))
    coder_says.enqueue(Say("The secret is swordfish."))

    turn = work(accept(session))
    work_all()

    (step,) = tool_steps_of(turn)
    assert reread(turn).status == TurnStatus.DONE
    assert "swordfish" in step.result
    assert json.loads(step.result_sent)["answer"] == "hidden"
    assert "swordfish" not in json.dumps(provider.requests[-1])
    assert [each["did"] for each in step.hooks] == ["set answer of the result"]
