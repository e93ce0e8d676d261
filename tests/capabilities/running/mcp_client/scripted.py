"""A scripted MCP server for tests: the SDK's low-level server with tools that do what a test needs of one.

As a process it is started by `python scripted.py`, so that it imports nothing of the tests; over HTTP it is served by
`over_http.py`. What it saw of requests is in `Script.requests`.
"""

from __future__ import annotations

import base64
import os
import sys
import time
from collections.abc import Callable, Mapping
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
