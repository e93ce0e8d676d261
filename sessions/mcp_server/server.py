"""The server that MCP clients meet: it lists the tools of the address that a request came to, and makes their calls.

Nothing of a client is kept between two of its requests, so that any web server can answer each of them.
"""

from __future__ import annotations

from contextlib import aclosing
from functools import partial
from typing import Any
from uuid import UUID

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.shared.exceptions import MCPError

from capabilities.contract.spec import ToolSpec
from sessions.loading.addresses import offered_to
from sessions.mcp_server.callers import Caller
from sessions.mcp_server.changes import Listening, changes
from sessions.mcp_server.results import failed, result_of, waiting_result
from sessions.mcp_server.writes import NoSuchTool, begin_call, stop_call
from sessions.models import TurnStatus
from sessions.turns.events import Event, watch
from sessions.turns.fencing import Conflict

#: Where a request of ours carries its Caller.
CALLER = "toolhub.caller"
#: Milliseconds that a client may keep a list without asking again, where nothing tells it that the list changed.
LIST_FRESH = 10_000
#: A turn in one of these waits for a person.
WAITS_FOR_PERSON = {str(TurnStatus.WAITING_APPROVAL), str(TurnStatus.WAITING_INPUT)}
NAME = "toolhub"

Context = ServerRequestContext[Any, Any]


def caller_of(context: Context) -> Caller:
    """Who makes this request, as `toolhub/mcp_door.py` found."""
    assert context.request is not None
    caller: Caller = context.request.scope[CALLER]
    return caller


async def list_tools(context: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    """The tools of the address that this caller may use: the same for each of its requests, until a right or a tool
    changes."""
    caller = caller_of(context)
    address = caller.address

    def listed() -> list[types.Tool]:
        return [as_tool(spec) for spec in offered_to(caller.member.pk, address.agent, address.toolkit).listed]

    return types.ListToolsResult(tools=await caller.run(listed), ttl_ms=LIST_FRESH, cache_scope="private")


def as_tool(spec: ToolSpec) -> types.Tool:
    """The tool as MCP defines one; what it says of its effect is a hint."""
    function = spec.definition["function"]
    hints = types.ToolAnnotations(read_only_hint=spec.effect == "read", open_world_hint=spec.effect == "external")
    return types.Tool(
        name=spec.name,
        description=function["description"],
        input_schema=function["parameters"],
        annotations=hints,
    )


async def call_tool(context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
    """Make the call as a turn of its own, and wait for its end. A client that leaves stops it."""
    caller = caller_of(context)
    try:
        turn = await caller.run(partial(begin_call, caller, params.name, params.arguments or {}))
    except NoSuchTool:
        raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name[:100]}") from None
    except Conflict as refused:
        return failed(f"{refused} ({refused.code})")
    try:
        return await _followed(context, caller, turn.pk)
    except anyio.get_cancelled_exc_class():
        with anyio.CancelScope(shield=True):
            await caller.run(partial(stop_call, caller, turn.pk))
        raise


async def _followed(context: Context, caller: Caller, turn_id: UUID) -> types.CallToolResult:
    """Tell the client of the call's progress until it has ended, or waits for a person."""
    told = 0.0
    async with aclosing(watch(turn_id, caller.organisation_id)) as events:  # type: ignore[type-var]
        async for event in events:
            if not isinstance(event, Event):
                continue
            if event.type in WAITS_FOR_PERSON:
                return await caller.run(partial(waiting_result, caller, turn_id))
            if (line := _progress_line(event)) is not None:
                told = max(told + 1, float(event.payload.get("seconds", 0)))
                await context.session.report_progress(told, message=line)
    return await caller.run(partial(result_of, caller, turn_id))


def _progress_line(event: Event) -> str | None:
    """What a client is told of an event, or nothing."""
    match event.type:
        case "accepted":
            return "The call is on record, and waits for a worker."
        case "tool_started":
            return "The call has begun."
        case "tool_done":
            return "The call has ended."
        case "tool_progress":
            return f"Still running after {event.payload['seconds']} s."
        case TurnStatus.WAITING_CHILD:
            return "Another agent works on it."
        case TurnStatus.WAITING_TASK:
            return "The far side works on it."
    return None


async def listen(context: Context, params: types.SubscriptionsListenRequestParams) -> types.SubscriptionsListenResult:
    """Tell the client of changes of its own list, until it leaves or its token ends."""
    bus = InMemorySubscriptionBus()
    stream = ListenHandler(bus)

    async def forward(mine: Listening) -> None:
        while not mine.is_over:
            if await mine.next():
                await bus.publish(ToolsListChanged())
        stream.close()

    async with changes().listening(caller_of(context)) as mine, anyio.create_task_group() as tasks:
        tasks.start_soon(forward, mine)
        result = await stream(context, params)
        tasks.cancel_scope.cancel()
    return result


class GatewayServer(Server[Any]):
    """Says in the older protocol too that it tells when a list has changed: there on the stream that a GET opens."""

    def create_initialization_options(
        self, notification_options: NotificationOptions | None = None, *args: Any, **more: Any
    ) -> InitializationOptions:
        return super().create_initialization_options(NotificationOptions(tools_changed=True), *args, **more)


def make_server() -> Server[Any]:
    return GatewayServer(NAME, on_list_tools=list_tools, on_call_tool=call_tool, on_subscriptions_listen=listen)


def make_manager(most_bytes: int) -> StreamableHTTPSessionManager:
    """Serves the server over HTTP, bodies of so many bytes at most, without sessions of its own. It runs once.

    Who asks, and under which name of this service, was checked before (`toolhub/mcp_door.py`).
    """
    return StreamableHTTPSessionManager(make_server(), stateless=True, max_request_body_size=most_bytes)
