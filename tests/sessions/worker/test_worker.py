"""What a worker does beside running a turn: it survives what goes wrong, hears of cancels, sweeps and drains."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from django.db import InterfaceError, OperationalError, connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from capabilities.contract.context import ToolContext
from capabilities.running.registry import registry
from capabilities.running.registry import tool as register
from sessions.models import ChatSession, Step, StepKind, StepStatus, Turn, TurnStatus
from sessions.turns import bell, ledger, queue
from sessions.turns.held import Held, HeldTurns
from sessions.turns.ledger import Claim
from sessions.worker import process as worker
from sessions.worker.process import Housekeeper, watch_held, work_on
from tests.cast import make_agent, make_role, make_session, make_tool
from tests.processes import wait_for
from tests.scripted_openai import Raw, Say, ScriptedOpenAI, call
from tests.sessions.steps import accepted, change, claimed, expire_lease, reread
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import organisation_scope, system_scope

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def session(bob: Membership, provider: ScriptedOpenAI) -> ChatSession:
    make_role(bob.organisation, bob)
    return make_session(bob, make_agent(bob.organisation, provider.url))


@pytest.fixture
def held_turns(monkeypatch: pytest.MonkeyPatch) -> HeldTurns:
    """This process's held turns, all of them this test's."""
    fresh = HeldTurns()
    monkeypatch.setattr(worker, "held_turns", fresh)
    return fresh


@pytest.fixture
def housekeeper() -> Iterator[Housekeeper]:
    keeper = Housekeeper()
    yield keeper
    keeper._own.shutdown()


def fails(error: Exception) -> object:
    def run_turn(held: Held) -> None:
        raise error

    return run_turn


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ledger.LeaseLost("x"), "is another worker's now"),
        (OperationalError("database is locked"), "waits for the database"),
        (InterfaceError("connection is closed"), "waits for the database"),
        (RuntimeError("boom"), "fell over; it is tried again"),
    ],
)
def test_whatever_a_turn_raises_leaves_it_to_the_next_claim(
    session: ChatSession,
    held_turns: HeldTurns,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    said: str,
) -> None:
    turn = accepted(session)
    monkeypatch.setattr(worker, "run_turn", fails(error))

    work_on(turn.pk)

    assert said in caplog.text
    assert held_turns.all() == []
    assert reread(turn).status == TurnStatus.RUNNING
    expire_lease(turn.pk)
    assert worker.unrung() == []
    change(turn.pk, rang_at=None)
    assert worker.unrung() == [turn.pk]
    assert claimed(turn, "worker-2").epoch == 2


def test_a_turn_that_nobody_can_claim_is_left_alone(session: ChatSession, monkeypatch: pytest.MonkeyPatch) -> None:
    turn = accepted(session)
    claimed(turn, "worker-2")
    monkeypatch.setattr(worker, "run_turn", fails(AssertionError("it ran")))

    work_on(turn.pk)

    assert reread(turn).owner == "worker-2"


def test_held_turns_hear_of_a_cancel_and_of_another_owner(session: ChatSession, held_turns: HeldTurns) -> None:
    quiet, stopped, taken, gone = (accepted(make_session(session.membership, session.agent)) for _ in range(4))
    claims = [claimed(turn) for turn in (quiet, stopped, taken, gone)]
    with organisation_scope(session.organisation_id):
        ledger.cancel(stopped, actor=session.membership)
    expire_lease(taken.pk)
    claimed(taken, "worker-2")
    with system_scope():
        Turn.objects.filter(pk=gone.pk).delete()

    with (
        held_turns.holding(claims[0]) as first,
        held_turns.holding(claims[1]) as second,
        held_turns.holding(claims[2]) as third,
        held_turns.holding(claims[3]) as fourth,
    ):
        watch_held()

    assert [each.reason for each in (first, second, third, fourth)] == ["", "cancelled", "lost", "lost"]
    assert not first.stopped.is_set()


def test_a_process_that_takes_its_own_lost_turn_again_holds_on_to_the_new_claim(
    session: ChatSession, held_turns: HeldTurns
) -> None:
    turn = accepted(session)
    old = claimed(turn, worker.OWNER)
    with held_turns.holding(old) as lost:
        expire_lease(turn.pk)
        new = claimed(turn, worker.OWNER)
        with held_turns.holding(new) as held:
            watch_held()
            assert (lost.reason, held.reason) == ("lost", "")
            held_turns._by_claim.pop(old)
            assert [each.claim for each in held_turns.all()] == [new]


def test_the_first_reason_to_stop_stays() -> None:
    held = Held(Claim(Turn().pk, 1, 1))

    held.stop("cancelled")
    held.stop("draining")

    assert held.reason == "cancelled"


def test_a_cancel_reaches_a_turn_whose_provider_hangs(
    session: ChatSession, provider: ScriptedOpenAI, housekeeper: Housekeeper
) -> None:
    provider.enqueue(Raw(delay=30))
    turn = accepted(session)
    housekeeper.start()
    running = threading.Thread(target=work_on, args=(turn.pk,))
    running.start()
    wait_for(lambda: bool(provider.requests), 10)

    with organisation_scope(session.organisation_id):
        ledger.cancel(turn, actor=session.membership)
    cancelled_at = time.monotonic()
    running.join(10)
    took = time.monotonic() - cancelled_at
    housekeeper.stop()

    assert reread(turn).status == TurnStatus.CANCELLED
    assert took < 2.5  # 0.5 s to hear of it and 0.2 s to stop, on a busy machine


def test_a_worker_on_its_way_down_gives_its_turns_back_and_takes_no_more(
    session: ChatSession,
    provider: ScriptedOpenAI,
    housekeeper: Housekeeper,
    held_turns: HeldTurns,
    settings: Any,
) -> None:
    settings.TOOLHUB_GRACE_SECONDS = 1
    provider.enqueue(Raw(delay=30))
    turn, running = begun(session, provider)

    housekeeper.end()
    running.join(10)

    row = reread(turn)
    assert (row.status, row.attempts, held_turns.all()) == (TurnStatus.QUEUED, 0, [])
    work_on(turn.pk)
    assert reread(turn).epoch == row.epoch


def test_a_thread_that_waits_to_choose_takes_nothing_once_the_worker_is_on_its_way_down(
    session: ChatSession, held_turns: HeldTurns
) -> None:
    turn = accepted(session)
    with queue._choosing:
        taking = threading.Thread(target=worker.take_turns)
        taking.start()
        wait_for(lambda: taking.ident in worker._taking, 10)
        time.sleep(0.2)  # it has looked whether the worker is on its way down, and waits for the others
        held_turns.drain()
    taking.join(10)

    assert (reread(turn).status, reread(turn).epoch) == (TurnStatus.QUEUED, 0)


def begun(session: ChatSession, provider: ScriptedOpenAI) -> tuple[Turn, threading.Thread]:
    """A turn whose model was asked, and the thread that runs it."""
    turn = accepted(session)
    running = threading.Thread(target=work_on, args=(turn.pk,))
    running.start()
    wait_for(lambda: bool(provider.requests), 10)
    return turn, running


def test_a_reply_that_comes_within_the_grace_is_not_paid_for_twice(
    session: ChatSession, provider: ScriptedOpenAI, housekeeper: Housekeeper, held_turns: HeldTurns
) -> None:
    provider.enqueue(Say("Nearly there.", delay=1.5))
    turn, running = begun(session, provider)

    housekeeper.end()
    running.join(10)

    assert (reread(turn).status, reread(turn).answer) == (TurnStatus.DONE, "Nearly there.")
    assert len(provider.requests) == 1


def test_behind_a_reply_within_the_grace_no_call_begins_and_another_worker_goes_on(
    session: ChatSession,
    provider: ScriptedOpenAI,
    housekeeper: Housekeeper,
    held_turns: HeldTurns,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_tool(session.organisation, "uuid")
    provider.enqueue(Say(calls=[call("uuid"), call("uuid", id="call_2")], delay=1.0), Say("Done."))
    turn, running = begun(session, provider)

    housekeeper.end()
    running.join(10)

    assert (reread(turn).status, reread(turn).attempts) == (TurnStatus.QUEUED, 0)
    assert calls_of(turn) == [StepStatus.PENDING] * 2
    monkeypatch.setattr(worker, "held_turns", HeldTurns())
    work_on(turn.pk)
    assert (reread(turn).answer, len(provider.requests)) == ("Done.", 2)
    assert calls_of(turn) == [StepStatus.DONE] * 2


def test_a_tool_that_comes_back_within_the_grace_has_its_result_on_record(
    session: ChatSession,
    provider: ScriptedOpenAI,
    housekeeper: Housekeeper,
    held_turns: HeldTurns,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs = threading.Event()

    def slow(context: ToolContext) -> str:
        """Takes longer than a turn that is stopped waits for its tool."""
        runs.set()
        time.sleep(2.0)
        return "sent"

    monkeypatch.setattr(registry, "tools", dict(registry.tools))
    register(category="utility", effect="external", human_format="Sending")(slow)
    make_tool(session.organisation, "slow")
    provider.enqueue(Say(calls=[call("slow")]))
    turn, running = begun(session, provider)
    assert runs.wait(10)

    housekeeper.end()
    running.join(10)

    assert (reread(turn).status, calls_of(turn)) == (TurnStatus.QUEUED, [StepStatus.DONE])


def calls_of(turn: Turn) -> list[str]:
    with system_scope():
        return list(
            Step.objects.filter(turn=turn, kind=StepKind.TOOL).order_by("index").values_list("status", flat=True)
        )


def test_a_worker_without_a_broker_runs_turns_by_sweeping(
    session: ChatSession, provider: ScriptedOpenAI, housekeeper: Housekeeper
) -> None:
    provider.enqueue(Say("One."), Say("Two."))
    turns = [accepted(session), accepted(session)]
    for turn in turns:
        change(turn.pk, rang_at=None)

    def swept() -> bool:
        housekeeper.sweep()
        return all(reread(turn).status == TurnStatus.DONE for turn in turns)

    wait_for(swept, 20)

    assert [reread(turn).answer for turn in turns] == ["One.", "Two."]


def test_a_sweep_rings_for_what_was_missed(
    session: ChatSession, housekeeper: Housekeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    rung: list[UUID] = []

    def ring(turn_id: UUID) -> bool:
        rung.append(turn_id)
        return True

    monkeypatch.setattr(bell, "ring", ring)
    turn = accepted(session)
    change(turn.pk, rang_at=None)

    housekeeper.sweep()

    assert rung == [turn.pk, turn.pk]  # when it was accepted, and by the sweep


def test_both_threads_give_their_connections_back_at_the_end(
    housekeeper: Housekeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: set[BaseDatabaseWrapper] = set()

    def look() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        used.add(connections["default"])  # one a thread

    monkeypatch.setattr(worker, "HOLD_EVERY", 0.01)
    monkeypatch.setattr(worker, "SWEEP_EVERY", 0.01)
    monkeypatch.setattr(housekeeper, "hold", look)
    monkeypatch.setattr(housekeeper, "sweep", look)
    housekeeper.start()
    wait_for(lambda: len(used) == 2, 10)
    housekeeper.stop()

    assert [each.connection for each in used] == [None, None]


def test_a_sweep_that_fails_is_not_the_last(
    housekeeper: Housekeeper, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    errors: list[Exception] = [OperationalError("away"), InterfaceError("broken"), RuntimeError("boom")]
    looked = threading.Event()

    def look() -> None:
        if errors:
            raise errors.pop(0)
        looked.set()

    monkeypatch.setattr(worker, "SWEEP_EVERY", 0.01)
    monkeypatch.setattr(housekeeper, "sweep", look)
    housekeeper.start()
    assert looked.wait(10)
    housekeeper.stop()

    assert "The database is out of reach: away" in caplog.text
    assert "The database is out of reach: broken" in caplog.text
    assert "Housekeeping failed" in caplog.text
