"""Answers in forms that no document describes: errors, streams, ends and calls as servers and proxies send them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import Any

import pytest

from capabilities.models import Dialect
from sessions.loop.clients.chat import ChatReader
from sessions.loop.clients.error_bodies import read_body
from sessions.loop.clients.finishing import finish_of
from sessions.loop.clients.usage import Usage, usage_of
from tests.scripted_openai import Raw, ScriptedOpenAI
from tests.sessions.loop.clients.test_client import ask

TOO_LONG = "This model's maximum context length is 8192 tokens."
OBJECT = {"error": {"message": TOO_LONG}}
JSON = json.dumps(OBJECT).encode()


@pytest.fixture(scope="module")
def provider() -> Iterator[ScriptedOpenAI]:
    server = ScriptedOpenAI().start()
    yield server
    server.stop()


# -- Errors -----------------------------------------------------------------------------------------------------------

BODIES: dict[str, bytes] = {
    "packed and not named so": gzip.compress(JSON),
    "UTF-16": json.dumps(OBJECT).encode("utf-16"),
    "byte order mark": b"\xef\xbb\xbf" + JSON,
    "XML without a head": b"<Error><Message>" + TOO_LONG.encode() + b"</Message></Error>",
    "SOAP": b"<s:Envelope><s:Fault><faultstring>" + TOO_LONG.encode() + b"</faultstring></s:Fault></s:Envelope>",
    "event behind a comment": b": hi\n\nevent: error\ndata: " + JSON + b"\n\n",
    "event behind its id": b"id: 1\nevent: error\ndata: " + JSON + b"\n\n",
    "two lines of JSON": JSON + b'\n{"x": 1}',
    "words behind JSON": JSON + b" trailing",
    "cut off": JSON[:-2],
    "guarded": b")]}',\n" + JSON,
    "printed by Python": repr(OBJECT).encode(),
    "names that nobody knows": json.dumps({"ErrorResponse": {"Failure": {"Message": TOO_LONG}}}).encode(),
    "list of lists": json.dumps([[OBJECT]]).encode(),
    "cause": json.dumps({"error": {"cause": {"message": TOO_LONG}}}).encode(),
    "encoded three times": json.dumps(json.dumps(json.dumps(OBJECT))).encode(),
    "hidden characters": json.dumps({"error": {"message": f"\x1b[31m{TOO_LONG}\x1b[0m\u202e"}}).encode(),
}


#: Bodies that are no text as the answer to a request that was taken.
ERRORS_ONLY = ("packed and not named so", "UTF-16", "cut off")
SENT = [(kind, status) for kind in BODIES for status in (200, 400) if status == 400 or kind not in ERRORS_ONLY]


@pytest.mark.parametrize(("kind", "status"), SENT)
def test_the_words_of_an_error_are_read_and_nothing_else_is_shown(
    provider: ScriptedOpenAI, kind: str, status: int
) -> None:
    provider.enqueue(Raw(BODIES[kind], status, {"Content-Type": "application/json"}))

    asked = ask(provider, tries=1)

    assert asked.error is not None
    if status == 400 or kind != "two lines of JSON":
        assert asked.error.code == "context_length"
    assert str(asked.error).split(": ", 1)[1].endswith(TOO_LONG)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"litellm.BadRequestError: OpenAIException - {json.dumps(OBJECT)}", f"OpenAIException: {TOO_LONG}"),
        ("Error code: 400 - {'error': {'message': 'It\\'s full.', 'code': 1}}", "Error code: 400: It\\'s full."),
        ("Use <b> for bold {x}", "Use <b> for bold {x}"),
        ("null", ""),
        ("", ""),
        ("{}", ""),
    ],
)
def test_a_text_around_an_error_stays_beside_its_words(text: str, words: str) -> None:
    assert read_body(text.encode()).words.endswith(words)
    assert words or not read_body(text.encode()).words


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        (b"upstream connect error", "provider_invalid", "upstream connect error"),
        (b'"Invalid API key"', "provider_auth", "Invalid API key"),
        (b'{"code": 500, "msg": "404 NOT_FOUND", "success": false}', "provider_error", "404 NOT_FOUND"),
        (b'{"choices": null, "base_resp": {"status_code": 1004, "status_msg": "login fail"}}', "", "login fail"),
        (b"event: error\ndata: Something broke\n\n", "provider_error", "Something broke"),
        (b'event: error\ndata: "Something broke"\n\n', "provider_error", "Something broke"),
        (b'data: {"choices": []}\n\nevent: error\ndata: {"reason": "broke"}\n\n', "provider_error", "broke"),
        (b'data: {"choices": []}\n\ndata: {"status_code": 500, "msg": "broke"}\n\n', "provider_error", "broke"),
        (b"", "provider_invalid", "no reply of a model."),
    ],
)
def test_an_error_with_status_200_is_told_in_its_words(
    provider: ScriptedOpenAI, body: bytes, code: str, words: str
) -> None:
    provider.enqueue(Raw(body, 200, {"Content-Type": "text/event-stream"}))

    asked = ask(provider, tries=1)

    assert asked.error is not None
    assert (asked.error.code, str(asked.error)[-len(words) :]) == (code or asked.error.code, words)


def test_a_prompt_that_cannot_be_made_is_no_failure_that_passes(provider: ScriptedOpenAI) -> None:
    body = b'{"error": {"code": 500, "message": "Jinja Exception: System role not supported"}}'
    provider.enqueue(Raw(body, 500, {"Content-Type": "application/json"}))

    asked = ask(provider, tries=1)

    assert asked.error is not None
    assert asked.error.code == "provider_rejected"


# -- Streams ----------------------------------------------------------------------------------------------------------


def choice(**fields: Any) -> dict[str, Any]:
    return {"choices": [fields]}


def stream(*events: dict[str, Any], end: bytes = b"data: [DONE]\n\n") -> bytes:
    return b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in events) + end


HEL, LO = choice(delta={"content": "Hel"}), choice(delta={"content": "lo"}, finish_reason="stop")
OPEN = choice(delta={"content": "lo"})
STREAM = stream(HEL, LO)
STREAMS: dict[str, bytes] = {
    "byte order mark": b"\xef\xbb\xbf" + STREAM,
    "carriage returns": STREAM.replace(b"\n", b"\r"),
    "indented": STREAM.replace(b"data:", b"  data:"),
    "field twice": STREAM.replace(b"data: ", b"data: data: "),
    "ping that is no JSON": b"event: ping\ndata: ping\n\n" + STREAM,
    "end in small letters": stream(HEL, OPEN, end=b"data: [done]\n\n"),
    "end in quotes": stream(HEL, OPEN, end=b'data: "[DONE]"\n\n'),
    "end without its field": stream(HEL, OPEN, end=b"[DONE]\n\n"),
    "end as an object": stream(HEL, OPEN, end=b'data: {"done": true}\n\n'),
    "lines of JSON and an end": b"\r\n".join([json.dumps(HEL).encode(), json.dumps(LO).encode(), b"[DONE]"]),
    "list of pieces": json.dumps([HEL, LO]).encode(),
    "whole with an end": json.dumps(choice(message={"content": "Hello"}, finish_reason="stop")).encode() + b"\n[DONE]",
    "inside of data": json.dumps({"data": choice(message={"content": "Hello"})}).encode(),
    "inside of result": json.dumps({"success": True, "result": choice(message={"content": "Hello"})}).encode(),
    "messages in pieces": stream(choice(message={"content": "Hel"}), choice(message={"content": "lo"})),
    "messages that grow": stream(choice(message={"content": "Hel"}), choice(message={"content": "Hello"})),
    "message behind the pieces": stream(HEL, OPEN, choice(delta={}, message={"content": " Hello"})),
    "part as an object": stream(choice(delta={"content": {"type": "text", "text": "Hello"}})),
    "parts as texts": stream(choice(delta={"content": ["Hel", "lo"]})),
    "Ollama without a reason": b'{"message": {"content": "Hello"}, "done": true}',
}


@pytest.mark.parametrize("kind", STREAMS)
def test_a_reply_in_an_odd_form_is_read_whole(provider: ScriptedOpenAI, kind: str) -> None:
    provider.enqueue(Raw(STREAMS[kind], 200, {"Content-Type": "text/event-stream"}))

    asked = ask(provider, tries=1)

    assert asked.reply is not None, asked.error
    assert (asked.reply.text, "".join(asked.texts)) == ("Hello", "Hello")


# -- Ends -------------------------------------------------------------------------------------------------------------

END: list[tuple[str, list[dict[str, Any]], str]] = [
    ("another name", [{"delta": {}, "finishReason": "MAX_TOKENS"}], "length"),
    ("in the delta", [{"delta": {"finish_reason": "length"}}], "length"),
    ("stop_reason alone", [{"delta": {}, "stop_reason": "max_tokens"}], "length"),
    ("stop_reason says more", [{"delta": {}, "finish_reason": "stop", "stop_reason": "max_tokens"}], "length"),
    ("stop_reason of vLLM", [{"delta": {}, "finish_reason": "stop", "stop_reason": 128009}], "stop"),
    ("another choice", [{"index": 1, "delta": {}, "finish_reason": "length"}], "length"),
    ("taken back", [{"delta": {}, "finish_reason": "length"}, {"delta": {}, "finish_reason": "stop"}], "length"),
    ("null behind it", [{"delta": {}, "finish_reason": "length"}, {"delta": {}, "finish_reason": None}], "length"),
    ("a list", [{"delta": {}, "finish_reason": ["length"]}], "length"),
    ("an object", [{"delta": {}, "finish_reason": {"type": "length"}}], "length"),
    ("error, then stop", [{"delta": {}, "finish_reason": "error"}, {"delta": {}, "finish_reason": "stop"}], "error"),
    ("a number", [{"delta": {}, "finish_reason": 1}], ""),
]


@pytest.mark.parametrize(("choices", "reason"), [each[1:] for each in END], ids=[each[0] for each in END])
def test_why_a_reply_ended_is_read_wherever_it_stands(choices: list[dict[str, Any]], reason: str) -> None:
    reader = ChatReader()
    for each in [{"index": 0, "delta": {"content": "Half"}}, *choices]:
        reader.add_event({"choices": [each]})

    assert reader.build().finish_reason == reason


def test_why_a_reply_ended_is_read_beside_the_choices() -> None:
    reader = ChatReader()
    reader.add_event({"choices": [], "finish_reason": "length"})

    assert reader.build().finish_reason == "length"


@pytest.mark.parametrize(
    ("reason", "kept"),
    [
        ("length_limit", "length"),
        ("hit_max_tokens", "length"),
        ("time_limit", "length"),
        ("incomplete", "length"),
        ("LANGUAGE", "content_filter"),
        ("content_policy_violation", "content_filter"),
        ("server_error", "error"),
        ("cancelled", "error"),
        ("MISSING_THOUGHT_SIGNATURE", "error"),
        ("FINISH_REASON_UNSPECIFIED", ""),
        ("null", ""),
        ("None", ""),
        ("stop\n", "stop"),
    ],
)
def test_more_spellings_of_an_end(reason: str, kept: str) -> None:
    assert finish_of(reason) == kept


# -- Calls ------------------------------------------------------------------------------------------------------------

BEGIN, REST = '{"n"', ": 42}"
WHOLE = BEGIN + REST


def part(arguments: Any = None, *, name: str | None = None, **signs: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {**signs, "function": {key: value for key, value in function.items() if value is not None}}


ONE = ("calculator",)
TWO = ("calculator", "clock")
CALLS: dict[str, tuple[tuple[str, ...], list[list[dict[str, Any]]]]] = {
    "whole behind its pieces": (
        ONE,
        [[part(BEGIN, index=0, name=ONE[0])], [part(REST, index=0)], [part(WHOLE, index=0)]],
    ),
    "object behind its pieces": (
        ONE,
        [[part(BEGIN, index=0, name=ONE[0])], [part(REST, index=0)], [part({"n": 42}, index=0)]],
    ),
    "longer each time": (ONE, [[part(BEGIN, index=0, name=ONE[0])], [part(WHOLE, index=0)]]),
    "empty object first": (ONE, [[part({}, index=0, name=ONE[0])], [part("{}", index=0)], [part(WHOLE, index=0)]]),
    "empty text of an object first": (
        ONE,
        [[part("{}", index=0, name=ONE[0])], [part(BEGIN, index=0)], [part(REST, index=0)]],
    ),
    "null first": (ONE, [[part("null", index=0, name=ONE[0])], [part(WHOLE, index=0)]]),
    "an id for each piece": (
        ONE,
        [[part(BEGIN, index=0, id="a", name=ONE[0])], [part(REST, index=0, id="b", name=ONE[0])]],
    ),
    "name in pieces": (
        ONE,
        [[part("", index=0, name="calc")], [part("", index=0, name="ulator")], [part(WHOLE, index=0)]],
    ),
    "name longer each time": (ONE, [[part("", index=0, name="calc")], [part(WHOLE, index=0, name=ONE[0])]]),
    "no function around it": (ONE, [[{"id": "a", "name": ONE[0], "arguments": WHOLE}]]),
    "input of a tool": (ONE, [[{"id": "a", "name": ONE[0], "input": {"n": 42}}]]),
    "parameters": (ONE, [[{"function": {"name": ONE[0], "parameters": {"n": 42}}}]]),
    "index of text": (ONE, [[part(BEGIN, index="0", id="a", name=ONE[0])], [part(REST, index="0")]]),
    "index 0 for both, in turns": (
        TWO,
        [
            [part(BEGIN, index=0, id="a", name=TWO[0])],
            [part(BEGIN, index=0, id="b", name=TWO[1])],
            [part(REST, index=0, id="a")],
            [part(REST, index=0, id="b")],
        ],
    ),
    "told by their order alone": (
        TWO,
        [[part(BEGIN, name=TWO[0]), part(BEGIN, name=TWO[1])], [part(REST), part(REST)]],
    ),
    "one id for both": (TWO, [[part(WHOLE, id="a", name=TWO[0])], [part(WHOLE, id="a", name=TWO[1])]]),
}


@pytest.mark.parametrize("kind", CALLS)
def test_calls_in_odd_pieces_come_out_whole(kind: str) -> None:
    names, deltas = CALLS[kind]
    reader = ChatReader(names=lambda: frozenset(TWO))
    for each in deltas:
        reader.add_event(choice(delta={"tool_calls": each}))

    calls = reader.build().calls

    assert [(call.name, json.loads(call.arguments)) for call in calls] == [(name, {"n": 42}) for name in names]


def test_two_calls_under_one_id_with_other_arguments_stay_two() -> None:
    reader = ChatReader()
    for number in (1, 2):
        reader.add_event(choice(delta={"tool_calls": [part(f'{{"n": {number}}}', id="a", name="clock")]}))

    assert [call.arguments for call in reader.build().calls] == ['{"n": 1}', '{"n": 2}']


@pytest.mark.parametrize("arguments", [[1], 5, True])
def test_arguments_that_are_no_object_are_kept_for_the_check(arguments: Any) -> None:
    reader = ChatReader()
    reader.add_event(choice(delta={"tool_calls": [part(arguments, name="clock")]}))

    assert [json.loads(call.arguments) for call in reader.build().calls] == [arguments]


# -- Usage ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize(
    ("reported", "counted"),
    [
        ({"prompt_tokens": "10", "completion_tokens": "5.0"}, Usage(10, 5)),
        ({"prompt_tokens": 10.0, "completion_tokens": 5.0, "total_tokens": 15.0}, Usage(10, 5)),
        ({"prompt_tokens": 10, "completion_tokens": None, "total_tokens": 15}, Usage(10, 5)),
        ({"completion_tokens": 5, "total_tokens": 15}, Usage(10, 5)),
        ({"prompt_tokens": 0, "completion_tokens": 5, "total_tokens": 15}, Usage(10, 5)),
        ({"prompt_tokens": 10, "output_tokens": 5}, Usage(10, 5)),
        ({"input_tokens": 10, "completion_tokens": 5}, Usage(10, 5)),
        ({"input_tokens": 10, "output_tokens": 5}, Usage(10, 5)),
        ({"promptTokens": 10, "completionTokens": 5}, Usage(10, 5)),
        ({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 12}, Usage(10, 5)),
        ({"prompt_tokens": 10, "completion_tokens": 0, "total_tokens": 110}, Usage(10, 100, reasoning=100)),
        ({"promptTokenCount": 10, "thoughtsTokenCount": 100, "totalTokenCount": 110}, Usage(10, 100, reasoning=100)),
    ],
)
def test_usage_under_other_names_and_with_parts_missing(
    reported: dict[str, Any], counted: Usage, dialect: Dialect
) -> None:
    assert usage_of(reported, "https://models.example.org/v1", dialect) == counted
