"""Why and how a reply ended, seen on the page, over REST and in both dialects of `/v1`, whole and streamed; and calls
that a local model writes as text, in a whole turn."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from django.test import Client
from django.urls import reverse

from capabilities.models import LanguageModel
from sessions.models import StepKind
from tests.rest import Rest
from tests.scripted_openai import Raw, Say, ScriptedOpenAI
from tests.sessions.doors.gateway.conftest import Gateway
from toolhub.tenants.rows.scope import organisation_scope

HELLO: Any = [{"role": "user", "content": "Tell me a story."}]


def whole_chat(gateway: Gateway) -> tuple[str, str]:
    answer = gateway.client().chat.completions.create(model="helper", messages=HELLO)
    return str(answer.choices[0].message.content), str(answer.choices[0].finish_reason)


def streamed_chat(gateway: Gateway) -> tuple[str, str]:
    chunks = list(gateway.client().chat.completions.create(model="helper", messages=HELLO, stream=True))
    choices = [choice for chunk in chunks for choice in chunk.choices]
    text = "".join(choice.delta.content or "" for choice in choices)
    return text, next(str(choice.finish_reason) for choice in choices if choice.finish_reason)


def as_reason(response: Any) -> str:
    if response.status == "incomplete":
        reason = str(response.incomplete_details.reason)
        return "length" if reason == "max_output_tokens" else reason
    return {"completed": "stop"}[response.status]


def whole_response(gateway: Gateway) -> tuple[str, str]:
    response = gateway.client().responses.create(model="helper", input="Tell me a story.")
    return response.output_text, as_reason(response)


def streamed_response(gateway: Gateway) -> tuple[str, str]:
    events = list(gateway.client().responses.create(model="helper", input="Tell me a story.", stream=True))
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    return text, as_reason(events[-1].response)


ASKS = [whole_chat, streamed_chat, whole_response, streamed_response]


@pytest.mark.parametrize("ask", ASKS)
@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("max_tokens", "length"),
        ("MAX_TOKENS", "length"),
        ("content_filter", "content_filter"),
        ("SAFETY", "content_filter"),
    ],
)
def test_why_a_reply_ended_is_passed_on_in_any_spelling(
    gateway: Gateway, provider: ScriptedOpenAI, ask: Any, said: str, told: str
) -> None:
    provider.enqueue(Say("Once upon a time", finish_reason=said))

    assert ask(gateway) == ("Once upon a time", told)


@pytest.mark.parametrize(("said", "told"), [("length", "limit of tokens"), ("content_filter", "content filter")])
def test_a_cut_answer_shows_as_cut_on_the_page_and_over_rest(
    gateway: Gateway, provider: ScriptedOpenAI, client: Client, said: str, told: str
) -> None:
    provider.enqueue(Say("Once upon a time", finish_reason=said))
    whole_chat(gateway)
    (turn,) = gateway.turns()
    client.force_login(gateway.member.user)

    chat = client.get(reverse("session_detail", args=["acme", turn.session_id])).content.decode()

    assert Rest(gateway.member).get(f"turns/{turn.pk}").json["cut_by"] == said
    assert (turn.cut_by, told in chat) == (said, True)


def test_an_end_that_is_an_error_is_none_that_is_passed_on_as_an_answer(
    gateway: Gateway, provider: ScriptedOpenAI
) -> None:
    provider.enqueue(*[Say("Once upon", finish_reason="error")] * 4)

    with pytest.raises(openai.APIStatusError):
        whole_chat(gateway)


def test_the_time_that_a_provider_asks_to_wait_is_passed_on(gateway: Gateway, provider: ScriptedOpenAI) -> None:
    provider.enqueue(Raw(b"{}", 429, {"Content-Type": "application/json", "Retry-After": "7200"}))

    with pytest.raises(openai.RateLimitError) as refused:
        whole_chat(gateway)

    assert refused.value.response.headers["retry-after"] == "7200"
    (turn,) = gateway.turns()
    assert Rest(gateway.member).get(f"turns/{turn.pk}").json["retry_after"] == 7_200


# -- What local models write as text ----------------------------------------------------------------------------------

CALL = {"name": "calculator", "arguments": {"expression": "1+2"}}


@pytest.mark.parametrize("dialect", ["chat", "responses"])
@pytest.mark.parametrize(
    "text",
    [
        f"<tool_call>{json.dumps(CALL)}</tool_call>",
        f"<think>I need to add.</think>\n<tool_call>\n{json.dumps(CALL)}\n</tool_call>",
        json.dumps(CALL),
        f"<tool_call>{json.dumps(CALL | {'arguments': json.dumps(CALL['arguments'])})}</tool_call>",
    ],
    ids=["tags", "thought and tags", "bare", "encoded twice"],
)
def test_a_call_that_is_written_as_text_is_run_and_never_shown(
    gateway: Gateway, provider: ScriptedOpenAI, text: str, dialect: str
) -> None:
    with organisation_scope(gateway.member.organisation):
        LanguageModel.objects.update(dialect=dialect)
    provider.enqueue(Say(text), Say("It is 3."))

    assert whole_chat(gateway) == ("It is 3.", "stop")
    (turn,) = gateway.turns()
    (step,) = gateway.steps(turn)
    assert (step.tool_name, step.status, json.loads(step.arguments)) == ("calculator", "done", CALL["arguments"])
    assert all(
        "tool_call" not in reply.text and "<think>" not in reply.text for reply in gateway.steps(turn, StepKind.MODEL)
    )


@pytest.mark.parametrize("dialect", ["chat", "responses"])
@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"name": "delete_everything", "arguments": {}}),
        'An example: {"name": "calculator", "arguments": {"expression": "1+2"}} calls it.',
        json.dumps({"name": "Ann", "age": 7}),
    ],
    ids=["not sent", "inside a sentence", "no call"],
)
def test_text_that_only_looks_like_a_call_is_an_answer(
    gateway: Gateway, provider: ScriptedOpenAI, text: str, dialect: str
) -> None:
    with organisation_scope(gateway.member.organisation):
        LanguageModel.objects.update(dialect=dialect)
    provider.enqueue(Say(text))

    assert whole_chat(gateway) == (text, "stop")
    (turn,) = gateway.turns()
    assert gateway.steps(turn) == []
