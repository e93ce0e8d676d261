"""Conversations of this process with servers: one exchange a call with servers of the modern protocol over HTTP, and
kept sessions with processes and with servers of older protocols.

All of it runs in the background loop. A session has one task that owns it, opens it and closes it; calls come and go.
Nobody waits for a server but its own calls.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

import anyio
import httpx2
from django.conf import settings
from mcp.client import Transport
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, METHOD_NOT_FOUND, UNSUPPORTED_PROTOCOL_VERSION

from capabilities.contract.masking import masked_value
from capabilities.running.egress import ExchangeLimits, guarded_async_client
from capabilities.running.egress.async_client import SERVERS
from capabilities.running.mcp_client.errors import (
    AnswerRefused,
    McpError,
    ServerBusy,
    ServerLost,
    ServerRefused,
    ServerSilent,
    ServerUnreachable,
)
from capabilities.running.mcp_client.limits import (
    CALLS_PER_SERVER,
    FIRST_BACKOFF,
    MAX_ANSWER,
    MOST_BACKOFF,
    PROTOCOL_SECONDS,
)
from capabilities.running.mcp_client.processes import ServerProcess, process_streams
from capabilities.running.mcp_client.protocol import MODERN, Conversation, OtherVersion, conversation
from capabilities.running.mcp_client.sdk import Read, Write
from capabilities.running.mcp_client.server_addresses import ServerAddress
from capabilities.running.mcp_client.signing import CredentialAuth, Seen, count_parts, seen
from capabilities.running.mcp_client.translating import leaf, translated

logger = logging.getLogger(__name__)

T = TypeVar("T")
Work = Callable[[Conversation], Awaitable[T]]
Key = tuple[str, str]

#: Seconds between looks for what is idle, and after which a connection without calls is let go.
REAP_EVERY = 5.0
CLIENT_IDLE_SECONDS = 60.0
#: Characters from which on a value of a process's environment is masked in what it writes.
SHORTEST_SECRET = 8
#: Seconds that a session has to say goodbye and to end its process.
CLOSE_SECONDS = 8.0
#: No call takes longer than this, a stream of events neither; each call has its own, shorter time.
LONGEST = 3_600.0
HTTP_LIMITS = ExchangeLimits(
    seconds=LONGEST,
    idle_seconds=LONGEST,
    stream_seconds=LONGEST,
    max_bytes=MAX_ANSWER,
    connections=CALLS_PER_SERVER * 2,
)


class HttpClient:
    """The HTTP connections of one principal to one server, kept for its next call."""

    def __init__(self, address: ServerAddress) -> None:
        self.auth = CredentialAuth(address.credential)
        guard = replace(SERVERS, organisation=address.organisation)
        self.client = guarded_async_client(HTTP_LIMITS, guard=guard, auth=self.auth)
        self.client.event_hooks = {"response": [count_parts]}
        self.users = 0
        self.used_at = time.monotonic()


class Session:
    """One conversation that is kept. Its task opens and closes it; `use` is called by the calls."""

    def __init__(self, pool: Pool, address: ServerAddress, version: str) -> None:
        self.pool = pool
        self.address = address
        self.version = version
        self.process: ServerProcess | None = None
        self.used_at = time.monotonic()
        #: Time before which it is not closed, such as for a task that lives in it.
        self.keep_until = 0.0
        self.watchers = 0
        #: True where it was closed because nobody used it.
        self.was_idle = False
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
                self.pool.forget(self)
                async with asyncio.timeout(CLOSE_SECONDS):
                    await stack.aclose()
        except BaseException as error:
            self._failure = self._with_last_words(translated(error, self.address, noted, self.address.start_seconds))
            if isinstance(error, asyncio.CancelledError):
                raise
        finally:
            self.pool.ending.discard(self)
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
            client = await stack.enter_async_context(self.pool.http_client(self.address))
            read, write = await stack.enter_async_context(_streams(self.address, client))
        talk = conversation(read, write, self.version, self.address.pinned)
        self._conversation = await stack.enter_async_context(talk)


def _streams(address: ServerAddress, client: httpx2.AsyncClient) -> Transport:
    return streamable_http_client(address.url, http_client=client, max_sse_event_size=MAX_ANSWER)


@dataclass
class Backoff:
    """Pause of a server that could not be reached: it is left alone until then."""

    until: float
    seconds: float
    error: McpError


@dataclass
class Gate:
    """The calls of one principal that run at one server."""

    places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CALLS_PER_SERVER))
    used_at: float = field(default_factory=time.monotonic)
    users: int = 0


class Pool:
    """All of this process's conversations. Used in the background loop only."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.sessions: dict[Key, Session] = {}
        #: Sessions that end, so that nothing is left behind at the end of the process.
        self.ending: set[Session] = set()
        self._clients: dict[Key, HttpClient] = {}
        self._backoffs: dict[Key, Backoff] = {}
        self._gates: dict[Key, Gate] = {}
        #: Protocol that a server over HTTP spoke, and until when that is believed.
        self._versions: dict[str, tuple[str, float]] = {}
        self._reaper: asyncio.Task[None] | None = None

    # -- Conversations -----------------------------------------------------------------------------------------------

    async def speak(
        self, address: ServerAddress, work: Work[T], *, seconds: float, fresh: bool = False, alone: bool = False
    ) -> T:
        """Return the result of `work` on a conversation with the server. Raises McpError.

        `fresh`: the server is asked anew what it is. `alone`: in a kept session, no other call runs beside.
        """
        self._start_reaper()
        noted = Seen()
        token = seen.set(noted)
        try:
            with anyio.fail_after(seconds):
                async with self._place(address, seconds):
                    return await self._speak(address, work, noted, fresh=fresh, alone=alone)
        except Exception as error:
            raise translated(error, address, noted, seconds) from error
        finally:
            seen.reset(token)

    async def _speak(self, address: ServerAddress, work: Work[T], noted: Seen, *, fresh: bool, alone: bool) -> T:
        refused: Exception | None = None
        version = address.pinned or ("" if fresh else self._version_of(address))
        if address.transport == "http" and version == MODERN:
            try:
                return await self._exchange(address, work)
            except Exception as error:
                if not _speaks_another(error, noted):
                    raise
                if address.pinned:
                    raise OtherVersion("", address.pinned) from error
                refused, version = error, ""
                noted.status = 0
        for last in (False, True):
            try:
                session = await self._session(address, "" if version == MODERN else version)
            except (ServerRefused, AnswerRefused):
                if last or address.pinned or version in ("", MODERN):
                    raise
                session = await self._session(address, "")  # it was of an older protocol
            talk = await session.opened()
            if refused is not None and talk.is_modern:
                raise refused  # it is what we took it for, and meant what it said
            try:
                return await session.use(work, alone=alone)
            except MCPError as error:
                if address.pinned and _speaks_another(error, noted):
                    raise OtherVersion("", address.pinned) from error
                if last or noted.status != 404 or address.transport != "http":
                    raise
                await session.closed()  # it has forgotten the session, and did not look at the call
                noted.status = 0
            finally:
                if address.transport == "http" and talk.is_modern and session.is_idle:
                    session.close()
        raise AssertionError

    async def _exchange(self, address: ServerAddress, work: Work[T]) -> T:
        async with (
            self.http_client(address) as client,
            _streams(address, client) as (read, write),
            conversation(read, write, MODERN, address.pinned) as talk,
        ):
            return await work(talk)

    async def _session(self, address: ServerAddress, version: str) -> Session:
        """The session of this principal, opened if there is none. Raises McpError, at once where it lately failed."""
        session = self.sessions.get(address.key)
        if session is None or not session.is_usable:
            backoff = self._backoffs.get(address.key)
            if backoff is not None and backoff.until > time.monotonic():
                raise type(backoff.error)(str(backoff.error))
            self._make_room(address.owner)
            session = self.sessions[address.key] = Session(self, address, version)
        self._sign(address)
        try:
            talk = await session.opened()
        except McpError as error:
            self._note_failure(address, error)
            raise
        self._backoffs.pop(address.key, None)
        self._note_version(address, talk.protocol_version or "")
        return session

    @asynccontextmanager
    async def held(self, address: ServerAddress) -> AsyncGenerator[Session]:
        """A session to listen in. Raises McpError.

        Of a modern server over HTTP it is kept for that, beside those for calls and at most half as many; any other is
        closed when no call uses it.
        """
        self._start_reaper()
        noted = Seen()
        token = seen.set(noted)
        session: Session | None = None
        try:
            if sum(each.is_stream for each in self.sessions.values()) >= max(1, settings.TOOLHUB_MCP_SESSIONS // 2):
                raise ServerBusy("As many servers are listened to as may be.")
            session = await self._session(address, "")
            session.watchers += 1
            yield session
        except MCPError as error:
            raise translated(error, address, noted, address.start_seconds) from error
        finally:
            seen.reset(token)
            if session is not None:
                session.watchers -= 1
                if address.transport == "http" and session.conversation.is_modern:
                    session.close()

    def _make_room(self, owner: str) -> None:
        """Close what is idle longest where there are as many as may be, or half of them are the owner's."""
        most = settings.TOOLHUB_MCP_SESSIONS
        for_calls = [each for each in self.sessions.values() if not each.is_stream]
        own = [each for each in for_calls if each.address.owner == owner]
        for sessions, limit in ((own, max(1, most // 2)), (for_calls, most)):
            if len(sessions) < limit:
                continue
            idle = sorted((each for each in sessions if each.is_idle), key=lambda each: each.used_at)
            if not idle:
                raise ServerBusy(f"All {limit} sessions with MCP servers are in use; try again in a moment.")
            self.forget(idle[0])
            idle[0].close(was_idle=True)

    def forget(self, session: Session) -> None:
        """Remove a session from those that are given out."""
        if self.sessions.get(session.address.key) is session:
            del self.sessions[session.address.key]
        self.ending.add(session)

    def is_open(self, address: ServerAddress) -> bool:
        """Return whether there is a session of this principal that calls use."""
        session = self.sessions.get(address.key)
        return session is not None and session.is_usable

    def _note_failure(self, address: ServerAddress, error: McpError) -> None:
        if not isinstance(error, (ServerUnreachable, ServerSilent, ServerLost)):
            return  # it is there, and may say something else to the next call
        known = self._backoffs.get(address.key)
        now = time.monotonic()
        if known is not None and known.until > now:
            return  # others waited for the same try
        seconds = min(MOST_BACKOFF, known.seconds * 2) if known is not None else FIRST_BACKOFF
        self._backoffs[address.key] = Backoff(now + seconds, seconds, error)

    # -- What is kept beside -----------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _place(self, address: ServerAddress, seconds: float) -> AsyncGenerator[None]:
        """A place among the calls of this principal at this server."""
        gate = self._gates.setdefault(address.key, Gate())
        gate.users += 1
        try:
            try:
                async with asyncio.timeout(seconds * 0.9):
                    await gate.places.acquire()
            except TimeoutError as error:
                raise ServerBusy(f"{CALLS_PER_SERVER} calls of {address.title} run already, and none ended.") from error
            try:
                yield
            finally:
                gate.places.release()
        finally:
            gate.users -= 1
            gate.used_at = time.monotonic()

    @asynccontextmanager
    async def http_client(self, address: ServerAddress) -> AsyncGenerator[httpx2.AsyncClient]:
        """The HTTP client of this principal for this server."""
        held = self._clients.get(address.key)
        if held is None:
            held = self._clients[address.key] = HttpClient(address)
        held.auth.credential = address.credential
        held.users += 1
        try:
            yield held.client
        finally:
            held.users -= 1
            held.used_at = time.monotonic()

    def _sign(self, address: ServerAddress) -> None:
        """Renew the credential of a kept session: a token may have been renewed."""
        held = self._clients.get(address.key)
        if held is not None:
            held.auth.credential = address.credential

    def _version_of(self, address: ServerAddress) -> str:
        known = self._versions.get(address.place)
        if known is not None and known[1] > time.monotonic():
            return known[0]
        return address.protocol

    def _note_version(self, address: ServerAddress, version: str) -> None:
        self._versions[address.place] = (version, time.monotonic() + PROTOCOL_SECONDS)

    # -- What ends ---------------------------------------------------------------------------------------------------

    def _start_reaper(self) -> None:
        if self._reaper is None or self._reaper.done():
            self._reaper = asyncio.create_task(self._reap(), name="mcp reaper")

    async def _reap(self) -> None:
        while True:
            await asyncio.sleep(REAP_EVERY)
            try:
                await self.let_go_of_idle()
            except Exception:
                logger.exception("Letting go of idle MCP sessions failed")

    async def let_go_of_idle(self) -> None:
        """Close what nobody has used for a while, and forget what was noted of servers that nobody asks."""
        now = time.monotonic()
        for session in list(self.sessions.values()):
            if session.is_idle and now - session.used_at > settings.TOOLHUB_MCP_IDLE_SECONDS:
                self.forget(session)
                session.close(was_idle=True)
        for key, held in list(self._clients.items()):
            if not held.users and now - held.used_at > CLIENT_IDLE_SECONDS:
                del self._clients[key]
                await held.client.aclose()
        for key, gate in list(self._gates.items()):
            if not gate.users and now - gate.used_at > CLIENT_IDLE_SECONDS:
                del self._gates[key]
        for key, backoff in list(self._backoffs.items()):
            if backoff.until + MOST_BACKOFF < now:
                del self._backoffs[key]
        for place, (_, until) in list(self._versions.items()):
            if until < now:
                del self._versions[place]

    async def close(self) -> None:
        """End every session, and wait until their processes are gone."""
        if self._reaper is not None:
            self._reaper.cancel()
            self._reaper = None
        sessions = [*self.sessions.values(), *self.ending]
        for session in sessions:
            session.close()
        for session in sessions:
            await session.closed()
        for held in self._clients.values():
            await held.client.aclose()
        self._clients.clear()


def _speaks_another(error: BaseException, noted: Seen) -> bool:
    """Return whether a server refused a call of the modern protocol in a way that one of an older protocol does."""
    error = leaf(error)
    if not isinstance(error, MCPError):
        return False
    if error.code in (METHOD_NOT_FOUND, UNSUPPORTED_PROTOCOL_VERSION):
        return True
    return noted.status in (400, 404, 405, 406) and error.code not in (-32602, -32020, -32021)


async def _wait_for(event: asyncio.Event, seconds: float | None) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
