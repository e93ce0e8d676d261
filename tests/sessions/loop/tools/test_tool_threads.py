"""Threads that run tools: kept with their connections, and let go where a tool does not come back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection
from django.db.backends.signals import connection_created

from sessions.loop.tools import execution, tool_threads
from sessions.loop.tools.tool_threads import ToolThreads
from sessions.models import ChatSession, TurnStatus
from tests.scripted_openai import Say, ScriptedOpenAI, call
from tests.sessions.loop.tools.test_execution import wait_until
from tests.sessions.run_turns import run


@contextmanager
def opened() -> Iterator[list[str]]:
    """The names of the threads that open a connection to the database meanwhile."""
    names: list[str] = []

    def note(**_: Any) -> None:
        names.append(threading.current_thread().name)

    connection_created.connect(note)
    try:
        yield names
    finally:
        connection_created.disconnect(note)


def finished(pool: ToolThreads, work: Any = lambda: None) -> int:
    """The thread that a run of the pool ran in, to its end."""
    found: list[int] = []

    def note() -> None:
        found.append(threading.get_ident())
        work()

    run = pool.start("tool probe", note)
    run.wait(10)
    assert not run.is_alive()
    return found[0]


def test_one_thread_runs_one_tool_after_another() -> None:
    pool = ToolThreads()

    assert len({finished(pool) for _ in range(20)}) == 1


def test_a_thread_whose_tool_does_not_come_back_runs_nothing_else() -> None:
    pool, come_back = ToolThreads(), threading.Event()
    first = finished(pool)
    late: list[int] = []

    def work() -> None:
        late.append(threading.get_ident())
        come_back.wait(10)

    run = pool.start("tool late", work)
    run.wait(0.05)
    assert run.is_alive()
    run.let_go()
    others = {finished(pool) for _ in range(3)}
    come_back.set()
    run.wait(10)

    assert late == [first]
    assert others.isdisjoint(late)
    assert {finished(pool) for _ in range(3)} == others


def test_a_thread_that_waits_too_long_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_threads, "IDLE_SECONDS", 0.05)
    pool = ToolThreads()
    finished(pool)

    wait_until(lambda: not pool._idle)

    assert finished(pool)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("calls", [1, 3])
def test_turn_after_turn_starts_no_thread_and_opens_no_connection_for_its_tools(
    session: ChatSession, provider: ScriptedOpenAI, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as run side by side, however many turns there are."""
    monkeypatch.setattr(execution, "tool_threads", ToolThreads())
    threads: set[int] = set()
    monkeypatch.setattr(ToolThreads, "take_back", noting(threads, ToolThreads.take_back))

    with opened() as names:
        for turn in range(4):
            asked = [call("task_create", {"title": f"Milk {turn}.{number}"}) for number in range(calls)]
            provider.enqueue(Say(calls=asked), Say("There."))
            assert run(session).status == TurnStatus.DONE

    assert 1 <= len(threads) <= calls
    if connection.vendor == "sqlite":  # a database server's come from a pool
        assert 1 <= len([name for name in names if name == "tool"]) <= calls


def noting(threads: set[int], take_back: Callable[..., None]) -> Callable[..., None]:
    """`take_back`, which writes down the threads that are kept."""

    def noted(pool: ToolThreads, thread: Any) -> None:
        threads.add(threading.get_ident())
        take_back(pool, thread)

    return noted
