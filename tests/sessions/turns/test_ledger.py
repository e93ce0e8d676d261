"""The durable turn, on whatever database the settings name: tests/test_postgres.py runs this file on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from uuid import UUID, uuid4

import pytest
from django.utils import timezone

from sessions.loop.calls import delegation
from sessions.loop.run import turn as run
from sessions.models import ChatSession, Step, StepKind, StepStatus, Turn, TurnEvent, TurnStatus
from sessions.turns import accepting, bell, leases, ledger, reaping
from sessions.turns import waiting as parking
from sessions.turns.accepting import Accepted
from sessions.turns.ledger import Claim, LeaseLost
from sessions.worker import process as worker
from tests.cast import make_agent, make_session
from tests.sessions.steps import (
    accepted,
    add_call,
    change,
    claimed,
    end_call,
    expire_lease,
    record_model,
    reread,
    start_call,
)
from tests.threads import at_once
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import organisation_scope, system_scope

pytestmark = pytest.mark.django_db
threaded = pytest.mark.django_db(transaction=True)


@pytest.fixture
def session(bob: Membership) -> ChatSession:
    return make_session(bob, make_agent(bob.organisation))


@pytest.fixture
def rung(monkeypatch: pytest.MonkeyPatch) -> list[UUID]:
    """The turns that somebody was called for."""
    turn_ids: list[UUID] = []
    monkeypatch.setattr(bell, "ring", turn_ids.append)
    return turn_ids


def seconds_left(turn: Turn) -> float:
    return (reread(turn).deadline_at - timezone.now()).total_seconds()


def finish(claim: Claim, status: TurnStatus = TurnStatus.DONE, answer: str = "done") -> None:
    with organisation_scope(claim.organisation_id):
        ledger.finish(claim, status, answer=answer)


def cancel(turn: Turn) -> None:
    with organisation_scope(turn.organisation_id):
        ledger.cancel(turn, actor=turn.membership)


def events_of(turn: Turn) -> list[tuple[int, str]]:
    with system_scope():
        return list(TurnEvent.objects.filter(turn=turn).order_by("number").values_list("number", "type"))


def step_statuses(turn: Turn) -> list[str]:
    with system_scope():
        return list(Step.objects.filter(turn=turn).order_by("index").values_list("status", flat=True))


# -- Accept -----------------------------------------------------------------------------------------------------------


def test_the_same_key_with_the_same_message_is_the_same_turn(session: ChatSession) -> None:
    with organisation_scope(session.organisation_id):
        first = accepting.accept(session, "hello", member=session.membership, idempotency_key="k")
        second = accepting.accept(session, "hello", member=session.membership, idempotency_key="k")

        assert (first.created, second.created) == (True, False)
        assert first.turn.pk == second.turn.pk
        assert Turn.objects.count() == 1


def test_the_same_key_with_another_message_or_session_is_refused(session: ChatSession) -> None:
    accepted(session, "hello", key="k")
    other = make_session(session.membership, session.agent)

    for where, message in ((session, "bye"), (other, "hello")):
        with organisation_scope(session.organisation_id), pytest.raises(ledger.Conflict) as refused:
            accepting.accept(where, message, member=session.membership, idempotency_key="k")
        assert refused.value.code == "idempotency_key_reused"


def test_turns_without_a_key_are_always_new_and_counted_from_one(session: ChatSession) -> None:
    assert [accepted(session).seq for _ in range(3)] == [1, 2, 3]


def test_a_disabled_agent_takes_no_message(session: ChatSession) -> None:
    session.agent.is_enabled = False

    with organisation_scope(session.organisation_id), pytest.raises(ledger.Conflict) as refused:
        accepting.accept(session, "hello", member=session.membership)

    assert refused.value.code == "agent_disabled"


def test_a_worker_is_called_only_after_the_commit(
    session: ChatSession, rung: list[UUID], django_capture_on_commit_callbacks: Callable[..., object]
) -> None:
    with django_capture_on_commit_callbacks(execute=True):  # type: ignore[attr-defined]
        turn = accepted(session)
        assert rung == []

    assert rung == [turn.pk]


@threaded
def test_twenty_posters_at_once_leave_no_gap_and_a_key_makes_one_turn(session: ChatSession) -> None:
    def post(number: int) -> Accepted:
        key = "shared" if number % 2 else ""
        return accepting.accept(session, "hello", member=session.membership, idempotency_key=key)

    with organisation_scope(session.organisation_id):
        results = at_once([partial(post, number) for number in range(20)])
        seqs = sorted(Turn.objects.values_list("seq", flat=True))

    shared = [each for number, each in enumerate(results) if number % 2]
    assert seqs == list(range(1, 12))
    assert len({each.turn.pk for each in shared}) == 1
    assert sum(each.created for each in shared) == 1
    assert all(each.created for number, each in enumerate(results) if number % 2 == 0)


# -- Claim ------------------------------------------------------------------------------------------------------------


def test_a_claim_takes_a_lease_and_says_so(session: ChatSession) -> None:
    turn = accepted(session)

    claim = claimed(turn, "worker-1")

    row = reread(turn)
    assert claim == Claim(turn.pk, turn.organisation_id, 1)
    assert (row.status, row.owner, row.epoch, row.attempts) == (TurnStatus.RUNNING, "worker-1", 1, 1)
    assert row.lease_until is not None
    assert row.lease_until > timezone.now()
    assert events_of(turn) == [(1, "accepted"), (2, "started")]


def test_a_turn_may_wait_a_day_and_its_running_time_begins_with_the_first_claim(session: ChatSession) -> None:
    turn = accepted(session)
    waiting = seconds_left(turn)

    claim = ledger.claim(turn.pk, "first")
    running = seconds_left(turn)
    change(turn.pk, lease_until=ledger.from_now(-1), deadline_at=ledger.from_now(30))
    again = ledger.claim(turn.pk, "second")

    assert claim is not None
    assert again is not None
    assert 86_390 < waiting <= 86_400
    assert 590 < running <= 600
    assert seconds_left(turn) <= 30


def test_a_missing_or_a_held_or_an_ended_turn_cannot_be_claimed(session: ChatSession) -> None:
    turn = accepted(session)
    claim = claimed(turn)

    assert ledger.claim(uuid4(), "worker-2") is None
    assert ledger.claim(turn.pk, "worker-2") is None
    assert ledger.claim(turn.pk, "worker-1") is None
    finish(claim)
    assert ledger.claim(turn.pk, "worker-2") is None


@pytest.mark.long
@threaded
def test_of_twenty_workers_one_gets_the_turn_in_every_round(session: ChatSession) -> None:
    turn = accepted(session)

    for number in range(1, 13):
        claims = at_once([partial(ledger.claim, turn.pk, f"worker-{each}") for each in range(20)])
        won = [claim for claim in claims if claim is not None]
        assert [claim.epoch for claim in won] == [number]
        change(turn.pk, lease_until=ledger.from_now(-1), attempts=0)

    assert [number for number, _ in events_of(turn)] == list(range(1, 14))


@threaded
def test_two_threads_of_one_process_never_share_an_epoch(session: ChatSession) -> None:
    turn = accepted(session)
    change(turn.pk, status=TurnStatus.RUNNING, lease_until=ledger.from_now(-1))

    def claim_and_lose() -> list[int]:
        epochs = []
        for _ in range(15):
            claim = ledger.claim(turn.pk, "one-process")
            if claim is not None:
                epochs.append(claim.epoch)
                change(turn.pk, lease_until=ledger.from_now(-1), attempts=0)
        return epochs

    epochs = [epoch for each in at_once([claim_and_lose] * 4) for epoch in each]

    assert len(epochs) > 4
    assert len(epochs) == len(set(epochs))


def test_a_turn_waits_for_the_sessions_earlier_one_and_not_for_another_sessions(session: ChatSession) -> None:
    first, second = accepted(session), accepted(session)
    elsewhere = accepted(make_session(session.membership, session.agent))

    assert ledger.claim(second.pk, "worker-2") is None
    claim = claimed(first)
    assert ledger.claim(second.pk, "worker-2") is None
    assert ledger.claim(elsewhere.pk, "worker-2") is not None
    finish(claim, TurnStatus.FAILED)
    assert ledger.claim(second.pk, "worker-2") is not None


@threaded
def test_many_workers_keep_the_order_of_a_session(session: ChatSession) -> None:
    turns = [accepted(session, str(number)) for number in range(6)]

    def work(owner: str) -> list[UUID]:
        ran = []
        for _ in range(200):
            for turn in turns:
                claim = ledger.claim(turn.pk, owner)
                if claim is not None:
                    finish(claim)
                    ran.append(turn.pk)
            with system_scope():
                if not Turn.objects.filter(status=TurnStatus.QUEUED).exists():
                    break
        return ran

    ran = at_once([partial(work, f"worker-{number}") for number in range(4)])

    with system_scope():
        rows = list(Turn.objects.order_by("seq"))
    assert sum(len(each) for each in ran) == 6
    assert all(row.status == TurnStatus.DONE and row.epoch == 1 for row in rows)
    assert all(
        earlier.ended_at <= later.started_at  # type: ignore[operator]
        for earlier, later in pairwise(rows)
    )


# -- Fences -----------------------------------------------------------------------------------------------------------


def order_to(claim: Claim) -> delegation.Order:
    with system_scope():
        turn = Turn.objects.select_related("session", "agent", "membership").get(pk=claim.turn_id)
    return delegation.Order(turn, turn.agent, "Do it.", (1, 2))


CLIENT_CALL = {"id": "call_1", "name": "calculator", "arguments": "{}"}
WRITES: dict[str, Callable[[Claim, Step], object]] = {
    "write_event": lambda claim, step: ledger.write_event(claim, "note", {}),
    "add_note": lambda claim, step: ledger.add_note(claim, "Look."),
    "add_calls": lambda claim, step: add_call(claim, round=2),
    "add_tools": lambda claim, step: ledger.add_tools(claim, {}, request={"tools": []}),
    "return_steps": lambda claim, step: ledger.return_steps(claim, [Step(pk=step.pk, status=StepStatus.PENDING)]),
    "start_step": lambda claim, step: ledger.start_step(claim, step),
    "record_model_step": lambda claim, step: record_model(claim),
    "record_client_call": lambda claim, step: ledger.record_client_call(claim, CLIENT_CALL, None),
    "refuse_steps": lambda claim, step: ledger.refuse_steps(claim, [step], "no"),
    "keep_draft": lambda claim, step: ledger.keep_draft(claim, "so far"),
    "restart_draft": lambda claim, step: ledger.restart_draft(claim),
    "finish_step": lambda claim, step: end_call(claim, step),
    "release": lambda claim, step: ledger.release(claim),
    "release_reservation": lambda claim, step: ledger.release_reservation(claim),
    "park": lambda claim, step: parking.park(claim),
    "open_child": lambda claim, step: delegation.open_child(claim, step, order_to(claim)),
    "finish": lambda claim, step: ledger.finish(claim, TurnStatus.DONE, answer="zombie"),
    "finish_stopped": lambda claim, step: ledger.finish_stopped(claim),
    "claimed_turn": lambda claim, step: run.claimed_turn(claim),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_zombie_writes_nothing(session: ChatSession, name: str) -> None:
    turn = accepted(session)
    zombie = claimed(turn, "worker-1")
    step = start_call(zombie)
    expire_lease(turn.pk)
    claimed(turn, "worker-2")
    before, events, steps = reread(turn), events_of(turn), step_statuses(turn)

    with organisation_scope(turn.organisation_id), pytest.raises(LeaseLost):
        WRITES[name](zombie, step)

    after = reread(turn)
    assert {field.attname: getattr(after, field.attname) for field in Turn._meta.concrete_fields} == {
        field.attname: getattr(before, field.attname) for field in Turn._meta.concrete_fields
    }
    assert (events_of(turn), step_statuses(turn)) == (events, steps)


@pytest.mark.parametrize("name", WRITES)
def test_nobody_writes_to_a_turn_that_has_ended(session: ChatSession, name: str) -> None:
    turn = accepted(session)
    claim = claimed(turn)
    step = start_call(claim)
    finish(claim, TurnStatus.FAILED)

    with organisation_scope(turn.organisation_id), pytest.raises(LeaseLost):
        WRITES[name](claim, step)

    assert reread(turn).status == TurnStatus.FAILED


def test_every_write_that_takes_a_claim_is_tried_as_a_zombies() -> None:
    takes_a_claim = {
        name
        for room in (ledger, leases, parking, delegation, run)
        for name, function in vars(room).items()
        if getattr(function, "__module__", "") == room.__name__
        and not name.startswith("_")
        and "claim" in getattr(function, "__annotations__", {})
    }

    assert takes_a_claim == set(WRITES)


# -- Leases -----------------------------------------------------------------------------------------------------------


def test_an_expired_lease_is_taken_over(session: ChatSession) -> None:
    turn = accepted(session)
    claimed(turn, "worker-1")
    expire_lease(turn.pk)

    claim = ledger.claim(turn.pk, "worker-2")

    assert claim is not None
    assert claim.epoch == 2
    assert reread(turn).owner == "worker-2"
    assert events_of(turn)[-1] == (3, "attempt_restarted")


def test_renewing_holds_only_ones_own_turns(session: ChatSession) -> None:
    turn = accepted(session)
    claimed(turn, "worker-1")
    expire_lease(turn.pk)

    ledger.renew("worker-2", [turn.pk])
    assert reread(turn).lease_until < timezone.now()  # type: ignore[operator]
    ledger.renew("worker-1", [turn.pk])
    assert reread(turn).lease_until > timezone.now()  # type: ignore[operator]


def test_a_turn_that_hangs_past_its_deadline_is_let_go_and_expires(session: ChatSession) -> None:
    turn = accepted(session)
    claimed(turn, "worker-1")
    change(turn.pk, deadline_at=ledger.from_now(-60), lease_until=ledger.from_now(-1))

    ledger.renew("worker-1", [turn.pk])
    reaping.reap()

    assert reread(turn).status == TurnStatus.EXPIRED


def test_a_released_turn_waits_as_long_as_asked_and_costs_no_attempt(session: ChatSession) -> None:
    turn = accepted(session)
    claim = claimed(turn)

    with organisation_scope(turn.organisation_id):
        ledger.release(claim, wait=60)

    row = reread(turn)
    assert (row.status, row.attempts) == (TurnStatus.QUEUED, 0)
    assert ledger.claim(turn.pk, "worker-2") is None
    change(turn.pk, next_attempt_at=ledger.from_now(-1))
    assert claimed(turn, "worker-2").epoch == 2


def test_a_released_turn_is_free_at_once_without_a_wait(session: ChatSession) -> None:
    turn = accepted(session)
    with organisation_scope(turn.organisation_id):
        ledger.release(claimed(turn))
        # A moment that is now would be to come for who claims within its millisecond.
        assert reread(turn).next_attempt_at is None

    assert worker.unrung() == [turn.pk]
    assert ledger.claim(turn.pk, "worker-2") is not None


# -- Record -----------------------------------------------------------------------------------------------------------


def test_steps_and_events_count_without_gaps(session: ChatSession) -> None:
    turn = accepted(session)
    claim = claimed(turn)
    with organisation_scope(turn.organisation_id):
        record_model(claim, calls=3)
        first, *others = Step.objects.filter(turn=turn, kind=StepKind.TOOL).order_by("index")
        ledger.start_step(claim, first)
        end_call(claim, first)
        ledger.refuse_steps(claim, others, "no")
    record_model(claim)
    finish(claim)

    row = reread(turn)
    with system_scope():
        indexes = list(Step.objects.filter(turn=turn).order_by("index").values_list("index", flat=True))
    assert indexes == [1, 2, 3, 4, 5]
    assert [number for number, _ in events_of(turn)] == list(range(1, row.last_event + 1))
    assert (row.rounds, row.input_tokens, row.cached_tokens, row.output_tokens) == (2, 20, 8, 4)


@threaded
def test_results_that_come_in_at_once_leave_no_gap(session: ChatSession) -> None:
    turn = accepted(session)
    claim = claimed(turn)

    def call(index: int) -> None:
        end_call(claim, start_call(claim, call_index=index))

    at_once([partial(call, index) for index in range(8)])

    row = reread(turn)
    assert step_statuses(turn) == [StepStatus.DONE] * 8
    assert [number for number, _ in events_of(turn)] == list(range(1, row.last_event + 1))
    assert row.last_step == 8


def test_the_first_outcome_of_a_step_stays(session: ChatSession) -> None:
    turn = accepted(session)
    claim = claimed(turn)
    step = start_call(claim)
    end_call(claim, step)

    with organisation_scope(turn.organisation_id):
        ledger.finish_step(claim, step, StepStatus.UNKNOWN, result="?", result_sent="?")

    assert step_statuses(turn) == [StepStatus.DONE]


# -- Ends -------------------------------------------------------------------------------------------------------------


def test_a_turn_that_no_worker_ends_rings_for_the_sessions_next(
    session: ChatSession, rung: list[UUID], django_capture_on_commit_callbacks: Callable[..., object]
) -> None:
    first, second, third = accepted(session), accepted(session), accepted(session)

    with django_capture_on_commit_callbacks(execute=True):  # type: ignore[attr-defined]
        finish(claimed(first))
    assert rung == []  # its worker takes the next one itself

    with django_capture_on_commit_callbacks(execute=True):  # type: ignore[attr-defined]
        cancel(second)
    assert rung == [third.pk]


def test_a_turn_that_ends_without_an_answer_leaves_no_open_step(session: ChatSession) -> None:
    turn = accepted(session)
    claim = claimed(turn)
    start_call(claim)

    finish(claim, TurnStatus.CANCELLED, answer="")

    assert step_statuses(turn) == [StepStatus.UNKNOWN]


def crash(turn: Turn, times: int) -> None:
    """Claimed, and never heard of again."""
    for _ in range(times):
        claimed(turn)
        expire_lease(turn.pk)


def test_a_turn_that_crashes_five_workers_in_a_row_fails(session: ChatSession) -> None:
    turn = accepted(session)
    crash(turn, 4)
    reaping.reap()
    assert reread(turn).status == TurnStatus.RUNNING

    crash(turn, 1)
    assert ledger.claim(turn.pk, "worker-6") is None
    reaping.reap()

    row = reread(turn)
    assert (row.status, row.error_code) == (TurnStatus.FAILED, "crash_loop")


def test_a_finished_step_proves_that_the_turn_does_not_kill_its_worker(session: ChatSession) -> None:
    turn = accepted(session)
    crash(turn, 4)
    claim = claimed(turn)
    record_model(claim)
    expire_lease(turn.pk)
    crash(turn, 3)

    assert ledger.claim(turn.pk, "worker-9") is not None


def test_an_intent_alone_proves_nothing(session: ChatSession) -> None:
    turn = accepted(session)
    for round in range(1, 6):
        start_call(claimed(turn), round=round)
        expire_lease(turn.pk)
    reaping.reap()

    assert reread(turn).error_code == "crash_loop"
    assert step_statuses(turn) == [StepStatus.UNKNOWN] * 5


@pytest.mark.parametrize("is_running", [False, True])
def test_a_turn_past_its_deadline_expires_once_nobody_holds_it(session: ChatSession, is_running: bool) -> None:
    turn = accepted(session)
    if is_running:
        claimed(turn)
    change(turn.pk, deadline_at=ledger.from_now(-1))

    reaping.reap()
    if is_running:
        assert reread(turn).status == TurnStatus.RUNNING  # its own worker ends it
        expire_lease(turn.pk)
        reaping.reap()

    row = reread(turn)
    assert (row.status, row.error_code) == (TurnStatus.EXPIRED, "deadline")
    assert row.ended_at is not None


def test_a_second_reap_changes_nothing(session: ChatSession) -> None:
    turn = accepted(session)
    change(turn.pk, deadline_at=ledger.from_now(-1))
    reaping.reap()
    events, ended_at = events_of(turn), reread(turn).ended_at

    reaping.reap()

    assert (events_of(turn), reread(turn).ended_at) == (events, ended_at)
    assert events == [(1, "accepted"), (2, "expired")]


@threaded
def test_several_reapers_end_a_turn_once(session: ChatSession) -> None:
    turns = [accepted(make_session(session.membership, session.agent)) for _ in range(5)]
    for turn in turns:
        change(turn.pk, deadline_at=ledger.from_now(-1))

    at_once([reaping.reap] * 4)

    assert [events_of(turn) for turn in turns] == [[(1, "accepted"), (2, "expired")]] * 5


# -- Cancel -----------------------------------------------------------------------------------------------------------


def test_a_queued_turn_is_cancelled_at_once_and_the_next_one_rung_for(
    session: ChatSession, rung: list[UUID], django_capture_on_commit_callbacks: Callable[..., object]
) -> None:
    first, second = accepted(session), accepted(session)

    with django_capture_on_commit_callbacks(execute=True):  # type: ignore[attr-defined]
        cancel(first)

    assert (first.status, first.error_code) == (TurnStatus.CANCELLED, "cancelled")
    assert rung == [second.pk]
    assert ledger.claim(first.pk, "worker-1") is None


def test_a_running_turn_is_told_to_stop_and_starts_nothing_more(session: ChatSession) -> None:
    turn = accepted(session)
    claim = claimed(turn)
    step = start_call(claim)

    cancel(turn)

    assert turn.status == TurnStatus.RUNNING
    assert turn.cancel_requested_at is not None
    with pytest.raises(ledger.CancelRequested):
        start_call(claim, call_index=1)
    end_call(claim, step)  # what was under way is still put on record
    assert step_statuses(turn) == [StepStatus.DONE]
    finish(claim, TurnStatus.CANCELLED)
    assert [number for number, _ in events_of(turn)] == [1, 2, 3, 4, 5]


def test_cancelling_twice_or_after_the_end_is_harmless(session: ChatSession) -> None:
    turn, ended = accepted(session), accepted(make_session(session.membership, session.agent))
    cancel(turn)
    finish(claimed(ended))
    before = [events_of(each) for each in (turn, ended)]

    cancel(turn)
    cancel(ended)

    assert [events_of(each) for each in (turn, ended)] == before
    assert (turn.status, ended.status) == (TurnStatus.CANCELLED, TurnStatus.DONE)
    assert ended.cancel_requested_at is None


def test_a_cancelled_turn_whose_worker_died_is_ended_by_a_sweep(session: ChatSession) -> None:
    turn = accepted(session)
    start_call(claimed(turn))
    cancel(turn)
    expire_lease(turn.pk)

    reaping.reap()

    assert reread(turn).status == TurnStatus.CANCELLED
    assert step_statuses(turn) == [StepStatus.UNKNOWN]


@threaded
def test_a_cancel_and_a_claim_at_once_leave_one_of_two_honest_states(session: ChatSession) -> None:
    for _ in range(10):
        turn = accepted(make_session(session.membership, session.agent))

        claim, _ = at_once([partial(ledger.claim, turn.pk, "worker-1"), partial(cancel, turn)])

        row = reread(turn)
        if claim is None:
            assert row.status == TurnStatus.CANCELLED
        else:
            assert row.status == TurnStatus.RUNNING
            assert row.cancel_requested_at is not None
            with pytest.raises(ledger.CancelRequested):
                start_call(claim)


# -- Sweeps -----------------------------------------------------------------------------------------------------------


def test_a_turn_is_rung_for_again_when_nobody_took_it(session: ChatSession) -> None:
    turn, _behind = accepted(session), accepted(session)

    assert worker.unrung() == []
    with system_scope():
        Turn.objects.update(rang_at=ledger.from_now(-3))
    assert worker.unrung() == [turn.pk]
    assert worker.unrung() == []


@threaded
def test_of_several_sweepers_one_gets_each_turn(session: ChatSession) -> None:
    turns = [accepted(make_session(session.membership, session.agent)) for _ in range(12)]

    for _ in range(5):
        with system_scope():
            Turn.objects.update(rang_at=ledger.from_now(-3))
        swept = [turn_id for each in at_once([worker.unrung] * 5) for turn_id in each]
        assert sorted(swept) == sorted(turn.pk for turn in turns)
