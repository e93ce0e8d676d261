"""The scripted MCP server over HTTP, in a thread of the test, for clients of both protocols."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from tests.capabilities.running.mcp_client.scripted import MODERN, Script, server_of
from tests.serving import serving


class Recorder:
    """Notes each request before the server sees it, or answers in its place."""

    def __init__(self, app: ASGIApp, script: Script) -> None:
        self.app = app
        self.script = script

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = {name.decode().lower(): value.decode("latin-1") for name, value in scope["headers"]}
            self.script.requests.append((scope["method"], headers | {":query": scope["query_string"].decode()}))
            refuse = self.script.refuse(headers) if callable(self.script.refuse) else self.script.refuse
            if headers.get("mcp-session-id") in self.script.forgotten:
                refuse = (404, {}, b"")
            if refuse is not None:
                status, more, body = refuse
                sent = [(name.encode(), value.encode()) for name, value in more.items()]
                await send({"type": "http.response.start", "status": status, "headers": sent})
                await send({"type": "http.response.body", "body": body})
                return
        await self.app(scope, receive, send)


@contextmanager
def http_server(script: Script, *, is_stateless: bool = True, json_response: bool = False) -> Iterator[str]:
    """The address of the scripted server over HTTP."""
    app = server_of(script).streamable_http_app(stateless_http=is_stateless, json_response=json_response)
    with serving(Recorder(app, script)) as origin:
        yield f"{origin}/mcp"


def only_old(app: Any) -> Callable[..., Any]:
    """The same server as it was before 2026-07-28: what it does not know is refused as such servers do."""

    async def old(scope: Any, receive: Any, send: Any) -> None:
        headers = {name.decode().lower(): value.decode() for name, value in scope.get("headers", ())}
        if scope["type"] == "http" and headers.get("mcp-protocol-version") == MODERN:
            await send({"type": "http.response.start", "status": 400, "headers": []})
            await send({"type": "http.response.body", "body": b"Bad Request: Unsupported protocol version"})
            return
        await app(scope, receive, send)

    return old


@contextmanager
def old_http_server(script: Script) -> Iterator[str]:
    """The address of the scripted server as one of protocol 2025-11-25, which keeps sessions."""
    app = server_of(script).streamable_http_app(stateless_http=False)
    with serving(Recorder(only_old(app), script)) as origin:
        yield f"{origin}/mcp"


def raw_server(answers: dict[str, Callable[[dict[str, Any]], Any]]) -> AbstractContextManager[str]:
    """A modern server over HTTP that answers each method with this, unchecked: what an SDK would not send."""
    discovered = {
        "supportedVersions": [MODERN],
        "capabilities": {"tools": {"listChanged": True}},
        "ttlMs": 0,
        "cacheScope": "private",
        "resultType": "complete",
    }

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        body = b""
        while True:
            event = await receive()
            body += event.get("body", b"")
            if not event.get("more_body"):
                break
        message = json.loads(body)
        known: dict[str, Any] = {"server/discover": lambda _: discovered} | answers
        if message["method"] in known:
            answer = {"result": {"resultType": "complete", **known[message["method"]](message)}}
        else:
            answer = {"error": {"code": -32601, "message": "Method not found"}}
        sent = json.dumps({"jsonrpc": "2.0", "id": message.get("id"), **answer}).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": sent})

    @contextmanager
    def running() -> Iterator[str]:
        with serving(app) as origin:
            yield f"{origin}/mcp"

    return running()
