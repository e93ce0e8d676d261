"""Which turn is taken next: organisations take turns, and members of one, and each has so many places at once."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from uuid import UUID

import pytest
from django.db import connection
from pytest_django import DjangoAssertNumQueries, Settings

from sessions.models import ChatSession, Step, StepKind, StepStatus, Turn, TurnStatus
from sessions.turns import bell, ledger, queue
from sessions.turns.held import HeldTurns
from sessions.turns.ledger import Claim
from sessions.worker import process as worker
from tests.cast import make_agent, make_member, make_organisation, make_role, make_session
from tests.scripted_openai import Say, ScriptedOpenAI
from tests.sessions.steps import accepted, change, claimed, expire_lease, reread
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import organisation_scope, system_scope

pytestmark = pytest.mark.django_db


def waiting(member: Membership, count: int = 1) -> list[Turn]:
    """So many turns of the member, each in a session of its own."""
    return [accepted(make_session(member)) for _ in range(count)]


def take() -> Claim:
    claim = queue.claim_next("worker-1")
    assert claim is not None
    return claim


def end(claim: Claim) -> None:
    with organisation_scope(claim.organisation_id):
        ledger.finish(claim, TurnStatus.DONE, answer="done")


def member_of(claim: Claim) -> int:
    with system_scope():
        return Turn.objects.values_list("membership_id", flat=True).get(pk=claim.turn_id)


# -- Whose turn it is -------------------------------------------------------------------------------------------------


def test_one_turn_waits_no_longer_than_one_of_another_organisation_with_many(
    bob: Membership, charlie: Membership
) -> None:
    waiting(bob, 50)
    end(take())
    end(take())
    (lone,) = waiting(charlie)

    assert take().turn_id == lone.pk
    assert take().organisation_id == bob.organisation_id


@pytest.mark.parametrize("seed", range(6))
def test_no_waiting_organisation_is_passed_over_by_another_s_second_turn(db: None, seed: int) -> None:
    """Whatever comes and ends in whatever order."""
    chance = random.Random(seed)
    organisations = [make_organisation(slug) for slug in ("acme", "globex", "initech")]
    members = [make_member(each, f"{each.slug}-{name}") for each in organisations for name in ("a", "b")]
    left, claims = Counter[int](), list[Claim]()
    #: How often each organisation was served since this one began to wait or was served itself.
    passed = {each.pk: Counter[int]() for each in organisations}

    for _ in range(60):
        act = chance.choice(("accept", "accept", "claim", "claim", "end"))
        if act == "accept":
            member = chance.choice(members)
            waiting(member)
            left[member.organisation_id] += 1
        elif act == "end" and claims:
            end(claims.pop(chance.randrange(len(claims))))
        elif act == "claim" and left.total():
            time.sleep(0.002)  # SQLite's clock has milliseconds
            claims.append(claim := take())
            left[claim.organisation_id] -= 1
            passed[claim.organisation_id].clear()
            for other, by in passed.items():
                if other != claim.organisation_id and left[other]:
                    by[claim.organisation_id] += 1
                    assert by[claim.organisation_id] <= 1

    assert len({claim.turn_id for claim in claims}) == len(claims)


def test_members_of_one_organisation_take_turns_too(alice: Membership, bob: Membership) -> None:
    waiting(bob, 4)
    waiting(alice, 2)

    served = [member_of(take()) for _ in range(6)]

    assert served == [bob.pk, alice.pk, bob.pk, alice.pk, bob.pk, bob.pk]


def test_of_one_member_the_oldest_turn_comes_first(bob: Membership) -> None:
    turns = waiting(bob, 3)

    assert [take().turn_id for _ in turns] == [turn.pk for turn in turns]


def test_with_several_places_each_organisation_gets_one_before_any_gets_two(
    bob: Membership, charlie: Membership, db: None
) -> None:
    dora = make_member(make_organisation("initech"), "dora")
    for member in (bob, charlie, dora):
        waiting(member, 5)

    served = [take().organisation_id for _ in range(9)]

    assert all(len(set(served[first : first + 3])) == 3 for first in (0, 3, 6))


# -- What may run -----------------------------------------------------------------------------------------------------


def test_a_session_s_turns_stay_in_order(bob: Membership) -> None:
    session = make_session(bob)
    first, second = accepted(session), accepted(session)

    claim = take()

    assert claim.turn_id == first.pk
    assert queue.claim_next("worker-2") is None
    end(claim)
    assert take().turn_id == second.pk


def test_a_turn_that_is_to_wait_keeps_no_other_waiting(bob: Membership) -> None:
    first, second = waiting(bob, 2)
    with organisation_scope(bob.organisation_id):
        ledger.release(claimed(first), wait=60)

    assert take().turn_id == second.pk
    assert queue.claim_next("worker-2") is None


@pytest.mark.parametrize("limit", ["ORGANISATION", "MEMBER"])
def test_at_the_limit_turns_wait_and_others_are_served(
    bob: Membership, charlie: Membership, settings: Settings, limit: str
) -> None:
    setattr(settings, f"TOOLHUB_RUNNING_PER_{limit}", 2)
    waiting(bob, 4)
    claims = [take(), take()]

    assert queue.claim_next("worker-1") is None
    (other,) = waiting(charlie)
    assert take().turn_id == other.pk
    end(claims[0])
    assert take().organisation_id == bob.organisation_id
    assert queue.claim_next("worker-1") is None


def test_the_limit_of_a_member_leaves_the_organisation_s_others_their_places(
    alice: Membership, bob: Membership, settings: Settings
) -> None:
    settings.TOOLHUB_RUNNING_PER_MEMBER = 1
    waiting(bob, 3)
    (alices,) = waiting(alice)

    assert [member_of(take()), take().turn_id] == [bob.pk, alices.pk]
    assert queue.claim_next("worker-1") is None


def test_turns_of_a_dead_worker_count_no_more_and_are_taken_again(bob: Membership, settings: Settings) -> None:
    settings.TOOLHUB_RUNNING_PER_ORGANISATION = 1
    (turn,) = waiting(bob)
    take()
    assert queue.claim_next("worker-2") is None
    expire_lease(turn.pk)

    again = take()

    assert (again.turn_id, again.epoch) == (turn.pk, 2)


def test_a_turn_that_crashed_too_often_is_not_taken_again(bob: Membership, settings: Settings) -> None:
    (turn,) = waiting(bob)
    claimed(turn)
    expire_lease(turn.pk)
    change(turn.pk, attempts=settings.TOOLHUB_MAX_ATTEMPTS)

    assert queue.claim_next("worker-2") is None


def delegated(parent: Turn, member: Membership) -> Turn:
    """A turn that another one waits for."""
    with organisation_scope(member.organisation_id):
        step = Step.objects.create(
            organisation_id=member.organisation_id,
            turn=parent,
            index=1,
            kind=StepKind.TOOL,
            status=StepStatus.STARTED,
        )
    (child,) = waiting(member)
    change(child.pk, parent_step=step)
    change(parent.pk, status=TurnStatus.WAITING_CHILD, lease_until=None)
    return child


def test_a_turn_that_waits_for_another_agent_does_not_count_as_running(bob: Membership, settings: Settings) -> None:
    settings.TOOLHUB_RUNNING_PER_ORGANISATION = settings.TOOLHUB_RUNNING_PER_MEMBER = 1
    (parent,) = waiting(bob)
    take()
    child = delegated(parent, bob)

    assert take().turn_id == child.pk


def test_what_another_turn_waits_for_comes_before_the_member_s_own_turns(bob: Membership) -> None:
    parent, *_own = waiting(bob, 5)
    take()
    child = delegated(parent, bob)

    assert take().turn_id == child.pk


def test_looking_takes_one_query_whoever_waits(
    bob: Membership, charlie: Membership, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    waiting(bob)
    with django_assert_num_queries(1):
        queue.look()
    waiting(bob, 3)
    waiting(charlie, 3)
    take()
    with django_assert_num_queries(1):
        assert len(queue.look().waiting) == 2


def test_a_turn_that_somebody_else_took_meanwhile_is_no_end(
    bob: Membership, charlie: Membership, monkeypatch: pytest.MonkeyPatch
) -> None:
    (first,), (second,) = waiting(bob), waiting(charlie)
    seen = queue.look()
    claimed(first, "worker-2")
    monkeypatch.setattr(queue, "look", lambda: seen)

    assert take().turn_id == second.pk
    assert queue.claim_next("worker-1") is None


@pytest.mark.skipif(connection.vendor != "sqlite", reason="The plan of SQLite")
def test_looking_reads_no_turn_that_has_ended(db: None) -> None:
    sql, params = queue._statement("default", 5)
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {sql}", params)
        plan = [row[3] for row in cursor.fetchall()]

    # With statistics of few rows, which other tests may leave, members and organisations are read through.
    scans = [line for line in plan if line.startswith("SCAN") and not line.startswith("SCAN tenants_")]
    assert [line for line in scans if "unended" not in line] == []


# -- How the bell is rung ---------------------------------------------------------------------------------------------


@pytest.fixture
def rung(monkeypatch: pytest.MonkeyPatch) -> list[UUID]:
    calls: list[UUID] = []

    def ring(turn_id: UUID) -> bool:
        calls.append(turn_id)
        return True

    monkeypatch.setattr(bell, "ring", ring)
    return calls


@pytest.fixture
def held_turns(monkeypatch: pytest.MonkeyPatch) -> HeldTurns:
    fresh = HeldTurns()
    monkeypatch.setattr(worker, "held_turns", fresh)
    return fresh


def sweep() -> None:
    """One sweep, so late that every turn may be rung for again."""
    with system_scope():
        Turn.objects.update(rang_at=None)
    worker.Housekeeper().call_workers()


@pytest.mark.usefixtures("held_turns")
def test_a_sweep_rings_at_most_as_often_as_there_are_free_places(
    bob: Membership, charlie: Membership, settings: Settings, rung: list[UUID]
) -> None:
    settings.WORKER_CONCURRENCY = 3
    waiting(bob, 10)
    waiting(charlie, 10)

    sweep()

    assert len(rung) == 3


def test_a_sweep_of_a_busy_worker_rings_for_nobody(
    bob: Membership, settings: Settings, rung: list[UUID], held_turns: HeldTurns
) -> None:
    settings.WORKER_CONCURRENCY = 2
    waiting(bob, 10)

    with held_turns.holding(take()), held_turns.holding(take()):
        sweep()
        assert rung == []
    sweep()
    assert len(rung) == 2


@pytest.mark.usefixtures("held_turns")
def test_a_sweep_rings_for_no_more_than_may_run_at_once(
    bob: Membership, charlie: Membership, settings: Settings, rung: list[UUID]
) -> None:
    settings.TOOLHUB_RUNNING_PER_MEMBER = 2
    waiting(bob, 10)
    take()
    last = waiting(charlie)[0].pk

    sweep()
    assert (len(rung), last in rung) == (2, True)
    take()
    take()
    rung.clear()
    sweep()
    assert rung == []


@pytest.fixture
def provider_session(bob: Membership, provider: ScriptedOpenAI) -> Callable[[], ChatSession]:
    make_role(bob.organisation, bob)
    agent = make_agent(bob.organisation, provider.url)
    return lambda: make_session(bob, agent)


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("held_turns")
def test_one_call_works_through_all_that_waits_and_nobody_is_rung_for(
    provider_session: Callable[[], ChatSession], provider: ScriptedOpenAI, rung: list[UUID]
) -> None:
    session = provider_session()
    turns = [accepted(each) for each in (session, session, session, provider_session(), provider_session())]
    provider.enqueue(*(Say(f"Answer {number}.") for number in range(5)))
    rung.clear()

    worker.take_turns()

    assert {reread(turn).status for turn in turns} == {TurnStatus.DONE}
    assert rung == []


@pytest.mark.usefixtures("held_turns")
def test_a_sweep_rings_for_nothing_that_a_thread_is_about_to_take(
    bob: Membership, rung: list[UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting(bob, 3)
    monkeypatch.setattr(worker, "_taking", {1, 2})
    rung.clear()

    sweep()

    assert len(rung) == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("held_turns")
@pytest.mark.parametrize(("places", "second_status"), [(1, TurnStatus.QUEUED), (2, TurnStatus.DONE)])
def test_where_every_thread_takes_turns_one_lets_others_have_its_place_after_a_while(
    provider_session: Callable[[], ChatSession],
    provider: ScriptedOpenAI,
    rung: list[UUID],
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    places: int,
    second_status: TurnStatus,
) -> None:
    settings.WORKER_CONCURRENCY = places
    first, second = accepted(provider_session()), accepted(provider_session())
    provider.enqueue(Say("One."), Say("Two."))
    rung.clear()
    monkeypatch.setattr(worker, "STREAK_SECONDS", -1.0)

    worker.take_turns()

    assert (reread(first).status, reread(second).status) == (TurnStatus.DONE, second_status)
    assert rung == ([second.pk] if places == 1 else [])


@pytest.mark.django_db(transaction=True)
def test_a_worker_on_its_way_down_takes_nothing(
    provider_session: Callable[[], ChatSession], held_turns: HeldTurns
) -> None:
    turn = accepted(provider_session())
    held_turns.drain()

    worker.take_turns()

    assert reread(turn).status == TurnStatus.QUEUED
