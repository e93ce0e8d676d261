"""The server that MCP clients meet: it lists the tools of the address that a request came to, and makes their calls.

Nothing of a client is kept between two of its requests, so that any web server can answer each of them.
"""

from __future__ import annotations

import time
from contextlib import aclosing
from functools import partial
from typing import Any

import anyio
import mcp_types as types
from django.conf import settings
from django.utils.crypto import salted_hmac
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from capabilities.contract.spec import ToolSpec
from sessions.doors.chats.readers import Reader, open_readers
from sessions.doors.mcp_server.callers import McpCaller
from sessions.doors.mcp_server.changes import Listening, changes, usable
from sessions.doors.mcp_server.results import failed, is_declined, result_of, waiting_result
from sessions.doors.mcp_server.writes import (
    NoSuchTool,
    NothingWaits,
    Taken,
    begin_call,
    hand_over,
    resumed_call,
    stop_call,
)
from sessions.models import TurnStatus
from sessions.selection.loading.offered import offered_to
from sessions.turns.events import Event, watch
from sessions.turns.fencing import Conflict
from toolhub.durations import duration

#: Where a request of ours carries its McpCaller.
CALLER = "toolhub.caller"
#: Milliseconds that a client may keep a list without asking again, where it hears of no change of the list.
LIST_FRESH = 10_000
#: A turn in one of these waits for a person.
WAITS_FOR_PERSON = {str(TurnStatus.WAITING_APPROVAL), str(TurnStatus.WAITING_INPUT)}
NAME = "toolhub"
#: Seconds that a client which came back is kept waiting for the person, before it is asked again.
PATIENCE = 30.0
#: Seconds for which it can come back: as long as an approval can wait at most.
STATE_SECONDS = 30 * 24 * 3600.0

Context = ServerRequestContext[Any, Any]


def caller_of(context: Context) -> McpCaller:
    """Return the caller of this request, as `toolhub/web/mcp_door.py` found it."""
    assert context.request is not None
    caller: McpCaller = context.request.scope[CALLER]
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


async def call_tool(
    context: Context, params: types.CallToolRequestParams
) -> types.CallToolResult | types.InputRequiredResult:
    """Make the call as a turn of its own, or go on with one that waited for a person, and wait for its end. A client
    that leaves stops it, and so do a user who declines and a token that ends."""
    caller, result = caller_of(context), None
    while result is None:  # another request had the result meanwhile: this call is one more
        with anyio.CancelScope(shield=True):  # what is on record has somebody who stops it
            taken = await _taken(caller, params)
        if isinstance(taken, types.CallToolResult):
            return taken
        try:
            if is_declined(params.input_responses):
                await caller.run(partial(stop_call, caller, taken.turn.pk))
            result = await _followed(context, caller, taken, has_come_back=params.request_state is not None)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await caller.run(partial(stop_call, caller, taken.turn.pk))
            raise
    return result


async def _taken(caller: McpCaller, params: types.CallToolRequestParams) -> Taken | types.CallToolResult:
    """The call on record; or why it cannot be taken now, for a model."""
    arguments, state = params.arguments or {}, params.request_state
    try:
        if state is None:
            return await caller.run(partial(begin_call, caller, params.name, arguments))
        return await caller.run(partial(resumed_call, caller, state, params.name, arguments))
    except NoSuchTool:
        raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name[:100]}") from None
    except NothingWaits:
        raise MCPError(types.INVALID_PARAMS, "Nothing waits for this requestState any more") from None
    except Conflict as refused:
        return failed(f"{refused} ({refused.code})")


async def _followed(
    context: Context, caller: McpCaller, taken: Taken, *, has_come_back: bool
) -> types.CallToolResult | types.InputRequiredResult | None:
    """Tell the client of the call's progress until it has ended, or waits for a person: for PATIENCE seconds longer
    where its user has opened the page. None where another request has had the result."""
    turn_id, opens_pages, readers = taken.turn.pk, _opens_pages(context), open_readers()
    reader = Reader(caller.member.pk, taken.turn.session_id, token_id=caller.token.pk)
    progress, until = 0.0, time.monotonic() + (PATIENCE if has_come_back else 0.0)
    with readers.reading(reader):
        async with aclosing(watch(turn_id, caller.organisation_id)) as events:  # type: ignore[type-var]
            async for event in events:
                if await readers.must_ask(reader) and not await caller.run(partial(usable, [caller.token.pk])):
                    await caller.run(partial(stop_call, caller, turn_id))
                    return failed("Stopped: this token may not be used any more.")
                waits_for_person = isinstance(event, Event) and event.type in WAITS_FOR_PERSON
                if (waits_for_person or event is None) and time.monotonic() >= until:
                    waiting = await caller.run(partial(waiting_result, caller, taken.turn, opens_pages=opens_pages))
                    if waiting is not None:
                        return waiting
                if not isinstance(event, Event):
                    continue
                if (line := _progress_line(event)) is not None:
                    progress = max(progress + 1, float(event.payload.get("seconds", 0)))
                    await context.session.report_progress(progress, message=line)
    if not await caller.run(partial(hand_over, turn_id)) and taken.was_left:
        return None
    return await caller.run(partial(result_of, caller, turn_id))


def _opens_pages(context: Context) -> bool:
    """Return whether the client shows its user a page when it is asked to, and makes the call again behind that."""
    capabilities = context.session.client_capabilities
    elicitation = capabilities.elicitation if capabilities is not None else None
    is_new = context.protocol_version in MODERN_PROTOCOL_VERSIONS
    return is_new and elicitation is not None and elicitation.url is not None


def _progress_line(event: Event) -> str | None:
    """Return the line that a client reads of an event, None where there is none."""
    match event.type:
        case "accepted":
            return "The call is on record, and waits for a worker."
        case "tool_started":
            return "The call has begun."
        case "tool_done":
            return "The call has ended."
        case "tool_progress":
            return f"Still running after {duration(event.payload['seconds'])}."
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
    """Server that declares in the older protocol too that it announces changes of a list: there on the stream that a
    GET opens."""

    def create_initialization_options(
        self, notification_options: NotificationOptions | None = None, *args: Any, **more: Any
    ) -> InitializationOptions:
        return super().create_initialization_options(NotificationOptions(tools_changed=True), *args, **more)


def make_server() -> Server[Any]:
    """Build the server. The state that a client is to come back with is sealed, for the token and the call that it was
    given for."""
    server = GatewayServer(NAME, on_list_tools=list_tools, on_call_tool=call_tool, on_subscriptions_listen=listen)
    security = RequestStateSecurity(
        keys=[_state_key(each) for each in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)],
        ttl=STATE_SECONDS,
        bind_principal=lambda context: str(caller_of(context).token.pk),
        audience=NAME,
    )
    server.middleware.append(RequestStateBoundary(security, default_audience=NAME))
    return server


def _state_key(secret: str | bytes) -> bytes:
    return salted_hmac("toolhub.mcp.state", "key", secret=secret, algorithm="sha256").digest()


def make_manager(most_bytes: int) -> StreamableHTTPSessionManager:
    """Serves the server over HTTP, bodies of so many bytes at most, without sessions of its own. It runs once.

    Who asks, and under which name of this service, was checked before (`toolhub/web/mcp_door.py`).
    """
    return StreamableHTTPSessionManager(make_server(), stateless=True, max_request_body_size=most_bytes)
