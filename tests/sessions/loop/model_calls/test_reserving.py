"""Budgets in whole turns: what a call may cost is taken before it is sent, and what it cost stays."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django import Settings

from capabilities.common.registry_version import touch_registry
from capabilities.models import Agent, Dialect, LanguageModel, ModelPrice, Provider
from sessions.doors.schedules import periodic
from sessions.models import (
    Budget,
    BudgetPeriod,
    ChatSession,
    Reservation,
    StepKind,
    StepStatus,
    Turn,
    TurnEvent,
    TurnStatus,
)
from sessions.turns import accepting
from sessions.turns.fencing import OverBudget
from tests.cast import PASSWORD, make_agent, make_budget, make_member, make_role, make_session, make_turn
from tests.rest import Rest
from tests.scripted_openai import Raw, Say, ScriptedOpenAI, call, chunk, sse
from tests.sessions.doors.schedules.test_periodic import schedule
from tests.sessions.loop.calls.test_delegation import ask, children_of, make_catalogue, make_own
from tests.sessions.loop.model_calls.test_fallback import GONE, OVERLOADED
from tests.sessions.loop.test_stopped_streams import WORDS, begun, stopped
from tests.sessions.run_turns import accept, events_of, run, steps_of, work, work_all
from tests.sessions.turns.test_statements_of_a_turn import statements
from toolhub.tenants.models import Membership, Organisation
from toolhub.tenants.rows.scope import organisation_scope, system_scope

pytestmark = pytest.mark.django_db(transaction=True)

#: What the scripted provider says that each of its replies took.
USED = 110


def spent(budget: Budget) -> tuple[int, int]:
    """(spent, reserved) of all its periods together."""
    with system_scope():
        rows = list(BudgetPeriod.objects.filter(budget=budget).values_list("spent", "reserved"))
    return sum(row[0] for row in rows), sum(row[1] for row in rows)


def reserved_now() -> int:
    with system_scope():
        return sum(BudgetPeriod.objects.values_list("reserved", flat=True))


def spend(budget: Budget) -> None:
    """Use the budget up, in the window of now."""
    with system_scope():
        BudgetPeriod.objects.filter(budget=budget).update(spent=budget.limit)


def set_usual_answer(tokens: int | None) -> None:
    with system_scope():
        Agent.objects.update(output_p95=tokens)


def test_each_call_of_a_turn_is_reserved_and_settled(session: ChatSession, provider: ScriptedOpenAI) -> None:
    budget = make_budget(session.organisation)
    provider.enqueue(Say(calls=[call("uuid")]), Say("Here."))

    turn = run(session)

    assert (turn.status, turn.input_tokens + turn.output_tokens) == (TurnStatus.DONE, 2 * USED)
    assert spent(budget) == (2 * USED, 0)
    with system_scope():
        rows = list(Reservation.objects.order_by("pk").values_list("status", "step", "used_tokens"))
    assert rows == [("settled", 1, USED), ("settled", 2, USED)]


def test_the_cap_that_is_reserved_is_the_one_that_is_sent(session: ChatSession, provider: ScriptedOpenAI) -> None:
    make_budget(session.organisation)
    with organisation_scope(session.organisation_id):
        LanguageModel.objects.update(max_output_tokens=900)

    run(session)

    with system_scope():
        row = Reservation.objects.get()
    sent = provider.requests[0]
    cap = sent.get("max_tokens") or sent["max_completion_tokens"]
    assert cap == 900
    assert 900 < row.tokens < 3_000


def test_one_budget_costs_at_most_4_statements_a_round(session: ChatSession, provider: ScriptedOpenAI) -> None:
    counts = []
    for name in ("", "one", "two"):
        if name:
            make_budget(session.organisation, name)
        for _ in range(3):
            provider.enqueue(Say(calls=[call("uuid")]), Say("Here."))
            turn = accept(session)
            with CaptureQueriesContext(connection) as captured:
                work(turn)
        counts.append(len(statements(captured)))

    without, one, two = counts
    assert one - without <= 2 * 4
    assert two == one


def test_a_message_is_accepted_with_one_statement_more(session: ChatSession) -> None:
    counts = []
    for name in ("", "one", "two"):
        if name:
            make_budget(session.organisation, name)
        accept(session)
        with CaptureQueriesContext(connection) as captured:
            accept(session)
        counts.append(len(statements(captured)))

    assert counts == [counts[0], counts[0] + 1, counts[0] + 1]


def test_windows_go_by_the_databases_clock(session: ChatSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here it is two days ahead of the worker's."""
    make_budget(session.organisation)
    monkeypatch.setattr("sessions.loop.run.turn.clock_ahead", lambda database_now: timedelta(days=2))

    run(session)

    with system_scope():
        period = BudgetPeriod.objects.get()
    assert period.starts_at > timezone.now() + timedelta(days=1)


# -- Refused ----------------------------------------------------------------------------------------------------------


def test_a_turn_that_meets_its_budget_ends_and_says_which(session: ChatSession, provider: ScriptedOpenAI) -> None:
    budget = make_budget(session.organisation, "Acme for good", limit=18_000, window="total")
    provider.enqueue(Say(calls=[call("uuid")], usage={"prompt_tokens": 9_000, "completion_tokens": 1_000}))

    turn = run(session)

    assert (turn.status, turn.error_code, turn.rounds) == (TurnStatus.FAILED, "budget_exceeded", 1)
    assert turn.error_message.startswith("The budget “Acme for good” has 8,000 of ")
    assert "8,000 of 18,000 tokens left" in turn.error_message
    cap = provider.requests[0]["max_tokens"]
    assert turn.error_message.endswith(f" tokens, with an answer of up to {cap:,}. It does not reset by itself.")
    assert len(provider.requests) == 1
    assert spent(budget) == (10_000, 0)


def test_a_budget_that_only_warns_stops_nothing(session: ChatSession, provider: ScriptedOpenAI) -> None:
    make_budget(session.organisation, "Soft", limit=100, is_hard=False, warn_at=[50, 100])

    turn = run(session)

    assert turn.status == TurnStatus.DONE
    with system_scope():
        payloads = list(TurnEvent.objects.filter(turn=turn, type="budget_warning").values_list("payload", flat=True))
    assert payloads == [{"budget": "Soft", "share": 100, "percent": 110}]
    assert run(session).status == TurnStatus.DONE
    with system_scope():
        assert TurnEvent.objects.filter(type="budget_warning").count() == 1


def test_a_message_is_refused_over_rest_with_when_to_come_again(session: ChatSession) -> None:
    budget = make_budget(session.organisation)
    run(session)
    spend(budget)
    api = Rest(session.membership)

    reply = api.post(f"sessions/{session.pk}/turns", {"message": "one more"})

    assert reply.error == (429, "budget_exceeded", None)
    message = reply.json["error"]["message"]
    assert message.startswith("The budget “Acme a day” is used up: ")
    assert "0 of 100,000 tokens are left. It resets" in message
    assert message.endswith(" at 00:00 (UTC).")
    assert 0 < int(reply.headers["Retry-After"]) <= 24 * 3600
    with system_scope():
        assert Turn.objects.count() == 1


def test_a_budget_for_good_says_no_time(session: ChatSession) -> None:
    budget = make_budget(session.organisation, window="total")
    run(session)
    spend(budget)

    reply = Rest(session.membership).post(f"sessions/{session.pk}/turns", {"message": "one more"})

    assert reply.status == 429
    assert "Retry-After" not in reply.headers


def test_a_known_key_gets_its_turn_again_from_a_spent_budget(session: ChatSession) -> None:
    budget = make_budget(session.organisation)
    api, key = Rest(session.membership), {"Idempotency-Key": "k"}
    first = api.post(f"sessions/{session.pk}/turns", {"message": "hello"}, key)
    work_all()
    spend(budget)

    again = api.post(f"sessions/{session.pk}/turns", {"message": "hello"}, key)

    assert (again.status, again.json["id"]) == (200, first.json["id"])


@pytest.mark.parametrize("htmx", [False, True])
def test_the_browser_says_the_same_and_keeps_what_was_written(session: ChatSession, htmx: bool) -> None:
    budget = make_budget(session.organisation)
    run(session)
    spend(budget)
    client = Client()
    client.login(email=session.membership.user.email, password=PASSWORD)

    answer = client.post(
        f"/o/acme/sessions/{session.pk}/turns/",
        {"message": "one more", "agent": session.agent.slug},
        headers={"HX-Request": "true"} if htmx else {},
    )

    assert answer.status_code == 422
    assert "“Acme a day” is used up: 0 of 100,000" in answer.content.decode()
    assert "one more" in answer.content.decode()


def test_a_schedule_says_it_and_moves_on(session: ChatSession) -> None:
    budget = make_budget(session.organisation)
    run(session)
    spend(budget)
    row = schedule(session)

    periodic.sweep()

    with organisation_scope(session.organisation_id):
        row.refresh_from_db()
    assert row.last_error.startswith("The budget “Acme a day” is used up")


def test_a_member_escapes_no_budget_by_another_session_or_agent(session: ChatSession) -> None:
    budget = make_budget(session.organisation, scope="member")
    run(session)
    spend(budget)
    other = make_agent(session.organisation, slug="other", name="Other", model=session.agent.model)
    elsewhere = make_session(session.membership, other)
    dora = make_session(make_member(session.organisation, "dora"), session.agent)

    with pytest.raises(OverBudget):
        accept(elsewhere)
    with organisation_scope(session.organisation_id), pytest.raises(OverBudget):
        accepting.accept(session, "hello", member=session.membership, agent=other)
    accept(dora)


def test_another_organisations_spent_budget_stops_nobody_here(session: ChatSession, charlie: Membership) -> None:
    theirs = make_budget(charlie.organisation, limit=1)
    with organisation_scope(charlie.organisation_id):
        BudgetPeriod.objects.create(
            organisation=charlie.organisation,
            budget=theirs,
            starts_at=timezone.now().replace(hour=0, minute=0, second=0, microsecond=0),
            measure="tokens",
            is_hard=True,
            limit=1,
            spent=1,
        )

    assert run(session).status == TurnStatus.DONE
    assert spent(theirs) == (1, 0)


# -- Turns at once ----------------------------------------------------------------------------------------------------


def test_turns_at_once_are_limited_when_a_message_comes(session: ChatSession) -> None:
    make_budget(session.organisation, "Bob at once", measure="turns", limit=2, scope="member", window="total")
    first, other = accept(session), make_session(session.membership, session.agent)
    accept(other)
    api = Rest(session.membership)

    reply = api.post(f"sessions/{other.pk}/turns", {"message": "third"})
    assert reply.error == (429, "too_many_turns_at_once", None)
    assert reply.json["error"]["message"].startswith("The limit “Bob at once” allows 2 turns")
    assert reply.headers["Retry-After"] == "10"

    work(first)
    assert api.post(f"sessions/{other.pk}/turns", {"message": "third"}).status == 202


def test_an_agents_limit_of_turns_at_once_counts_for_other_agents_that_ask_it(
    bob: Membership, provider: ScriptedOpenAI
) -> None:
    tools = make_catalogue(bob.organisation)
    boss = make_own(bob.organisation, "boss", provider.url, tools["spawn_agent"])
    coder = make_own(bob.organisation, "coder", provider.url, tools["uuid"])
    make_role(bob.organisation, bob)
    make_budget(bob.organisation, "Coders", measure="turns", limit=1, scope="agent", agent=coder, window="total")
    provider.enqueue(Say(calls=[ask(), ask(message="And that.")]), Say("Code."), Say("It is half written."))

    turn = accept(make_session(bob, boss))
    work_all()

    assert len(children_of(turn)) == 1
    results = [json.loads(step.result) for step in steps_of(turn, StepKind.TOOL)]
    assert sorted(each["success"] for each in results) == [False, True]
    refused = next(each for each in results if not each["success"])
    assert "The limit “Coders” allows 1 turns" in refused["error"]
    with organisation_scope(bob.organisation_id):
        turn.refresh_from_db()
    assert turn.status == TurnStatus.DONE


def test_a_turn_that_waits_for_a_person_takes_no_place(session: ChatSession) -> None:
    make_budget(session.organisation, measure="turns", limit=1, window="total")
    with organisation_scope(session.organisation_id):
        make_turn(session, status=TurnStatus.WAITING_APPROVAL)

    accept(session)
    with pytest.raises(OverBudget):
        accept(session)


# -- The usual answer -------------------------------------------------------------------------------------------------


def cap_of(request: Any) -> int:
    found: int = request.get("max_tokens") or request["max_completion_tokens"]
    return found


def test_under_a_hard_budget_the_usual_answer_is_the_cap(session: ChatSession, provider: ScriptedOpenAI) -> None:
    set_usual_answer(700)
    run(session)
    budget = make_budget(session.organisation, is_hard=False)
    run(session)
    make_budget(session.organisation, "hard")
    run(session)
    set_usual_answer(12)
    run(session)

    caps = [cap_of(request) for request in provider.requests]
    assert caps[:2] == [12_000, 12_000]
    assert caps[2:] == [700, 256]
    assert spent(budget) == (3 * USED, 0)


def test_an_answer_that_meets_the_usual_cap_is_asked_for_once_more(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    set_usual_answer(300)
    budget = make_budget(session.organisation)
    cut = {"prompt_tokens": 100, "completion_tokens": 300}
    provider.enqueue(Say("Half of", finish_reason="length", usage=cut), Say("All of it."))

    turn = run(session)

    assert (turn.status, turn.answer) == (TurnStatus.DONE, "All of it.")
    assert [cap_of(request) for request in provider.requests] == [300, 12_000]
    assert provider.requests[0]["messages"] == provider.requests[1]["messages"]
    first, second = steps_of(turn, StepKind.MODEL)
    assert (first.status, first.text, first.finish_reason) == (StepStatus.FAILED, "", "length")
    assert (second.status, second.text) == (StepStatus.DONE, "All of it.")
    assert spent(budget) == (400 + USED, 0)
    assert turn.input_tokens + turn.output_tokens == 400 + USED
    assert "answer_cut_short" in events_of(turn)

    run(session, "And now?")
    assert "Half of" not in json.dumps(provider.requests[-1])


def test_a_call_that_was_cut_in_its_arguments_is_asked_for_once_more(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    set_usual_answer(300)
    make_budget(session.organisation)
    provider.enqueue(
        Say(calls=[call("calculator", '{"expression": "6*')], finish_reason="length"),
        Say(calls=[call("calculator", {"expression": "6*7"})]),
        Say("42"),
    )

    turn = run(session)

    assert (turn.status, turn.answer) == (TurnStatus.DONE, "42")
    assert [step.status for step in steps_of(turn, StepKind.TOOL)] == [StepStatus.DONE]


def test_where_there_is_no_room_to_ask_again_the_short_answer_stays(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    set_usual_answer(300)
    budget = make_budget(session.organisation, limit=5_000)
    provider.enqueue(Say("Half of", finish_reason="length"))

    turn = run(session)

    assert (turn.status, turn.answer, len(provider.requests)) == (TurnStatus.DONE, "Half of", 1)
    assert spent(budget) == (USED, 0)


def test_a_cut_answer_of_a_crashed_worker_is_asked_for_with_the_whole_cap(
    session: ChatSession, provider: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_usual_answer(300)
    make_budget(session.organisation)
    provider.enqueue(Say("Half of", finish_reason="length"), Raw(reset=True), *[Raw(reset=True)] * 9)
    turn = run(session)
    with system_scope():
        Turn.objects.filter(pk=turn.pk).update(status=TurnStatus.QUEUED, ended_at=None, error_code="")
    provider.script = [Say("All of it.")]

    turn = work(turn)

    assert (turn.status, turn.answer, cap_of(provider.requests[-1])) == (TurnStatus.DONE, "All of it.", 12_000)


# -- Money ------------------------------------------------------------------------------------------------------------


def price(model: LanguageModel, **fields: Any) -> None:
    with organisation_scope(model.organisation_id):
        own = {"organisation_id": model.organisation_id, "model": model, "input": "1", "output": "10"}
        ModelPrice.objects.create(**own | {"valid_from": timezone.now()} | fields)
        touch_registry(model.organisation_id)


def test_money_is_reserved_at_the_dearest_and_counted_as_it_was(session: ChatSession) -> None:
    budget = make_budget(session.organisation, measure="money", limit=10_000_000_000)
    price(session.agent.model, cached="0.1")

    turn = run(session)

    # 40 tokens of input that no cache had, 60 from the cache, 10 of output.
    assert turn.cost == 40 * 1_000 + 60 * 100 + 10 * 10_000
    assert spent(budget) == (turn.cost, 0)
    with system_scope():
        row = Reservation.objects.get()
    assert (row.money or 0) > 12_000 * 10_000
    assert row.used_money == turn.cost


def test_the_dearer_tier_that_a_call_may_reach_is_reserved(session: ChatSession) -> None:
    make_budget(session.organisation, measure="money", limit=10_000_000_000)
    price(session.agent.model, output="1", tier_above=20, tier_input="2", tier_output="50")

    run(session)

    with system_scope():
        assert (Reservation.objects.get().money or 0) > 12_000 * 50_000


def test_a_model_without_a_price_is_refused_under_a_hard_budget_in_money(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    budget = make_budget(session.organisation, "Dollars", measure="money", limit=1_000_000_000)

    turn = run(session)

    assert (turn.status, turn.error_code) == (TurnStatus.FAILED, "no_price")
    assert "No price is known for scripted" in turn.error_message
    assert "“Dollars” is in money" in turn.error_message
    assert (provider.requests, spent(budget)) == ([], (0, 0))


def test_it_counts_as_free_where_the_organisation_chose_that_or_the_budget_only_warns(session: ChatSession) -> None:
    soft = make_budget(session.organisation, "Soft", measure="money", limit=1_000_000_000, is_hard=False)
    assert run(session).status == TurnStatus.DONE
    hard = make_budget(session.organisation, "Dollars", measure="money", limit=1_000_000_000)
    Organisation.objects.filter(pk=session.organisation_id).update(counts_unpriced_as_free=True)
    touch_registry(session.organisation_id)

    assert run(session).status == TurnStatus.DONE
    assert (spent(soft), spent(hard)) == ((0, 0), (0, 0))


# -- Whatever becomes of a call ---------------------------------------------------------------------------------------


def test_a_cancel_in_the_middle_of_a_stream_charges_what_had_come(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    budget = make_budget(session.organisation)

    turn, step = stopped(session, provider, begun(Dialect.CHAT, None))

    assert (turn.status, turn.answer, step.usage_estimated) == (TurnStatus.CANCELLED, WORDS, True)
    assert spent(budget) == (step.input_tokens + step.output_tokens, 0)
    assert step.output_tokens > 100


def late_failure() -> Raw:
    """Some words, and then the provider falls over."""
    error = {"error": {"message": "overloaded", "type": "server_error", "code": None}}
    return Raw(sse(chunk({"content": "Some words"}), error, done=False))


def test_a_late_500_and_its_retries_reserve_once_and_charge_the_reply(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    budget = make_budget(session.organisation)
    provider.enqueue(late_failure(), Raw(status=500), Say("Here."))

    turn = run(session)

    assert (turn.status, len(provider.requests)) == (TurnStatus.DONE, 3)
    assert spent(budget) == (USED, 0)
    with system_scope():
        assert Reservation.objects.count() == 1


@pytest.mark.parametrize("replies", [OVERLOADED, [GONE], [Raw(b"{}", 400)]])
def test_a_call_that_fails_leaves_nothing_reserved(
    session: ChatSession, provider: ScriptedOpenAI, replies: list[Raw], settings: Settings
) -> None:
    settings.TOOLHUB_MODEL_TRIES = 2
    budget = make_budget(session.organisation)
    provider.enqueue(*replies)

    turn = run(session)

    assert turn.status == TurnStatus.FAILED
    assert spent(budget) == (0, 0)


def test_a_turn_that_is_given_back_for_a_busy_provider_leaves_nothing_reserved(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    budget = make_budget(session.organisation)
    provider.enqueue(Raw(b"{}", 429, {"Content-Type": "application/json", "Retry-After": "100"}))

    turn = run(session)

    assert turn.status == TurnStatus.QUEUED
    assert spent(budget) == (0, 0)


def test_a_second_model_reserves_anew(session: ChatSession, provider: ScriptedOpenAI) -> None:
    budget = make_budget(session.organisation)
    second = ScriptedOpenAI().start()
    try:
        with organisation_scope(session.organisation_id):
            own = {"organisation_id": session.organisation_id}
            row = Provider.objects.create(slug="second", name="Second", base_url=second.url, **own)
            Agent.objects.update(fallback_model=LanguageModel.objects.create(provider=row, name="spare", **own))
        provider.enqueue(GONE)
        turn = run(session)
    finally:
        second.stop()

    assert turn.status == TurnStatus.DONE
    assert spent(budget) == (USED, 0)
    with system_scope():
        rows = list(Reservation.objects.order_by("pk").values_list("status", "step"))
    assert rows == [("released", 1), ("settled", 2)]


def test_a_child_counts_on_the_budgets_above_it(bob: Membership, provider: ScriptedOpenAI) -> None:
    tools = make_catalogue(bob.organisation)
    boss = make_own(bob.organisation, "boss", provider.url, tools["spawn_agent"])
    make_own(bob.organisation, "coder", provider.url, tools["uuid"])
    make_role(bob.organisation, bob)
    session = make_session(bob, boss)
    of_boss = make_budget(bob.organisation, "boss", scope="agent", agent=boss)
    of_session = make_budget(bob.organisation, "session", scope="session", session=session)
    of_turn = make_budget(bob.organisation, "turn", window="turn", scope="member")
    provider.enqueue(Say(calls=[ask()]), Say("Code."), Say("It is written."))

    turn = accept(session)
    work_all()
    (child,) = children_of(turn)

    assert child.status == TurnStatus.DONE
    assert [spent(each) for each in (of_boss, of_session, of_turn)] == [(3 * USED, 0)] * 3
    with system_scope():
        assert BudgetPeriod.objects.filter(budget=of_turn).count() == 1


def test_a_child_is_stopped_by_the_budget_of_the_agent_above(bob: Membership, provider: ScriptedOpenAI) -> None:
    tools = make_catalogue(bob.organisation)
    boss = make_own(bob.organisation, "boss", provider.url, tools["spawn_agent"])
    make_own(bob.organisation, "coder", provider.url, tools["uuid"])
    make_role(bob.organisation, bob)
    budget = make_budget(bob.organisation, "boss", scope="agent", agent=boss, limit=20_000)
    provider.enqueue(Say(calls=[ask()], usage={"prompt_tokens": 15_000, "completion_tokens": 1}))

    turn = accept(make_session(bob, boss))
    work_all()
    (child,) = children_of(turn)

    assert (child.status, child.error_code) == (TurnStatus.FAILED, "budget_exceeded")
    assert spent(budget) == (15_001, 0)
    assert reserved_now() == 0
