"""Sessions with servers that are kept: with processes, and with servers of older protocols.

A session runs in the background loop, and has one task that owns it, opens it and closes it; calls come and go.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import TypeVar

import anyio
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED

from capabilities.contract.masking import masked_value
from capabilities.running.mcp_client.errors import (
    AnswerRefused,
    McpError,
    ServerLost,
    ServerSilent,
    ServerUnreachable,
)
from capabilities.running.mcp_client.http_clients import HttpClients, http_streams
from capabilities.running.mcp_client.processes import ServerProcess, process_streams
from capabilities.running.mcp_client.protocol import Conversation, conversation
from capabilities.running.mcp_client.sdk import Read, Write
from capabilities.running.mcp_client.server_addresses import ServerAddress
from capabilities.running.mcp_client.signing import Seen, seen
from capabilities.running.mcp_client.translating import translated

T = TypeVar("T")
Work = Callable[[Conversation], Awaitable[T]]

#: Characters from which on a value of a process's environment is masked in what it writes.
SHORTEST_SECRET = 8
#: Seconds that a session has to say goodbye and to end its process.
CLOSE_SECONDS = 8.0


class Session:
    """One conversation that is kept. Its task opens and closes it; `use` is called by the calls."""

    def __init__(
        self,
        address: ServerAddress,
        version: str,
        *,
        clients: HttpClients,
        on_ending: Callable[[Session], None],
        on_ended: Callable[[Session], None],
    ) -> None:
        self.address = address
        self.version = version
        self.process: ServerProcess | None = None
        self.used_at = time.monotonic()
        #: Time before which it is not closed, such as for a task that lives in it.
        self.keep_until = 0.0
        self.watchers = 0
        #: True where it was closed because nobody used it.
        self.was_idle = False
        self._clients = clients
        self._on_ending, self._on_ended = on_ending, on_ended
        self._conversation: Conversation | None = None
        self._failure: McpError | None = None
        self._ending = asyncio.Event()
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._room = asyncio.Condition()
        self._running = 0
        self._is_alone = False
        self._task = asyncio.create_task(self._own(), name=f"mcp {address.title}")

    @property
    def is_usable(self) -> bool:
        """True while the session is being opened, or open."""
        return not self._task.done() and not self._ending.is_set() and not self._has_died

    @property
    def _has_died(self) -> bool:
        return self.process is not None and self.process.has_ended

    @property
    def is_idle(self) -> bool:
        return self._opened.done() and not self._running and not self.is_stream and self.keep_until < time.monotonic()

    @property
    def is_stream(self) -> bool:
        """True for a session that is only listened to, and that calls do not use."""
        is_modern = self._conversation is not None and self._conversation.is_modern
        return bool(self.watchers) and self.address.transport == "http" and is_modern

    @property
    def conversation(self) -> Conversation:
        assert self._conversation is not None
        return self._conversation

    async def opened(self) -> Conversation:
        """The conversation, once it has begun. Raises McpError where it could not begin."""
        await asyncio.shield(self._opened)
        return self.conversation

    async def use(self, work: Work[T], *, alone: bool = False) -> T:
        """Return the result of `work` on the conversation. `alone`: while no other call uses it."""
        talk = await self.opened()
        async with self._room:
            await self._room.wait_for(lambda: not self._is_alone and not (alone and self._running))
            self._running, self._is_alone = self._running + 1, alone
        try:
            return await work(talk)
        except MCPError as error:
            if error.code == CONNECTION_CLOSED:
                await self._lost()
            raise
        finally:
            self.used_at = time.monotonic()
            self._running -= 1
            self._is_alone = False
            with anyio.CancelScope(shield=True):
                async with self._room:
                    self._room.notify_all()

    def _with_last_words(self, error: McpError) -> McpError:
        """The error with what a process wrote last before it ended, or while it did not start."""
        words = self.process.last_words if self.process is not None else ""
        words = masked_value(words, [each for each in self.address.env.values() if len(each) >= SHORTEST_SECRET])
        if words and isinstance(error, (ServerLost, ServerSilent, AnswerRefused, ServerUnreachable)):
            error.args = (f"{str(error).rstrip('.')}. It wrote last: {words}", *error.args[1:])
        return error

    async def _lost(self) -> None:
        """End a session whose connection ended under a call: no other call begins with it. Raises why, where that is
        known."""
        self._ending.set()
        await asyncio.wait([self._task], timeout=0.5)
        if self._failure is not None:
            raise self._failure
        if self._has_died:
            raise self._with_last_words(ServerLost(f"The connection to {self.address.title} ended."))

    def keep_for(self, seconds: float) -> None:
        """Keep the session open for so many seconds, though it may be idle."""
        self.keep_until = time.monotonic() + seconds

    async def ended_or(self, event: anyio.Event) -> bool:
        """Wait for the event, or for the session's end; return whether it was the event."""
        waiting = asyncio.ensure_future(event.wait())
        try:
            await asyncio.wait({waiting, self._task}, return_when=asyncio.FIRST_COMPLETED)
            return waiting.done()
        finally:
            waiting.cancel()

    def close(self, *, was_idle: bool = False) -> None:
        self.was_idle = was_idle
        self._ending.set()

    async def closed(self) -> None:
        """Close the session, and return once nothing is left of it."""
        self.close()
        await asyncio.wait([self._task])

    async def _own(self) -> None:
        """Open the session, keep it until it is to end, and close it: all in one task."""
        noted = Seen()
        seen.set(noted)
        stack = AsyncExitStack()
        try:
            try:
                async with asyncio.timeout(self.address.start_seconds):
                    await self._open(stack)
                self._opened.set_result(None)
                while not self._ending.is_set() and not self._has_died:
                    await _wait_for(self._ending, 0.5 if self.process is not None else None)
            finally:
                self._on_ending(self)
                async with asyncio.timeout(CLOSE_SECONDS):
                    await stack.aclose()
        except BaseException as error:
            self._failure = self._with_last_words(translated(error, self.address, noted, self.address.start_seconds))
            if isinstance(error, asyncio.CancelledError):
                raise
        finally:
            self._on_ended(self)
            if not self._opened.done():
                self._opened.set_exception(self._failure or ServerUnreachable(f"{self.address.title} was closed."))
                self._opened.exception()  # nobody may be waiting
            if self.process is not None:
                self.process.log_last_words(self.address.title)

    async def _open(self, stack: AsyncExitStack) -> None:
        read: Read
        write: Write
        if self.address.transport == "stdio":
            self.process, read, write = await stack.enter_async_context(process_streams(self.address))
        else:
            client = await stack.enter_async_context(self._clients.client(self.address))
            read, write = await stack.enter_async_context(http_streams(self.address, client))
        talk = conversation(read, write, self.version, self.address.pinned)
        self._conversation = await stack.enter_async_context(talk)


async def _wait_for(event: asyncio.Event, seconds: float | None) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
