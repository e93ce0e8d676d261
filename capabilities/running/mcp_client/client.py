"""Servers for those who may wait: each function blocks its thread, and may be called from any.

Knows nothing of rows: an address says where, for which principal and with which credential. The SDK is loaded when it
is first needed: it costs 25 MB and a third of a second, which an installation without servers never pays.

Every function raises McpError.
"""

from __future__ import annotations

import atexit
import concurrent.futures
import threading
from collections.abc import Callable, Mapping
from typing import Any

from capabilities.running.mcp_client import background
from capabilities.running.mcp_client.answers import CallAnswer, Listing
from capabilities.running.mcp_client.server_addresses import ServerAddress

LIST_SECONDS = 30.0
#: Seconds that the end of a process waits for its servers' processes to end.
CLOSE_SECONDS = 8.0


def list_tools(
    address: ServerAddress, *, timeout: float = LIST_SECONDS, stopped: threading.Event | None = None
) -> Listing:
    """Return the server's tools, all pages of them, and its description of itself, asked anew."""
    from capabilities.running.mcp_client import exchanges  # noqa: PLC0415 -- leaf

    return background.run(exchanges.list_tools(address, seconds=timeout), seconds=timeout, stopped=stopped)


def call_tool(
    address: ServerAddress,
    name: str,
    arguments: Mapping[str, Any],
    *,
    timeout: float,
    headers: Mapping[tuple[str, ...], str] | None = None,
    input_responses: Mapping[str, Any] | None = None,
    request_state: str | None = None,
    answers: Mapping[str, Mapping[str, Any]] | None = None,
    as_task: bool = False,
    stopped: threading.Event | None = None,
) -> CallAnswer:
    """Call the tool that the server calls `name`. Once `stopped` is set, the server is notified and Stopped raised.

    `headers` are those of its definition's x-mcp-header, by the path to the argument. A call that was answered with
    questions is made again with `input_responses` and `request_state`, or, where it was asked in a session, with
    `answers`. `as_task`: servers of protocol 2025-11-25 may make a task of it.
    """
    from capabilities.running.mcp_client import exchanges  # noqa: PLC0415 -- leaf

    work = exchanges.call_tool(
        address,
        name,
        arguments,
        seconds=timeout,
        headers=headers or {},
        input_responses=input_responses,
        request_state=request_state,
        answers=answers or {},
        as_task=as_task,
    )
    return background.run(work, seconds=timeout, stopped=stopped)


def look_at_task(
    address: ServerAddress,
    task_id: str,
    *,
    timeout: float,
    is_old: bool = False,
    stopped: threading.Event | None = None,
) -> Mapping[str, Any]:
    """The task: {"status", "result" | "error" | "inputRequests", ...}."""
    from capabilities.running.mcp_client import exchanges  # noqa: PLC0415 -- leaf

    work = exchanges.look_at_task(address, task_id, seconds=timeout, is_old=is_old)
    return background.run(work, seconds=timeout, stopped=stopped)


def answer_task(address: ServerAddress, task_id: str, answers: Mapping[str, Any], *, timeout: float) -> None:
    """Answer the questions of a task that waits for input."""
    from capabilities.running.mcp_client import exchanges  # noqa: PLC0415 -- leaf

    background.run(exchanges.answer_task(address, task_id, answers, seconds=timeout), seconds=timeout)


def cancel_task(address: ServerAddress, task_id: str, *, timeout: float) -> None:
    """Tell the server that nobody wants the task any more. It need not stop."""
    from capabilities.running.mcp_client import exchanges  # noqa: PLC0415 -- leaf

    background.run(exchanges.cancel_task(address, task_id, seconds=timeout), seconds=timeout)


class Watch:
    """A server that is listened to."""

    def __init__(self, future: concurrent.futures.Future[None]) -> None:
        self._future = future

    @property
    def is_on(self) -> bool:
        """True while it listens; a server that announces no changes is not listened to for long."""
        return not self._future.done()

    def stop(self) -> None:
        self._future.cancel()


def watch(address: ServerAddress, on_change: Callable[[], None]) -> Watch:
    """Have the function called whenever the server says that its list of tools changed, until `stop`.

    It is called in the thread that speaks to all servers: it must not wait, nor read rows; let it set a flag. A
    connection that ended is made again after a while, and counts as a change, because word of one may have been missed.
    """
    from capabilities.running.mcp_client import exchanges  # noqa: PLC0415 -- leaf

    return Watch(background.submit(exchanges.watch(address, on_change)))


def close() -> None:
    """End this process's sessions and the processes it started, and wait for that, for a few seconds."""
    if not background.has_loop():
        return
    from capabilities.running.mcp_client import exchanges  # noqa: PLC0415 -- leaf

    concurrent.futures.wait([background.submit(exchanges.close())], timeout=CLOSE_SECONDS)


atexit.register(close)
