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

from capabilities.contract.wire import SEARCH, namespace_wire, tool_wire
from sessions.loop.clients import responses
from sessions.loop.clients.replies import MAX_ARGUMENTS, MAX_CALLS, MAX_EXTRAS, MAX_TEXT, Call, Reply
from sessions.loop.clients.responses import MAX_ITEMS, ResponsesReader
from sessions.loop.clients.usage import Usage
from tests.scripted_openai import Json, Say, call
from tests.sessions.run_turns import check_text

SAID = Say("Hello there", calls=[call("add", {"x": 1}, id="a"), call("sub", id="b")], reasoning="gAAAA-sealed", key="1")


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
                {"type": "function_call", "call": 0, "id": "fc_1_0"},
                {"type": "function_call", "call": 1, "id": "fc_1_1"},
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
    ("reason", "finish"),
    [("max_output_tokens", "length"), ("content_filter", "content_filter"), ("odd", "length"), (None, "length")],
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


# -- What servers get wrong -------------------------------------------------------------------------------------------


def function_call(id: str = "fc", call_id: str = "a", name: str = "add", arguments: str = "{}", **more: Any) -> Json:
    return {"type": "function_call", "id": id, "call_id": call_id, "name": name, "arguments": arguments, **more}


def message(text: str, id: str = "m") -> Json:
    return {"type": "message", "id": id, "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def added(item: Json, place: Any = 0) -> Json:
    return {"type": "response.output_item.added", "output_index": place, "item": item}


def done(item: Json, place: Any = 0) -> Json:
    return {"type": "response.output_item.done", "output_index": place, "item": item}


def arguments(piece: str, place: Any = 0, id: str = "fc") -> Json:
    return {"type": "response.function_call_arguments.delta", "output_index": place, "item_id": id, "delta": piece}


def all_arguments(whole: str, place: Any = 0, id: str = "fc", **more: Any) -> Json:
    told = {"output_index": place, "item_id": id, "arguments": whole, **more}
    return {"type": "response.function_call_arguments.done", **told}


def words(piece: str, place: Any = 0, id: str = "m") -> Json:
    return {"type": "response.output_text.delta", "output_index": place, "item_id": id, "delta": piece}


def ended(*output: Json, kind: str = "completed", **more: Any) -> Json:
    return {"type": f"response.{kind}", "response": {"status": kind, "output": list(output), **more}}


def without(event: Json, *names: str) -> Json:
    return {name: value for name, value in event.items() if name not in names}


BEGUN = function_call(arguments="")


@pytest.mark.parametrize(
    ("events", "calls"),
    [
        pytest.param([added(BEGUN), arguments('{"x"'), arguments(": 1}")], [("a", "add", '{"x": 1}')], id="no done"),
        pytest.param([done(function_call())], [("a", "add", "{}")], id="done without added"),
        pytest.param(
            [added(BEGUN), all_arguments('{"x": 1}')], [("a", "add", '{"x": 1}')], id="arguments in done only"
        ),
        pytest.param([all_arguments('{"x": 1}', name="add")], [("", "add", '{"x": 1}')], id="nothing but that"),
        pytest.param(
            [added(BEGUN), arguments("{}"), all_arguments("{}"), arguments("{}")], [("a", "add", "{}")], id="late piece"
        ),
        pytest.param(
            [added(BEGUN), done(function_call()), arguments("{}"), done(function_call(arguments='{"x": 2}'))],
            [("a", "add", "{}")],
            id="pieces behind its end",
        ),
        pytest.param(
            [added(BEGUN), added(function_call("fd", "b", "sub", "")), arguments("{}"), arguments("[]", id="fd")],
            [("a", "add", "{}"), ("b", "sub", "[]")],
            id="every place 0",
        ),
        pytest.param(
            [done(function_call()), done(function_call("fd", "b", "sub"))],
            [("a", "add", "{}"), ("b", "sub", "{}")],
            id="every place 0, whole",
        ),
        pytest.param(
            [added(BEGUN), added(function_call("fc", "b", "sub", ""), 1), arguments("[]", 1), arguments("{}", 0)],
            [("a", "add", "{}"), ("b", "sub", "[]")],
            id="every id the same",
        ),
        pytest.param(
            [added(BEGUN), arguments("{}"), added(function_call("fc", "b", "sub", "")), arguments("[]")],
            [("a", "add", "{}"), ("b", "sub", "[]")],
            id="every place and every id the same",
        ),
        pytest.param(
            [added(BEGUN), arguments("{}", id="x1"), all_arguments("{}", id="x2"), done(function_call("x3"))],
            [("a", "add", "{}")],
            id="another id in each event",
        ),
        pytest.param(
            [without(added(without(BEGUN, "id")), "output_index")]
            + [without(arguments(piece), "output_index", "item_id") for piece in ("{", "}")],
            [("a", "add", "{}")],
            id="neither place nor id",
        ),
        pytest.param(
            [added(function_call("fd", "b", "sub", ""), 1), added(BEGUN), arguments("{}"), arguments("[]", 1, "fd")],
            [("a", "add", "{}"), ("b", "sub", "[]")],
            id="in another order",
        ),
        pytest.param(
            [added(without(BEGUN, "call_id")), done(without(function_call(), "call_id"))],
            [("", "add", "{}")],
            id="no call_id",
        ),
        pytest.param([added(BEGUN), words("Hm"), arguments("{}")], [("a", "add", "{}")], id="words at its place"),
    ],
)
@pytest.mark.parametrize("repeated", [False, True])
def test_events_find_their_call(events: list[Json], calls: list[tuple[str, str, str]], repeated: bool) -> None:
    """Whether or not the end of the response repeats its items."""
    items = [
        function_call("fc", *call) if call[0] else without(function_call("fc", *call), "call_id") for call in calls
    ]
    items[1:] = [{**item, "id": "fd"} for item in items[1:]]

    assert read(*events, ended(*items if repeated else ())).calls == tuple(Call(*each) for each in calls)


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ([added(message("")), words("Hel"), words("lo"), done(message("Hello"))], "Hello"),
        ([done(message("Hello"))], "Hello"),
        ([{"type": "response.output_text.done", "output_index": 0, "item_id": "m", "text": "Hello"}], "Hello"),
        ([{"type": "response.refusal.done", "output_index": 0, "item_id": "m", "refusal": "Hello"}], "Hello"),
        ([words("Hello"), done(message("Hello")), words("Hello")], "Hello"),
        ([words("Hello", id="x1"), done(message("Hello", "x2"))], "Hello"),
        ([words("Hel", 0), words("lo", 1, "n")], "Hello"),
        ([without(words("Hel"), "output_index", "item_id"), without(words("lo"), "output_index", "item_id")], "Hello"),
        ([words("Hello", 3), ended(message("Hello", "other"))], "Hello"),
        ([ended(message("Hello"))], "Hello"),
        ([words("Hello"), ended(message("Hello"), message("Hello", "n"))], "Hello"),
    ],
)
def test_words_are_told_once(events: list[Json], text: str) -> None:
    reader = ResponsesReader()

    passed_on = "".join(reader.add_event(event) for event in events)

    assert (passed_on, reader.build().text) == (text, text)


def test_a_call_that_the_end_alone_names_is_a_call_beside_streamed_words() -> None:
    reply = read(words("Well."), ended(message("Well."), function_call("f1", "a"), function_call("f2", "b")))

    assert reply.calls == (Call("a", "add", "{}"), Call("b", "add", "{}"))


def test_an_incomplete_response_is_cut_whatever_its_status_says() -> None:
    reply = read(done(function_call()), {"type": "response.incomplete", "response": {}})

    assert reply.finish_reason == "length"


def test_items_that_nobody_knows_are_left_out() -> None:
    search = {"type": "web_search_call", "id": "ws", "name": "x", "arguments": "{}", "content": "Hm"}

    reply = read(added(search), done(search), {"type": "response.odd", "output_index": 0, "delta": "x"}, words("Hi", 1))

    assert (reply.text, reply.calls) == ("Hi", ())
    assert [item["type"] for item in reply.extras["items"]] == ["message"]


SEALED = {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "sealed"}


def test_ids_are_not_kept_without_the_reasoning_in_front_of_them() -> None:
    assert read(done(without(SEALED, "encrypted_content")), done(function_call(), 1)).extras == {}
    assert read(done(without(function_call(), "id"))).extras == {}


def test_a_reasoning_item_without_a_type_in_its_end_is_one() -> None:
    reply = read(added(SEALED), done(without(SEALED, "type")), words("Hi", 1))

    assert reply.extras["items"][0] == SEALED


def sent(*messages: Json) -> list[Json]:
    return [json.loads(part) for part in responses.parts(messages)]


def said(text: str, calls: int, *items: Json) -> Json:
    made = [{"id": f"c{n}", "function": {"name": "add", "arguments": "{}"}} for n in range(calls)]
    return {"role": "assistant", "content": text, "tool_calls": made, "extras": {"items": list(items)}}


def test_reasoning_that_nothing_follows_is_not_sent() -> None:
    words_item = {"type": "message", "chars": 2, "id": "m"}

    assert [item.get("type") for item in sent(said("Hi", 0, SEALED, words_item, {**SEALED, "id": "r2"}))] == [
        "reasoning",
        "message",
    ]
    assert sent(said("", 0, SEALED, {"type": "function_call", "call": 7, "id": "f"})) == []


def test_ids_that_came_before_are_left_out_with_what_belongs_to_them() -> None:
    one = said("", 1, SEALED, {"type": "function_call", "call": 0, "id": "f"})

    items = sent(one, {**one, "extras": {"items": [SEALED, {"type": "function_call", "call": 0, "id": "g"}]}})

    assert [(item["type"], item.get("id")) for item in items] == [
        ("reasoning", "rs"),
        ("function_call", "f"),
        ("function_call", None),
    ]
    twice = said("", 2, *({"type": "function_call", "call": call, "id": "f"} for call in (0, 1)))
    assert [item.get("id") for item in sent(twice)] == [None, None]


ADDED = {"role": "tools", "items": '{"type":"additional_tools","role":"developer","tools":[{"name":"add"}]}'}


def namespaces(*messages: Json, wanted: bool = False) -> list[str | None]:
    """Those of the calls, as they go out."""
    items = map(json.loads, responses.parts(messages, wants_namespaces=wanted))
    return [item.get("namespace") for item in items if item.get("type") == "function_call"]


def test_a_call_keeps_the_namespace_of_a_tool_that_was_added() -> None:
    reply = read(done({**function_call(), "namespace": "sums"}))
    (kept,) = reply.extras["items"]

    assert kept["namespace"] == "sums"
    assert namespaces(ADDED, said("", 1, kept)) == ["sums"]


def test_a_call_of_a_tool_in_tools_has_no_namespace() -> None:
    kept = {"type": "function_call", "call": 0, "id": "f", "namespace": "sums"}

    assert namespaces(said("", 1, kept), wanted=True) == [None]
    assert namespaces(said("", 1), ADDED, wanted=True) == [None]


FOUND: Json = {
    "type": "tool_search_output",
    "id": "tso",
    "execution": "server",
    "call_id": None,
    "status": "completed",
    "tools": [{"type": "namespace", "name": "sums", "tools": [{"type": "function", "name": "add"}]}],
}
SEARCHED: Json = {**without(FOUND, "tools"), "type": "tool_search_call", "id": "tsc", "arguments": {"paths": ["sums"]}}
DECLARED = f"[{namespace_wire('sums', '', [tool_wire('add', '', {})])},{SEARCH}]"


def test_a_search_of_tools_goes_back_whole_and_in_its_place() -> None:
    call_item = {**function_call(), "namespace": "sums"}
    reply = read(done(SEALED), done(SEARCHED, 1), done(FOUND, 2), done(call_item, 3))
    message = {**said("", 1), "extras": {**reply.extras, "tools": 7}}

    items = [json.loads(part) for part in responses.parts([message], tools=DECLARED, tools_key=7)]

    assert items[:3] == [SEALED, SEARCHED, FOUND]
    assert (items[3]["type"], items[3]["namespace"]) == ("function_call", "sums")
    assert responses.found_in(reply.extras) == ["add"]


@pytest.mark.parametrize(("stored", "asked"), [(7, 8), (7, None), (None, None)])
def test_what_was_found_in_other_definitions_does_not_go_back(stored: int | None, asked: int | None) -> None:
    message = {**said("Hi", 0), "extras": {"items": [SEALED, SEARCHED, FOUND], "tools": stored}}

    (item,) = (json.loads(part) for part in responses.parts([message], tools=DECLARED, tools_key=asked))

    assert item == {"role": "assistant", "content": "Hi"}


def test_a_search_that_came_in_the_end_alone_is_kept_once() -> None:
    whole = read(ended(SEARCHED, FOUND, function_call()))
    both = read(added(SEARCHED), done(SEARCHED), added(FOUND, 1), done(FOUND, 1), ended(SEARCHED, FOUND))

    assert [item["type"] for item in whole.extras["items"]] == [
        "tool_search_call",
        "tool_search_output",
        "function_call",
    ]
    assert both.extras["items"] == [SEARCHED, FOUND]


def test_a_call_of_a_tool_that_is_searched_has_its_namespace_whatever_its_reply_says() -> None:
    items = [json.loads(part) for part in responses.parts([said("", 1)], tools=DECLARED)]

    assert [item.get("namespace") for item in items] == ["sums"]


@pytest.mark.parametrize("odd", [None, 3, "x", [None], [{"type": "namespace", "tools": 3}], [{"name": 3}]])
def test_an_odd_output_of_a_search_names_nothing(odd: Any) -> None:
    reply = read(done({**FOUND, "tools": odd}), words("Hi", 1))

    assert responses.found_in(reply.extras) == []


def test_a_reply_without_a_search_found_nothing_to_tell() -> None:
    assert responses.found_in(read(words("Hi", 0)).extras) is None


@pytest.mark.parametrize("wanted", [True, False])
def test_a_call_that_is_repeated_without_its_namespace_is_given_one_where_that_is_wanted(wanted: bool) -> None:
    assert namespaces(ADDED, said("", 1), wanted=wanted) == ["add" if wanted else None]


@pytest.mark.parametrize(
    "odd",
    [
        float("nan"),
        float("inf"),
        10**30,
        [],
        {"a": [None]},
        "\ud83d\ude00",
        "a\x00b",
        json.loads("[" * 500 + "]" * 500),
    ],
)
def test_what_a_hostile_reply_keeps_can_be_stored_and_sent(odd: Any) -> None:
    reply = read(done({**SEALED, "id": odd, "more": {"x": odd}}), words("Hi", 1), ended(usage={"cost": odd}))

    written = json.dumps(reply.extras, ensure_ascii=False, allow_nan=False)
    check_text(json.loads(written))
    written.encode()
    sent({"role": "assistant", "content": "Hi", "extras": json.loads(written)})


def test_items_without_end_cost_no_more_than_those_that_are_kept() -> None:
    reader = ResponsesReader()

    for number in range(20_000):
        reader.add_event(without(added(function_call(f"f{number}", f"c{number}")), "output_index"))
    reader.add_event(ended(*(function_call(f"g{number}", f"d{number}") for number in range(20_000))))

    assert len(reader.build().calls) == MAX_CALLS
    assert len(reader._items) == MAX_ITEMS


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
KINDS = [
    "response.output_item.added",
    "response.output_item.done",
    "response.output_text.delta",
    "response.output_text.done",
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
    "response.completed",
    "response.incomplete",
    "response.unheard_of",
]
ITEMS = st.fixed_dictionaries(
    {
        "type": st.sampled_from(
            ["message", "function_call", "reasoning", "web_search_call", "tool_search_call", "tool_search_output"]
        )
        | ODD
    },
    optional=dict.fromkeys(
        ("id", "call_id", "name", "arguments", "content", "encrypted_content", "phase", "namespace"), ODD
    ),
)
EVENTS = st.fixed_dictionaries(
    {"type": st.sampled_from(KINDS)},
    optional={
        "item": ITEMS | ODD,
        "text": ODD,
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

    check_text([reply.text, dict(reply.extras)])
    asked = [{"id": f"c{n}", "function": {"name": "f", "arguments": "{}"}} for n, _ in enumerate(reply.calls)]
    once: Json = {"role": "assistant", "content": reply.text or None, "extras": dict(reply.extras), "tool_calls": asked}
    for part in responses.parts([once, once]):
        json.loads(part).items()
        part.encode()


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
        ("function_call", "fc_1_0", "a"),
        ("function_call", "fc_1_1", "b"),
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
