"""Tools of MCP servers in a turn."""

from __future__ import annotations

import json
from typing import Any

import mcp_types as types
import pytest

from sessions.models import ChatSession, StepStatus, TurnStatus
from tests.capabilities.running.kinds.far import Far
from tests.capabilities.running.mcp_client.over_http import http_server, raw_server
from tests.capabilities.running.mcp_client.scripted import MODERN, PIXEL, Script, text_result
from tests.scripted_openai import Say, ScriptedOpenAI, call
from tests.sessions.asking.approvals.test_call_waits import answer, ask_again, asked_of
from tests.sessions.run_turns import run, tool_steps_of

pytestmark = pytest.mark.django_db(transaction=True)

FORM = {
    "type": "object",
    "properties": {
        "seat": {"type": "string", "title": "Seat", "maxLength": 3},
        "rows": {"type": "integer", "minimum": 1, "maximum": 9, "default": 1},
        "class": {"type": "string", "oneOf": [{"const": "e", "title": "Economy"}, {"const": "b"}]},
        "extras": {"type": "array", "items": {"type": "string", "enum": ["meal", "bag"]}},
        "mail": {"type": "string", "format": "email"},
        "window": {"type": "boolean", "default": True},
    },
    "required": ["seat"],
}


def test_a_turn_calls_a_tool_of_a_server(session: ChatSession, provider: ScriptedOpenAI) -> None:
    script = Script()
    script.tool("do", lambda params: text_result(f"heard {params.arguments['text']}"))
    with http_server(script) as url:
        Far(session.organisation, url)
        provider.enqueue(Say(calls=[call("mcp__far__do", {"text": "hello"})]), Say("Done."))
        turn = run(session)

    (step,) = tool_steps_of(turn)
    assert (step.status, step.result, turn.answer) == (StepStatus.DONE, "heard hello", "Done.")


def test_a_turn_waits_for_a_servers_form_and_goes_on(session: ChatSession, provider: ScriptedOpenAI) -> None:
    def book(params: Any) -> Any:
        if params.input_responses is None:
            asked = types.ElicitRequest(
                params=types.ElicitRequestFormParams(message="Which seat?", requested_schema=FORM)
            )
            return types.InputRequiredResult(input_requests={"seat": asked}, request_state="opaque")
        said = params.input_responses["seat"].model_dump(exclude_none=True)
        return text_result(json.dumps([params.request_state, said["action"], said.get("content")]))

    script = Script()
    script.tool("do", book)
    given: dict[str, Any] = {
        "seat": "4a",
        "rows": 2,
        "class": "e",
        "extras": ["bag"],
        "mail": "a@example.org",
        "window": False,
    }
    with http_server(script) as url:
        Far(session.organisation, url)
        provider.enqueue(Say(calls=[call("mcp__far__do", {"text": "x"})]), Say("Booked."))
        turn = run(session)
        assert (turn.status, asked_of(turn)[0].for_people) == (TurnStatus.WAITING_INPUT, "Which seat?")
        turn = answer(turn, **given)

    (step,) = tool_steps_of(turn)
    assert (turn.status, turn.answer) == (TurnStatus.DONE, "Booked.")
    assert json.loads(step.result) == ["opaque", "accept", given]


def test_a_turn_waits_for_a_servers_task_without_a_worker(session: ChatSession, provider: ScriptedOpenAI) -> None:
    task = {"resultType": "task", "taskId": "t1", "status": "working", "ttlMs": None}
    content = [{"type": "text", "text": "Booked 4a"}, {"type": "image", "data": PIXEL, "mimeType": "image/png"}]
    done = task | {"resultType": "complete", "status": "completed", "result": {"content": content}}
    states = [task | {"resultType": "complete"}, done]
    answers = {"tools/call": lambda _: task, "tasks/get": lambda _: states.pop(0)}
    with raw_server(answers) as url:
        Far(session.organisation, url, protocol=MODERN)
        provider.enqueue(Say(calls=[call("mcp__far__do", {"text": "x"})]), Say("Done."))
        turn = run(session)
        assert (turn.status, turn.owner) == (TurnStatus.WAITING_TASK, "")
        assert ask_again(turn).status == TurnStatus.WAITING_TASK
        turn = ask_again(turn)

    (step,) = tool_steps_of(turn)
    assert (turn.status, step.status) == (TurnStatus.DONE, StepStatus.DONE)
    assert step.result == "Booked 4a\n[image: image-1.png, image/png, 15 bytes]"
