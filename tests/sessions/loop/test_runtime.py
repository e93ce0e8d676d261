"""Runtime settings in whole turns: what a layer says is in force where a call runs, at the price of no query."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from capabilities.contract.context import ToolContext
from capabilities.models import Agent, LanguageModel, Provider, Tool, ToolkitTool
from capabilities.registry import registry
from capabilities.runtime_config.writes import ORGANISATION, LayerOf, set_runtime_config
from sessions.models import ChatSession
from tests.cast import allow_toolkit, make_agent, make_role, make_session, make_tool, make_toolkit
from tests.scripted_openai import Say, ScriptedOpenAI, call
from tests.sessions.run_turns import run, tool_steps_of
from toolhub.tenants.models import Membership
from toolhub.tenants.scope import organisation_scope

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
    uuid_does(lambda context: context.envelope.ask if context.envelope else "")
    say(alice, ORGANISATION, of_uuid(ask="off", timeout_sec=50))
    with organisation_scope(agent.organisation_id):
        agent.starts_with_core = False
        agent.save()
        kit = make_toolkit(agent.organisation, "dev", Tool.objects.get(name="uuid"))
        ToolkitTool.objects.filter(toolkit=kit).update(knobs={"ask": "first_time"})
        allow_toolkit(agent, kit, initial=True)

    assert sent(session, provider) == "first_time"


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

    assert "did not answer within 1 seconds" in result
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
