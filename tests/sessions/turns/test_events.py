"""Watching a turn: every stored event once and in order, hints where there is a Valkey, and an end with the turn."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sessions.models import ChatSession, Turn, TurnStatus
from sessions.turns import bell, events, ledger
from sessions.turns.events import Delta, Event, watch
from tests.cast import make_agent, make_session
from tests.sessions.steps import accepted, claimed, end_call, record_model, start_call
from tests.valkey import Valkey, valkey
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import organisation_scope

__all__ = ["valkey"]

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def session(bob: Membership) -> ChatSession:
    return make_session(bob, make_agent(bob.organisation))


@pytest.fixture(params=["with Valkey", "without"])
def hints(request: pytest.FixtureRequest, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[bool]:
    """Whether events are announced; what is watched must be the same."""
    monkeypatch.setattr(bell, "breaker", bell.Breaker())
    monkeypatch.setattr(bell, "ring", lambda turn_id: False)
    with_valkey = request.param == "with Valkey"
    settings.REDIS_URL = request.getfixturevalue("valkey").url if with_valkey else ""
    yield with_valkey
    if with_valkey:
        bell._publisher(settings.REDIS_URL).close()
        bell._publisher.cache_clear()


def watched(turn: Turn, *, after: int = 0, seconds: float = 20.0) -> list[Event | Delta | None]:
    async def collect() -> list[Event | Delta | None]:
        return [item async for item in watch(turn.pk, turn.organisation_id, after=after)]

    return asyncio.run(asyncio.wait_for(collect(), seconds))


def stored(items: list[Event | Delta | None]) -> list[tuple[int, str]]:
    return [(item.number, item.type) for item in items if isinstance(item, Event)]


def run_it(turn: Turn, pause: float = 0.0, text: str = "") -> None:
    claim = claimed(turn)
    time.sleep(pause)
    record_model(claim, calls=1)
    end_call(claim, start_call(claim))
    time.sleep(pause)
    if text:
        bell.announce_text(turn.pk, 5, 0, text)
        time.sleep(pause)
    with organisation_scope(turn.organisation_id):
        ledger.finish(claim, TurnStatus.DONE, answer="done")


ALL = [(1, "accepted"), (2, "started"), (3, "model"), (4, "tool_started"), (5, "tool_done"), (6, "done")]


def beside(work: Callable[[], None]) -> threading.Thread:
    from django.db import connection

    def run() -> None:
        try:
            work()
        finally:
            connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_a_turn_that_has_ended_is_told_from_its_beginning(session: ChatSession, hints: bool) -> None:
    turn = accepted(session)
    run_it(turn)

    assert stored(watched(turn)) == ALL


def test_a_reader_goes_on_after_the_last_event_it_saw(session: ChatSession, hints: bool) -> None:
    turn = accepted(session)
    run_it(turn)

    assert stored(watched(turn, after=4)) == ALL[4:]
    assert stored(watched(turn, after=6)) == []


def test_a_running_turn_is_told_as_it_happens(session: ChatSession, hints: bool) -> None:
    turn = accepted(session)
    running = beside(lambda: run_it(turn, pause=0.4, text="some text"))

    items = watched(turn)

    running.join()
    assert stored(items) == ALL
    assert [item.text for item in items if isinstance(item, Delta)] == (["some text"] if hints else [])


def test_a_missing_or_foreign_turn_has_no_events(session: ChatSession, charlie: Membership, hints: bool) -> None:
    turn = accepted(session)
    run_it(turn)

    async def collect() -> list[Any]:
        return [item async for item in watch(turn.pk, charlie.organisation_id)]

    assert asyncio.run(collect()) == []


def test_more_events_than_one_look_reads_all_come(
    session: ChatSession, hints: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "EVENTS_AT_ONCE", 2)
    turn = accepted(session)
    run_it(turn)

    begun = time.monotonic()
    assert stored(watched(turn)) == ALL
    assert time.monotonic() - begun < 1  # it does not wait between them


def test_a_valkey_that_dies_does_not_end_the_stream(session: ChatSession, settings: Any, valkey: Valkey) -> None:
    settings.REDIS_URL = valkey.url
    turn = accepted(session)

    def work() -> None:
        time.sleep(0.4)
        valkey.kill()
        run_it(turn)

    running = beside(work)
    items = watched(turn)

    running.join()
    assert stored(items) == ALL
