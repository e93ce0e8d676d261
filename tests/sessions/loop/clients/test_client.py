"""One model call on the wire: what is sent, what is tried again, and how it stops."""

from __future__ import annotations

import email.utils
import json
import logging
import threading
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from uuid import UUID

import httpx2
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest_django import Settings

from capabilities.contract.wire import canonical_json, tool_wire
from capabilities.language_models.providers.resolve import ResolvedProvider
from capabilities.models import Dialect, Provider
from sessions.loop.clients.attempts import Question
from sessions.loop.clients.client import MAX_RETRY_AFTER, ModelCall
from sessions.loop.clients.errors import CallStopped, ModelBusy, ModelError
from sessions.loop.clients.failures import MAX_REFUSAL, Failed, raise_error_object, retry_after, without_key
from sessions.loop.clients.replies import Reply
from sessions.loop.clients.transport import Endpoint, http_client, sdk, sse_data
from sessions.loop.clients.usage import Usage
from sessions.loop.run.turn import displays_of
from sessions.models import ChatSession, Turn, TurnStatus
from sessions.turns import ledger
from sessions.worker.process import watch_held, work_on
from tests.cast import make_session
from tests.scripted_openai import Json, Raw, Say, ScriptedOpenAI, call, chunk, sse
from tests.sessions.run_turns import a_model, accept, events_of, run, work
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import organisation_scope

KEY = "sk-test-0123456789abcdef"
MESSAGES: list[Json] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Grüße, \u2028 \U0001f600 </script>"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "a", "type": "function", "function": {"name": "add", "arguments": '{"x": 1}'}}],
    },
    {"role": "tool", "tool_call_id": "a", "content": '{"sum": 2}'},
]
PARAMETERS = {"type": "object", "required": ["x"], "properties": {"x": {"type": "number", "description": "Grün"}}}
WIRE = "[" + ",".join(tool_wire(name, f"Does {name}.", PARAMETERS) for name in ("add", "take-away")) + "]"


def request_body(model: str, messages: Sequence[Json], tools: str, displays: Mapping[str, str] | None = None) -> bytes:
    """What a turn sends to the model."""
    return Question(a_model(name=model), messages, tools, displays=displays or {}).body


@pytest.fixture(scope="module", autouse=True)
def _connections_are_closed() -> Iterator[None]:
    """Those that were kept for a next call that no test makes."""
    yield
    http_client("").close()
    http_client.cache_clear()
    sdk.cache_clear()


@dataclass
class Asked:
    """One call, and all that it told."""

    reply: Reply | None
    error: ModelError | None
    texts: Sequence[str]
    restarts: int
    seconds: float


def ask(
    provider: ScriptedOpenAI, *, tries: int = 2, seconds: float = 30.0, stopped: threading.Event | None = None
) -> Asked:
    texts: list[str] = []
    restarts: list[None] = []
    begun = time.monotonic()
    model_call = ModelCall(
        Endpoint(provider.url, KEY, "scripted"),
        Dialect.CHAT,
        request_body("scripted", MESSAGES, "[]"),
        stopped or threading.Event(),
        begun + seconds,
        texts.append,
        lambda: restarts.append(None),
        tries,
    )
    reply, error = None, None
    try:
        reply = model_call.run()
    except ModelError as raised:
        error = raised
    return Asked(reply, error, texts, len(restarts), time.monotonic() - begun)


def limited(status: int = 429, wait: str | None = "0", **headers: str) -> Raw:
    """An error that asks to wait; "0" makes a test quick."""
    said = {"Content-Type": "application/json", **headers} | ({} if wait is None else {"Retry-After": wait})
    return Raw(b'{"error": {"message": "slow down"}}', status, said)


# -- The request ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", ["[]", WIRE])
def test_the_request_on_the_wire_is_the_sdks_own(provider: ScriptedOpenAI, wire: str) -> None:
    stopped = threading.Event()
    ModelCall(
        Endpoint(provider.url, KEY, "scripted"),
        Dialect.CHAT,
        request_body("scripted", MESSAGES, wire),
        stopped,
        time.monotonic() + 10,
    ).run()
    options = {"stream_options": {"include_usage": True}, "max_tokens": 1_000}
    arguments: Json = {"model": "scripted", "messages": MESSAGES, **options}
    if wire != "[]":
        arguments["tools"] = json.loads(wire)
    with openai.OpenAI(base_url=provider.url, api_key=KEY, max_retries=0) as sdk:
        stream = cast(Any, sdk.chat.completions.create)(stream=True, **arguments)
        for _ in stream:
            pass

    ours, theirs = provider.bodies
    assert json.loads(ours) == json.loads(theirs)
    assert [compared(headers) for headers in provider.headers] == 2 * [compared(provider.headers[1])]
    assert provider.headers[0]["authorization"] == f"Bearer {KEY}"
    assert (wire.encode() in ours) is (wire != "[]")
    assert canonical_json(json.loads(wire)) == wire


def compared(headers: dict[str, str]) -> dict[str, str]:
    """Without lengths, and without how long either side waits."""
    return {
        name: value for name, value in headers.items() if name not in ("content-length", "x-stainless-read-timeout")
    }


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize("is_chosen", [True, False])
def test_parallel_calls_are_spoken_of_with_tools_only(dialect: Dialect, is_chosen: bool) -> None:
    """OpenAI refuses the parameter where there are no tools."""
    model = a_model(dialect_setting=dialect, parallel_tool_calls=is_chosen)

    assert "parallel_tool_calls" not in Question(model, MESSAGES).parameters
    assert Question(model, MESSAGES, WIRE).parameters["parallel_tool_calls"] is is_chosen


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize(
    ("url", "key"), [("https://api.openai.com/v1", "session"), ("https://api.example.org/v1", None)]
)
def test_a_request_has_its_output_limit_and_a_cache_key_where_the_vendor_takes_one(
    dialect: Dialect, url: str, key: str | None
) -> None:
    model = a_model(dialect_setting=dialect)
    model = replace(model, provider=replace(model.provider, base_url=url))

    sent = Question(model, MESSAGES, cache_key="session").parameters

    limits = {name: value for name, value in sent.items() if name.startswith("max_")}
    assert list(limits.values()) == [1_000]
    assert sent.get("prompt_cache_key") == key


def test_s38_the_operators_own_account_is_not_told_to_other_providers(
    provider: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_ORG_ID", "org-operator")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "project-operator")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-operator")

    ask(provider)

    assert "operator" not in json.dumps(provider.headers)


def test_a_reply_is_read_as_it_is_streamed(provider: ScriptedOpenAI) -> None:
    provider.enqueue(Say("Hello there", calls=[call("add", {"x": 1}, id="a")]))

    asked = ask(provider)

    assert asked.texts == ["Hello t", "here"]
    assert asked.reply is not None
    assert asked.reply.text == "Hello there"
    assert [(each.id, each.name, each.arguments) for each in asked.reply.calls] == [("a", "add", '{"x": 1}')]
    assert (asked.reply.finish_reason, asked.reply.usage) == ("tool_calls", Usage(100, 10, 60))


class KeepingServer:
    """Answers in chunks on connections that stay open, and counts them."""

    def __init__(self) -> None:
        outer = self
        self.connections = 0

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                outer.connections += 1
                super().setup()

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                body = sse(chunk({"content": "Hi"}, "stop"))
                self.wfile.write(f"{len(body):x}\r\n".encode() + body + b"\r\n")
                self.wfile.flush()
                time.sleep(0.05)
                self.wfile.write(b"0\r\n\r\n")

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> KeepingServer:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *args: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def test_the_connection_of_a_whole_answer_carries_the_next_call() -> None:
    with KeepingServer() as server:
        for _ in range(3):
            body = request_body("m", MESSAGES, "[]")
            ModelCall(Endpoint(server.url, KEY, "m"), Dialect.CHAT, body, threading.Event(), time.monotonic() + 9).run()
            time.sleep(0.15)

        assert server.connections == 1


# -- Tries ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504, 529, 599])
def test_a_failure_that_may_pass_is_tried_as_often_as_the_setting_says(
    provider: ScriptedOpenAI, settings: Settings, status: int
) -> None:
    settings.TOOLHUB_MODEL_TRIES = 3
    provider.enqueue(*[limited(status)] * 9)

    asked = ask(provider, tries=settings.TOOLHUB_MODEL_TRIES)

    code = "provider_rate_limit" if status == 429 else "provider_error"
    assert (asked.error and asked.error.code, len(provider.requests)) == (code, 3)


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (limited(401), "provider_auth"),
        (limited(403), "provider_auth"),
        (limited(404), "provider_rejected"),
        (limited(400), "provider_rejected"),
        (limited(422), "provider_rejected"),
        (Raw(b'{"error": {"code": "context_length_exceeded"}}', 400), "context_length"),
        (Raw(b'{"error": {"message": "This model\'s maximum context length is 4096 tokens."}}', 400), "context_length"),
        (Raw(b'{"error": {"message": "the request exceeds the available context size"}}', 400), "context_length"),
        (Raw(sse({"error": {"message": "bad", "code": 400}})), "provider_rejected"),
        (Raw(b"", 301, {"Location": "/"}), "provider_rejected"),
    ],
)
def test_a_failure_that_stays_is_not_tried_again(provider: ScriptedOpenAI, reply: Raw, code: str) -> None:
    if reply.body.startswith(b"{"):
        reply = Raw(reply.body, reply.status, {"Content-Type": "application/json"})
    provider.enqueue(*[reply] * 3)

    asked = ask(provider)

    assert (asked.error and asked.error.code, len(provider.requests)) == (code, 1)


@pytest.mark.parametrize(
    ("error", "code", "again"),
    [
        ({"code": 401}, "provider_auth", False),
        ({"code": "403"}, "provider_auth", False),
        ({"type": "authentication_error"}, "provider_auth", False),
        ({"code": 402}, "provider_credit", False),
        ({"code": 429, "type": "insufficient_quota"}, "provider_credit", False),
        ({"code": 429, "message": "Insufficient balance"}, "provider_credit", False),
        ({"code": "rate_limit_exceeded", "type": "tokens"}, "provider_rate_limit", True),
        ({"type": "overloaded_error"}, "provider_error", True),
        ({"code": "invalid_prompt"}, "provider_rejected", False),
        ({"code": "context_length_exceeded", "type": "invalid_request_error"}, "context_length", False),
        ({"type": "invalid_request_error", "message": "above the context window"}, "context_length", False),
        ({"code": 400, "message": "prompt is too long: 215000 tokens > 200000 maximum"}, "context_length", False),
        ({"code": 413, "message": "Request exceeds the maximum size"}, "context_length", False),
        (
            {"code": 400, "message": "The input token count (9) exceeds the maximum number of tokens allowed (8)."},
            "context_length",
            False,
        ),
        (
            {"code": 400, "message": "This model's maximum prompt length is 8 but the request contains 9 tokens."},
            "context_length",
            False,
        ),
        ({"code": 400, "message": "Input is too long for requested model."}, "context_length", False),
        (
            {"code": 400, "message": "too many tokens: the total cannot exceed 4081"},
            "context_length",
            False,
        ),
        ({"code": 400, "message": "The temperature is too long a number"}, "provider_rejected", False),
        ({"code": "model_decommissioned"}, "model_gone", False),
        ({"code": "who knows", "type": None}, "provider_error", True),
        ({"code": 7}, "provider_error", True),
        ({"code": True}, "provider_error", True),
        ({}, "provider_error", True),
    ],
)
def test_an_error_object_means_what_its_status_would(error: Json, code: str, again: bool) -> None:
    with pytest.raises(Failed) as raised:
        raise_error_object({"error": {"message": "no", **error}})

    assert (raised.value.code, raised.value.again) == (code, again)
    assert raised.value.message == f"The provider reported: {error.get('message', 'no')}"


@pytest.mark.parametrize(
    "broken",
    [
        Raw(reset=True),
        Raw(b""),
        Raw(sse(chunk({"role": "assistant", "content": ""}), done=False)),
        Raw(sse(chunk({"content": "Hel"}), done=False), headers={"Content-Length": "5000"}),
        Raw(sse(chunk({"content": "Hel"}), '{"broken', done=False)),
        Raw(sse(chunk({"content": "Hel"}), {"error": {"message": "overloaded", "code": 529}})),
        Raw(b"<html>Bad gateway</html>", headers={"Content-Type": "text/html"}),
        limited(500),
        limited(429, "0"),
        limited(429, "-1"),
        limited(429, "soon"),
    ],
    ids=lambda raw: f"{raw.status} {raw.body[-30:]!r}",
)
def test_a_second_try_makes_a_broken_answer_good(provider: ScriptedOpenAI, broken: Raw) -> None:
    provider.enqueue(broken, Say("Hello"))

    asked = ask(provider)

    assert (asked.reply and asked.reply.text, len(provider.requests)) == ("Hello", 2)
    assert asked.restarts == (1 if b"Hel" in broken.body else 0)
    assert provider.bodies[0] == provider.bodies[1]


def test_a_provider_that_is_not_there_is_tried_and_told() -> None:
    provider = ScriptedOpenAI()
    provider._server.server_close()

    asked = ask(provider)

    assert asked.error is not None
    assert asked.error.code == "provider_unreachable"


def test_a_silent_provider_times_out(provider: ScriptedOpenAI, settings: Settings) -> None:
    settings.TOOLHUB_MODEL_SECONDS = 1
    provider.enqueue(Raw(delay=5), Raw(sse(chunk({"content": "Hel"}), done=False), linger=5))

    asked = ask(provider, tries=1)
    in_the_middle = ask(provider, tries=1)

    assert (asked.error and asked.error.code, in_the_middle.error and in_the_middle.error.code) == (
        "provider_timeout",
        "provider_timeout",
    )
    assert asked.seconds + in_the_middle.seconds < 4


@pytest.mark.parametrize(
    ("said", "wait"),
    [("30", 30.0), ("11.5", 11.5), ("600", 600.0), ("1000000", MAX_RETRY_AFTER), ("1e300", MAX_RETRY_AFTER)],
)
def test_a_long_wait_is_not_a_threads(provider: ScriptedOpenAI, said: str, wait: float) -> None:
    provider.enqueue(limited(wait=said))

    asked = ask(provider, tries=1, seconds=3_600)

    assert isinstance(asked.error, ModelBusy)
    assert (asked.error.wait, asked.error.code, len(provider.requests)) == (wait, "provider_rate_limit", 1)
    assert asked.seconds < 2


def test_a_wait_beyond_the_deadline_ends_the_call_at_once(provider: ScriptedOpenAI) -> None:
    provider.enqueue(limited(wait="30"))

    asked = ask(provider, seconds=20)

    assert (type(asked.error), asked.error and asked.error.code) == (ModelError, "provider_rate_limit")
    assert asked.seconds < 2


# -- Stops ------------------------------------------------------------------------------------------------------------

HANGING = [Raw(delay=8), Raw(sse(chunk({"content": "Hel"}), done=False), linger=8), limited(503, "9")]


@pytest.mark.parametrize("reply", HANGING, ids=["before headers", "in the stream", "between tries"])
def test_a_stopped_call_ends_soon(provider: ScriptedOpenAI, reply: Raw) -> None:
    provider.enqueue(reply)
    stopped = threading.Event()
    threading.Timer(0.3, stopped.set).start()
    begun = time.monotonic()

    with pytest.raises(CallStopped):
        ask(provider, stopped=stopped)

    assert time.monotonic() - begun < 1.5


@pytest.mark.parametrize("reply", HANGING[:2], ids=["before headers", "in the stream"])
def test_a_call_ends_at_its_deadline(provider: ScriptedOpenAI, reply: Raw) -> None:
    provider.enqueue(reply)
    begun = time.monotonic()

    with pytest.raises(CallStopped):
        ask(provider, seconds=0.5)

    assert time.monotonic() - begun < 1.5


# -- Words ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [401, 400, 500, 200])
def test_the_key_is_in_no_message_and_no_log(
    provider: ScriptedOpenAI, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    caplog.set_level(logging.DEBUG)
    echo = json.dumps({"error": {"message": f"Wrong key {KEY} in 'Bearer {KEY}'", "code": KEY}}).encode()
    provider.enqueue(Raw(echo, status, {"Content-Type": "application/json"}))

    asked = ask(provider, tries=1)

    assert asked.error is not None
    assert "Wrong key *** in 'Bearer ***'" in str(asked.error)
    assert KEY not in str(asked.error)
    assert KEY not in caplog.text


@pytest.mark.parametrize("key", ["", "or", "request"])
def test_a_key_that_is_none_masks_nothing(key: str) -> None:
    assert without_key("the request or more", key, 100) == "the request or more"


def test_only_the_beginning_of_a_refusal_is_read_for_what_it_means(provider: ScriptedOpenAI) -> None:
    for filler, code in ((MAX_REFUSAL - 100, "provider_credit"), (MAX_REFUSAL, "provider_rejected")):
        body = json.dumps({"error": {"message": "x" * filler + " insufficient balance"}}).encode()
        provider.enqueue(Raw(body, 400, {"Content-Type": "application/json"}))

        asked = ask(provider)

        assert asked.error is not None
        assert asked.error.code == code


def test_a_long_message_is_cut_and_storable(provider: ScriptedOpenAI) -> None:
    body = json.dumps({"error": {"message": "\x00\ud800" + "x" * 100_000}}).encode()
    provider.enqueue(Raw(body, 400, {"Content-Type": "application/json"}))

    asked = ask(provider)

    told = str(asked.error)
    assert (len(told), "(400): xx" in told) == (400, True)


@pytest.mark.parametrize("is_packed", [False, True])
def test_a_refusal_without_end_is_read_in_its_beginning_only(
    provider: ScriptedOpenAI, is_packed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    whole = zlib.compressobj(wbits=31)
    piece = whole.compress(b"x" * 60_000_000) + whole.flush() if is_packed else b"x" * 60_000
    headers = {"Content-Type": "text/plain", **({"Content-Encoding": "gzip"} if is_packed else {})}
    provider.enqueue(Raw(b"", 400, headers, pieces=[piece] * (1 if is_packed else 50)))

    tracemalloc.start()
    asked = ask(provider)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert asked.error is not None
    assert asked.error.code in ("provider_rejected", "provider_invalid")
    assert most < 60_000_000


def test_in_responses_the_last_event_ends_the_call_whatever_the_connection_does(provider: ScriptedOpenAI) -> None:
    provider.enqueue(Raw(sse(*Say("Hi").events(), done=False), linger=20))
    model_call = ModelCall(
        Endpoint(provider.url, KEY, "scripted"), Dialect.RESPONSES, b"{}", threading.Event(), time.monotonic() + 30
    )

    reply = model_call.run()

    assert (reply.text, reply.usage) == ("Hi", Usage(100, 10, 60))
    assert time.monotonic() - model_call.deadline < -15


# -- Pieces -----------------------------------------------------------------------------------------------------------

NOW = datetime(2026, 5, 1, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": " 3 "}, 3.0),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "1000000"}, 1e6),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after-ms": "x", "retry-after": "9"}, 9.0),
        ({"retry-after": email.utils.format_datetime(NOW.replace(second=40), usegmt=True)}, 40.0),
        ({"retry-after": email.utils.format_datetime(NOW.replace(year=2020), usegmt=True)}, 0.0),
        ({"retry-after": "Fri, 31 Feb 2026 12:00:00 GMT"}, None),
        ({"retry-after": "Fri, 01 May 99999 12:00:00 GMT"}, None),
    ],
)
def test_retry_after_is_read_in_all_its_forms(
    headers: dict[str, str], seconds: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", NOW.timestamp)

    assert retry_after(httpx2.Headers(headers)) == seconds


@given(st.text(st.characters(codec="latin-1", exclude_characters="\r\n\x00")))
def test_retry_after_never_raises(said: str) -> None:
    seconds = retry_after(httpx2.Headers([(b"retry-after", said.encode("latin-1"))]))

    assert seconds is None or 0 <= seconds < float("inf")


@pytest.mark.parametrize(
    ("pieces", "data"),
    [
        ([], []),
        ([b"data: a\n\ndata: b\n\n"], ["a", "b"]),
        ([b"data:a\n\n"], ["a"]),
        ([b"data:  a\n\n"], [" a"]),
        ([b"data: a\r\n\r\ndata: b\r\n\r\n"], ["a", "b"]),
        ([b"data: a\ndata: b\n\n"], ["a\nb"]),
        ([b": hi\n\nevent: x\nid: 1\ndata: a\n\n"], ["a"]),
        ([b"da", b"ta: a", b"\n", b"\ndata: b\n\n"], ["a", "b"]),
        ([b"data: \xf0\x9f", b"\x98\x80\n\n"], ["\U0001f600"]),
        ([b"data: a\xff\n\n"], ["a\ufffd"]),
        ([b"data: a\n\ndata: b"], ["a", "b"]),
        ([b"data: a\r\n\r", b"\ndata: b\r\n"], ["a", "b"]),
        ([b"\n\n\n"], []),
        ([b"data:\n\n"], [""]),
        ([b"database: 1\n\n"], []),
    ],
)
def test_server_sent_events_are_read_whatever_the_pieces(pieces: list[bytes], data: list[str]) -> None:
    assert list(sse_data(iter(pieces))) == data


@pytest.mark.long
@given(st.lists(st.text(st.characters(exclude_characters="\r\n", codec="utf-8"))), st.integers(1, 9))
def test_where_the_network_cuts_makes_no_difference(said: list[str], size: int) -> None:
    body = "".join(f"data: {each}\n\n" for each in said).encode()

    def pieces(length: int) -> Iterator[bytes]:
        return (body[start : start + length] for start in range(0, len(body), length))

    assert list(sse_data(pieces(size))) == said


def test_a_long_line_in_small_pieces_takes_linear_time() -> None:
    begun = time.monotonic()

    (data,) = sse_data(iter([b"data: ", *[b"x" * 100] * 80_000, b"\n\n"]))

    assert len(data) == 8_000_000
    assert time.monotonic() - begun < 2


# -- Whole turns ------------------------------------------------------------------------------------------------------

turns = pytest.mark.django_db(transaction=True)


@turns
def test_a_turn_whose_provider_asks_to_wait_goes_back_to_the_queue(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    provider.enqueue(limited(wait="30"))

    turn = run(session)

    assert (turn.status, turn.attempts, turn.rounds) == (TurnStatus.QUEUED, 0, 0)
    assert turn.next_attempt_at is not None
    assert 25 < (turn.next_attempt_at - datetime.now(UTC)).total_seconds() <= 30
    assert events_of(turn) == ["accepted", "started", "provider_busy"]
    assert work(turn).status == TurnStatus.QUEUED
    with organisation_scope(session.organisation_id):
        Turn.objects.filter(pk=turn.pk).update(next_attempt_at=None)
    assert (work(turn).status, turn.answer) == (TurnStatus.DONE, "OK.")


@turns
def test_text_that_was_shown_is_taken_back_with_an_event(session: ChatSession, provider: ScriptedOpenAI) -> None:
    provider.enqueue(Raw(sse(chunk({"content": "Hel"}), done=False)), Say("Good day."))

    turn = run(session)

    assert (turn.status, turn.answer) == (TurnStatus.DONE, "Good day.")
    assert events_of(turn) == ["accepted", "started", "attempt_restarted", "model", "done"]


@turns
def test_a_private_address_that_nobody_listed_is_refused(
    session: ChatSession, provider: ScriptedOpenAI, settings: Settings
) -> None:
    settings.TOOLHUB_PRIVATE_HOSTS = []

    turn = run(session)

    assert (turn.status, turn.error_code, provider.requests) == (TurnStatus.FAILED, "provider_refused", [])
    assert "127.0.0.1 is a private address" in turn.error_message


@turns
def test_a_provider_that_is_switched_off_gets_no_turn(session: ChatSession, provider: ScriptedOpenAI) -> None:
    with organisation_scope(session.organisation_id):
        Provider.objects.update(is_enabled=False)

    turn = run(session)

    assert (turn.status, turn.error_code, turn.error_message) == (
        TurnStatus.FAILED,
        "provider_disabled",
        "The provider Scripted is switched off.",
    )
    assert provider.requests == []


@turns
def test_without_any_address_nothing_leaves_the_house(
    session: ChatSession, provider: ScriptedOpenAI, settings: Settings
) -> None:
    settings.TOOLHUB_OFFLINE_MODEL_URL = ""
    settings.TOOLHUB_MODEL_TRIES = 1
    with organisation_scope(session.organisation_id):
        Provider.objects.update(base_url="")

    turn = run(session)

    assert (turn.status, turn.error_code, provider.requests) == (TurnStatus.FAILED, "provider_refused", [])


@turns
@pytest.mark.parametrize("reply", HANGING[:2], ids=["before headers", "in the stream"])
def test_a_turn_is_cancelled_while_its_provider_hangs(
    session: ChatSession, provider: ScriptedOpenAI, reply: Raw
) -> None:
    provider.enqueue(reply)
    turn = accept(session)
    worker = threading.Thread(target=work_on, args=(turn.pk,))
    worker.start()
    wait_until(lambda: len(provider.requests) == 1)
    begun = time.monotonic()

    with organisation_scope(session.organisation_id):
        ledger.cancel(turn, actor=session.membership)
    watch_held()
    worker.join(5)

    with organisation_scope(session.organisation_id):
        turn.refresh_from_db()
    assert (turn.status, turn.error_code) == (TurnStatus.CANCELLED, "cancelled")
    assert time.monotonic() - begun < 1.5


@turns
@pytest.mark.parametrize("reply", HANGING[:2], ids=["before headers", "in the stream"])
def test_a_turn_expires_while_its_provider_hangs(
    session: ChatSession, provider: ScriptedOpenAI, settings: Settings, reply: Raw
) -> None:
    settings.TOOLHUB_TURN_SECONDS = 1
    provider.enqueue(reply)
    begun = time.monotonic()

    turn = run(session)

    assert (turn.status, turn.error_code) == (TurnStatus.EXPIRED, "deadline")
    assert time.monotonic() - begun < 2.5


def wait_until(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + 5
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.01)


# -- A second opinion -------------------------------------------------------------------------------------------------


@pytest.fixture
def second_opinion(bob: Membership, session: ChatSession, llmock: Any) -> ChatSession:
    """Bob's session, with the agent at a server that others wrote to find fault with clients."""
    with organisation_scope(session.organisation_id):
        Provider.objects.update(base_url=llmock.base_url())
    return make_session(bob)


@turns
def test_second_opinion_a_text(second_opinion: ChatSession, llmock: Any) -> None:
    llmock.reply("Good day.")

    turn = run(second_opinion)

    assert (turn.status, turn.answer) == (TurnStatus.DONE, "Good day.")
    assert turn.input_tokens > 0
    llmock.assert_resilient(strict=True)


@turns
def test_second_opinion_a_tool_call(second_opinion: ChatSession, llmock: Any) -> None:
    llmock.call_tool("calculator", {"expression": "6*7"}).reply("It is 42.")

    turn = run(second_opinion)

    assert (turn.status, turn.answer, turn.rounds) == (TurnStatus.DONE, "It is 42.", 2)
    llmock.assert_resilient(strict=True)


@turns
@pytest.mark.parametrize(
    "fault",
    [
        lambda llmock: llmock.rate_limit(retry_after=1),
        lambda llmock: llmock.fail(503),
        lambda llmock: llmock.disconnect(after_chunks=2),
        lambda llmock: llmock.truncate(after_chunks=2),
        lambda llmock: llmock.corrupt(after_chunks=2),
    ],
    ids=["rate limit", "503", "disconnect", "truncate", "corrupt"],
)
def test_second_opinion_a_fault_is_lived_through(
    second_opinion: ChatSession, llmock: Any, fault: Callable[[Any], Any]
) -> None:
    fault(llmock.tool_mode("off"))

    turn = run(second_opinion)

    assert (turn.status, turn.error_code) == (TurnStatus.DONE, "")
    verdict = llmock.verdict()
    verdict.assert_ok()
    assert (verdict.attempts, verdict.faults) == (2, 1)
    # Whether it takes our second try for a retry after a corrupt chunk depends on when it noticed that we hung up.
    assert {finding.code for finding in verdict.warnings} <= {"malformed_chunk_ignored"}


@turns
@pytest.mark.parametrize("kind", ["malformed_arguments", "unknown_tool"])
def test_second_opinion_a_broken_tool_call(second_opinion: ChatSession, llmock: Any, kind: str) -> None:
    llmock.break_tool_call(kind)

    turn = run(second_opinion)

    assert (turn.status, turn.error_code) == (TurnStatus.DONE, "")
    llmock.assert_resilient(strict=True)


def test_the_offline_model_alone_is_told_each_call_in_a_line_for_people() -> None:
    calls = [
        {"id": name, "type": "function", "function": {"name": name, "arguments": arguments}}
        for name, arguments in (("task_list", "{}"), ("task_create", '{"title": "x"}'), ("own_tool", "{}"))
    ]
    messages: list[Any] = [
        {"role": "user", "content": "before"},
        {"role": "assistant", "content": None, "tool_calls": [{**calls[0], "id": "older"}]},
        {"role": "user", "content": "now"},
        {"role": "assistant", "content": None, "tool_calls": calls},
    ]

    lines = displays_of(messages)

    assert lines == {"task_list": "Listing open tasks", "task_create": "Adding task: x"}
    assert json.loads(request_body("m", messages, "[]", displays=lines))["metadata"] == lines
    assert "metadata" not in json.loads(request_body("m", messages, "[]"))
    assert not Endpoint("https://api.example.org/v1", "key", "m").is_offline
    assert Endpoint("http://127.0.0.1:1/v1", "offline", "m", "127.0.0.1:1").is_offline


@pytest.mark.parametrize(("base_url", "namespace"), [("https://api.openai.com/v1", "add"), ("https://a.test/v1", None)])
def test_openai_is_told_the_namespace_of_an_added_tool_that_its_reply_does_not_say(
    base_url: str, namespace: str | None
) -> None:
    provider = ResolvedProvider(UUID(int=1), "p", "P", base_url, True, Dialect.RESPONSES, "key", takes_added_tools=True)
    items = '{"type":"additional_tools","role":"developer","tools":[{"name":"add"}]}'
    calls = [{"id": "c", "type": "function", "function": {"name": "add", "arguments": "{}"}}]
    messages: list[Json] = [
        {"role": "tools", "step": 1, "items": items, "content": ""},
        {"role": "assistant", "content": None, "tool_calls": calls},
    ]

    question = Question(a_model(provider=provider), messages, WIRE, all_tools=WIRE)

    (sent,) = [part for part in map(json.loads, question.parts) if part["type"] == "function_call"]
    assert sent.get("namespace") == namespace
