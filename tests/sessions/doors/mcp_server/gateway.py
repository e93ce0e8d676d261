"""A web server and workers in the process of the test, and the SDK's own client of MCP."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

import httpx2
import mcp_types as types
import pytest
from django.db import connection
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from sessions.models import Turn
from sessions.turns import ledger
from sessions.worker.process import work_on
from tests.serving import serving
from toolhub.tenants.rows.scope import system_scope
from toolhub.web.handler import Handler
from toolhub.web.intake import ClientAddress, LimitedBodies
from toolhub.web.mcp_door import McpDoor

T = TypeVar("T")
BOTH = ("auto", "legacy")


@contextmanager
def web_server() -> Iterator[str]:
    """The origin of a web server as `toolhub/asgi.py` puts it together, but for static files."""
    handler = Handler()
    with serving(ClientAddress(LimitedBodies(McpDoor(handler)), 0)) as origin:
        yield origin
    handler.threads.shutdown()


@contextmanager
def workers(count: int = 3) -> Iterator[None]:
    """So many threads that take what is free, as workers' do."""
    over = threading.Event()

    def work() -> None:
        try:
            while not over.wait(0.01):
                with system_scope():
                    free = Turn.objects.filter(ledger.claimable(), ledger.next_in_session()).values_list(
                        "pk", flat=True
                    )
                    found = list(free[:5])
                for turn_id in found:
                    work_on(turn_id)
        finally:
            connection.close()

    threads = [threading.Thread(target=work, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(20)


@asynccontextmanager
async def connected(url: str, token: str, mode: str = "auto", **more: Any) -> AsyncIterator[Client]:
    """The SDK's client at this address, with this token."""
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode, **more) as client,
    ):
        yield client


def ask(url: str, token: str, question: Callable[[Client], Awaitable[T]], mode: str = "auto", **more: Any) -> T:
    """What one client is answered."""

    async def asked() -> T:
        async with connected(url, token, mode, **more) as client:
            return await question(client)

    return asyncio.run(asked())


def names_at(url: str, token: str, mode: str = "auto") -> list[str]:
    return [tool.name for tool in ask(url, token, lambda client: client.list_tools(), mode).tools]


def call(url: str, token: str, tool: str, mode: str = "auto", /, **arguments: Any) -> types.CallToolResult:
    result: types.CallToolResult = ask(url, token, lambda client: client.call_tool(tool, arguments), mode)
    return result


def refusal(url: str, token: str, tool: str, mode: str = "auto") -> int:
    """The code of the protocol error that a call of this tool meets."""

    async def refused(client: Client) -> int:
        with pytest.raises(MCPError) as raised:
            await client.call_tool(tool, {"expression": "1+1"})
        return int(raised.value.error.code)

    return ask(url, token, refused, mode)


def text_of(result: types.CallToolResult) -> str:
    return "\n".join(each.text for each in result.content if isinstance(each, types.TextContent))
