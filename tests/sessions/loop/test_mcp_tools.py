"""Tools of MCP servers in a turn."""

from __future__ import annotations

import pytest

from sessions.models import ChatSession, StepStatus
from tests.capabilities.kinds.far import Far
from tests.capabilities.mcp_client.scripted import Script, http_server, text_result
from tests.scripted_openai import Say, ScriptedOpenAI, call
from tests.sessions.run_turns import run, tool_steps_of

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_turn_calls_a_tool_of_a_server(session: ChatSession, provider: ScriptedOpenAI) -> None:
    script = Script()
    script.tool("do", lambda params: text_result(f"heard {params.arguments['text']}"))
    with http_server(script) as url:
        Far(session.organisation, url)
        provider.enqueue(Say(calls=[call("mcp__far__do", {"text": "hello"})]), Say("Done."))
        turn = run(session)

    (step,) = tool_steps_of(turn)
    assert (step.status, step.result, turn.answer) == (StepStatus.DONE, "heard hello", "Done.")
