"""The server that MCP clients meet: it lists the tools of the address that a request came to, and makes their calls.

Nothing of a client is kept between two of its requests, so that any web server can answer each of them.
"""

from __future__ import annotations

import time
from contextlib import aclosing
from functools import partial
from typing import Any
from uuid import UUID

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
from sessions.loading.addresses import offered_to
from sessions.mcp_server.callers import Caller
from sessions.mcp_server.changes import Listening, changes
from sessions.mcp_server.results import failed, is_declined, result_of, waiting_result
from sessions.mcp_server.writes import NoSuchTool, begin_call, hand_over, leave_waiting, resumed_call, stop_call
from sessions.models import Turn, TurnStatus
from sessions.turns.events import Event, watch
from sessions.turns.fencing import Conflict

#: Where a request of ours carries its Caller.
CALLER = "toolhub.caller"
#: Milliseconds that a client may keep a list without asking again, where nothing tells it that the list changed.
LIST_FRESH = 10_000
#: A turn in one of these waits for a person.
WAITS_FOR_PERSON = {str(TurnStatus.WAITING_APPROVAL), str(TurnStatus.WAITING_INPUT)}
NAME = "toolhub"
#: Seconds that a client which came back is kept waiting for the person, before it is asked again.
PATIENCE = 30.0
#: Seconds for which it can come back: as long as an approval can wait at most.
STATE_SECONDS = 30 * 24 * 3600.0

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


async def call_tool(
    context: Context, params: types.CallToolRequestParams
) -> types.CallToolResult | types.InputRequiredResult:
    """Make the call as a turn of its own, or go on with one that waited for a person, and wait for its end. A client
    that leaves stops it, and so does a user who declines."""
    caller, arguments = caller_of(context), params.arguments or {}
    try:
        if params.request_state is None:
            turn = await caller.run(partial(begin_call, caller, params.name, arguments))
        else:
            turn = await caller.run(partial(resumed_call, caller, params.request_state, params.name, arguments))
    except NoSuchTool:
        raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name[:100]}") from None
    except Conflict as refused:
        return failed(f"{refused} ({refused.code})")
    if is_declined(params.input_responses):
        await caller.run(partial(stop_call, caller, turn.pk))
    try:
        return await _followed(context, caller, turn.pk, has_come_back=params.request_state is not None)
    except anyio.get_cancelled_exc_class():
        with anyio.CancelScope(shield=True):
            await caller.run(partial(stop_call, caller, turn.pk))
        raise


async def _followed(
    context: Context, caller: Caller, turn_id: UUID, *, has_come_back: bool
) -> types.CallToolResult | types.InputRequiredResult:
    """Tell the client of the call's progress until it has ended, or waits for a person: for PATIENCE seconds longer
    where its user has opened the page."""
    told, until = 0.0, time.monotonic() + (PATIENCE if has_come_back else 0.0)
    async with aclosing(watch(turn_id, caller.organisation_id)) as events:  # type: ignore[type-var]
        async for event in events:
            is_told = isinstance(event, Event) and event.type in WAITS_FOR_PERSON
            if (is_told or event is None) and time.monotonic() >= until and await caller.run(partial(waits, turn_id)):
                shows = partial(waiting_result, caller, turn_id, opens_pages=_opens_pages(context))
                await caller.run(partial(leave_waiting, turn_id))
                return await caller.run(shows)
            if not isinstance(event, Event):
                continue
            if (line := _progress_line(event)) is not None:
                told = max(told + 1, float(event.payload.get("seconds", 0)))
                await context.session.report_progress(told, message=line)
    await caller.run(partial(hand_over, turn_id))
    return await caller.run(partial(result_of, caller, turn_id))


def waits(turn_id: UUID) -> bool:
    """Whether the call waits for a person now. One query."""
    return Turn.objects.filter(pk=turn_id, status__in=WAITS_FOR_PERSON).exists()


def _opens_pages(context: Context) -> bool:
    """Whether the client shows its user a page when it is asked to, and makes the call again behind that."""
    capabilities = context.session.client_capabilities
    elicitation = capabilities.elicitation if capabilities is not None else None
    is_new = context.protocol_version in MODERN_PROTOCOL_VERSIONS
    return is_new and elicitation is not None and elicitation.url is not None


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
    """What a client is given to come back with is sealed, for the token and the call that it was given for."""
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

    Who asks, and under which name of this service, was checked before (`toolhub/mcp_door.py`).
    """
    return StreamableHTTPSessionManager(make_server(), stateless=True, max_request_body_size=most_bytes)
