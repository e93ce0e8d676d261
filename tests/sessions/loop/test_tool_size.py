"""A definition that is too large is not sent, the budget of a message holds, and the turn says both."""

from __future__ import annotations

import pytest

from capabilities.contract.tool_size import DEFAULT
from capabilities.models import Agent, LoadingMode, RoutingMode, RuntimeConfig, RuntimeLayer, Tool
from sessions.insight.explain.reasons import Asked
from sessions.insight.explain.why import Subject, explain
from sessions.models import ChatSession, Step, StepKind, TurnEvent, TurnStatus
from sessions.selection.queries import selection_preview
from tests.cast import allow_toolkit, give_tool, make_agent, make_role, make_session, make_tool, make_toolkit
from tests.scripted_openai import Json, Say, ScriptedOpenAI, call
from tests.sessions.run_turns import run, tool_steps_of
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db(transaction=True)

BIG = "write_report"


def large(count: int) -> Json:
    words = {
        f"field_{number}": {"type": "string", "description": "What the report says here."} for number in range(count)
    }
    return {"type": "object", "properties": words}


@pytest.fixture
def session(bob: Membership, provider: ScriptedOpenAI) -> ChatSession:
    """Bob's agent has a small tool, and one whose definition is over the limit."""
    acme = bob.organisation
    agent = make_agent(acme, provider.url)
    give_tool(agent, make_tool(acme, "calculator"), position=1)
    give_tool(agent, make_tool(acme, BIG, description="Write a report.", parameters=large(700)), position=2)
    make_role(acme, bob)
    return make_session(bob, agent)


def set_agent(session: ChatSession, **fields: object) -> None:
    with organisation_scope(session.organisation_id):
        Agent.objects.filter(pk=session.agent_id).update(**fields)
        session.agent = Agent.objects.select_related("model__provider").get(pk=session.agent_id)


def names_in(request: Json) -> list[str]:
    return [each["function"]["name"] for each in request.get("tools", ())]


def events(session: ChatSession, kind: str) -> list[Json]:
    with organisation_scope(session.organisation_id):
        return list(TurnEvent.objects.filter(turn__session=session, type=kind).values_list("payload", flat=True))


def test_one_tool_over_the_limit_stays_out_and_the_turn_says_what_to_do(
    session: ChatSession, provider: ScriptedOpenAI, bob: Membership
) -> None:
    turn = run(session)

    assert turn.status == TurnStatus.DONE
    assert names_in(provider.requests[0]) == ["calculator"]
    (told,) = events(session, "tools_too_large")
    assert "fewer arguments" in told["tools"][BIG]
    with organisation_scope(session.organisation_id):
        assert Tool.objects.get(name=BIG).current_version.tokens > DEFAULT  # type: ignore[union-attr]
        fresh = ChatSession.objects.select_related("agent__model__provider").get(pk=session.pk)
        found = explain(Subject(bob, fresh.agent, fresh), Asked(tool=BIG))
    assert [cell.stage for cell in found.tools[0].reasons.stops] == ["size"]


def test_the_limit_is_a_runtime_setting_of_each_layer(session: ChatSession, provider: ScriptedOpenAI) -> None:
    with organisation_scope(session.organisation_id):
        RuntimeConfig.objects.create(
            organisation_id=session.organisation_id,
            layer=RuntimeLayer.ORGANISATION,
            values={"tools": {BIG: {"max_definition_tokens": 100_000}}},
        )

    run(session)

    assert names_in(provider.requests[0]) == ["calculator", BIG]


def test_the_model_that_asks_for_it_reads_why_it_is_not_sent(session: ChatSession, provider: ScriptedOpenAI) -> None:
    provider.enqueue(Say(calls=[call(BIG, {})]))

    turn = run(session)

    (step,) = tool_steps_of(turn)
    assert "fewer arguments" in step.result_sent


def test_an_agent_that_searches_and_calls_reaches_it(session: ChatSession, provider: ScriptedOpenAI) -> None:
    acme = session.organisation
    with organisation_scope(acme):
        tool = Tool.objects.get(name=BIG)
        session.agent.agent_tools.filter(tool=tool).delete()
    allow_toolkit(session.agent, make_toolkit(acme, "reports", tool))
    make_tool(acme, "call_tool")
    set_agent(session, loading_mode=LoadingMode.CONSTANT)
    provider.enqueue(Say(calls=[call("call_tool", {"name": BIG, "arguments": {"field_1": "x"}})]))

    turn = run(session)

    (step,) = tool_steps_of(turn)
    assert step.tool_name == BIG
    assert "tokens" not in step.result_sent


def test_the_budget_of_a_message_holds_and_says_which_tool_is_larger(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    acme = session.organisation
    middling = make_tool(acme, "draw_chart", description="Draw a chart of numbers.", parameters=large(60))
    give_tool(session.agent, middling, position=3)
    set_agent(session, routing_mode=RoutingMode.HYBRID, routing_tokens=500)

    turn = run(session, "Draw a chart of these numbers, please: 1, 2, 3")

    with organisation_scope(acme):
        (step,) = Step.objects.filter(turn=turn, kind=StepKind.MODEL).select_related("tool_set")
        assert middling.current_version.tokens > 500  # type: ignore[union-attr]
        preview = selection_preview(session, session.agent, "Draw a chart of these numbers, please: 1, 2, 3")
    assert "draw_chart" not in names_in(provider.requests[0])
    assert step.tool_tokens <= 500 + sum(tool.tokens for tool in preview.tools if tool.is_meta)
    (told,) = events(session, "tools_over_budget")
    assert "500" in told["tools"]["draw_chart"]
    (verdict,) = [each for each in preview.verdicts if each.tool == "draw_chart" and each.stage == "router"]
    assert not verdict.kept
    assert "500" in verdict.reason
