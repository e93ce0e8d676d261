"""A provider for tests: a real HTTP server that speaks the OpenAI chat-completions protocol from a script.

`enqueue` says what the next requests get, `requests` holds what came. A reply is a Say or a Raw; a callable is given
the request and returns one.
"""

from __future__ import annotations

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

    def take(self, body: bytes, headers: dict[str, str]) -> Reply:
        with self._lock:
            request = json.loads(body)
            self.requests.append(request)
            self.bodies.append(body)
            self.headers.append(headers)
            script: Script = self.script.pop(0) if self.script else Say("OK.")
        return script(request) if callable(script) else script

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                with suppress(BrokenPipeError, ConnectionResetError):
                    self._answer(outer.take(body, {name.lower(): value for name, value in self.headers.items()}))

            def _answer(self, reply: Reply) -> None:
                raw = reply if isinstance(reply, Raw) else Raw(sse(*reply.chunks()), delay=reply.delay)
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
