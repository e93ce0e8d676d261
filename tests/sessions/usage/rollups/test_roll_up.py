"""The hourly sums: what a turn adds, once, whoever adds it and whenever it fails."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from capabilities.models import Agent, LanguageModel
from sessions.doors.chats.writes import delete_session, remove_deleted
from sessions.models import ChatSession, RoutingFinding, ToolUsageHour, Turn, UsageHour
from sessions.usage.rollups import learning, sweep
from sessions.usage.rollups.reading import Batch
from sessions.usage.rollups.summing import TurnSums, sums_of
from sessions.usage.rollups.sweep import add_turns, roll_up
from tests.cast import make_agent, make_category, make_role, make_session, make_tool
from tests.scripted_openai import Say, ScriptedOpenAI, call
from tests.sessions import run_turns
from tests.sessions.routed import make_routed_session
from tests.sessions.usage.rollups.rows import HOUR, add_round, add_use, ended_turn, verdicts_of
from toolhub.tenants.models import Membership, Organisation
from toolhub.tenants.rows.scope import organisation_scope, system_scope


@pytest.fixture
def chat(bob: Membership) -> ChatSession:
    return make_session(bob, make_agent(bob.organisation, "https://llm.example.com/v1"))


@pytest.fixture(autouse=True)
def nothing_failed_lately() -> None:
    sweep.rollups_backoff.clear()
    learning._learned_at.clear()


def hours(organisation: Organisation) -> list[dict[str, Any]]:
    with organisation_scope(organisation):
        return [dict(row) for row in UsageHour.objects.order_by("hour", "model_name").values()]


def tools(organisation: Organisation) -> dict[str, ToolUsageHour]:
    with organisation_scope(organisation):
        return {row.tool_name: row for row in ToolUsageHour.objects.all()}


def findings(organisation: Organisation) -> set[tuple[str, str, str]]:
    with organisation_scope(organisation):
        return set(RoutingFinding.objects.values_list("kind", "name", "how"))


# -- What is added ----------------------------------------------------------------------------------------------------


def test_a_turn_adds_its_rounds_to_the_hours_in_which_they_began(acme: Organisation, chat: ChatSession) -> None:
    turn = ended_turn(chat)
    used: dict[str, Any] = {
        "cached_tokens": 400,
        "cache_write_tokens": 100,
        "reasoning_tokens": 20,
        "cost": 7_000_000_001,
    }
    add_round(turn, at=HOUR + timedelta(minutes=59), **used)
    add_round(turn, at=HOUR + timedelta(minutes=60), usage_estimated=True)

    roll_up()

    first, second = hours(acme)
    assert (first["hour"], second["hour"]) == (HOUR, HOUR + timedelta(hours=1))
    named = {"member_name": "Bob", "agent_name": "Starter", "provider_name": "Scripted", "model_name": "scripted"}
    assert {name: first[name] for name in named} == named
    assert first["membership_key"], first["agent_key"] == (chat.membership_id, chat.agent_id)
    sums = {"turns": 1, "rounds": 1, "input_tokens": 1_000, "output_tokens": 50, "unpriced_rounds": 0} | used
    assert {name: first[name] for name in sums} == sums
    assert (second["turns"], second["rounds"], second["unpriced_rounds"], second["estimated_rounds"]) == (0, 1, 1, 1)


def test_a_turn_that_never_asked_a_model_counts_as_a_turn(acme: Organisation, chat: ChatSession) -> None:
    ended_turn(chat, status="expired")

    roll_up()

    (row,) = hours(acme)
    assert (row["turns"], row["rounds"], row["model_name"]) == (1, 0, "scripted")


def test_turns_add_up_in_one_row_and_its_names_are_the_newest(acme: Organisation, chat: ChatSession) -> None:
    add_round(ended_turn(chat), cost=3)
    roll_up()
    with organisation_scope(acme):
        Agent.objects.update(name="Helper")
    add_round(ended_turn(chat), cost=4)
    roll_up()
    roll_up()

    (row,) = hours(acme)
    assert (row["turns"], row["cost"], row["input_tokens"], row["agent_name"]) == (2, 7, 2_000, "Helper")


def test_open_turns_wait(acme: Organisation, chat: ChatSession) -> None:
    turn = ended_turn(chat)
    add_round(turn)
    with organisation_scope(acme):
        Turn.objects.update(ended_at=None, status="running")

    roll_up()

    assert hours(acme) == []


def test_tools_are_counted_where_they_were_sent_and_called(acme: Organisation, chat: ChatSession) -> None:
    search = make_tool(acme, "web_search", category=make_category(acme, "web"))
    clock = make_tool(acme, "clock")
    turn = ended_turn(chat)
    add_round(turn, tools=[search, clock])
    add_use(turn, search, result_sent="one two three")
    add_use(turn, search, status="failed", result_sent="")
    add_round(turn, tools=[search, clock])

    roll_up()

    found = tools(acme)
    with organisation_scope(acme):
        assert search.current_version is not None
        each = search.current_version.tokens
    row = found["web_search"]
    assert (row.sent_rounds, row.sent_tokens, row.calls, row.failed_calls) == (2, 2 * each, 2, 1)
    assert (row.result_tokens, row.category_name, row.agent_name) == (3, "web", "Starter")
    assert (found["clock"].sent_rounds, found["clock"].calls) == (2, 0)


def test_cx_42_what_routing_saved_is_measured_and_may_be_a_loss(acme: Organisation, chat: ChatSession) -> None:
    """Two turns whose lists differ: the second is new to the provider's cache, and all tools would not have been."""
    first = ended_turn(chat)
    add_round(first, input_tokens=10_600, tool_tokens=600, all_tool_tokens=1_600)
    add_round(first, input_tokens=10_600, cached_tokens=10_600, tool_tokens=600, all_tool_tokens=1_600)
    roll_up()
    (row,) = hours(acme)
    assert (row["tool_tokens"], row["all_tool_tokens"], row["saved_tokens"]) == (1_200, 3_200, 1_000 + 100)

    second = ended_turn(chat, at=HOUR + timedelta(hours=1))
    add_round(second, input_tokens=10_700, tool_tokens=600, all_tool_tokens=1_600, at=HOUR + timedelta(minutes=50))
    add_round(
        second,
        input_tokens=10_700,
        cached_tokens=10_700,
        tool_tokens=600,
        all_tool_tokens=1_600,
        at=HOUR + timedelta(minutes=51),
    )
    roll_up()

    (row,) = hours(acme)
    loss = (100 + 11_600 // 10) - 10_700
    assert row["saved_tokens"] == 1_100 + loss + 100


def test_the_providers_cache_counts_as_empty_after_an_hour(acme: Organisation, chat: ChatSession) -> None:
    first = ended_turn(chat)
    add_round(first, input_tokens=10_600, tool_tokens=600, all_tool_tokens=1_600)
    second = ended_turn(chat)
    later = HOUR + timedelta(hours=1, seconds=1)
    add_round(second, input_tokens=10_700, tool_tokens=600, all_tool_tokens=1_600, at=later)
    add_round(second, input_tokens=10_700, cached_tokens=10_700, tool_tokens=600, all_tool_tokens=1_600, at=later)

    roll_up()

    assert [row["saved_tokens"] for row in hours(acme)] == [1_000, 1_100]


# -- Routing ----------------------------------------------------------------------------------------------------------


def test_a_tool_that_a_search_found_and_that_was_called_was_missing(acme: Organisation, chat: ChatSession) -> None:
    jira = make_tool(acme, "jira_create_issue", category=make_category(acme, "jira"))
    turn = ended_turn(chat)
    routing = {"mode": "hybrid", "categories": {}, "kept": [], "dropped": 9, "empty": True, "wanted": [jira.pk]}
    add_round(turn, routing=routing)
    add_round(turn, tools=[jira])
    add_use(turn, jira, round=2)

    roll_up()

    (row,) = hours(acme)
    assert (row["routed_turns"], row["empty_turns"], row["missed_turns"]) == (1, 1, 1)
    assert tools(acme)["jira_create_issue"].missed_turns == 1
    assert findings(acme) == {("miss", "jira_create_issue", "found_by_search")}


def test_a_tool_that_a_search_found_and_nobody_called_was_not(acme: Organisation, chat: ChatSession) -> None:
    jira = make_tool(acme, "jira_create_issue")
    turn = ended_turn(chat)
    add_round(turn, routing={"mode": "hybrid", "categories": {}, "kept": [], "wanted": [jira.pk]})
    add_round(turn, tools=[jira])

    roll_up()

    assert findings(acme) == set()


def test_a_permitted_tool_that_was_called_unseen_was_missing_and_a_forbidden_one_was_not(
    acme: Organisation, chat: ChatSession
) -> None:
    jira, shell = make_tool(acme, "jira_create_issue"), make_tool(acme, "shell")
    turn = ended_turn(chat)
    with organisation_scope(acme):
        verdicts = verdicts_of(turn, kept=[jira], stopped=[shell])
    routing = {"mode": "keywords", "categories": {}, "kept": [], "why": {}, "dropped": 1}
    add_round(turn, routing=routing, verdict_set=verdicts)
    for tool in (jira, shell):
        add_use(turn, tool, status="refused", tool_version=None)

    roll_up()

    assert findings(acme) == {("miss", "jira_create_issue", "asked_for_again")}


def test_a_keyword_that_matched_for_nothing_is_a_misfire(acme: Organisation, chat: ChatSession) -> None:
    lights = make_tool(acme, "ha_turn_on", category=make_category(acme, "ha"))
    search = make_tool(acme, "web_search", category=make_category(acme, "web"))
    matched = {"ha": ["light"], "web": ["search"], "email": ["mail"]}
    routing = {"mode": "keywords", "categories": matched, "kept": [lights.pk, search.pk]}
    turn = ended_turn(chat)
    add_round(turn, tools=[lights, search], routing=routing)
    add_use(turn, search)
    failed = ended_turn(chat, status="failed")
    add_round(failed, tools=[lights, search], routing=routing)
    followed = ended_turn(chat)
    add_round(followed, tools=[lights, search], routing={**routing, "follow_up": True})

    roll_up()

    assert findings(acme) == {("misfire", "ha", "not_called")}
    with organisation_scope(acme):
        (row,) = RoutingFinding.objects.all()
    assert (row.words, row.turn_id) == (["light"], turn.pk)


@pytest.mark.django_db(transaction=True)
def test_what_a_routed_agent_really_lacked_is_found(bob: Membership, provider: ScriptedOpenAI) -> None:
    make_role(bob.organisation, bob)
    routed = make_routed_session(bob, provider.url)
    provider.enqueue(
        Say(calls=[call("search_tools", {"query": "create a task"}, id="look")]),
        Say(calls=[call("task_create", {"title": "buy milk"}, id="make")]),
        Say("Noted."),
        Say(calls=[call("git_log", {}, id="early")]),
        Say("There."),
        Say("They are off."),
    )
    for message in ("Deploy the demo app to AWS", "Good evening", "Turn off the kitchen lights"):
        run_turns.run(routed, message)

    roll_up()

    assert findings(bob.organisation) == {
        ("miss", "task_create", "found_by_search"),
        ("miss", "git_log", "asked_for_again"),
        ("misfire", "ha", "not_called"),
    }
    (row,) = hours(bob.organisation)
    assert (row["turns"], row["routed_turns"], row["missed_turns"]) == (3, 3, 2)
    assert row["tool_tokens"] < row["all_tool_tokens"]
    assert row["saved_tokens"] > 0


@pytest.mark.parametrize(
    "record",
    [
        {"mode": "hybrid", "kept": "everything", "why": [1], "wanted": {"a": 1}, "categories": 7},
        {"mode": "hybrid", "wanted": [[1], None], "categories": {"utility": None}, "empty": "yes"},
        ["nonsense"],
    ],
)
def test_a_record_of_routing_that_makes_no_sense_delays_nothing(
    acme: Organisation, chat: ChatSession, record: Any
) -> None:
    turn = ended_turn(chat)
    tool = make_tool(acme)
    add_round(turn, tools=[tool], routing=record)
    add_use(turn, tool, status="refused")

    roll_up()

    assert [row["rounds"] for row in hours(acme)] == [1]


# -- Once, whatever happens -------------------------------------------------------------------------------------------


def test_a_turn_that_cannot_be_added_stops_nobody_elses(
    acme: Organisation, chat: ChatSession, charlie: Membership, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = ended_turn(chat)
    add_round(ended_turn(chat))
    add_round(ended_turn(make_session(charlie, make_agent(charlie.organisation))))

    def failing(turn: Turn, batch: Batch) -> TurnSums:
        if turn.pk == broken.pk:
            raise ValueError("broken")
        return sums_of(turn, batch)

    monkeypatch.setattr(sweep, "sums_of", failing)
    roll_up()

    assert [row["turns"] for row in hours(acme)] == [1]
    assert [row["turns"] for row in hours(charlie.organisation)] == [1]
    assert sweep.rollups_backoff.paused() == [broken.pk]
    monkeypatch.setattr(sweep, "sums_of", sums_of)
    sweep.rollups_backoff.clear()
    roll_up()
    assert sum(row["turns"] for row in hours(acme)) == 2


def test_a_crash_before_the_turn_is_marked_adds_nothing(
    acme: Organisation, chat: ChatSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = ended_turn(chat)
    add_round(turn, tools=[make_tool(acme)])

    def crash(*args: object, **kwargs: object) -> None:
        raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(RoutingFinding.objects.__class__, "bulk_create", crash)
        with pytest.raises(SystemExit), organisation_scope(acme):
            add_turns([turn.pk])
    assert hours(acme) == []
    assert tools(acme) == {}

    roll_up()
    assert [row["rounds"] for row in hours(acme)] == [1]


def test_a_turn_that_another_worker_added_since_it_was_read_is_left_out(
    acme: Organisation, chat: ChatSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = [ended_turn(chat), ended_turn(chat)]
    for turn in turns:
        add_round(turn)
    write = vars(sweep)["_write"]

    def write_late(*args: object) -> object:
        monkeypatch.setattr(sweep, "_write", write)
        add_turns([turns[0].pk])
        return write(*args)

    monkeypatch.setattr(sweep, "_write", write_late)
    with organisation_scope(acme):
        assert add_turns([turn.pk for turn in turns]) == 1

    assert [(row["turns"], row["rounds"]) for row in hours(acme)] == [(2, 2)]


@pytest.mark.django_db(transaction=True)
def test_several_workers_at_once_add_each_turn_once(acme: Organisation, chat: ChatSession) -> None:
    shared = [make_tool(acme, f"tool_{number}") for number in range(5)]
    for number in range(40):
        add_round(ended_turn(chat), tools=shared[number % 3 :], cost=1)
    together = Barrier(4)

    def work(_: int) -> None:
        try:
            together.wait()
            for _ in range(3):
                roll_up()
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))

    (row,) = hours(acme)
    assert (row["turns"], row["rounds"], row["cost"], row["input_tokens"]) == (40, 40, 40, 40_000)
    assert tools(acme)["tool_4"].sent_rounds == 40
    with organisation_scope(acme):
        assert not Turn.objects.filter(is_rolled_up=False).exists()


def test_a_batch_costs_the_same_queries_whatever_its_size(acme: Organisation, chat: ChatSession) -> None:
    tool = make_tool(acme)

    def cost(count: int) -> int:
        turns: list[UUID] = []
        for _ in range(count):
            turn = ended_turn(chat)
            add_round(turn, tools=[tool])
            add_use(turn, tool)
            turns.append(turn.pk)
        learning._learned_at[chat.agent_id] = float("inf")
        with (
            organisation_scope(acme),
            CaptureQueriesContext(
                connection,
            ) as queries,
        ):
            assert add_turns(turns) == count
        return len(queries)

    with organisation_scope(acme):
        Agent.objects.update(output_p95=1)
    cost(1)
    assert cost(1) == cost(6) <= 20


def test_old_turns_are_added_some_at_a_time_the_newest_first(
    acme: Organisation, chat: ChatSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "AT_ONCE", 2)
    for days in (400, 3, 200):
        moment = timezone.now() - timedelta(days=days)
        add_round(ended_turn(chat, at=moment), at=moment)

    added = []
    for _ in range(3):
        roll_up()
        added.append(sum(row["turns"] for row in hours(acme)))

    assert added == [2, 3, 3]


# -- Deletion waits ---------------------------------------------------------------------------------------------------


def test_a_deleted_session_goes_when_its_usage_is_added(acme: Organisation, chat: ChatSession) -> None:
    add_round(ended_turn(chat))
    with organisation_scope(acme):
        delete_session(chat, actor=chat.membership)
    remove_deleted()
    with organisation_scope(acme):
        assert ChatSession.objects.filter(pk=chat.pk).exists()

    roll_up()
    remove_deleted()

    with organisation_scope(acme):
        assert not ChatSession.objects.filter(pk=chat.pk).exists()
    assert [row["turns"] for row in hours(acme)] == [1]


def test_a_deleted_session_waits_a_day_for_usage_that_cannot_be_added(acme: Organisation, chat: ChatSession) -> None:
    ended_turn(chat)
    with organisation_scope(acme):
        delete_session(chat, actor=chat.membership)
        ChatSession.objects.update(deleted_at=timezone.now() - timedelta(days=1, seconds=5))

    remove_deleted()

    with organisation_scope(acme):
        assert not ChatSession.objects.filter(pk=chat.pk).exists()


# -- Learning ---------------------------------------------------------------------------------------------------------


def test_an_agents_reply_length_is_learned_from_twenty_replies_on(acme: Organisation, chat: ChatSession) -> None:
    def p95() -> int | None:
        with organisation_scope(acme):
            return Agent.objects.get(pk=chat.agent_id).output_p95

    version = acme.registry_version
    for number in range(19):
        add_round(ended_turn(chat), output_tokens=number + 1)
    roll_up()
    assert p95() is None

    add_round(ended_turn(chat), output_tokens=500)
    roll_up()
    assert p95() == 19

    learning._learned_at.clear()
    for _ in range(200):
        turn = ended_turn(chat, at=HOUR + timedelta(days=1))
        add_round(turn, output_tokens=70)
    roll_up()
    assert p95() == 70
    acme.refresh_from_db()
    assert acme.registry_version == version


def test_how_a_provider_counts_is_learned_from_what_both_counted(acme: Organisation, chat: ChatSession) -> None:
    turn = ended_turn(chat)
    add_round(turn, input_tokens=1_200, tool_tokens=400, history_tokens=500, result_tokens=100)
    add_round(turn, input_tokens=9_000, history_tokens=1_000, usage_estimated=True)
    add_round(turn, input_tokens=9_000)

    roll_up()

    with organisation_scope(acme):
        model = LanguageModel.objects.get()
    assert model.token_factor == pytest.approx(1.2)
    assert model.token_samples == 1


# -- A real turn ------------------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_a_turn_that_a_worker_ran_stands_in_the_sums(bob: Membership, provider: ScriptedOpenAI) -> None:
    make_role(bob.organisation, bob)
    turn = run_turns.run(make_session(bob, make_agent(bob.organisation, provider.url)))

    roll_up()

    (row,) = hours(bob.organisation)
    assert (row["turns"], row["rounds"], row["input_tokens"]) == (1, 1, turn.input_tokens)
    with system_scope():
        assert Turn.objects.get(pk=turn.pk).is_rolled_up
