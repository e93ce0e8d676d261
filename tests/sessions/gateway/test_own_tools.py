"""Tools that a client of the gateway brings, where their names, their results and the policies meet ours."""

from __future__ import annotations

from typing import Any

import pytest

from capabilities.common.registry_version import touch_registry
from capabilities.models import Agent, ApprovalRule
from sessions.approvals.writes import approve
from sessions.models import Approval, StepStatus, TurnStatus
from tests.cast import allow_toolkit, make_category, make_meta_tools, make_tool, make_toolkit
from tests.scripted_openai import Say, ScriptedOpenAI, call
from tests.sessions.gateway.conftest import Gateway, until
from toolhub.tenants.scope import organisation_scope

CHAT = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "Hello"}]


def own(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}


def test_a_call_through_call_tool_stays_ours_where_a_client_brings_that_name(
    gateway: Gateway, provider: ScriptedOpenAI
) -> None:
    org = gateway.member.organisation
    make_meta_tools(org)
    uuids = make_tool(org, "uuid", category=make_category(org, "ids", is_core=False))
    allow_toolkit(gateway.agent, make_toolkit(org, "ids", uuids))
    with organisation_scope(org):
        Agent.objects.update(loading_mode="constant")
        ApprovalRule.objects.create(organisation=org, name="ask", tool_pattern="uuid")
        touch_registry(org.pk)
    inner = {"name": "uuid", "arguments": {"count": 1}}
    provider.enqueue(Say(calls=[call("call_tool", inner)]), Say("Made."))

    gateway.post(CHAT, {"model": "helper", "messages": HELLO, "tools": [own("uuid")]})
    with organisation_scope(org):
        approve(Approval.objects.get(), actor=gateway.member)

    until(lambda: gateway.turns()[0].status == TurnStatus.DONE)
    (step,) = gateway.steps(gateway.turns()[0])
    assert (step.tool_name, step.called_through, step.status) == ("uuid", "call_tool", StepStatus.DONE)
    assert gateway.turns()[0].answer == "Made."


@pytest.mark.parametrize(
    ("name", "status"), [("calculator", 200), ("weather", 200), ("elsewhere", 400), ("load_tools", 400)]
)
def test_a_tool_can_be_chosen_where_it_is_sent(
    gateway: Gateway, provider: ScriptedOpenAI, name: str, status: int
) -> None:
    chosen = {"type": "function", "function": {"name": name}}
    body = {"model": "helper", "messages": HELLO, "tools": [own("weather")], "tool_choice": chosen}

    answer = gateway.post(CHAT, body)

    assert answer.status_code == status
    assert [request["tool_choice"] for request in provider.requests] == [chosen] * (status == 200)
    if status == 400:
        error = answer.json()["error"]
        assert (error["code"], error["param"]) == ("tool_choice_not_sent", "tool_choice")
        assert name in error["message"]


def test_a_choice_counts_for_the_first_reply_alone(gateway: Gateway, provider: ScriptedOpenAI) -> None:
    provider.enqueue(Say(calls=[call("calculator", {"expression": "1+2"})]), Say("It is 3."))
    chosen = {"type": "function", "name": "calculator"}

    answer = gateway.post("/v1/responses", {"model": "helper", "input": "Hello", "tool_choice": chosen})

    assert answer.json()["status"] == "completed"
    assert ["tool_choice" in request for request in provider.requests] == [True, False]
