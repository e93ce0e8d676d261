"""Tools that a client of the gateway brings, where their names, their results and the policies meet ours."""

from __future__ import annotations

from typing import Any

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
