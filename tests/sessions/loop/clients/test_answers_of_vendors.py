"""What comes back from providers in other forms: errors, ends, fragments, texts that are calls, usage."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capabilities.models import Dialect
from sessions.loop.clients.chat import ChatReader
from sessions.loop.clients.error_bodies import read_body
from sessions.loop.clients.finishing import finish_of
from sessions.loop.clients.replies import Reply
from sessions.loop.clients.usage import Usage, usage_of
from sessions.loop.clients.written import WrittenText
from tests.scripted_openai import Raw, ScriptedOpenAI, sse
from tests.sessions.loop.clients.test_client import ask

OVERFLOW = "This model's maximum context length is 8192 tokens, you asked for 9000."
CALL = '{"name": "calculator", "arguments": {"expression": "6*7"}}'


@pytest.fixture
def provider() -> Iterator[ScriptedOpenAI]:
    server = ScriptedOpenAI().start()
    yield server
    server.stop()


# -- Errors ----------------------------------------------------------------------------------------------------------

SHAPES: list[Any] = [
    {"error": {"message": OVERFLOW}},
    [{"error": {"code": 400, "message": OVERFLOW, "status": "INVALID_ARGUMENT"}}],
    {"detail": OVERFLOW},
    {"detail": [{"loc": ["body", "messages"], "msg": OVERFLOW, "type": "value_error"}]},
    {"message": OVERFLOW, "code": "3051"},
    {"error": OVERFLOW},
    {"errors": [OVERFLOW]},
    {
        "error": {
            "message": "Provider returned error",
            "metadata": {"raw": json.dumps({"error": {"message": OVERFLOW}})},
        }
    },
    json.dumps({"error": {"message": OVERFLOW}}),
    OVERFLOW,
    {"object": "error", "message": {"detail": [{"loc": ["body"], "msg": OVERFLOW}]}},
    {"type": "error", "error": {"type": "invalid_request_error", "message": OVERFLOW}, "request_id": "r1"},
    {"base_resp": {"status_code": 1013, "status_msg": OVERFLOW}},
    {"fault": {"faultstring": OVERFLOW, "detail": {"errorcode": "x"}}},
    {"error_code": 336, "error_msg": OVERFLOW},
    {"Error": {"Code": "x", "Message": OVERFLOW}},
    {"success": False, "errors": [{"code": 7000, "message": OVERFLOW}], "result": None},
    {"status": "error", "data": {"message": OVERFLOW}},
    {"err": OVERFLOW},
    {"error": {"text": OVERFLOW}},
    {"error": {"message": json.dumps({"error": {"message": OVERFLOW}})}},
]


@pytest.mark.parametrize("body", SHAPES, ids=range(len(SHAPES)))
def test_an_error_of_any_shape_is_read_for_its_words(body: Any) -> None:
    words = read_body(json.dumps(body)).words

    assert OVERFLOW in words
    assert "{" not in words


@pytest.mark.parametrize("body", SHAPES, ids=range(len(SHAPES)))
def test_a_conversation_that_is_too_long_is_recognised_in_any_shape(provider: ScriptedOpenAI, body: Any) -> None:
    provider.enqueue(Raw(json.dumps(body).encode(), 400, {"Content-Type": "application/json"}))

    asked = ask(provider)

    assert asked.error is not None
    assert asked.error.code == "context_length"
    assert OVERFLOW in str(asked.error)


@pytest.mark.parametrize(
    ("status", "words", "code"),
    [
        (400, "API key not valid. Please pass a valid API key.", "provider_auth"),
        (400, "Incorrect API key provided: xa***.", "provider_auth"),
        (403, "Your team doesn't have any credits yet.", "provider_credit"),
        (400, "Your credit balance is too low to access the API.", "provider_credit"),
        (404, "models/gemini-0 is not found for API version v1beta", "model_gone"),
        (404, "model 'llama9' not found, try pulling it first", "model_gone"),
        (400, "The prompt is too long: 210000 tokens > 200000 maximum", "context_length"),
        (400, "Your request exceeded model token limit: 8192", "context_length"),
        (400, "ThrottlingException: Too many requests", "provider_rate_limit"),
        (400, "temperature must be at most 1", "provider_rejected"),
    ],
)
def test_what_an_error_means_is_told_by_its_words(provider: ScriptedOpenAI, status: int, words: str, code: str) -> None:
    provider.enqueue(Raw(json.dumps([{"error": {"message": words}}]).encode(), status, {"Content-Type": "text/plain"}))

    asked = ask(provider, tries=1)

    assert asked.error is not None
    assert (asked.error.code, words in str(asked.error)) == (code, True)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("failed to parse grammar", "provider_rejected"),
        ("JSON schema conversion failed:\nUnrecognized schema: {}", "provider_rejected"),
        ("Failed to compile the grammar of tool 'calculator'", "provider_rejected"),
        ("The model produced output that does not match the expected peg-native format", "provider_error"),
        ("Failed to parse the grammatical output of the model", "provider_error"),
        ("Internal server error", "provider_error"),
    ],
)
@pytest.mark.parametrize("is_json", [True, False])
def test_a_grammar_that_cannot_be_made_is_no_failure_that_passes(
    provider: ScriptedOpenAI, words: str, code: str, is_json: bool
) -> None:
    body = json.dumps({"error": {"code": 500, "message": words, "type": "server_error"}}) if is_json else words
    provider.enqueue(Raw(body.encode(), 500, {"Content-Type": "application/json" if is_json else "text/plain"}))

    asked = ask(provider, tries=1)

    assert asked.error is not None
    assert asked.error.code == code


def test_the_text_of_a_page_is_read(provider: ScriptedOpenAI) -> None:
    page = b"<html><style>p{}</style><body><h1>503 Service Temporarily Unavailable</h1></body></html>"
    provider.enqueue(Raw(page, 503, {"Content-Type": "text/html"}))

    asked = ask(provider, tries=1)

    assert str(asked.error).endswith(": 503 Service Temporarily Unavailable")


def test_the_wait_that_a_provider_asks_for_goes_with_the_error(provider: ScriptedOpenAI) -> None:
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7s"}]
    body = [{"error": {"code": 429, "message": "Quota.", "details": details}}]
    provider.enqueue(Raw(json.dumps(body).encode(), 429, {"Content-Type": "application/json"}))

    asked = ask(provider, tries=1)

    assert asked.error is not None
    assert asked.error.retry_after == 7


@pytest.mark.parametrize(("words", "wait"), [("Please try again in 1.5s.", 1.5), ("Retry after 7m12s", 432.0)])
def test_a_wait_in_words_is_read(words: str, wait: float) -> None:
    assert read_body({"error": {"message": words}}).wait == wait


# -- Ends and forms --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "kept"),
    [
        ("max_tokens", "length"),
        ("MAX_TOKENS", "length"),
        ("model_length", "length"),
        ("SAFETY", "content_filter"),
        ("end_turn", "stop"),
        ("tool_use", "tool_calls"),
        ("error", "error"),
        ("MaxTokens", "length"),
        ("FINISH_REASON_MAX_TOKENS", "length"),
        ("max-tokens", "length"),
        ("ERROR_LIMIT", "length"),
        ("ContentFilter", "content_filter"),
        ("content-filter", "content_filter"),
        ("ERROR_TOXIC", "content_filter"),
        ("toolUse", "tool_calls"),
        ("EndTurn", "stop"),
        ("UNEXPECTED_TOOL_CALL", "error"),
        ("abort", "error"),
        ("made_up", "made_up"),
        (None, ""),
    ],
)
def test_the_reason_of_an_end_has_one_spelling(reason: str | None, kept: str) -> None:
    assert finish_of(reason) == kept


def test_what_a_vendor_behind_a_router_says_counts_where_it_says_more() -> None:
    assert finish_of("stop", "MAX_TOKENS") == "length"
    assert finish_of("unknown", "MAX_TOKENS") == "length"
    assert finish_of(None, "SAFETY") == "content_filter"
    assert finish_of("tool_calls", "STOP") == "tool_calls"
    assert finish_of("length", "STOP") == "length"


def events(*choices: dict[str, Any]) -> Raw:
    return Raw(sse(*({"choices": [each]} for each in choices)))


def test_a_reply_that_ended_with_an_error_is_one(provider: ScriptedOpenAI) -> None:
    provider.enqueue(events({"delta": {"content": "Half"}}, {"delta": {}, "finish_reason": "error"}))

    asked = ask(provider, tries=1)

    assert asked.error is not None
    assert asked.error.code == "provider_error"


WHOLE = json.dumps({"choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}]}).encode()


@pytest.mark.parametrize(
    "raw",
    [
        Raw(
            sse({"choices": [{"delta": {"content": "Hello"}, "finish_reason": "stop"}]}),
            headers={"Content-Type": "application/json"},
        ),
        Raw(WHOLE, headers={"Content-Type": "text/plain"}),
        Raw(b"\n\n  " + WHOLE, headers={"Content-Type": "text/event-stream"}),
        Raw(b"data: " + WHOLE + b"\n\ndata: [DONE]\n\n"),
        Raw(
            b'data: {"choices":[{"delta":{"content":"Hel"}}]}\n'
            b'data: {"choices":[{"delta":{"content":"lo"},"finish_reason":"stop"}]}\ndata: [DONE]\n'
        ),
        Raw(b": waiting\n\ndata: " + WHOLE + b"\n\n", headers={"Content-Type": "application/json"}),
    ],
    ids=["stream as json", "whole as text", "space before", "message in a stream", "one line break", "comment first"],
)
def test_the_form_of_a_reply_is_told_by_its_first_bytes(provider: ScriptedOpenAI, raw: Raw) -> None:
    provider.enqueue(raw)

    asked = ask(provider, tries=1)

    assert asked.reply is not None, asked.error
    assert asked.reply.text == "Hello"


def read(*choices: dict[str, Any]) -> Reply:
    reader = ChatReader()
    for each in choices:
        reader.add_event({"choices": [each]})
    return reader.build()


def part(arguments: str, **more: Any) -> dict[str, Any]:
    name = {"name": more.pop("name")} if "name" in more else {}
    return {"delta": {"tool_calls": [{**more, "function": {**name, "arguments": arguments}}]}}


BEGIN, END = '{"expression"', ': "6*7"}'


@pytest.mark.parametrize(
    "pieces",
    [
        [part(BEGIN, id="c1", name="calculator"), part(END, id="c1", name="calculator")],
        [part(BEGIN, index=0, name="calculator"), part(END, index=0)],
        [part(BEGIN, name="calculator"), part(END, name="calculator")],
        [part(BEGIN, name="calculator"), part(END)],
        [part(BEGIN, id="c1", index=0, name="calculator"), part(END, id="c1", index=1)],
    ],
    ids=["id", "index", "name", "order", "index of fragments"],
)
def test_fragments_of_a_call_belong_together(pieces: list[dict[str, Any]]) -> None:
    (call,) = read(*pieces).calls

    assert (call.name, json.loads(call.arguments)) == ("calculator", {"expression": "6*7"})


def test_two_calls_of_one_tool_stay_two() -> None:
    whole = BEGIN + END

    assert len(read(part(whole, name="calculator"), part(whole, name="calculator")).calls) == 2
    assert len(read(part(whole, id="a", index=0, name="x"), part(whole, id="b", index=0, name="x")).calls) == 2


def test_words_and_calls_are_read_of_any_choice() -> None:
    reader = ChatReader()
    calls = [{"id": "c1", "function": {"name": "calculator", "arguments": "{}"}}]
    reader.add_whole(
        {"choices": [{"index": 0, "message": {"content": "Hm."}}, {"index": 1, "message": {"tool_calls": calls}}]}
    )

    reply = reader.build()

    assert (reply.text, [call.name for call in reply.calls]) == ("Hm.", ["calculator"])


# -- Text that is none -----------------------------------------------------------------------------------------------


def written(text: str, size: int) -> tuple[str, list[tuple[str, str]]]:
    shown: list[str] = []
    reader = WrittenText(lambda: frozenset({"calculator"}), shown.clear)
    shown += [reader.add(text[at : at + size]) for at in range(0, len(text), size)]
    shown.append(reader.end())
    return "".join(shown), reader.calls


CALLS = [
    f"<tool_call>\n{CALL}\n</tool_call>",
    f"<think>hm</think>\n{CALL}",
    CALL,
    f"```json\n{CALL}\n```",
    f"[TOOL_CALLS][{CALL}]",
    '[TOOL_CALLS]calculator{"expression": "6*7"}',
    '<function=calculator>{"expression": "6*7"}</function>',
    "<tool_call>\n<function=calculator>\n<parameter=expression>\n6*7\n</parameter>\n</function>\n</tool_call>",
    '<|channel|>commentary to=functions.calculator json<|message|>{"expression": "6*7"}<|call|>',
]


@pytest.mark.parametrize("size", [1, 3, 10_000])
@pytest.mark.parametrize("text", CALLS, ids=range(len(CALLS)))
def test_a_call_that_is_written_as_text_is_one(text: str, size: int) -> None:
    shown, ((name, arguments),) = written(text, size)

    assert (shown.strip(), name, json.loads(arguments)) == ("", "calculator", {"expression": "6*7"})


@pytest.mark.parametrize("size", [1, 3, 10_000])
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<think>hm\nyes</think>\n\nHello.", "Hello."),
        ("hm\n</think>\nHello.", "Hello."),
        (
            "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hello.<|return|>",
            "Hello.",
        ),
        ('<tool_call>{"name": "other", "arguments": {}}</tool_call>', ""),
        ("Write `<think>` or `<tool_call>{}</tool_call>`.", "Write `<think>` or `<tool_call>{}</tool_call>`."),
        (f"```\n<tool_call>{CALL}</tool_call>\n```\nSo.", f"```\n<tool_call>{CALL}</tool_call>\n```\nSo."),
        (f"```json\n{CALL}\n```\nSo it is written.", f"```json\n{CALL}\n```\nSo it is written."),
        ('{"name": "other", "arguments": {}}', '{"name": "other", "arguments": {}}'),
        ("1 < 2, [x] and `code`", "1 < 2, [x] and `code`"),
    ],
)
def test_notations_are_folded_away_and_text_that_shows_them_stays(text: str, shown: str, size: int) -> None:
    assert written(text, size) == (shown, [])


# -- Usage -----------------------------------------------------------------------------------------------------------

OPENAI, GOOGLE = "https://api.openai.com/v1", "https://generativelanguage.googleapis.com/v1beta/openai"


@pytest.mark.parametrize(
    ("base_url", "reported", "counted"),
    [
        (GOOGLE, {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 115}, Usage(10, 105, reasoning=100)),
        (OPENAI, {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}, Usage(10, 5)),
        (OPENAI, {"prompt_tokens": 10, "completion_tokens": 5, "cache_read_input_tokens": 90}, Usage(100, 5, 90)),
        (
            OPENAI,
            {"prompt_tokens": 10, "completion_tokens": 5, "completion_tokens_details": {"reasoning_tokens": 20}},
            Usage(10, 25, reasoning=20),
        ),
        ("http://bedrock", {"inputTokens": 10, "outputTokens": 5, "totalTokens": 15}, Usage(10, 5)),
    ],
)
def test_usage_that_contradicts_itself_is_counted_as_it_is_billed(
    base_url: str, reported: dict[str, Any], counted: Usage
) -> None:
    assert usage_of(reported, base_url, Dialect.CHAT) == counted


count = st.integers(-5, 3_000)


@given(
    st.fixed_dictionaries(
        {"prompt_tokens": count, "completion_tokens": count},
        optional={
            "total_tokens": count,
            "cached_tokens": count,
            "cache_read_input_tokens": count,
            "cache_creation_input_tokens": count,
            "completion_tokens_details": st.fixed_dictionaries({"reasoning_tokens": count}),
        },
    ),
    st.sampled_from([OPENAI, GOOGLE, "https://api.x.ai/v1", "https://api.deepseek.com", "https://api.mistral.ai/v1"]),
)
def test_usage_never_contradicts_itself(reported: dict[str, Any], base_url: str) -> None:
    usage = usage_of(reported, base_url, Dialect.CHAT)

    if usage is not None:
        assert min(usage.input, usage.output, usage.cached, usage.cache_written, usage.reasoning) >= 0
        assert usage.cached + usage.cache_written <= usage.input
        assert usage.reasoning <= usage.output
