"""`/metrics`: who may read it, what its figures say, that counters never fall, and what a scrape costs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier, Event, Thread
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families

from capabilities.models import LanguageModel, Provider, Tool, ToolKind
from sessions.doors.chats.writes import delete_session, remove_deleted
from sessions.models import (
    BudgetPeriod,
    ChatSession,
    Step,
    Turn,
    TurnEvent,
)
from sessions.usage.metrics import queries
from sessions.usage.metrics.families import Figures
from sessions.usage.rollups import learning, sweep
from sessions.usage.rollups.sweep import roll_up
from sessions.usage.rollups.totals import Totals
from tests.cast import (
    make_agent,
    make_approval,
    make_budget,
    make_member,
    make_organisation,
    make_role,
    make_session,
    make_token,
    make_tool,
    make_turn,
)
from tests.paths import ROOT
from tests.scripted_openai import Say, ScriptedOpenAI, call
from tests.sessions import run_turns
from tests.sessions.usage.rollups.rows import HOUR, add_round, add_use, ended_turn
from toolhub.tenants.models import Access, Membership, Organisation
from toolhub.tenants.rows.scope import has_scope, organisation_scope

TOKEN = "an-operators-token-of-32-characters-or-more"

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture(autouse=True)
def switched_on(settings: Any) -> None:
    settings.TOOLHUB_METRICS_TOKEN = TOKEN
    sweep.rollups_backoff.clear()
    learning._learned_at.clear()


@pytest.fixture
def chat(bob: Membership) -> ChatSession:
    return make_session(bob, make_agent(bob.organisation, "https://llm.example.com/v1"))


def scraped(client: Client | None = None) -> Samples:
    """Each sample of a scrape, as Prometheus' own parser reads them."""
    response = (client or Client()).get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    assert response.status_code == 200
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(response.content.decode())
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float | None:
    return samples.get((name, tuple(sorted(labels.items()))))


def of(samples: Samples, name: str) -> dict[tuple[str, ...], float]:
    """The samples of one name, by the values of their labels in the order of the labels' names."""
    return {tuple(text for _, text in labels): each for (found, labels), each in samples.items() if found == name}


# -- Who may read it --------------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_without_the_operators_token_there_is_no_such_address(client: Client, alice: Membership, settings: Any) -> None:
    settings.TOOLHUB_METRICS_TOKEN = ""
    client.force_login(alice.user)

    for secret in ("", TOKEN, make_token(alice)):
        response = client.get("/metrics", headers={"Authorization": f"Bearer {secret}"})
        assert response.status_code == 404
        assert b"toolhub_" not in response.content


@pytest.mark.django_db
def test_whoever_has_not_the_operators_token_reads_nothing(client: Client, alice: Membership) -> None:
    client.force_login(alice.user)
    wrong = ["", "Bearer", "Bearer ", "Bearer \xe9", f"Basic {TOKEN}", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}"]

    for sent in (*wrong, TOKEN, f"Bearer {make_token(alice)}"):
        with CaptureQueriesContext(connection) as asked:
            response = client.get("/metrics", headers={"Authorization": sent})
        assert (response.status_code, response["WWW-Authenticate"]) == (401, "Bearer")
        assert b"toolhub_" not in response.content
        assert len(asked) == 0


@pytest.mark.django_db
def test_a_scrape_is_text_that_nobody_keeps(client: Client) -> None:
    response = client.get("/metrics", headers={"Authorization": f"bearer  {TOKEN} ", "Host": "10.1.2.3:8000"})

    assert response.status_code == 200
    assert response["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "no-store" in response["Cache-Control"]
    assert client.post("/metrics").status_code == 405
    assert not has_scope()


@pytest.mark.django_db
def test_a_database_that_is_away_is_told_and_no_secret_of_it(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def away(**_: object) -> None:
        raise OperationalError("password of toolhub refused")

    monkeypatch.setattr(queries, "model_calls", away)

    response = client.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})

    assert (response.status_code, response["Retry-After"]) == (503, "5")
    assert b"password" not in response.content
    assert "password of toolhub refused" in caplog.text


# -- What is open now -------------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_a_new_installation_has_gauges_of_nothing_and_no_counters() -> None:
    samples = scraped()

    assert of(samples, "toolhub_turns") == dict.fromkeys(
        [
            ("queued",),
            ("running",),
            ("waiting_approval",),
            ("waiting_child",),
            ("waiting_input",),
            ("waiting_task",),
        ],
        0,
    )
    kinds = [("approval",), ("question",), ("input",), ("link",)]
    assert of(samples, "toolhub_approvals_waiting") == dict.fromkeys(kinds, 0)
    for name in ("toolhub_queue_oldest_seconds", "toolhub_turns_left", "toolhub_turns_uncounted"):
        assert value(samples, name) == 0
    assert not [name for name, _ in samples if name.endswith("_total")]


def test_open_turns_are_counted_by_where_they_stand(alice: Membership, charlie: Membership) -> None:
    now = timezone.now()
    for member in (alice, charlie):
        for status in ("queued", "running", "waiting_approval"):
            make_turn(make_session(member), status=status)
    make_turn(make_session(alice), status="running", lease_until=now - timedelta(seconds=5))
    make_turn(make_session(alice), status="running", lease_until=now + timedelta(seconds=5))
    make_turn(make_session(alice), status="waiting_task", lease_until=now - timedelta(seconds=5))
    make_turn(make_session(alice), status="done", ended_at=now)

    samples = scraped()

    turns = of(samples, "toolhub_turns")
    assert (turns["queued",], turns["running",], turns["waiting_approval",], turns["waiting_task",]) == (2, 4, 2, 1)
    assert ("done",) not in turns
    assert value(samples, "toolhub_turns_left") == 1
    assert value(samples, "toolhub_turns_uncounted") == 1


def test_turns_that_are_not_counted_yet_are_counted_to_a_number(
    chat: ChatSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "MOST_UNCOUNTED", 2)
    for _ in range(3):
        ended_turn(chat)

    assert value(scraped(), "toolhub_turns_uncounted") == 2


def waits_for(seconds: float | None) -> int | None:
    """Whole minutes."""
    return None if seconds is None else int(seconds // 60)


def test_the_age_of_the_queue_is_that_of_a_turn_that_a_worker_could_take(alice: Membership) -> None:
    now = timezone.now()
    first = make_turn(make_session(alice), status="queued")
    with organisation_scope(alice.organisation_id):
        Turn.objects.filter(pk=first.pk).update(created_at=now - timedelta(minutes=3))
    behind = make_session(alice)
    make_turn(behind, status="waiting_approval")
    late = make_turn(behind, status="queued")
    asked_to_wait = make_turn(make_session(alice), status="queued", next_attempt_at=now + timedelta(minutes=1))
    with organisation_scope(alice.organisation_id):
        Turn.objects.filter(pk__in=[late.pk, asked_to_wait.pk]).update(created_at=now - timedelta(hours=2))

    assert waits_for(value(scraped(), "toolhub_queue_oldest_seconds")) == 3


def test_a_turn_that_waited_for_people_is_as_old_in_the_queue_as_its_answer(alice: Membership) -> None:
    now = timezone.now()
    resumed = make_turn(make_session(alice), status="queued", epoch=1, last_event=7)
    following = make_session(alice)
    make_turn(following, status="done", ended_at=now - timedelta(minutes=2))
    second = make_turn(following, status="queued")
    with organisation_scope(alice.organisation_id):
        Turn.objects.filter(pk__in=[resumed.pk, second.pk]).update(created_at=now - timedelta(days=3))
        event = TurnEvent.objects.create(organisation=alice.organisation, turn=resumed, number=7, type="resumed")
        TurnEvent.objects.filter(pk=event.pk).update(created_at=now - timedelta(minutes=4))

    assert waits_for(value(scraped(), "toolhub_queue_oldest_seconds")) == 4
    with organisation_scope(alice.organisation_id):
        Turn.objects.filter(pk=resumed.pk).update(status="running")
    assert waits_for(value(scraped(), "toolhub_queue_oldest_seconds")) == 2


def test_a_turn_that_a_provider_asked_to_come_later_is_as_old_in_the_queue_as_the_time_that_it_said(
    alice: Membership,
) -> None:
    now = timezone.now()
    turn = make_turn(
        make_session(alice), status="queued", epoch=1, last_event=7, next_attempt_at=now - timedelta(minutes=6)
    )
    with organisation_scope(alice.organisation_id):
        event = TurnEvent.objects.create(organisation=alice.organisation, turn=turn, number=7, type="provider_busy")
        TurnEvent.objects.filter(pk=event.pk).update(created_at=now - timedelta(minutes=9))

    assert waits_for(value(scraped(), "toolhub_queue_oldest_seconds")) == 6


def add_call(turn: Turn, index: int = 1) -> Step:
    with organisation_scope(turn.organisation_id):
        values: dict[str, Any] = {"index": index, "call_index": index, "kind": "tool", "status": "pending"}
        return Step.objects.create(organisation_id=turn.organisation_id, turn=turn, **values)


def test_what_waits_for_a_person_is_counted_by_kind_with_its_age(alice: Membership) -> None:
    turn = make_turn(make_session(alice), status="waiting_approval")
    first, _, answered = (make_approval(add_call(turn, index)) for index in (1, 2, 3))
    make_approval(add_call(turn, 4), kind="question")
    with organisation_scope(alice.organisation_id):
        type(first).objects.filter(pk=first.pk).update(created_at=timezone.now() - timedelta(minutes=5))
        type(first).objects.filter(pk=answered.pk).update(status="approved")

    samples = scraped()

    waiting = of(samples, "toolhub_approvals_waiting")
    assert (waiting["approval",], waiting["question",], waiting["link",]) == (2, 1, 0)
    ages = of(samples, "toolhub_approvals_oldest_seconds")
    assert (waits_for(ages["approval",]), waits_for(ages["question",]), ages["link",]) == (5, 0, 0)


def test_what_began_by_a_clock_that_is_ahead_has_waited_for_nothing(alice: Membership) -> None:
    ahead = timezone.now() + timedelta(minutes=5)
    turn = make_turn(make_session(alice), status="queued")
    approval = make_approval(add_call(make_turn(make_session(alice), status="waiting_approval")))
    with organisation_scope(alice.organisation_id):
        Turn.objects.filter(pk=turn.pk).update(created_at=ahead)
        type(approval).objects.filter(pk=approval.pk).update(created_at=ahead)

    samples = scraped()

    assert value(samples, "toolhub_queue_oldest_seconds") == 0
    assert value(samples, "toolhub_approvals_oldest_seconds", kind="approval") == 0


# -- Budgets ----------------------------------------------------------------------------------------------------------


def add_period(organisation: Organisation, budget: Any, key: str = "", **fields: Any) -> None:
    now = timezone.now()
    values = {"starts_at": now - timedelta(hours=1), "ends_at": now + timedelta(hours=1)} | fields
    with organisation_scope(organisation):
        BudgetPeriod.objects.create(
            organisation=organisation,
            budget=budget,
            key=key,
            measure=budget.measure,
            is_hard=budget.is_hard,
            **{"limit": budget.limit, **values},
        )


def test_what_is_left_of_budgets_is_the_lowest_share_of_a_window_that_runs(acme: Organisation) -> None:
    now = timezone.now()
    daily = make_budget(acme, "each member", scope="member", limit=1_000)
    add_period(acme, daily, "member:1", spent=200, reserved=100)
    add_period(acme, daily, "member:2", spent=500, added=1_000)
    add_period(acme, daily, "member:3", spent=1_000, ends_at=now - timedelta(minutes=1))
    add_period(acme, daily, "member:4", spent=1_000, starts_at=now + timedelta(minutes=1))
    add_period(acme, make_budget(acme, "topped up", window="month", limit=1_000), spent=1_000, added=1_000)
    stopping: dict[str, dict[str, Any]] = {
        "soft": {"is_hard": False},
        "off": {"is_enabled": False},
        "each turn": {"window": "turn"},
        "at once": {"measure": "turns", "window": "total", "limit": 3},
    }
    for name, fields in stopping.items():
        ends: dict[str, Any] = {"ends_at": None} if "window" in fields else {}
        add_period(acme, make_budget(acme, name, **fields), spent=100_000, **ends)
    for_good = make_budget(acme, "for good", measure="money", window="total", limit=10)
    add_period(acme, for_good, spent=9, reserved=5, ends_at=None)
    add_period(acme, make_budget(acme, "nothing", window="hour", limit=0), limit=0)

    samples = scraped()

    lowest = of(samples, "toolhub_budget_left_ratio")
    others = {("money", "total"): 0, ("tokens", "hour"): 0}
    assert lowest == {("tokens", "day"): 0.7, ("tokens", "month"): 0.5, **others}
    windows = {("tokens", "day"): 2, ("tokens", "month"): 1, ("money", "total"): 1, ("tokens", "hour"): 1}
    assert of(samples, "toolhub_budget_windows") == windows
    spent = {("tokens", "day"): 0, ("tokens", "month"): 0, ("money", "total"): 0, ("tokens", "hour"): 1}
    assert of(samples, "toolhub_budget_windows_spent") == spent


# -- Counters ---------------------------------------------------------------------------------------------------------


def test_ended_turns_are_counted_by_their_end(chat: ChatSession) -> None:
    ends: list[dict[str, Any]] = [{}, {}, {"status": "failed", "error_code": "budget_exceeded"}, {"status": "expired"}]
    for fields in ends:
        ended_turn(chat, **fields)
    ended_turn(chat, status="failed", error_code="Zebra & Sons")

    roll_up()

    assert of(scraped(), "toolhub_turns_ended_total") == {
        ("", "done"): 2,
        ("budget_exceeded", "failed"): 1,
        ("", "expired"): 1,
        ("other", "failed"): 1,
    }


def test_model_calls_add_their_tokens_their_cost_and_their_time(chat: ChatSession) -> None:
    turn = ended_turn(chat)
    used: dict[str, Any] = {"cached_tokens": 400, "cache_write_tokens": 100, "reasoning_tokens": 20}
    add_round(turn, cost=1_500_000_000, ended_at=HOUR + timedelta(seconds=2.5), **used)
    add_round(turn, ended_at=HOUR + timedelta(seconds=0.5))
    add_round(turn, input_tokens=0, output_tokens=0)  # how long it took is not known

    roll_up()

    samples, model = scraped(), {"provider": "other", "model": "other"}
    found = {name: value(samples, f"toolhub_{name}_total", **model) for name in (
        "model_calls", "model_calls_unpriced", "input_tokens", "cached_input_tokens", "cache_write_tokens",
        "output_tokens", "reasoning_tokens", "cost_dollars",
    )}  # fmt: skip
    assert found == {
        "model_calls": 3,
        "model_calls_unpriced": 2,
        "input_tokens": 2_000,
        "cached_input_tokens": 400,
        "cache_write_tokens": 100,
        "output_tokens": 100,
        "reasoning_tokens": 20,
        "cost_dollars": 1.5,
    }
    bucket = of(samples, "toolhub_model_call_seconds_bucket")
    assert [bucket[most, "other"] for most in ("0.1", "0.5", "1.0", "3.0", "+Inf")] == [0, 1, 1, 2, 2]
    assert value(samples, "toolhub_model_call_seconds_sum", provider="other") == 3
    assert value(samples, "toolhub_model_call_seconds_count", provider="other") == 2


def test_a_model_has_the_name_of_the_public_list_and_never_one_that_a_tenant_chose(chat: ChatSession) -> None:
    turn = ended_turn(chat)
    with organisation_scope(chat.organisation_id):
        Provider.objects.update(base_url="https://api.openai.com/v1", name="Zebra's own")
        LanguageModel.objects.update(name="gpt-4o-2024-08-06")
    add_round(turn, origin=origin_now(turn))
    with organisation_scope(chat.organisation_id):
        mine = LanguageModel.objects.create(
            organisation_id=chat.organisation_id, provider=Provider.objects.get(), name="ft:gpt-4o:zebra::1"
        )
    add_round(turn, origin=origin_now(turn).rpartition(" ")[0] + f" {mine.name}")
    with organisation_scope(chat.organisation_id):
        gone = LanguageModel.objects.create(
            organisation_id=chat.organisation_id, provider=Provider.objects.get(), name="zebra-gone"
        )
    add_round(turn, origin=origin_now(turn).rpartition(" ")[0] + f" {gone.name}")
    with organisation_scope(chat.organisation_id):
        gone.delete()

    roll_up()

    assert of(scraped(), "toolhub_model_calls_total") == {
        ("gpt-4o", "openai"): 1,
        ("other", "openai"): 1,
        ("other", "other"): 1,
    }


def test_the_offline_model_has_a_name_of_its_own(chat: ChatSession) -> None:
    turn = ended_turn(chat)
    with organisation_scope(chat.organisation_id):
        Provider.objects.update(base_url="")
    add_round(turn, origin=origin_now(turn))

    roll_up()

    assert of(scraped(), "toolhub_model_calls_total") == {("offline", "offline"): 1}


def origin_now(turn: Turn) -> str:
    with organisation_scope(turn.organisation_id):
        return run_turns.as_claimed(turn).model.origin


def test_tool_calls_are_counted_by_tool_and_end_with_the_time_of_those_that_ran(
    acme: Organisation, chat: ChatSession
) -> None:
    calculator, own = make_tool(acme, "calculator"), make_tool(acme, "zebra_tool")
    named_alike = make_tool(acme, "uuid")
    with organisation_scope(acme):
        Tool.objects.filter(pk__in=[own.pk, named_alike.pk]).update(kind=ToolKind.HTTP)
    turn = ended_turn(chat)
    add_round(turn)
    for tool, status, seconds in (
        (calculator, "done", 0.05),
        (calculator, "done", 400),
        (calculator, "failed", 2),
        (calculator, "refused", 9),
        (calculator, "unknown", 9),
        (own, "done", -3),
        (named_alike, "done", 1),
    ):
        step = add_use(turn, tool, status=status)
        with organisation_scope(acme):
            ends = step.started_at + timedelta(seconds=seconds)
            Step.objects.filter(pk=step.pk).update(ended_at=ends)
    add_use(turn, calculator, status="refused", tool_version=None)

    roll_up()

    samples = scraped()
    assert of(samples, "toolhub_tool_calls_total") == {
        ("builtin", "done", "calculator"): 2,
        ("builtin", "failed", "calculator"): 1,
        ("builtin", "refused", "calculator"): 1,
        ("builtin", "unknown", "calculator"): 1,
        ("http", "done", "other"): 2,
        ("unknown", "refused", "other"): 1,
    }
    assert value(samples, "toolhub_tool_seconds_total", kind="builtin", tool="calculator") == 402.05
    assert value(samples, "toolhub_tool_seconds_total", kind="http", tool="other") == 1
    bucket = of(samples, "toolhub_tool_call_seconds_bucket")
    assert [bucket["builtin", most] for most in ("0.1", "3.0", "300.0", "+Inf")] == [1, 2, 2, 3]
    assert bucket["http", "0.1"] == 1


@pytest.mark.django_db(transaction=True)
def test_a_turn_that_ran_is_counted_once_a_sweep_has_added_it(bob: Membership, provider: ScriptedOpenAI) -> None:
    make_tool(bob.organisation, "calculator")
    make_role(bob.organisation, bob)
    session = make_session(bob, make_agent(bob.organisation, provider.url))
    provider.enqueue(Say(calls=[call("calculator", {"expression": "6*7"})]), Say("42"))
    run_turns.run(session)
    assert value(scraped(), "toolhub_turns_uncounted") == 1

    roll_up()
    roll_up()

    samples = scraped()
    assert value(samples, "toolhub_turns_uncounted") == 0
    assert of(samples, "toolhub_turns_ended_total") == {("", "done"): 1}
    assert of(samples, "toolhub_model_calls_total") == {("other", "other"): 2}
    assert of(samples, "toolhub_tool_calls_total") == {("builtin", "done", "calculator"): 1}
    assert of(samples, "toolhub_model_call_seconds_count") == {("other",): 2}


@pytest.mark.django_db(transaction=True)
def test_workers_at_once_count_each_turn_once_and_one_that_dies_in_the_middle_nothing(
    acme: Organisation, chat: ChatSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = make_tool(acme, "calculator")
    for _ in range(30):
        turn = ended_turn(chat)
        add_round(turn, tools=[tool])
        add_use(turn, tool)

    def write_and_die(totals: Totals) -> None:
        write(totals)
        raise SystemExit

    write = Totals.write
    with monkeypatch.context() as patched:
        patched.setattr(Totals, "write", write_and_die)
        with pytest.raises(SystemExit):
            roll_up()
    samples = scraped()
    assert value(samples, "toolhub_turns_uncounted") == 30
    assert not counters(samples)

    together = Barrier(3)

    def work(_: int) -> None:
        try:
            together.wait()
            roll_up()
        finally:
            connection.close()

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work, range(3)))
    roll_up()

    samples = scraped()
    assert value(samples, "toolhub_turns_uncounted") == 0
    assert of(samples, "toolhub_turns_ended_total") == {("", "done"): 30}
    assert of(samples, "toolhub_input_tokens_total") == {("other", "other"): 30_000}
    assert of(samples, "toolhub_tool_calls_total") == {("builtin", "done", "calculator"): 30}


def test_no_counter_falls_when_what_it_counted_is_removed(acme: Organisation, chat: ChatSession) -> None:
    tool = make_tool(acme)
    for session in (chat, make_session(chat.membership, chat.agent)):
        turn = ended_turn(session)
        add_round(turn, tools=[tool], cost=3)
        add_use(turn, tool)
    roll_up()
    before = counters(scraped())
    never_added = ended_turn(chat, status="failed")

    with organisation_scope(acme):
        delete_session(chat, actor=chat.membership)
        ChatSession.objects.filter(pk=chat.pk).update(deleted_at=timezone.now() - timedelta(days=2))
    assert counters(scraped()) == before
    sweep.rollups_backoff.note(never_added.pk)
    remove_deleted()
    roll_up()
    with organisation_scope(acme):
        assert not ChatSession.objects.filter(pk=chat.pk).exists()
        assert not Turn.objects.filter(pk=never_added.pk).exists()
        Step.objects.filter(kind="tool").delete()
        Step.objects.all().delete()
        Turn.objects.all().delete()
        LanguageModel.objects.update(name="another")

    assert len(before) > 20
    assert counters(scraped()) == before


def counters(samples: Samples) -> Samples:
    return {key: each for key, each in samples.items() if key[0].endswith(("_total", "_bucket", "_count", "_sum"))}


# -- By organisation --------------------------------------------------------------------------------------------------


def test_no_name_of_a_tenant_is_in_the_figures_unless_the_operator_asks(
    acme: Organisation, chat: ChatSession, settings: Any
) -> None:
    with organisation_scope(acme):
        Provider.objects.update(name="zebra provider", slug="zebra")
        LanguageModel.objects.update(name="zebra-model")
        chat.agent.name = "zebra agent"
        chat.agent.save()
    tool = make_tool(acme, "zebra_tool")
    turn = ended_turn(chat, message="zebra")
    add_round(turn, tools=[tool], origin=origin_now(turn))
    add_use(turn, tool)
    add_period(acme, make_budget(acme, "zebra budget"), spent=1)
    make_approval(add_call(make_turn(make_session(chat.membership, chat.agent), status="waiting_approval")))
    roll_up()

    assert not [key for key in scraped() if "zebra" in str(key) or "acme" in str(key)]
    settings.TOOLHUB_METRICS_ORGANISATIONS = True
    named = scraped()
    assert not [key for key in named if "zebra" in str(key)]
    assert {dict(labels).get("organisation") for _, labels in named} == {"acme", None}
    assert [name for name, labels in named if "organisation" not in dict(labels)] == ["toolhub_turns_uncounted"]


@pytest.mark.parametrize(
    "text", ["zebra\ntoolhub_turns 7", 'zebra"} 7', "zebra\\", "zebra \N{ZEBRA FACE}", "Zebra & Sons"]
)
def test_whatever_a_tenant_calls_things_makes_no_line_and_no_label(
    acme: Organisation, chat: ChatSession, text: str
) -> None:
    tool = make_tool(acme, "own_tool")
    named = ended_turn(chat, status="failed", error_code="A name")
    add_round(named, origin=origin_now(named))
    add_use(named, tool)
    roll_up()
    before = scraped()

    with organisation_scope(acme):
        Provider.objects.update(name=text)
        LanguageModel.objects.update(name=text[:64])
        tool.name = text[:64]
        tool.save()
        chat.agent.name = text
        chat.agent.save()
    renamed = ended_turn(chat, status="failed", error_code=text)
    add_round(renamed, origin=origin_now(renamed))
    add_use(renamed, tool)
    roll_up()

    after = scraped()
    assert after.keys() == before.keys()
    assert of(after, "toolhub_turns_ended_total") == {("other", "failed"): 2}
    assert of(after, "toolhub_model_calls_total") == {("other", "other"): 2}
    assert of(after, "toolhub_tool_calls_total") == {("builtin", "done", "other"): 2}


def fill(slug: str) -> None:
    """An organisation with something under each figure."""
    organisation = make_organisation(slug)
    member = make_member(organisation, f"somebody-of-{slug}", Access.ADMIN)
    agent, tool = make_agent(organisation, "https://llm.example.com/v1"), make_tool(organisation)
    turn = ended_turn(make_session(member, agent))
    add_round(turn, tools=[tool], ended_at=HOUR + timedelta(seconds=1))
    add_use(turn, tool)
    make_turn(make_session(member, agent), status="queued")
    make_approval(add_call(make_turn(make_session(member, agent), status="waiting_approval")))
    add_period(organisation, make_budget(organisation, "a day"), spent=10_000)
    roll_up()


@pytest.mark.django_db
@pytest.mark.parametrize("by_organisation", [False, True])
def test_a_scrape_costs_the_same_queries_with_one_organisation_and_with_three(
    settings: Any, by_organisation: bool
) -> None:
    settings.TOOLHUB_METRICS_ORGANISATIONS = by_organisation
    counts, found = [], []
    for slugs in (["acme"], ["globex", "initech"]):
        for slug in slugs:
            fill(slug)
        with CaptureQueriesContext(connection) as asked:
            found.append(scraped())
        counts.append(len(asked))

    assert counts == [9, 9]
    one, three = ({key for key, each in samples.items() if each} for samples in found)
    if by_organisation:
        assert len(three) == 3 * len(one)
        labels = {"organisation": "initech", "status": "done", "error_code": ""}
        assert value(found[1], "toolhub_turns_ended_total", **labels) == 1
    else:
        assert three == one
        assert value(found[1], "toolhub_turns_ended_total", status="done", error_code="") == 3


# -- A busy database --------------------------------------------------------------------------------------------------


@pytest.fixture
def writer() -> Iterator[Thread]:
    """Somebody else is in the middle of a transaction that writes."""
    began, over = Event(), Event()

    def write() -> None:
        try:
            with transaction.atomic():
                make_organisation("unfinished")
                began.set()
                over.wait(60)
                transaction.set_rollback(True)
        finally:
            connection.close()

    thread = Thread(target=write)
    thread.start()
    assert began.wait(60)
    yield thread
    over.set()
    thread.join()


@pytest.mark.django_db(transaction=True)
def test_a_scrape_waits_for_nobody_who_writes(chat: ChatSession, writer: Thread) -> None:
    samples = scraped()

    assert writer.is_alive()
    assert value(samples, "toolhub_turns", status="queued") == 0


def test_each_figure_is_documented_with_its_labels_and_says_what_it_is(chat: ChatSession) -> None:
    text = (ROOT / "docs" / "metrics.md").read_text()
    rows = re.findall(r"^\| `(toolhub_\w+)` \|(.*?) \| .+ \|$", text, re.MULTILINE)
    documented = {name.removesuffix("_total"): tuple(re.findall(r"`(\w+)`", labels)) for name, labels in rows}

    found = list(Figures().collect())

    assert {family.name: tuple(vars(family)["_labelnames"]) for family in found} == documented
    assert len(rows) == len(found) == len(documented)
    assert all(family.documentation.endswith(".") for family in found)


@pytest.mark.django_db
def test_what_the_examples_of_the_document_ask_for_is_there_with_the_labels_that_they_name() -> None:
    """In alerts and questions to Prometheus."""
    text = (ROOT / "docs" / "metrics.md").read_text()
    fill("acme")
    there: dict[str, set[str]] = {}
    for name, labels in scraped():
        there.setdefault(name, set()).update(dict(labels))

    blocks = "".join(re.findall(r"^```(?:yaml)?\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    asked = re.findall(r"\b(toolhub_\w+)(?:\{(.*?)\})?", blocks)
    named = re.findall(r"\b(toolhub_\w+)", text)

    assert len(asked) > 5
    assert {name for name, _ in asked} <= there.keys()
    for name, matchers in asked:
        assert set(re.findall(r"(\w+)=~?", matchers)) <= there[name], name
    for labels, name in re.findall(r"by \(([\w, ]+)\) \((?:rate\()?(toolhub_\w+)", blocks):
        assert set(labels.split(", ")) <= there[name], name
    assert {name for name in named if name not in there} <= {"toolhub_model_call_seconds", "toolhub_tool_call_seconds"}
