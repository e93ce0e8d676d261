"""Many turns and hardly any connections to PostgreSQL: who waits holds none, so that all of them come to their end."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings
from django.db import connection as django_connection

from sessions.models import Step, StepKind, StepStatus, Turn, TurnStatus
from sessions.worker import process as worker
from sessions.worker.process import Housekeeper
from tests.cast import make_agent, make_role, make_session, make_tool
from tests.scripted_openai import Json, Say, ScriptedOpenAI, call
from tests.sessions.steps import accepted
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import system_scope

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(settings.DATABASES["default"]["ENGINE"] != "toolhub.postgresql", reason="SQLite has no pool"),
]

TURNS, POOL = 40, 3
#: With what only this backend has.
connection: Any = django_connection


@pytest.fixture
def small_pool(settings: Any) -> Iterator[Any]:
    settings.TOOLHUB_LEASE_SECONDS = 4
    connection.close()
    connection.close_pool()
    options = connection.settings_dict["OPTIONS"]
    usual, options["pool"] = options["pool"], options["pool"] | {"max_size": POOL}
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    yield connection.pool
    connection.close()
    connection.close_pool()
    options["pool"] = usual


@pytest.fixture
def housekeeper() -> Iterator[Housekeeper]:
    keeper = Housekeeper()
    keeper.start()
    yield keeper
    keeper.stop()
    keeper._own.shutdown()


def two_calls_then_an_answer(request: Json) -> Say:
    if any(message["role"] == "tool" for message in request["messages"]):
        return Say("Both are done.")
    one, other = call("uuid", id="call_1"), call("calculator", {"expression": "6 * 7"}, id="call_2")
    return Say(calls=[one, other], delay=0.2)


def turns_of(bob: Membership, provider: ScriptedOpenAI) -> list[Turn]:
    make_role(bob.organisation, bob)
    category = make_tool(bob.organisation, "uuid").category
    make_tool(bob.organisation, "calculator", category=category)
    agent = make_agent(bob.organisation, provider.url)
    return [accepted(make_session(bob, agent)) for _ in range(TURNS)]


def run_all() -> None:
    """What as many threads of a worker do that were rung for all turns at the same moment."""
    threads = [threading.Thread(target=worker.take_turns, daemon=True) for _ in range(TURNS)]
    until = time.monotonic() + 120
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    assert [thread.name for thread in threads if thread.is_alive()] == []


def test_forty_turns_with_two_calls_a_reply_end_with_three_connections(
    bob: Membership, provider: ScriptedOpenAI, small_pool: Any, housekeeper: Housekeeper
) -> None:
    turns = turns_of(bob, provider)
    provider.enqueue(*[two_calls_then_an_answer] * (2 * TURNS))

    run_all()

    with system_scope():
        found = list(Turn.objects.filter(pk__in=[turn.pk for turn in turns]).values_list("status", "epoch"))
        calls = Counter(Step.objects.filter(kind=StepKind.TOOL).values_list("tool_name", "status"))
    assert found == [(TurnStatus.DONE, 1)] * TURNS  # and no lease was lost on the way
    assert calls == {("uuid", StepStatus.DONE): TURNS, ("calculator", StepStatus.DONE): TURNS}
    assert small_pool.get_stats().get("requests_errors", 0) == 0


def test_while_all_turns_wait_for_their_models_every_connection_is_free(
    bob: Membership, provider: ScriptedOpenAI, small_pool: Any
) -> None:
    turns_of(bob, provider)
    all_wait, seen = threading.Barrier(TURNS, timeout=60), list[int]()

    def late(request: Json) -> Say:
        if all_wait.wait() == 0:
            time.sleep(0.5)  # the last one has asked, and its thread waits by now
            stats = small_pool.get_stats()
            seen.append(stats["pool_size"] - stats["pool_available"])
        return Say("Done.", delay=1.0)

    provider.enqueue(*[late] * TURNS)

    run_all()

    assert seen == [0]


def test_leases_and_sweeps_need_no_connection_of_the_pool(
    bob: Membership, provider: ScriptedOpenAI, small_pool: Any, housekeeper: Housekeeper
) -> None:
    turn = turns_of(bob, provider)[0]
    provider.enqueue(Say("Late.", delay=8.0))
    running = threading.Thread(target=worker.work_on, args=(turn.pk,), daemon=True)
    running.start()
    while not provider.requests:
        time.sleep(0.05)
    taken = [small_pool.getconn() for _ in range(POOL)]
    time.sleep(6.0)  # longer than a lease
    for each in taken:
        small_pool.putconn(each)
    running.join(30)

    with system_scope():
        assert Turn.objects.values_list("status", "epoch").get(pk=turn.pk) == (TurnStatus.DONE, 1)
