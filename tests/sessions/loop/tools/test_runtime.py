"""Runtime settings in whole turns: what a layer says is in force where a call runs, at the price of no query."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.template.loader import render_to_string
from django.test.utils import CaptureQueriesContext

from capabilities.agents.runtime_config.writes import ORGANISATION, LayerOf, set_runtime_config
from capabilities.contract.context import ToolContext
from capabilities.models import Agent, LanguageModel, Provider, Tool, ToolkitTool
from capabilities.running.registry import registry
from sessions.doors.chats.queries import turns_page
from sessions.loop.tools import execution
from sessions.models import ChatSession, TurnEvent
from tests.cast import allow_toolkit, make_agent, make_role, make_session, make_tool, make_toolkit
from tests.scripted_openai import Say, ScriptedOpenAI, call
from tests.sessions.run_turns import run, tool_steps_of
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db(transaction=True)

UuidDoes = Callable[[Callable[[ToolContext], Any]], None]


@pytest.fixture
def agent(bob: Membership, provider: ScriptedOpenAI) -> Agent:
    make_tool(bob.organisation, "uuid")
    make_role(bob.organisation, bob)
    return make_agent(bob.organisation, provider.url, prompt="Be brief.")


@pytest.fixture
def session(bob: Membership, agent: Agent) -> ChatSession:
    return make_session(bob, agent)


@pytest.fixture
def uuid_does(monkeypatch: pytest.MonkeyPatch) -> UuidDoes:
    """Have the tool `uuid` do something else."""

    def put(function: Callable[[ToolContext], Any]) -> None:
        tool = registry.tools["uuid"]
        monkeypatch.setitem(vars(tool), "function", lambda context, count=1: function(context))

    return put


def say(alice: Membership, layer: LayerOf, values: Any) -> None:
    with organisation_scope(alice.organisation_id):
        set_runtime_config(layer, values, actor=alice)


def of_uuid(**knobs: Any) -> dict[str, Any]:
    return {"tools": {"uuid": knobs}}


def sent(session: ChatSession, provider: ScriptedOpenAI) -> str:
    """What the model reads of one call of uuid."""
    provider.enqueue(Say(calls=[call("uuid")]), Say("Done."))
    (step,) = tool_steps_of(run(session))
    return step.result_sent


def test_each_layer_is_in_force_where_the_call_runs(
    session: ChatSession, agent: Agent, alice: Membership, provider: ScriptedOpenAI, uuid_does: UuidDoes
) -> None:
    uuid_does(lambda context: "x" * 5_000)
    with organisation_scope(agent.organisation_id):
        own = Provider.objects.get()
    lengths = [len(sent(session, provider))]

    for layer, chars in ((ORGANISATION, 900), (LayerOf(provider=own), 800), (LayerOf(agent=agent), 700)):
        say(alice, layer, of_uuid(max_result_chars=chars))
        lengths.append(len(sent(session, provider)))

    assert lengths == [5_000, 900, 800, 700]


def test_what_another_agent_and_another_provider_say_does_not_count(
    session: ChatSession, alice: Membership, provider: ScriptedOpenAI, uuid_does: UuidDoes
) -> None:
    uuid_does(lambda context: "x" * 5_000)
    with organisation_scope(alice.organisation_id):
        other = make_agent(alice.organisation, provider.url, slug="other")
        elsewhere = Provider.objects.create(organisation=alice.organisation, slug="elsewhere", name="Elsewhere")
    say(alice, LayerOf(agent=other), of_uuid(max_result_chars=700))
    say(alice, LayerOf(provider=elsewhere), of_uuid(max_result_chars=700))

    assert len(sent(session, provider)) == 5_000


def test_a_toolkit_counts_more_than_the_layers_around_it(
    session: ChatSession, agent: Agent, alice: Membership, provider: ScriptedOpenAI, uuid_does: UuidDoes
) -> None:
    uuid_does(lambda context: f"{context.envelope.yield_ms} {context.timeout:g}" if context.envelope else "")
    say(alice, ORGANISATION, of_uuid(yield_ms=2_000, timeout_sec=50))
    with organisation_scope(agent.organisation_id):
        agent.starts_with_core = False
        agent.save()
        kit = make_toolkit(agent.organisation, "dev", Tool.objects.get(name="uuid"))
        ToolkitTool.objects.filter(toolkit=kit).update(knobs={"yield_ms": 3_000})
        allow_toolkit(agent, kit, initial=True)

    assert sent(session, provider) == "3000 50"


def test_zs_51_zs_52_the_share_and_the_least_of_a_result_come_from_the_layers(
    session: ChatSession, alice: Membership, provider: ScriptedOpenAI, uuid_does: UuidDoes
) -> None:
    uuid_does(lambda context: "x" * 30_000)
    with organisation_scope(alice.organisation_id):
        LanguageModel.objects.update(context_window=10_000)
    lengths = [len(sent(session, provider))]

    for values in (
        {"result_context_share_ratio": 0.1},
        {"result_context_share_ratio": 0.01, "result_min_chars": 2_000},
    ):
        say(alice, ORGANISATION, values)
        lengths.append(len(sent(session, provider)))

    assert lengths == [8_800, 4_000, 2_000]


def test_zs_09_a_call_ends_at_the_timeout_in_force(
    session: ChatSession, alice: Membership, provider: ScriptedOpenAI, uuid_does: UuidDoes
) -> None:
    uuid_does(lambda context: context.stopped.wait(50))
    say(alice, ORGANISATION, of_uuid(timeout_sec=1))
    began = time.monotonic()

    result = sent(session, provider)

    assert "did not answer within 1 s" in result
    assert time.monotonic() - began < 40


def test_a_warm_worker_reads_nothing_for_the_settings(
    session: ChatSession, alice: Membership, provider: ScriptedOpenAI
) -> None:
    say(alice, ORGANISATION, of_uuid(max_result_chars=900))
    for _ in range(2):
        sent(session, provider)

    with CaptureQueriesContext(connection) as queries:
        sent(session, provider)

    assert not [each for each in queries.captured_queries if "runtimeconfig" in each["sql"]]


def progress_of(session: ChatSession) -> list[Any]:
    with organisation_scope(session.organisation_id):
        events = TurnEvent.objects.filter(turn__session=session, type="tool_progress").order_by("number")
        return list(events.values_list("payload", flat=True))


def test_zs_12_a_call_that_takes_long_says_so_and_goes_on(
    session: ChatSession, alice: Membership, provider: ScriptedOpenAI, uuid_does: UuidDoes
) -> None:
    def slow(context: ToolContext) -> str:
        until = time.monotonic() + 60
        while not progress_of(session) and time.monotonic() < until:
            context.stopped.wait(0.1)
        return "done"

    uuid_does(slow)
    say(alice, ORGANISATION, of_uuid(yield_ms=1_000, timeout_sec=100))

    assert sent(session, provider) == "done"
    assert [each["step"] for each in progress_of(session)] == [2]
    assert progress_of(session)[0]["seconds"] >= 1


def test_a_call_that_is_quick_says_nothing(session: ChatSession, provider: ScriptedOpenAI) -> None:
    sent(session, provider)

    assert progress_of(session) == []


def test_a_call_says_only_so_often_that_it_is_still_running(monkeypatch: pytest.MonkeyPatch) -> None:
    now, told = [0.0], list[float]()
    monkeypatch.setattr("sessions.loop.tools.execution.time.monotonic", lambda: now[0])
    progress = execution.Progress(10.0, told.append)

    for second in range(3_000):
        now[0] = float(second)
        progress.look()

    assert told == [10, 20, 40, 80, 160]


def test_the_chat_shows_which_call_is_still_running(
    session: ChatSession, alice: Membership, bob: Membership, provider: ScriptedOpenAI, uuid_does: UuidDoes
) -> None:
    shown: list[bool] = []

    def slow(context: ToolContext) -> str:
        until = time.monotonic() + 60
        while not progress_of(session) and time.monotonic() < until:
            context.stopped.wait(0.1)
        with organisation_scope(session.organisation_id):
            (turn,) = turns_page(session).turns
        html = render_to_string("sessions/doors/chats/_turn.html", {"turn": turn, "organisation": bob.organisation})
        shown.append("still running" in html)
        return "done"

    uuid_does(slow)
    say(alice, ORGANISATION, of_uuid(yield_ms=1_000, timeout_sec=100))
    sent(session, provider)
    with organisation_scope(session.organisation_id):
        (turn,) = turns_page(session).turns
    html = render_to_string("sessions/doors/chats/_turn.html", {"turn": turn, "organisation": bob.organisation})

    assert (shown, "still running" in html) == ([True], False)


@pytest.mark.parametrize(("length", "is_refused"), [(101, True), (100, False)])
def test_zs_16_arguments_are_as_long_as_is_set_at_most(
    session: ChatSession, alice: Membership, provider: ScriptedOpenAI, length: int, is_refused: bool
) -> None:
    say(alice, ORGANISATION, of_uuid(max_input_chars=100))
    arguments = '{"count": 1'.ljust(length - 1) + "}"
    provider.enqueue(Say(calls=[call("uuid", arguments)]), Say("Done."))

    (step,) = tool_steps_of(run(session))

    sentence = "The arguments have 101 characters, and uuid takes at most 100. Send less at once."
    assert (sentence in step.result_sent) is is_refused
