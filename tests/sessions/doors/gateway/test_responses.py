"""/v1/responses, by the openai SDK against the service."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from sessions.models import Door, StepStatus, TurnStatus
from tests.cast import make_token
from tests.scripted_openai import Raw, Say, ScriptedOpenAI, call
from tests.sessions.doors.gateway.conftest import Gateway
from toolhub.tenants.models import Membership

WEATHER = {
    "type": "function",
    "name": "weather",
    "parameters": {"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]},
    "strict": True,
}
ASKS = call("weather", {"town": "Bonn"})


def test_a_response_is_a_turn_with_true_usage(gateway: Gateway, provider: ScriptedOpenAI) -> None:
    provider.enqueue(Say(calls=[call("calculator", {"expression": "1+2"})]), Say("It is 3."))

    answer = gateway.client().responses.create(model="helper", input="Hello", instructions="In English.", store=False)

    assert (answer.output_text, answer.status) == ("It is 3.", "completed")
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (200, 20)
    assert answer.usage.input_tokens_details.cached_tokens == 120
    (turn,) = gateway.turns()
    assert (turn.status, turn.door, turn.session.is_throwaway) == (TurnStatus.DONE, Door.RESPONSES, True)
    assert provider.requests[0]["messages"][0]["content"] == "Be brief.\n\nIn English."


def test_a_stream_has_the_events_of_the_api(gateway: Gateway, provider: ScriptedOpenAI) -> None:
    provider.enqueue(Say("One two three.", calls=[ASKS]))

    events = list(gateway.client().responses.create(model="helper", input="Hello", tools=[WEATHER], stream=True))

    kinds = [event.type.removeprefix("response.") for event in events]
    assert kinds[:4] == ["created", "in_progress", "output_item.added", "content_part.added"]
    assert kinds[-8:] == [
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == "One two three."
    last = events[-1].response
    assert [item.type for item in last.output] == ["message", "function_call"]
    assert last.usage.total_tokens == 110


@pytest.mark.parametrize("by", ["items", "previous_response_id"])
def test_a_mixed_reply_goes_on_with_both_results(gateway: Gateway, provider: ScriptedOpenAI, by: str) -> None:
    provider.enqueue(Say(calls=[call("calculator", {"expression": "1+2"}), ASKS]), Say("3, and rain."))
    client = gateway.client().responses

    first = client.create(model="helper", input="Hello", tools=[WEATHER])

    (asked,) = first.output
    assert (asked.type, asked.name, asked.arguments) == ("function_call", "weather", '{"town": "Bonn"}')
    result = {"type": "function_call_output", "call_id": asked.call_id, "output": "rain"}
    if by == "items":
        question = {"role": "user", "content": "Hello"}
        second = client.create(model="helper", input=[question, asked, result], tools=[WEATHER])
    else:
        second = client.create(model="helper", input=[result], previous_response_id=first.id, tools=[WEATHER])
    assert second.output_text == "3, and rain."
    one, two = gateway.turns()
    assert (one.session_id == two.session_id, two.is_continuation) == (True, True)
    assert [step.status for step in gateway.steps(one)] == [StepStatus.DONE, StepStatus.RETURNED]
    assert [each["role"] for each in provider.requests[1]["messages"]] == [
        "system",
        "user",
        "assistant",
        "tool",
        "tool",
    ]


def test_a_previous_response_goes_on_in_its_session_for_its_own_token_alone(
    gateway: Gateway, provider: ScriptedOpenAI, alice: Membership
) -> None:
    provider.enqueue(Say("One."), Say("Two."))
    client = gateway.client().responses
    first = client.create(model="helper", input="Hello")

    second = client.create(model="helper", input="And?", previous_response_id=first.id)

    assert [each["content"] for each in provider.requests[1]["messages"][1:]] == ["Hello", "One.", "And?"]
    one, two = gateway.turns()
    assert one.session_id == two.session_id
    for token in (make_token(alice), make_token(gateway.member)):
        with pytest.raises(openai.BadRequestError) as refused:
            gateway.client(api_key=token).responses.create(model="helper", input="x", previous_response_id=second.id)
        assert refused.value.code == "previous_response_not_found"
    with pytest.raises(openai.BadRequestError, match="send outputs"):
        client.create(model="helper", input=[], previous_response_id=second.id)
    with pytest.raises(openai.BadRequestError, match="went on"):
        client.create(model="helper", input="x", previous_response_id=first.id)


@pytest.mark.parametrize("empty", ["", "  ", [{"role": "user", "content": []}]])
def test_an_empty_message_behind_a_response_is_refused(gateway: Gateway, provider: ScriptedOpenAI, empty: Any) -> None:
    client = gateway.client().responses
    first = client.create(model="helper", input="Hello")

    with pytest.raises(openai.BadRequestError, match="message is empty"):
        client.create(model="helper", input=empty, previous_response_id=first.id)

    assert len(provider.requests) == 1


def test_behind_a_response_stand_outputs_of_its_calls_and_then_messages(
    gateway: Gateway, provider: ScriptedOpenAI
) -> None:
    provider.enqueue(Say(calls=[ASKS]), Say("It rains."))
    client = gateway.client().responses
    first = client.create(model="helper", input="Hello", tools=[WEATHER])
    result = {"type": "function_call_output", "call_id": first.output[0].call_id, "output": "rain"}
    said = [{"role": "user", "content": text} for text in ("Well?", "Say it.")]

    for wrong in (
        said,
        [said[0], result],
        [{**result, "call_id": "call_1"}],
        [result, {**said[0], "role": "assistant"}],
    ):
        with pytest.raises(openai.BadRequestError):
            client.create(model="helper", input=wrong, previous_response_id=first.id)
    client.create(model="helper", input=[result, *said], previous_response_id=first.id)

    told = [(each["role"], each["content"]) for each in provider.requests[1]["messages"][1:]]
    assert [told[0], told[2], told[-1]] == [("user", "Hello"), ("tool", "rain"), ("user", "Well?\n\nSay it.")]
    assert len(gateway.turns()) == 2


@pytest.mark.parametrize("streams", [False, True])
def test_a_response_that_is_not_stored_says_so_and_cannot_be_named(
    gateway: Gateway, provider: ScriptedOpenAI, streams: bool
) -> None:
    provider.enqueue(Say("I look.", calls=[ASKS]), Say("It rains."))
    client, question = gateway.client().responses, {"role": "user", "content": "Hello"}
    first = client.create(model="helper", input=[question], tools=[WEATHER], store=False, stream=streams)
    if streams:
        told = [event.response for event in first if hasattr(event, "response")]
        assert {response.store for response in told} == {False}
        first = told[-1]
    result = {"type": "function_call_output", "call_id": first.output[-1].call_id, "output": "rain"}
    named = [{"type": "item_reference", "id": item.id} for item in first.output]

    with pytest.raises(openai.BadRequestError, match="not stored") as refused:
        client.create(model="helper", input=[result], previous_response_id=first.id)
    assert (refused.value.code, refused.value.param) == ("previous_response_not_found", "previous_response_id")
    with pytest.raises(openai.BadRequestError, match="no such item here"):
        client.create(model="helper", input=[question, *named, result])
    second = client.create(model="helper", input=[question, *first.output, result], tools=[WEATHER], store=False)

    assert (first.store, second.store, second.output_text) == (False, False, "It rains.")
    one, two = gateway.turns()
    assert (one.session_id == two.session_id, two.is_continuation) == (True, True), "results are found by their calls"


@pytest.mark.parametrize("store", [True, None])
def test_a_response_is_stored_unless_the_client_says_otherwise(
    gateway: Gateway, provider: ScriptedOpenAI, store: bool | None
) -> None:
    client = gateway.client().responses

    first = client.create(model="helper", input="Hello", store=store)

    assert first.store is True
    assert client.create(model="helper", input="And?", previous_response_id=first.id, store=False).store is False


def test_items_that_are_named_stand_in_for_what_they_said(gateway: Gateway, provider: ScriptedOpenAI) -> None:
    provider.enqueue(Say("I look.", calls=[call("calculator", {"expression": "1+2"}), ASKS]), Say("3, and rain."))
    client, question = gateway.client().responses, {"role": "user", "content": "Hello"}
    first = client.create(model="helper", input=[question], tools=[WEATHER])
    named = [{"type": "item_reference", "id": item.id} for item in first.output]
    result = {"type": "function_call_output", "call_id": first.output[-1].call_id, "output": "rain"}

    second = client.create(model="helper", input=[question, *named, result], tools=[WEATHER])
    last = {"type": "item_reference", "id": second.output[0].id}
    client.create(model="helper", input=[question, *named, result, last, {"role": "user", "content": "And?"}])

    assert len({turn.session_id for turn in gateway.turns()[:2]}) == 1
    messages = provider.requests[2]["messages"][1:]
    assert [each["content"] for each in messages] == ["Hello", "I look.", "rain", "3, and rain.", "And?"]
    assert messages[1]["tool_calls"][0]["function"] == {"name": "weather", "arguments": '{"town": "Bonn"}'}


def test_an_item_can_be_named_with_its_own_token_alone(
    gateway: Gateway, provider: ScriptedOpenAI, alice: Membership
) -> None:
    provider.enqueue(Say("One."))
    first = gateway.client().responses.create(model="helper", input="Hello")
    last = {"role": "user", "content": "And?"}

    told = []
    theirs, missing = first.output[0].id, f"msg_{'0' * 32}"
    tokens = make_token(alice), make_token(gateway.member), gateway.token
    for token, id in zip(tokens, (theirs, theirs, missing), strict=True):
        named = {"type": "item_reference", "id": id}
        with pytest.raises(openai.BadRequestError, match="no such item here") as refused:
            gateway.client(api_key=token).responses.create(model="helper", input=[named, last])
        told.append(refused.value.body)
    assert told[0] == told[1] == told[2]
    assert len(gateway.turns()) == 1


def test_a_conversation_that_is_named_is_one_session(gateway: Gateway, provider: ScriptedOpenAI) -> None:
    client = gateway.client().responses

    for text in ("Hello", "And?"):
        client.create(model="helper", input=text, conversation="conv_1")

    assert len({turn.session_id for turn in gateway.turns()}) == 1
    assert len(provider.requests[1]["messages"]) == 4


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"input": []}, "input"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input.0.id"),
        ({"input": [{"type": "item_reference"}]}, "input.0.id"),
        ({"input": [{"type": "item_reference", "id": []}]}, "input.0.id"),
        ({"input": [{"type": "computer_call"}]}, "input.0.type"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input.0.content.0"),
        ({"tools": [{"type": "web_search"}]}, "tools.0.type"),
        ({"background": True}, "background"),
        ({"store": "no"}, "store"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"input": [{"type": "function_call_output", "call_id": "x", "output": "y"}]}, "input.0"),
    ],
)
def test_what_cannot_be_taken_is_refused(gateway: Gateway, change: dict[str, Any], param: str) -> None:
    answer = gateway.post("/v1/responses", {"model": "helper", "input": "Hello", **change})

    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    assert gateway.turns() == []


def test_a_stream_that_fails_in_its_middle_says_so(gateway: Gateway, provider: ScriptedOpenAI) -> None:
    provider.enqueue(Say("I look.", calls=[call("calculator", {"expression": "1+2"})]))
    provider.enqueue(Raw(b'{"error": {"message": "No such model."}}', status=404))

    events = list(gateway.client().responses.create(model="helper", input="Hello", stream=True))

    assert events[-1].type == "response.failed"
    assert events[-1].response.error.message
