"""One subscription and one poll for all streams of a process: what they cost, and that nothing is missed."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest
import redis
from asgiref.sync import sync_to_async
from django.db import OperationalError

from sessions.models import ChatSession, Turn
from sessions.turns import bell, events, ledger, listener
from sessions.turns.events import Delta, Event, watch
from tests.cast import make_agent, make_session
from tests.sessions.steps import accepted, claimed
from tests.valkey import Valkey, valkey
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import organisation_scope

__all__ = ["valkey"]

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def session(bob: Membership) -> ChatSession:
    return make_session(bob, make_agent(bob.organisation))


@pytest.fixture(autouse=True)
def quiet_bell(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(bell, "breaker", bell.Breaker())
    monkeypatch.setattr(bell, "ring", lambda turn_id: False)
    yield
    bell._publisher.cache_clear()


class Streams:
    """Readers of turns, each in a task of its own, and what they got."""

    def __init__(self) -> None:
        self.items: list[list[Event | Delta]] = []
        self.tasks: list[asyncio.Task[None]] = []

    def open(self, turn: Turn) -> list[Event | Delta]:
        got: list[Event | Delta] = []

        async def read() -> None:
            async for item in watch(turn.pk, turn.organisation_id):
                if item is not None:
                    got.append(item)

        self.tasks.append(asyncio.create_task(read()))
        self.items.append(got)
        return got

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


def with_streams(use: Callable[[Streams], Awaitable[None]]) -> None:
    async def run() -> None:
        streams = Streams()
        try:
            await asyncio.wait_for(use(streams), 60)
        finally:
            await streams.close()

    asyncio.run(run())


async def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


def subscriptions(valkey: Valkey) -> dict[int, int]:
    """Of each connection that subscribes: its number, and to how many turns."""
    with redis.Redis.from_url(valkey.url) as client:
        return {int(row["id"]): int(row["sub"]) - 1 for row in client.client_list() if int(row["sub"])}


def end(turn: Turn) -> None:
    with organisation_scope(turn.organisation_id):
        ledger.cancel(turn, actor=turn.session.membership)


def test_all_streams_of_a_process_share_one_subscription(
    session: ChatSession, settings: Any, valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.REDIS_URL = valkey.url
    monkeypatch.setattr(listener, "STAY_SECONDS", 0.5)
    turns = [accepted(session) for _ in range(3)]

    async def use(streams: Streams) -> None:
        for turn in [*turns, turns[0]]:
            streams.open(turn)
        await until(lambda: list(subscriptions(valkey).values()) == [3])
        await sync_to_async(end)(turns[2])
        await until(lambda: list(subscriptions(valkey).values()) == [2])
        await streams.close()
        await until(lambda: subscriptions(valkey) == {})

    with_streams(use)


def test_a_stream_soon_after_the_last_one_finds_the_connection_and_looks_once(
    session: ChatSession, settings: Any, valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.REDIS_URL = valkey.url
    monkeypatch.setattr(listener, "BROKER_SILENCE", 0.3)
    turn, looks = accepted(session), list[UUID]()
    read = events.read_events

    async def counted(turn_id: UUID, *args: Any) -> events.Look:
        looks.append(turn_id)
        return await read(turn_id, *args)

    monkeypatch.setattr(events, "read_events", counted)

    async def use(streams: Streams) -> None:
        streams.open(turn)
        await until(lambda: len(subscriptions(valkey)) == 1)
        opened = subscriptions(valkey)
        await streams.close()
        await until(lambda: list(subscriptions(valkey).values()) == [0])
        await asyncio.sleep(2 * listener.BROKER_SILENCE)
        looks.clear()
        for _ in range(2):
            got = streams.open(turn)
            await until(lambda got=got: got != [])  # type: ignore[misc]
            await streams.close()
        assert subscriptions(valkey).keys() == opened.keys()
        assert looks == [turn.pk, turn.pk]

    with_streams(use)


def test_a_broker_that_says_nothing_keeps_no_stream_waiting(
    session: ChatSession, settings: Any, valkey: Valkey
) -> None:
    settings.REDIS_URL = valkey.url
    first, second = accepted(session), accepted(session)

    async def use(streams: Streams) -> None:
        streams.open(first)
        await until(lambda: len(subscriptions(valkey)) == 1)
        assert valkey.process is not None
        valkey.process.send_signal(signal.SIGSTOP)
        try:
            got = streams.open(second)
            await until(lambda: got != [], 2.0)
        finally:
            valkey.process.send_signal(signal.SIGCONT)

    with_streams(use)


def test_a_connection_that_is_lost_while_nobody_watches_is_made_anew_for_the_next(
    session: ChatSession, settings: Any, valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.REDIS_URL = valkey.url
    monkeypatch.setattr(listener, "BROKER_AGAIN", 0.2)
    turn = accepted(session)

    async def use(streams: Streams) -> None:
        streams.open(turn)
        await until(lambda: len(subscriptions(valkey)) == 1)
        await streams.close()
        valkey.kill()
        await until(lambda: listener.listener().tasks == [])
        await sync_to_async(valkey.start)()
        streams.open(turn)
        await until(lambda: list(subscriptions(valkey).values()) == [1])

    with_streams(use)


@pytest.mark.parametrize("count", [1, 3])
def test_one_query_says_how_far_all_watched_turns_are(
    session: ChatSession, count: int, django_assert_num_queries: Any
) -> None:
    turns = [accepted(session) for _ in range(count)]
    with organisation_scope(session.organisation_id):
        Turn.objects.filter(pk=turns[0].pk).update(draft="äb", draft_event=1)

    with django_assert_num_queries(1):
        states = listener.read_states([*(turn.pk for turn in turns), uuid4()])

    assert states.pop(turns[0].pk) == ("queued", 1, 1, 2)
    assert set(states.values()) == ({("queued", 1, 0, 0)} if count > 1 else set())


def test_a_message_that_was_lost_is_made_good_by_the_poll(
    session: ChatSession, settings: Any, valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.REDIS_URL = valkey.url
    first, second = accepted(session), accepted(session)

    async def use(streams: Streams) -> None:
        streams.open(first)
        streams.open(second)
        await until(lambda: all(streams.items) and list(subscriptions(valkey).values()) == [2])
        monkeypatch.setattr(bell, "_publish", lambda turn_id, message: None)
        await sync_to_async(end)(second)
        await streams.tasks[1]

    with_streams(use)


def test_a_turn_whose_row_is_gone_ends_its_stream(session: ChatSession, settings: Any) -> None:
    settings.REDIS_URL = ""
    turn = accepted(session)

    def delete() -> None:
        with organisation_scope(turn.organisation_id):
            turn.delete()

    async def use(streams: Streams) -> None:
        got = streams.open(turn)
        await until(lambda: got != [])
        await sync_to_async(delete)()
        await streams.tasks[0]

    with_streams(use)


def test_streams_hear_a_broker_that_comes_back(
    session: ChatSession, settings: Any, valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.REDIS_URL = valkey.url
    turn = accepted(session)
    claimed(turn)

    async def use(streams: Streams) -> None:
        got = streams.open(turn)
        await until(lambda: len(subscriptions(valkey)) == 1)
        valkey.kill()
        await sync_to_async(valkey.start)()
        await until(lambda: len(subscriptions(valkey)) == 1)
        bell._publisher.cache_clear()
        monkeypatch.setattr(bell, "breaker", bell.Breaker())
        bell.announce_text(turn.pk, 2, 0, "heard")
        await until(lambda: Delta(2, 0, "heard") in got)

    with_streams(use)


def test_a_poll_that_fails_ends_no_stream(
    session: ChatSession, settings: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settings.REDIS_URL = ""
    turn = accepted(session)
    read, failed = listener.read_states, list[UUID]()

    def fail_once(turn_ids: list[UUID]) -> Any:
        if not failed:
            failed.extend(turn_ids)
            raise OperationalError("gone")
        return read(turn_ids)

    monkeypatch.setattr(listener, "read_states", fail_once)

    async def use(streams: Streams) -> None:
        got = streams.open(turn)
        await until(lambda: failed == [turn.pk])
        await sync_to_async(end)(turn)
        await streams.tasks[0]
        assert [item.type for item in got if isinstance(item, Event)] == ["accepted", "cancelled"]

    with_streams(use)

    assert "could not look at their turns" in caplog.text


@pytest.mark.parametrize("data", [b"", b"{", b"[1, 2]", b'{"event": 1}', b'["1", 0, "a"]', b"\xff"])
def test_a_message_of_another_form_says_only_that_it_is_time_to_look(data: bytes) -> None:
    assert listener.piece_of(data) is None
    assert listener.piece_of(b'[1, 0, "a"]') == Delta(1, 0, "a")


def test_a_reader_that_is_too_slow_for_the_pieces_reads_the_row_instead() -> None:
    async def fill() -> listener.Watcher:
        watcher = listener.Watcher(uuid4(), must_look=False)
        for number in range(listener.PIECES_AT_MOST + 1):
            watcher.add(Delta(1, number, "a"))
        return watcher

    watcher = asyncio.run(fill())

    assert (len(watcher.pieces), watcher.must_look) == (listener.PIECES_AT_MOST, True)
