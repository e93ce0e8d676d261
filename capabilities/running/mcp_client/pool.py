"""All conversations of this process with servers: one exchange a call with servers of the modern protocol over HTTP,
kept sessions with all others.

All of it runs in the background loop. Nobody waits for a server but its own calls.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
from django.conf import settings
from mcp.shared.exceptions import MCPError
from mcp_types import METHOD_NOT_FOUND, UNSUPPORTED_PROTOCOL_VERSION

from capabilities.running.mcp_client.errors import (
    AnswerRefused,
    McpError,
    ServerBusy,
    ServerLost,
    ServerRefused,
    ServerSilent,
    ServerUnreachable,
)
from capabilities.running.mcp_client.http_clients import CLIENT_IDLE_SECONDS, HttpClients, http_streams
from capabilities.running.mcp_client.limits import (
    CALLS_PER_SERVER,
    FIRST_BACKOFF,
    MOST_BACKOFF,
    PROTOCOL_SECONDS,
)
from capabilities.running.mcp_client.protocol import MODERN, OtherVersion, conversation
from capabilities.running.mcp_client.server_addresses import Key, ServerAddress
from capabilities.running.mcp_client.sessions import Session, T, Work
from capabilities.running.mcp_client.signing import Seen, seen
from capabilities.running.mcp_client.translating import leaf, translated

logger = logging.getLogger(__name__)

#: Seconds between looks for what is idle.
REAP_EVERY = 5.0


@dataclass
class Backoff:
    """Pause of a server that could not be reached: it is left alone until then."""

    until: float
    seconds: float
    error: McpError


@dataclass
class Gate:
    """The calls of one principal that run at one server."""

    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CALLS_PER_SERVER))
    used_at: float = field(default_factory=time.monotonic)
    users: int = 0


class Pool:
    """All of this process's conversations. Used in the background loop only."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.sessions: dict[Key, Session] = {}
        #: Sessions that end, so that nothing is left behind at the end of the process.
        self.ending: set[Session] = set()
        self._clients = HttpClients()
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
                async with self._slot(address, seconds):
                    return await self._speak(address, work, noted, fresh=fresh, alone=alone)
        except Exception as error:
            raise translated(error, address, noted, seconds) from error
        finally:
            seen.reset(token)

    async def _speak(self, address: ServerAddress, work: Work[T], noted: Seen, *, fresh: bool, alone: bool) -> T:
        """Run `work` in a conversation of the version that the server is known to speak, else in a session of an older
        one."""
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
            opened_conversation = await session.opened()
            if refused is not None and opened_conversation.is_modern:
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
                if address.transport == "http" and opened_conversation.is_modern and session.is_idle:
                    session.close()
        raise AssertionError

    async def _exchange(self, address: ServerAddress, work: Work[T]) -> T:
        async with (
            self._clients.client(address) as client,
            http_streams(address, client) as (read, write),
            conversation(read, write, MODERN, address.pinned) as opened_conversation,
        ):
            return await work(opened_conversation)

    async def _session(self, address: ServerAddress, version: str) -> Session:
        """The session of this principal, opened if there is none. Raises McpError, at once where it lately failed."""
        session = self.sessions.get(address.key)
        if session is None or not session.is_usable:
            backoff = self._backoffs.get(address.key)
            if backoff is not None and backoff.until > time.monotonic():
                raise type(backoff.error)(str(backoff.error))
            self._make_room(address.owner)
            session = self.sessions[address.key] = Session(
                address, version, clients=self._clients, on_ending=self.forget, on_ended=self.ending.discard
            )
        self._clients.sign(address)
        try:
            opened_conversation = await session.opened()
        except McpError as error:
            self._note_failure(address, error)
            raise
        self._backoffs.pop(address.key, None)
        self._note_version(address, opened_conversation.protocol_version or "")
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
    async def _slot(self, address: ServerAddress, seconds: float) -> AsyncGenerator[None]:
        """A place among the calls of this principal at this server."""
        gate = self._gates.setdefault(address.key, Gate())
        gate.users += 1
        try:
            try:
                async with asyncio.timeout(seconds * 0.9):
                    await gate.slots.acquire()
            except TimeoutError as error:
                raise ServerBusy(f"{CALLS_PER_SERVER} calls of {address.title} run already, and none ended.") from error
            try:
                yield
            finally:
                gate.slots.release()
        finally:
            gate.users -= 1
            gate.used_at = time.monotonic()

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
        await self._clients.let_go_of_idle(now)
        for key, gate in list(self._gates.items()):
            if not gate.users and now - gate.used_at > CLIENT_IDLE_SECONDS:
                del self._gates[key]
        for key, backoff in list(self._backoffs.items()):
            if backoff.until + MOST_BACKOFF < now:
                del self._backoffs[key]
        for address, (_, until) in list(self._versions.items()):
            if until < now:
                del self._versions[address]

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
        await self._clients.close()


def _speaks_another(error: BaseException, noted: Seen) -> bool:
    """Return whether a server refused a call of the modern protocol in a way that one of an older protocol does."""
    error = leaf(error)
    if not isinstance(error, MCPError):
        return False
    if error.code in (METHOD_NOT_FOUND, UNSUPPORTED_PROTOCOL_VERSION):
        return True
    return noted.status in (400, 404, 405, 406) and error.code not in (-32602, -32020, -32021)
