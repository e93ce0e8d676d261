"""A provider for tests: a real HTTP server that speaks OpenAI's chat completions and responses from a script.

`enqueue` says what the next requests get, `requests` holds what came. A reply is a Say, told in the dialect that was
asked in, or a Raw; a callable is given the request and returns one.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]


def call(name: str, arguments: Any = None, id: str | None = None) -> Json:
    """One tool call, complete."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    return {"id": id or f"call_{name}", "type": "function", "function": {"name": name, "arguments": text}}


_KEYS = itertools.count(1)


@dataclass
class Say:
    """A well-formed reply, streamed in pieces."""

    text: str = ""
    calls: Sequence[Json] = ()
    finish_reason: str | None = None
    usage: Json | None = field(
        default_factory=lambda: {
            "prompt_tokens": 100,
            "completion_tokens": 10,
            "total_tokens": 110,
            "prompt_tokens_details": {"cached_tokens": 60},
        }
    )
    #: Seconds before the first byte.
    delay: float = 0.0
    #: In responses: what the model thought, encrypted, in front of everything else.
    reasoning: str = ""
    #: In responses: entries of `tools` that the provider searched and found, in front of words and calls.
    found: Sequence[Json] | None = None
    #: Stands in the ids of its items in responses.
    key: str = field(default_factory=lambda: str(next(_KEYS)))

    def events(self) -> list[Json]:
        """The reply as the events of a streamed response."""
        output = self.output()
        events: list[Json] = [{"type": "response.created", "response": {**_RESPONSE, "status": "in_progress"}}]
        for place, item in enumerate(output):
            events += _events_of(item, place)
        ending: Json = {**_RESPONSE, "output": output, "status": "completed", "usage": _as_responses(self.usage)}
        if self.finish_reason in ("length", "content_filter"):
            reason = "max_output_tokens" if self.finish_reason == "length" else self.finish_reason
            ending |= {"status": "incomplete", "incomplete_details": {"reason": reason}}
        events.append({"type": f"response.{ending['status']}", "response": ending})
        return [{**event, "sequence_number": number} for number, event in enumerate(events)]

    def output(self) -> list[Json]:
        """The items of the response."""
        output: list[Json] = []
        if self.reasoning:
            output.append(
                {"type": "reasoning", "id": f"rs_{self.key}", "summary": [], "encrypted_content": self.reasoning}
            )
        if self.found is not None:
            server = {"execution": "server", "call_id": None, "status": "completed"}
            paths = [entry["name"] for entry in self.found]
            call = {"type": "tool_search_call", "id": f"tsc_{self.key}", **server, "arguments": {"paths": paths}}
            output += [call, {"type": "tool_search_output", "id": f"tso_{self.key}", **server, "tools": [*self.found]}]
        if self.text:
            content = [{"type": "output_text", "text": self.text, "annotations": [], "logprobs": []}]
            output.append(
                {
                    "type": "message",
                    "id": f"msg_{self.key}",
                    "role": "assistant",
                    "status": "completed",
                    "content": content,
                }
            )
        for place, each in enumerate(self.calls):
            function = each["function"]
            output.append(
                {
                    "type": "function_call",
                    "id": f"fc_{self.key}_{place}",
                    "call_id": each.get("id"),
                    "status": "completed",
                    **function,
                }
            )
        return output

    def chunks(self) -> list[Json]:
        deltas: list[Json] = [{"role": "assistant", "content": ""}]
        deltas += [{"content": piece} for piece in _pieces(self.text)]
        for index, each in enumerate(self.calls):
            function = each["function"]
            deltas.append(
                {"tool_calls": [{"index": index, **each, "function": {"name": function["name"], "arguments": ""}}]}
            )
            deltas += [
                {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
                for piece in _pieces(function["arguments"])
            ]
        chunks = [_chunk(delta) for delta in deltas]
        chunks.append(_chunk({}, self.finish_reason or ("tool_calls" if self.calls else "stop")))
        if self.usage is not None:
            chunks.append({**_chunk({}), "choices": [], "usage": self.usage})
        return chunks


@dataclass
class Raw:
    """Any bytes at all."""

    body: bytes = b""
    status: int = 200
    headers: Json = field(default_factory=lambda: {"Content-Type": "text/event-stream"})
    #: Seconds before the first byte, and with the connection open after the last.
    delay: float = 0.0
    linger: float = 0.0
    #: End the connection without a word.
    reset: bool = False
    #: More bytes behind the body, each a write of its own.
    pieces: Sequence[bytes] = ()


_RESPONSE: Json = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "model": "scripted",
    "output": [],
    "tools": [],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
}


def _as_responses(usage: Json | None) -> Json | None:
    """Usage under the names of responses."""
    names = {
        "prompt_tokens": "input_tokens",
        "prompt_tokens_details": "input_tokens_details",
        "completion_tokens": "output_tokens",
        "completion_tokens_details": "output_tokens_details",
    }
    if not usage:
        return usage
    told: Json = {
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }
    for name, value in usage.items():
        name = names.get(name, name)
        told[name] = {**told[name], **value} if name in told and isinstance(value, dict) else value
    return told


def _events_of(item: Json, place: int) -> list[Json]:
    """One item of a response as it is streamed."""
    where: Json = {"output_index": place, "item_id": item["id"]}
    begun, middle = {**item, "status": "in_progress"}, list[Json]()
    if item["type"] == "message":
        text, where = item["content"][0]["text"], {**where, "content_index": 0}
        begun |= {"content": []}
        middle = [
            {"type": "response.output_text.delta", **where, "delta": piece, "logprobs": []} for piece in _pieces(text)
        ]
        middle.append({"type": "response.output_text.done", **where, "text": text, "logprobs": []})
    elif item["type"] == "function_call":
        arguments = item["arguments"]
        begun |= {"arguments": ""}
        middle = [
            {"type": "response.function_call_arguments.delta", **where, "delta": piece} for piece in _pieces(arguments)
        ]
        middle.append(
            {"type": "response.function_call_arguments.done", **where, "name": item["name"], "arguments": arguments}
        )
    elif item["type"] == "reasoning":  # the first event holds less than the last
        begun |= {"encrypted_content": "incomplete"}
    elif item["type"] == "tool_search_call":
        begun |= {"arguments": {}}
    else:
        begun |= {"tools": []}
    first: Json = {"type": "response.output_item.added", "output_index": place, "item": begun}
    last: Json = {"type": "response.output_item.done", "output_index": place, "item": item}
    return [first, *middle, last]


Reply = Say | Raw
Script = Reply | Callable[[Json], Reply]


def sse(*events: Any, done: bool = True) -> bytes:
    """Server-sent events: dicts as JSON, strings and bytes as they are."""
    parts = []
    for event in events:
        if isinstance(event, bytes):
            parts.append(b"data: " + event + b"\n\n")
        else:
            text = event if isinstance(event, str) else json.dumps(event)
            parts.append(f"data: {text}\n\n".encode())
    return b"".join(parts) + (b"data: [DONE]\n\n" if done else b"")


def rendered(reply: Say, path: str) -> Raw:
    """The reply in the dialect of the address."""
    if path.endswith("/responses"):
        return Raw(sse(*reply.events(), done=False), delay=reply.delay)
    return Raw(sse(*reply.chunks()), delay=reply.delay)


def _chunk(delta: Json, finish_reason: str | None = None) -> Json:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "scripted", "choices": [choice]}


chunk = _chunk


def _pieces(text: str) -> list[str]:
    return [text[start : start + 7] for start in range(0, len(text), 7)]


class ScriptedOpenAI:
    """Serves on a free loopback port from `start` to `stop`. Without a script left, it says "OK."."""

    def __init__(self) -> None:
        self.script: list[Script] = []
        self.requests: list[Json] = []
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        #: The address that each request came to, below the URL.
        self.paths: list[str] = []
        #: What `GET /models` gets: names, rows, or a Raw.
        self.models: Sequence[str | Json] | Raw = ["scripted"]
        #: The headers of each request for that.
        self.listings: list[dict[str, str]] = []
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def enqueue(self, *replies: Script) -> None:
        self.script += replies

    def start(self) -> ScriptedOpenAI:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def listed(self) -> Raw:
        if isinstance(self.models, Raw):
            return self.models
        rows = [each if isinstance(each, dict) else {"id": each, "object": "model"} for each in self.models]
        body = json.dumps({"object": "list", "data": rows}).encode()
        return Raw(body, headers={"Content-Type": "application/json"})

    def take(self, path: str, body: bytes, headers: dict[str, str]) -> Reply:
        with self._lock:
            request = json.loads(body)
            self.paths.append(path.removeprefix("/v1"))
            self.requests.append(request)
            self.bodies.append(body)
            self.headers.append(headers)
            script: Script = self.script.pop(0) if self.script else Say("OK.")
        return script(request) if callable(script) else script

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                with suppress(BrokenPipeError, ConnectionResetError):
                    outer.listings.append({name.lower(): value for name, value in self.headers.items()})
                    self._answer(outer.listed() if self.path.partition("?")[0] == "/v1/models" else Raw(status=404))

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                with suppress(BrokenPipeError, ConnectionResetError):
                    headers = {name.lower(): value for name, value in self.headers.items()}
                    self._answer(outer.take(self.path, body, headers))

            def _answer(self, reply: Reply) -> None:
                raw = reply if isinstance(reply, Raw) else rendered(reply, self.path)
                time.sleep(raw.delay)
                self.close_connection = True
                if raw.reset:
                    return
                self.send_response(raw.status)
                for name, value in {**raw.headers, "Connection": "close"}.items():
                    self.send_header(name, str(value))
                self.end_headers()
                self.wfile.write(raw.body)
                self.wfile.flush()
                for piece in raw.pieces:
                    time.sleep(0.02)
                    self.wfile.write(piece)
                    self.wfile.flush()
                time.sleep(raw.linger)

            def log_message(self, *args: object) -> None:
                pass

        return Handler
