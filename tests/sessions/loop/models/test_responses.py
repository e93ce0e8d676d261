"""Replies in the responses dialect, read from events and put into the next request again."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import Response, ResponseInputParam, ResponseStreamEvent
from pydantic import TypeAdapter

from sessions.loop.models import responses
from sessions.loop.models.replies import MAX_ARGUMENTS, MAX_EXTRAS, MAX_TEXT, Call, Reply
from sessions.loop.models.responses import ResponsesReader
from sessions.loop.models.usage import Usage
from tests.scripted_openai import Json, Say, call
from tests.sessions.run_turns import check_text

SAID = Say("Hello there", calls=[call("add", {"x": 1}, id="a"), call("sub", id="b")], reasoning="gAAAA-sealed")


def read(*events: Any) -> Reply:
    reader = ResponsesReader()
    for event in events:
        reader.add_event(event)
    return reader.build()


def test_our_script_speaks_the_dialect_as_the_sdk_knows_it() -> None:
    events = TypeAdapter(list[ResponseStreamEvent])

    for said in (SAID, Say("cut", finish_reason="length"), Say("", calls=[call("add")])):
        events.validate_python(said.events(), strict=False)
        Response.model_validate(said.events()[-1]["response"])


def test_a_streamed_reply_is_put_together() -> None:
    reply = read(*SAID.events())

    assert reply == Reply(
        "Hello there",
        (Call("a", "add", '{"x": 1}'), Call("b", "sub", "{}")),
        "tool_calls",
        Usage(100, 10, 60),
        {
            "items": [
                {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA-sealed"},
                {"type": "message", "chars": 11, "id": "msg_1"},
                {"type": "function_call", "call": 0, "id": "fc_0"},
                {"type": "function_call", "call": 1, "id": "fc_1"},
            ]
        },
    )


def test_a_whole_response_is_the_same_reply_as_its_stream() -> None:
    reader = ResponsesReader()

    text = reader.add_whole(SAID.events()[-1]["response"])

    assert (text, reader.build()) == ("Hello there", read(*SAID.events()))


def test_the_text_comes_as_it_is_written() -> None:
    reader = ResponsesReader()

    assert [text for event in SAID.events() if (text := reader.add_event(event))] == ["Hello t", "here"]


@pytest.mark.parametrize(
    ("reason", "finish"), [("max_output_tokens", "length"), ("content_filter", "content_filter"), (None, "incomplete")]
)
def test_an_incomplete_response_says_why(reason: str | None, finish: str) -> None:
    details = {"reason": reason} if reason else None

    reply = read({"type": "response.incomplete", "response": {"status": "incomplete", "incomplete_details": details}})

    assert reply.finish_reason == finish


def test_a_refusal_is_what_the_model_said() -> None:
    where = {"output_index": 0, "item_id": "m", "content_index": 0}

    reply = read(
        {"type": "response.refusal.delta", **where, "delta": "I can"},
        {"type": "response.refusal.delta", **where, "delta": "not."},
        {"type": "response.completed", "response": {"status": "completed", "output": []}},
    )

    assert (reply.text, reply.finish_reason) == ("I cannot.", "stop")


def test_calls_that_are_told_only_when_they_are_whole_are_calls() -> None:
    item = {"type": "function_call", "id": "fc", "call_id": "a", "name": "add", "arguments": '{"x": 1}'}

    for event in (
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {"status": "completed", "output": [item]}},
    ):
        assert read(event).calls == (Call("a", "add", '{"x": 1}'),)


def test_events_that_name_their_item_by_id_alone_belong_to_it() -> None:
    events = [{name: value for name, value in event.items() if name != "output_index"} for event in SAID.events()[:-1]]

    assert read(*events).calls == read(*SAID.events()).calls


def test_pieces_of_parallel_calls_may_come_in_any_order() -> None:
    events = SAID.events()[:-1]
    by_item: dict[Any, list[Json]] = {}
    for event in events:
        by_item.setdefault(event.get("output_index"), []).append(event)
    mixed, rest = list[Json](), [list(each) for each in by_item.values()]
    chance = random.Random(7)
    while any(rest):
        queue = chance.choice([each for each in rest if each])
        mixed.append(queue.pop(0))

    assert read(*mixed).calls == read(*events).calls
    assert read(*mixed).extras == read(*events).extras


def test_reasoning_that_nobody_sealed_cannot_go_back_and_is_not_kept() -> None:
    item = {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "hm"}]}

    reply = read({"type": "response.output_item.done", "output_index": 0, "item": item})

    assert reply.extras == {}


def test_what_is_too_long_is_cut() -> None:
    where = {"output_index": 0, "item_id": "m"}
    long = read({"type": "response.output_text.delta", **where, "delta": "x" * (MAX_TEXT + 5)})
    wide = read({"type": "response.function_call_arguments.delta", **where, "delta": "x" * (MAX_ARGUMENTS + 5)})
    sealed = {"type": "reasoning", "id": "rs", "encrypted_content": "x" * MAX_EXTRAS}

    assert len(long.text) == MAX_TEXT
    assert len(wide.calls[0].arguments) == MAX_ARGUMENTS
    assert read({"type": "response.output_item.done", "output_index": 0, "item": sealed}).extras == {}


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
KINDS = [
    "response.output_item.added",
    "response.output_item.done",
    "response.output_text.delta",
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
    "response.completed",
    "response.incomplete",
    "response.unheard_of",
]
ITEMS = st.fixed_dictionaries(
    {"type": st.sampled_from(["message", "function_call", "reasoning", "web_search_call"]) | ODD},
    optional=dict.fromkeys(("id", "call_id", "name", "arguments", "content", "encrypted_content", "phase"), ODD),
)
EVENTS = st.fixed_dictionaries(
    {"type": st.sampled_from(KINDS)},
    optional={
        "item": ITEMS | ODD,
        "delta": ODD,
        "arguments": ODD,
        "item_id": ODD,
        "output_index": ODD,
        "response": st.fixed_dictionaries({}, optional={"output": st.lists(ITEMS | ODD, max_size=3), "usage": ODD})
        | ODD,
    },
)


@given(st.lists(EVENTS | ODD, max_size=8))
def test_no_event_raises_and_what_is_kept_can_be_sent(events: list[Any]) -> None:
    reply = read(*events)

    check_text(reply.text)
    message: Json = {"role": "assistant", "content": reply.text or None, "extras": dict(reply.extras), "tool_calls": []}
    for part in responses.parts([message]):
        json.loads(part)


def test_a_reply_goes_back_as_it_came() -> None:
    reply = read(*SAID.events())
    calls = [
        {"id": each.id, "type": "function", "function": {"name": each.name, "arguments": each.arguments}}
        for each in reply.calls
    ]
    messages: list[Json] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": reply.text, "tool_calls": calls, "extras": dict(reply.extras)},
        {"role": "tool", "tool_call_id": "a", "content": "1"},
        {"role": "tool", "tool_call_id": "b", "content": "2"},
    ]

    items = [json.loads(part) for part in responses.parts(messages)]

    TypeAdapter(ResponseInputParam).validate_python(items)
    assert [(item.get("type"), item.get("id"), item.get("call_id")) for item in items] == [
        (None, None, None),
        (None, None, None),
        ("reasoning", "rs_1", None),
        ("message", "msg_1", None),
        ("function_call", "fc_0", "a"),
        ("function_call", "fc_1", "b"),
        ("function_call_output", None, "a"),
        ("function_call_output", None, "b"),
    ]
    assert items[3]["content"][0]["text"] == "Hello there"


def test_a_reply_of_another_model_goes_out_without_ids() -> None:
    calls = [{"id": "a", "type": "function", "function": {"name": "add", "arguments": "{}"}}]

    parts = responses.parts([{"role": "assistant", "content": "Well.", "tool_calls": calls}])

    assert [json.loads(part) for part in parts] == [
        {"role": "assistant", "content": "Well."},
        {"type": "function_call", "call_id": "a", "name": "add", "arguments": "{}"},
    ]


def test_definitions_are_flat_and_not_strict() -> None:
    wire = '[{"function":{"description":"Grün","name":"add","parameters":{"type":"object"}},"type":"function"}]'

    assert json.loads(responses.tools_of(wire)) == [
        {"type": "function", "name": "add", "description": "Grün", "parameters": {"type": "object"}, "strict": False}
    ]
