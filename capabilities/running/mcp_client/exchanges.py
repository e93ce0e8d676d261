"""Exchanges with a server: its list, a call, a task, and notice of changes. Runs in the background loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import anyio
from mcp.client.subscriptions import SubscriptionLost, listen
from mcp.shared.inbound import find_invalid_x_mcp_header, mcp_param_headers, x_mcp_header_map

from capabilities.running.mcp_client.answers import CallAnswer, ListedTool, Listing
from capabilities.running.mcp_client.errors import AnswerRefused, McpError, ServerSilent
from capabilities.running.mcp_client.limits import FIRST_BACKOFF, MAX_PAGES, MAX_TOOLS, MOST_BACKOFF
from capabilities.running.mcp_client.pool import Pool
from capabilities.running.mcp_client.protocol import Conversation, OneCall, question_key
from capabilities.running.mcp_client.server_addresses import ServerAddress
from capabilities.running.mcp_client.words import finite, readable

logger = logging.getLogger(__name__)

#: Milliseconds that a task of protocol 2025-11-25 is asked to be kept for.
TASK_MILLISECONDS = 3_600_000
#: Seconds between looks for whether a call opened a session that is listened to.
LOOK_EVERY = 1.0

NO_END = "Its list names a further page without end: what came again was left out."
CUT = f"Its list is longer than is read: {MAX_TOOLS:,} tools, {MAX_PAGES} pages."

_pool: Pool | None = None


def pool() -> Pool:
    """The conversations of the loop that runs; a process that was forked has another loop, and none of the old ones."""
    global _pool
    if _pool is None or _pool.loop is not asyncio.get_running_loop():
        _pool = Pool()
    return _pool


async def close() -> None:
    """End every conversation, and wait until the processes behind them are gone."""
    await pool().close()


# -- The list --------------------------------------------------------------------------------------------------------


async def list_tools(address: ServerAddress, *, seconds: float) -> Listing:
    async def work(conversation: Conversation) -> Listing:
        return await _listing(conversation, seconds)

    return await pool().speak(address, work, seconds=seconds, fresh=True)


async def _listing(conversation: Conversation, seconds: float) -> Listing:
    """Ask for the server's tools, page by page, up to MAX_PAGES and MAX_TOOLS. Raises AnswerRefused for a list that is
    none."""
    found: list[ListedTool] = []
    names: set[str] = set()
    cursors_seen: set[str] = set()
    note = ""
    ttl: float | None = None
    scope, cursor, is_cut = "public" if conversation.is_modern else "private", None, False
    for page_number in range(MAX_PAGES + 1):
        if page_number == MAX_PAGES or len(found) >= MAX_TOOLS:
            is_cut = True
            break
        page = await conversation.ask("tools/list", {"cursor": cursor} if cursor is not None else {}, seconds=seconds)
        tools = page.get("tools")
        if not isinstance(tools, list):
            raise AnswerRefused("The server's list of tools is no list.")
        if page_number and not {_name_of(each) for each in tools} - names:
            note = "" if not tools and not isinstance(page.get("nextCursor"), str) else NO_END
            break
        tools, _ = finite(tools)
        room = MAX_TOOLS - len(found)
        for definition in tools[:room]:
            tool = listed(definition, names, is_modern=conversation.is_modern)
            names.add(tool.name)
            found.append(tool)
        is_cut = len(tools) > room
        if conversation.is_modern:
            kept = page.get("ttlMs")
            this = max(0.0, kept / 1_000) if isinstance(kept, int | float) and not isinstance(kept, bool) else 0.0
            ttl = this if ttl is None else min(ttl, this)
            if page.get("cacheScope") != "public":
                scope = "private"
        cursor = page.get("nextCursor")
        if not isinstance(cursor, str):
            break
        if cursor in cursors_seen:
            note = NO_END
            break
        cursors_seen.add(cursor)
    info, capabilities = conversation.server_info, conversation.server_capabilities
    return Listing(
        tools=tuple(found),
        protocol=conversation.protocol_version or "",
        server_info=info.model_dump(by_alias=True, mode="json", exclude_none=True) if info else {},
        instructions=conversation.instructions or "",
        capabilities=capabilities.model_dump(by_alias=True, mode="json", exclude_none=True) if capabilities else {},
        ttl=ttl,
        cache_scope=scope,
        is_cut=is_cut,
        note=note or (CUT if is_cut else ""),
    )


def _name_of(definition: Any) -> str:
    name = definition.get("name") if isinstance(definition, Mapping) else None
    return name if isinstance(name, str) else ""


def listed(definition: Any, names: set[str], *, is_modern: bool) -> ListedTool:
    """One entry of a list, with the reason why it cannot be called, where there is one."""
    if not isinstance(definition, Mapping) or not isinstance(definition.get("name"), str) or not definition["name"]:
        return ListedTool(name="", definition={}, unusable="It has no name.")
    name = str(definition["name"])
    schema = definition.get("inputSchema")
    reason, headers = "", {}
    if name in names:
        reason = "The list has another tool of this name before it."
    elif is_modern and isinstance(schema, Mapping):
        wrong = find_invalid_x_mcp_header(dict(schema))
        if wrong is not None:
            reason = f"Its header annotations are malformed: {readable(wrong)[0][:300]}."
        else:
            headers = x_mcp_header_map(dict(schema))
    return ListedTool(name=name, definition=definition, unusable=reason, headers=headers)


# -- Calls -----------------------------------------------------------------------------------------------------------


async def call_tool(
    address: ServerAddress,
    name: str,
    arguments: Mapping[str, Any],
    *,
    seconds: float,
    headers: Mapping[tuple[str, ...], str],
    input_responses: Mapping[str, Any] | None,
    request_state: str | None,
    answers: Mapping[str, Mapping[str, Any]],
    as_task: bool,
) -> CallAnswer:
    """Call a tool at its server, with answers to what it asked before. Raises McpError; of these ServerSilent names the
    last progress that it reported."""
    params: dict[str, Any] = {"name": name, "arguments": dict(arguments)}
    last_progress: list[str] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        last_progress[:] = [f"{progress:g}" + (f" of {total:g}" if total else "") + (f", {message}" if message else "")]

    async def work(conversation: Conversation) -> CallAnswer:
        if not conversation.is_modern:
            return await _call_in_session(conversation, address, params, answers, seconds, as_task, on_progress)
        if input_responses is not None:
            params["inputResponses"] = dict(input_responses)
        if request_state is not None:
            params["requestState"] = request_state
        sent = mcp_param_headers(dict(headers), arguments)
        raw = await conversation.ask(
            "tools/call", params, seconds=seconds, headers=sent, name=name, on_progress=on_progress
        )
        return _answer(raw)

    try:
        return await pool().speak(address, work, seconds=seconds, alone=bool(answers))
    except ServerSilent as error:
        if not last_progress:
            raise
        words = readable(last_progress[0])[0][:200]
        raise ServerSilent(f"{str(error).rstrip('.')}; it last said: {words}.") from error


def _answer(raw: Mapping[str, Any]) -> CallAnswer:
    kind = raw.get("resultType", "complete")
    if kind == "input_required":
        questions, state = raw.get("inputRequests"), raw.get("requestState")
        return CallAnswer(
            questions=questions if isinstance(questions, Mapping) else {},
            request_state=state if isinstance(state, str) else None,
        )
    if kind == "task":
        return CallAnswer(task=raw)
    if kind != "complete":
        raise AnswerRefused("The server sent a result of a kind that is not known here.")
    return CallAnswer(result=raw)


async def _call_in_session(
    conversation: Conversation,
    address: ServerAddress,
    params: dict[str, Any],
    answers: Mapping[str, Mapping[str, Any]],
    seconds: float,
    as_task: bool,
    on_progress: Any,
) -> CallAnswer:
    """Call a tool in a protocol in which the server asks back while the call runs: the call is then given up, and made
    again once there is an answer."""
    if as_task:
        params["task"] = {"ttl": TASK_MILLISECONDS}
    call = OneCall(answers)
    conversation.calls.add(call)
    raw: dict[str, Any] = {}
    try:
        async with anyio.create_task_group() as tasks:

            async def give_up_when_asked() -> None:
                await call.was_asked.wait()
                tasks.cancel_scope.cancel()

            tasks.start_soon(give_up_when_asked)
            raw = await conversation.ask("tools/call", params, seconds=seconds, on_progress=on_progress)
            tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
    finally:
        conversation.calls.discard(call)
    if call.asked is not None and not raw:
        question = {
            "method": "elicitation/create",
            "params": call.asked.model_dump(by_alias=True, mode="json", exclude_none=True),
        }
        return CallAnswer(questions={question_key(call.asked): question}, is_asked_in_session=True)
    if isinstance(raw.get("task"), Mapping):
        session = pool().sessions.get(address.key)
        if session is not None:
            session.keep_for(TASK_MILLISECONDS / 1_000)
        return CallAnswer(task=raw["task"], is_old_task=True)
    return CallAnswer(result=raw)


# -- Tasks -----------------------------------------------------------------------------------------------------------


async def look_at_task(address: ServerAddress, task_id: str, *, seconds: float, is_old: bool) -> dict[str, Any]:
    """The task as {"status", "result" | "error" | "inputRequests", ...}."""

    async def work(conversation: Conversation) -> dict[str, Any]:
        task = await conversation.ask("tasks/get", {"taskId": task_id}, seconds=seconds, name=task_id)
        if is_old and task.get("status") == "completed":
            result = await conversation.ask("tasks/result", {"taskId": task_id}, seconds=seconds, name=task_id)
            task = {**task, "result": result}
        return task

    return await pool().speak(address, work, seconds=seconds)


async def answer_task(address: ServerAddress, task_id: str, answers: Mapping[str, Any], *, seconds: float) -> None:
    async def work(conversation: Conversation) -> None:
        params = {"taskId": task_id, "inputResponses": dict(answers)}
        await conversation.ask("tasks/update", params, seconds=seconds, name=task_id)

    await pool().speak(address, work, seconds=seconds)


async def cancel_task(address: ServerAddress, task_id: str, *, seconds: float) -> None:
    async def work(conversation: Conversation) -> None:
        await conversation.ask("tasks/cancel", {"taskId": task_id}, seconds=seconds, name=task_id)

    await pool().speak(address, work, seconds=seconds)


# -- Word of changes -------------------------------------------------------------------------------------------------


async def watch(address: ServerAddress, on_change: Callable[[], None]) -> None:
    """Call the function whenever the server says that its list changed, until cancelled. Ends by itself where the
    server does not say such things. A connection that ends is made again, and counts as a change; a session that was
    closed because no call used it is listened to again once a call opens it."""
    backoff, is_first = FIRST_BACKOFF, True
    while True:
        try:
            await _watch_once(address, on_change, is_first)
            return
        except _NoListChanges:
            return
        except _WentIdle:
            while not pool().is_open(address):
                await asyncio.sleep(LOOK_EVERY)
            is_first = True
            continue
        except McpError as error:
            logger.info("Word of changes of %s: %s", address.title, error)
        except _StreamEnded:
            backoff = FIRST_BACKOFF
        is_first = False
        await asyncio.sleep(backoff)
        backoff = min(MOST_BACKOFF, backoff * 2)


class _NoListChanges(Exception):
    """Server that does not announce changes."""


class _WentIdle(Exception):
    """The session was closed because no call used it."""


class _StreamEnded(Exception):
    """The stream of changes was open for a while, and ended."""


async def _watch_once(address: ServerAddress, on_change: Callable[[], None], is_first: bool) -> None:
    """Call `on_change` at each change of the server's list, until the session ends. Raises _NoListChanges, _StreamEnded
    or _WentIdle."""
    async with pool().held(address) as session:
        conversation = session.conversation
        tools = conversation.server_capabilities.tools if conversation.server_capabilities else None
        if tools is None or not tools.list_changed:
            raise _NoListChanges
        if not is_first:
            on_change()
        if conversation.is_modern:
            async with listen(conversation, tools_list_changed=True) as events:
                if not events.honored.tools_list_changed:
                    raise _NoListChanges
                with suppress(SubscriptionLost):
                    async for _ in events:
                        on_change()
        else:
            while await session.ended_or(conversation.tools_changed):
                conversation.tools_changed = anyio.Event()
                on_change()
        if session.was_idle:
            raise _WentIdle
    raise _StreamEnded
