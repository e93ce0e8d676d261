"""A scripted MCP server for tests: the SDK's low-level server with tools that do what a test needs of one.

Over HTTP it runs in a thread of the test (`serving`), for clients of both protocols; as a process it is started by
`python scripted.py`. What it saw of requests is in `Script.seen`.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import mcp_types as types
from mcp.server import Server, ServerRequestContext
from mcp.server.lowlevel import NotificationOptions
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import ToolsListChanged
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.serving import serving

MODERN, OLD = "2026-07-28", "2025-11-25"
PIXEL = base64.b64encode(b"\x89PNG not really").decode()
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}}
NONE: dict[str, Any] = {"type": "object", "properties": {}}
Refusal = tuple[int, dict[str, str], bytes]


@dataclass
class Script:
    """What the server does, and what it saw."""

    name: str = "scripted"
    tools: dict[str, dict[str, Any]] = field(default_factory=dict)
    #: name -> what a call of it answers: a result, or a function of the request's parameters that returns one.
    answers: dict[str, Any] = field(default_factory=dict)
    #: (method, headers) of every HTTP request, and (name, parameters) of every call.
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    #: Answer each HTTP request so instead: (status, headers, body); or a function of its headers that says so, or None.
    refuse: Refusal | Callable[[dict[str, str]], Refusal | None] | None = None
    #: Sessions that it knows nothing of any more.
    forgotten: set[str] = field(default_factory=set)
    ttl_ms: int = 0
    cache_scope: str = "private"
    instructions: str | None = "Be kind."
    bus: InMemorySubscriptionBus | None = None

    def tool(self, name: str, answer: Any = None, *, schema: Mapping[str, Any] = TEXT, **more: Any) -> None:
        self.tools[name] = {"name": name, "description": f"Does {name}.", "inputSchema": dict(schema), **more}
        self.answers[name] = answer


def text_result(text: str, **more: Any) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], **more)


def usual() -> Script:
    """A server with the tools that most tests need."""
    script = Script()
    script.tool("echo", lambda params: text_result(params.arguments.get("text", "")))
    script.tool("slow", slow)
    script.tool("die", lambda params: os._exit(7))
    return script


def changing() -> Script:
    """A server whose list changes when its tool is called, and that says so in both protocols."""
    script = Script(bus=InMemorySubscriptionBus())

    async def change(params: Any, context: Any) -> types.CallToolResult:
        script.tool(f"new{len(script.tools)}", text_result("new"))
        assert script.bus is not None
        await script.bus.publish(ToolsListChanged())
        if context.protocol_version == OLD:
            await context.session.send_tool_list_changed()
        return text_result("changed")

    script.tool("change", change, schema=NONE)
    return script


async def slow(params: Any) -> types.CallToolResult:
    await anyio.sleep(30)
    return text_result("late")


def server_of(script: Script) -> Server[Any]:
    async def list_tools(
        context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        tools = [types.Tool.model_validate(tool) for tool in script.tools.values()]
        return types.ListToolsResult(tools=tools, ttl_ms=script.ttl_ms, cache_scope=script.cache_scope)

    async def call_tool(context: ServerRequestContext[Any], params: types.CallToolRequestParams) -> Any:
        script.calls.append(params.model_dump(by_alias=True, mode="json", exclude_none=True))
        if params.name not in script.answers:
            raise MCPError(code=types.INVALID_PARAMS, message=f"Unknown tool {params.name}")
        answer = script.answers[params.name]
        try:
            if callable(answer):
                wants_context = "context" in answer.__code__.co_varnames[: answer.__code__.co_argcount]
                answer = answer(params, context) if wants_context else answer(params)
                if hasattr(answer, "__await__"):
                    answer = await answer
        except anyio.get_cancelled_exc_class():
            script.cancelled.append(params.name)
            raise
        return answer

    server = Server(
        script.name,
        version="1.0",
        instructions=script.instructions,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_subscriptions_listen=ListenHandler(script.bus) if script.bus is not None else None,
    )
    if script.bus is not None:
        options = server.create_initialization_options(NotificationOptions(tools_changed=True))
        server.create_initialization_options = lambda *_, **__: options  # type: ignore[method-assign]
    return server


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


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


if __name__ == "__main__":

    async def main() -> None:
        server = server_of(changing() if sys.argv[1:] == ["changing"] else usual())
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())

    anyio.run(main)
