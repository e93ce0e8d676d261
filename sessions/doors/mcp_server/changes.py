"""Changes of clients' lists, which clients that listen hear of, whichever web server made them: one look at the
database for all that listen here, when the broker says that an organisation's tools or rights changed, and now and then
anyway.

Nobody hears of a change that is not in the own list: each caller's is read again, and compared.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Collection
from contextvars import Context
from dataclasses import dataclass, field
from functools import partial
from weakref import WeakKeyDictionary

import redis
import redis.asyncio
from django.conf import settings
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from capabilities.contract.wire import canonical_json, sha256_hex
from sessions.access import CHATTING
from sessions.doors.mcp_server.callers import PREFIX, McpCaller, address_of
from sessions.selection.loading.offered import offered_to
from sessions.turns.bell import REGISTRIES
from toolhub.tenants.access import usable_tokens
from toolhub.tenants.rows.scope import system_scope

logger = logging.getLogger(__name__)

#: Seconds between two looks: where the broker is away, and where it is there.
LOOK_EVERY = 1.0
LOOK_WITH_BROKER = 3.0
#: Seconds after which a list is read again although nothing was changed: grants end by the clock.
READ_ANYWAY = 30.0
#: Seconds before the next try to reach the broker, and of silence before asking whether it is still there.
BROKER_AGAIN = 2.0
BROKER_SILENCE = 10.0


@dataclass(eq=False)
class Listening:
    """One client that listens: its list as it was last read, and whether there is something to tell."""

    caller: McpCaller
    version: int
    digest: str
    read_at: float = field(default_factory=time.monotonic)
    #: Its token, its member or its address is not what it was: there is nothing more to tell.
    is_over: bool = False
    has_changed: bool = False
    _woken: asyncio.Event = field(default_factory=asyncio.Event)

    def wake(self) -> None:
        self._woken.set()

    async def next(self, seconds: float | None = None) -> bool:
        """Return whether the list changed since this was asked last: when it did, when it is over, or after
        `seconds`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        self._woken.clear()
        changed, self.has_changed = self.has_changed, False
        return changed


class Changes:
    """Clients that listen in one event loop. Its tasks run while there is one."""

    def __init__(self) -> None:
        self.listeners: set[Listening] = set()
        self.tasks: list[asyncio.Task[None]] = []
        self.has_broker = False
        self.hinted = asyncio.Event()

    @contextlib.asynccontextmanager
    async def listening(self, caller: McpCaller) -> AsyncIterator[Listening]:
        """Open a listener for changes of this caller's list, while the block runs."""
        found = await caller.run(partial(list_of, caller))
        mine = Listening(caller, *(found or (0, "")))
        self.listeners.add(mine)
        if not self.tasks:
            # In a context of their own: they outlive the request that starts them.
            self.tasks = [asyncio.create_task(work, context=Context()) for work in (self._look_on(), self._hear())]
        try:
            yield mine
        finally:
            self.listeners.discard(mine)
            if not self.listeners:
                for task in self.tasks:
                    task.cancel()
                self.tasks, self.has_broker = [], False

    async def _look_on(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_WITH_BROKER if self.has_broker else LOOK_EVERY):
                    await self.hinted.wait()
            self.hinted.clear()
            try:
                await self._look()
            except Exception:  # whatever it is, it must not end every stream
                logger.warning("Clients of MCP that listen could not be looked after.", exc_info=True)

    async def _look(self) -> None:
        listeners = list(self.listeners)
        if not listeners:
            return
        versions = await listeners[0].caller.in_thread(partial(usable, {each.caller.token.pk for each in listeners}))
        for each in listeners:
            try:
                await self._look_at(each, versions.get(each.caller.token.pk))
            except Exception:  # of its own list, which must keep nobody else's from being read
                logger.warning("The list of a client of MCP could not be read.", exc_info=True)

    async def _look_at(self, mine: Listening, version: int | None) -> None:
        """Read one client's list again, where something changed in its organisation since it was read, or where that
        was long ago. `version` is that of the registry, None for a token that may not be used any more."""
        late = time.monotonic() - mine.read_at > READ_ANYWAY
        if version is not None and version == mine.version and not late:
            return
        found = None if version is None else await mine.caller.run(partial(list_of, mine.caller))
        mine.read_at = time.monotonic()
        if found is None:
            mine.is_over = True
        else:
            mine.has_changed = mine.has_changed or found[1] != mine.digest
            mine.version, mine.digest = found
        if mine.is_over or mine.has_changed:
            mine.wake()

    async def _hear(self) -> None:
        """Look at once when the broker says so, and connect again whenever the connection is lost."""
        task = asyncio.current_task()
        assert task is not None
        while settings.REDIS_URL and not task.cancelling():
            client = redis.asyncio.Redis.from_url(
                settings.REDIS_URL, retry=Retry(NoBackoff(), 0), socket_connect_timeout=2, health_check_interval=10
            )
            try:
                async with client, client.pubsub() as pubsub:
                    await pubsub.subscribe(REGISTRIES)
                    self.has_broker = True
                    while not task.cancelling():
                        if await pubsub.get_message(timeout=BROKER_SILENCE) is not None:
                            self.hinted.set()
            except (redis.RedisError, OSError) as error:
                logger.warning("Redis is out of reach (lists: %s); changes are found in the database.", error)
            finally:
                self.has_broker = False
            if not task.cancelling():
                await asyncio.sleep(BROKER_AGAIN)


def usable(token_ids: Collection[int]) -> dict[int, int]:
    """The registry version of the organisation of each of these tokens, as far as they may still be used. One query."""
    with system_scope():
        tokens = usable_tokens().filter(pk__in=token_ids, membership__access__in=CHATTING)
        return dict(tokens.values_list("pk", "organisation__registry_version"))


def list_of(caller: McpCaller) -> tuple[int, str] | None:
    """The registry version, and a digest of the caller's list at it; None where its address names nothing any more.
    Queries of `offered_to`, and two."""
    address = address_of(PREFIX + caller.address.name, caller.member)
    if address is None:
        return None
    version = usable([caller.token.pk]).get(caller.token.pk)
    if version is None:
        return None
    listed = offered_to(caller.member.pk, address.agent, address.toolkit).listed
    return version, sha256_hex(canonical_json([[spec.name, spec.sha256] for spec in listed]))


#: One for each event loop: a web server has one, a test one for each of its loops.
_changes: WeakKeyDictionary[asyncio.AbstractEventLoop, Changes] = WeakKeyDictionary()


def changes() -> Changes:
    """Return the listeners of the running event loop."""
    return _changes.setdefault(asyncio.get_running_loop(), Changes())
