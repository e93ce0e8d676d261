"""Tells the streams of this process when to look at their turns: one subscription and one poll for all of them.

Waiting streams cost neither a thread nor a connection. The broker's messages wake them; because any message may be
lost, and the broker may be away, one query now and then says which of the watched turns have moved on. Knows turns by
their id and by how far they are; must not know who reads them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Collection
from contextvars import Context
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary

import redis
import redis.asyncio
from asgiref.sync import sync_to_async
from django.conf import settings
from django.db.models.functions import Length
from redis.asyncio.client import PubSub
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from sessions.models import Turn
from sessions.turns.bell import channel
from toolhub.tenants.rows.connections import give_back_connection
from toolhub.tenants.rows.scope import system_scope

logger = logging.getLogger(__name__)

#: Seconds between two polls of the database: where the broker is away, and where it is there.
POLL_EVERY = 1.0
POLL_WITH_BROKER = 3.0
#: Seconds before the next try to reach the broker.
BROKER_AGAIN = 2.0
#: Seconds that the connection to the broker stays open when nobody watches: a client that asks again finds it.
STAY_SECONDS = 60.0
#: A channel that nobody writes to. Without any, the client would ask the broker whether it is there with each command,
#: and read the answer where `_listen` reads.
ANY = "toolhub:turns"
#: Pieces of text that wait for a slow reader; more are dropped, and it reads the turn's row in their place.
PIECES_AT_MOST = 500

#: Seconds to wait for a message before asking the broker whether it is still there.
BROKER_SILENCE = 10.0

#: State of a turn: status, last event, event and length of its draft. None for a turn that does not exist.
State = tuple[str, int, int, int] | None


@dataclass(frozen=True)
class Delta:
    """A piece of the reply that is written behind event number `event`, from its character `at` on."""

    event: int
    at: int
    text: str

    @property
    def end(self) -> int:
        return self.at + len(self.text)


@dataclass(eq=False)
class Watcher:
    """One stream of a listener: pieces of text that came for it, and whether it must look at its turn.

    `state` is how far the turn was when the stream last looked.
    """

    turn_id: UUID
    state: State = None
    pieces: deque[Delta] = field(default_factory=deque)
    must_look: bool = True
    _woken: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait(self, seconds: float | None = None) -> None:
        """Return when there is a piece of text or a reason to look, when a poll has gone by, or after `seconds`."""
        if not self.pieces and not self.must_look:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):  # wait_for may swallow a cancel
                    await self._woken.wait()
        self._woken.clear()

    def wake(self, *, look: bool = False) -> None:
        self.must_look = self.must_look or look
        self._woken.set()

    def add(self, piece: Delta | None) -> None:
        """A message of the broker; None says only that it is time to look."""
        if piece is None or len(self.pieces) >= PIECES_AT_MOST:
            self.wake(look=True)
        else:
            self.pieces.append(piece)
            self.wake()


class Listener:
    """The watchers of one event loop. Its tasks run while there is one, and with a broker STAY_SECONDS longer."""

    def __init__(self) -> None:
        self.watchers: dict[UUID, set[Watcher]] = {}
        self.pubsub: PubSub | None = None
        self.tasks: list[asyncio.Task[None]] = []
        self.stopping: asyncio.TimerHandle | None = None

    @contextlib.asynccontextmanager
    async def watching(self, turn_id: UUID) -> AsyncIterator[Watcher]:
        """Yield a watcher that hears of this turn while the block runs.

        It must look at once; where the broker is there already, only when the broker has confirmed that it will send.
        """
        watcher = Watcher(turn_id)
        is_first = turn_id not in self.watchers
        self.watchers.setdefault(turn_id, set()).add(watcher)
        self._stay()
        try:
            if not self.tasks:
                # In a context of their own: they outlive the request that starts them.
                self.tasks = [asyncio.create_task(work, context=Context()) for work in (self._poll(), self._listen())]
            elif is_first:
                watcher.must_look = False  # the broker's answer says that it is time
                if not await self._send("subscribe", turn_id):
                    watcher.must_look = True
            yield watcher
        finally:
            self.watchers[turn_id].discard(watcher)
            if not self.watchers[turn_id]:
                del self.watchers[turn_id]
                if not self.watchers:
                    self._stop_later()
                await self._send("unsubscribe", turn_id)

    def _stay(self) -> None:
        if self.stopping is not None:
            self.stopping.cancel()
        self.stopping = None

    def _stop_later(self) -> None:
        if self.pubsub is None:
            self._stop()
        else:
            self.stopping = asyncio.get_running_loop().call_later(STAY_SECONDS, self._stop)

    def _stop(self) -> None:
        self._stay()
        for task in self.tasks:
            task.cancel()
        self.tasks, self.pubsub = [], None

    def _pass_on(self, turn_id: UUID, piece: Delta | None) -> None:
        for watcher in self.watchers.get(turn_id, ()):
            watcher.add(piece)

    # -- The broker ----------------------------------------------------------------------------------------------------

    async def _send(self, command: str, turn_id: UUID) -> bool:
        """Subscribe or unsubscribe where there is a connection; whoever makes the next one subscribes to everything."""
        if self.pubsub is None:
            return False
        with contextlib.suppress(redis.RedisError, OSError):
            await getattr(self.pubsub, command)(channel(turn_id))
            return True
        return False

    async def _listen(self) -> None:
        """Hear the broker's messages, and connect again whenever the connection is lost."""
        task = asyncio.current_task()
        assert task is not None
        while settings.REDIS_URL and self.watchers and not task.cancelling():  # connecting may swallow a cancel
            client = redis.asyncio.Redis.from_url(
                settings.REDIS_URL,
                retry=Retry(NoBackoff(), 0),
                socket_connect_timeout=2,
                health_check_interval=BROKER_SILENCE,
            )
            pubsub = client.pubsub()
            try:
                async with client, pubsub:
                    begun_with = list(self.watchers)
                    await pubsub.subscribe(ANY, *map(channel, begun_with))
                    if task.cancelling():
                        return
                    self.pubsub = pubsub
                    for turn_id in set(self.watchers) - set(begun_with):
                        await pubsub.subscribe(channel(turn_id))
                    while not task.cancelling():
                        self._hear(await pubsub.get_message(timeout=BROKER_SILENCE))
            except (redis.RedisError, OSError) as error:
                logger.warning("Redis is out of reach (listen: %s); streams go on through the database.", error)
            finally:
                if self.pubsub is pubsub:
                    self.pubsub = None
            if not task.cancelling():
                await asyncio.sleep(BROKER_AGAIN)
        if not self.watchers and not task.cancelling():  # whoever comes next begins anew
            self._stop()

    def _hear(self, message: dict[str, Any] | None) -> None:
        match message:
            # From now on nothing is missed; what happened before, the next look finds.
            case {"type": "subscribe", "channel": name} if name != ANY.encode():
                self._pass_on(turn_of(name), None)
            case {"type": "message", "channel": name, "data": data}:
                self._pass_on(turn_of(name), piece_of(data))

    # -- The database --------------------------------------------------------------------------------------------------

    async def _poll(self) -> None:
        """Wake the watchers of turns that moved on unheard to look, and the others to see to what else they do."""
        last = time.monotonic()
        while True:
            await asyncio.sleep(POLL_EVERY)
            if self.pubsub is not None and time.monotonic() - last < POLL_WITH_BROKER:
                continue
            last = time.monotonic()
            try:
                states = await sync_to_async(read_states)(list(self.watchers))
            except Exception:  # whatever it is, it must not end every stream
                logger.warning("Open streams could not look at their turns.", exc_info=True)
                continue
            for turn_id, watchers in list(self.watchers.items()):
                for watcher in watchers:
                    watcher.wake(look=states.get(turn_id) != watcher.state)


def turn_of(name: bytes) -> UUID:
    return UUID(name.decode().rpartition(":")[2])


def piece_of(data: bytes) -> Delta | None:
    """Return the piece in a message; None for a message of another version of ours, which says only that it is time to
    look."""
    with contextlib.suppress(ValueError):
        match json.loads(data) if data else None:
            case [int(event), int(at), str(text)]:
                return Delta(event, at, text)
    return None


def read_states(turn_ids: Collection[UUID]) -> dict[UUID, State]:
    """Return the state of each of these turns; those that do not exist are left out. One query."""
    try:
        with system_scope():
            rows: Any = Turn.objects.filter(pk__in=turn_ids).values_list(
                "pk", "status", "last_event", "draft_event", Length("draft")
            )
            return {row[0]: row[1:] for row in rows}
    finally:
        give_back_connection()


#: One for each event loop: a web server has one, a test one for each of its loops.
_listeners: WeakKeyDictionary[asyncio.AbstractEventLoop, Listener] = WeakKeyDictionary()


def listener() -> Listener:
    """Return the listener of the running event loop."""
    return _listeners.setdefault(asyncio.get_running_loop(), Listener())
