"""Lists and calls of MCP clients, by the SDK's own client in both protocols."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from capabilities.access.grants.writes import GrantContent, give_grant
from capabilities.models import Agent, Effect, RoleMode, RoleRule, Tool
from sessions.models import ClientSession, Door, Step, StepKind, StepStatus, Turn, TurnStatus
from tests.cast import allow_toolkit, make_category, make_role, make_token, make_tool, make_toolkit
from tests.sessions.doors.mcp_server.gateway import BOTH, ask, call, names_at, refusal, text_of
from toolhub.tenants.models import AuditEntry, Membership
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("mode", BOTH)
def test_a_member_lists_and_calls_the_tools_of_an_agent(origin: str, agent: Agent, bob: Membership, mode: str) -> None:
    make_role(bob.organisation, bob)
    url, token = f"{origin}/mcp/desk", make_token(bob)

    assert names_at(url, token, mode) == ["generate_uuid", "calculator", "task_create", "read_result"]
    result = call(url, token, "calculator", mode, expression="6*7")

    assert (result.is_error, json.loads(text_of(result))["result"]) == (False, 42)
    with organisation_scope(bob.organisation):
        turn = Turn.objects.get()
        made, answered = Step.objects.order_by("index")
    assert (turn.status, turn.door, turn.rounds, turn.message) == (TurnStatus.DONE, Door.MCP, 0, "")
    assert (turn.input_tokens, turn.cost) == (0, 0)
    assert (made.kind, answered.kind, answered.status) == (StepKind.CLIENT, StepKind.TOOL, StepStatus.DONE)


def test_members_with_other_rights_see_other_lists_at_the_same_address(
    origin: str, agent: Agent, alice: Membership, bob: Membership
) -> None:
    make_role(bob.organisation, alice)
    role = make_role(bob.organisation, bob, RoleMode.LISTED, "few")
    with organisation_scope(bob.organisation):
        RoleRule.objects.create(
            organisation=bob.organisation, role=role, tool=Tool.objects.get(name="calculator"), effect="allow"
        )
    url = f"{origin}/mcp/desk"

    assert names_at(url, make_token(alice)) == ["generate_uuid", "calculator", "task_create", "read_result"]
    assert names_at(url, make_token(bob)) == ["calculator", "read_result"]


def test_a_member_without_any_role_sees_nothing_and_calls_nothing(origin: str, agent: Agent, bob: Membership) -> None:
    url, token = f"{origin}/mcp/desk", make_token(bob)

    assert names_at(url, token) == []
    result = call(url, token, "calculator", expression="1+1")

    assert (result.is_error, "Access denied" in text_of(result)) == (True, True)


@pytest.mark.parametrize("mode", BOTH)
def test_a_tool_denied_between_list_and_call_is_refused_and_on_record(
    origin: str, agent: Agent, alice: Membership, bob: Membership, mode: str
) -> None:
    make_role(bob.organisation, bob)
    url = f"{origin}/mcp/desk"

    async def denied_between(client: Any) -> Any:
        listed = await client.list_tools()
        await asyncio.to_thread(deny, alice, bob, "calculator")
        return listed, await client.call_tool("calculator", {"expression": "1+1"})

    listed, result = ask(url, make_token(bob), denied_between, mode)

    assert "calculator" in [tool.name for tool in listed.tools]
    assert (result.is_error, json.loads(text_of(result))["denied_tool"]) == (True, "calculator")
    with organisation_scope(bob.organisation):
        assert Step.objects.get(kind=StepKind.TOOL).status == StepStatus.REFUSED
        assert Turn.objects.get().status == TurnStatus.DONE
        assert AuditEntry.objects.filter(action="denied").count() == 1


@pytest.mark.parametrize("mode", BOTH)
def test_arguments_that_do_not_fit_are_a_result_that_the_model_can_mend(
    origin: str, agent: Agent, bob: Membership, mode: str
) -> None:
    make_role(bob.organisation, bob)

    result = call(f"{origin}/mcp/desk", make_token(bob), "calculator", mode, expressions=["\x00"])

    assert result.is_error
    assert "expression" in json.loads(text_of(result))["error"]


@pytest.mark.parametrize("mode", BOTH)
def test_a_tool_that_the_address_does_not_have_is_unknown(
    origin: str, agent: Agent, bob: Membership, mode: str
) -> None:
    make_role(bob.organisation, bob)
    make_tool(bob.organisation, "elsewhere", category=make_category(bob.organisation, "other", is_core=False))

    for name in ("elsewhere", "load_tools", "call_tool", "no_such", "x" * 300):
        assert refusal(f"{origin}/mcp/desk", make_token(bob), name, mode) == -32602
    with organisation_scope(bob.organisation):
        assert not Turn.objects.exists()


def test_a_toolkit_offers_its_own_tools_alone(origin: str, agent: Agent, bob: Membership) -> None:
    make_role(bob.organisation, bob)
    apart = make_category(bob.organisation, "apart", is_core=False)
    allow_toolkit(
        agent, make_toolkit(bob.organisation, "kit", make_tool(bob.organisation, "current_time", category=apart))
    )
    url, token = f"{origin}/mcp/toolkit/kit", make_token(bob)

    assert names_at(url, token) == ["current_time", "read_result"]
    assert "current_time" in names_at(f"{origin}/mcp/desk", token)
    assert refusal(url, token, "calculator") == -32602


@pytest.mark.parametrize("mode", BOTH)
def test_over_the_number_of_listed_tools_a_client_searches_and_calls(
    origin: str, agent: Agent, bob: Membership, settings: Any, mode: str
) -> None:
    settings.TOOLHUB_MCP_TOOLS = 2
    make_role(bob.organisation, bob)
    url, token = f"{origin}/mcp/desk", make_token(bob)

    assert names_at(url, token, mode) == ["search_tools", "call_tool", "read_result"]
    found = json.loads(text_of(call(url, token, "search_tools", mode, query="calculator")))["tools"]
    assert (found[0]["name"], found[0]["call_with"]) == ("calculator", "call_tool")
    result = call(url, token, "call_tool", mode, **through("calculator", expression="6*7"))

    assert json.loads(text_of(result))["result"] == 42
    with organisation_scope(bob.organisation):
        step = Step.objects.filter(kind=StepKind.TOOL).order_by("-pk")[0]
        assert (step.tool_name, step.called_through) == ("calculator", "call_tool")


def test_call_tool_at_a_toolkit_reaches_the_toolkit_alone(
    origin: str, agent: Agent, bob: Membership, settings: Any
) -> None:
    """Even of an agent whose own `call_tool` reaches everything that it could load."""
    settings.TOOLHUB_MCP_TOOLS = 1
    make_role(bob.organisation, bob)
    apart = make_category(bob.organisation, "apart", is_core=False)
    tools = [make_tool(bob.organisation, name, category=apart) for name in ("current_time", "unit_convert")]
    allow_toolkit(agent, make_toolkit(bob.organisation, "kit", *tools))
    with organisation_scope(bob.organisation):
        Agent.objects.update(loading_mode="constant")
    url, token = f"{origin}/mcp/toolkit/kit", make_token(bob)

    assert names_at(url, token) == ["search_tools", "call_tool", "read_result"]
    result = call(url, token, "call_tool", **through("calculator", expression="6*7"))

    assert (result.is_error, "42" in text_of(result)) == (True, False)
    assert json.loads(text_of(call(url, token, "search_tools", query="calculator")))["tools"] == []


def test_calls_of_a_token_at_an_address_share_a_session_and_each_is_a_turn(
    origin: str, agent: Agent, bob: Membership
) -> None:
    make_role(bob.organisation, bob)
    url, one, other = f"{origin}/mcp/desk", make_token(bob), make_token(bob)

    for token in (one, one, other):
        call(url, token, "generate_uuid")

    with organisation_scope(bob.organisation):
        kept = ClientSession.objects.order_by("pk").values_list("key", "session__is_throwaway", "session__title")
        assert list(kept) == [("mcp:desk", True, "MCP: desk")] * 2
        numbers = Turn.objects.order_by("session__client_sessions", "seq").values_list("seq", flat=True)
        assert list(numbers) == [1, 2, 1]


def test_calls_at_once_run_side_by_side(origin: str, agent: Agent, bob: Membership) -> None:
    make_role(bob.organisation, bob)

    async def at_once(client: Any) -> Any:
        asked = [client.call_tool("calculator", {"expression": f"{number}*2"}) for number in range(5)]
        return await asyncio.gather(*asked)

    results = ask(f"{origin}/mcp/desk", make_token(bob), at_once)

    assert [json.loads(text_of(each))["result"] for each in results] == [0, 2, 4, 6, 8]
    with organisation_scope(bob.organisation):
        assert sorted(Turn.objects.values_list("seq", flat=True)) == [1, 2, 3, 4, 5]


def deny(alice: Membership, bob: Membership, name: str) -> None:
    with organisation_scope(bob.organisation):
        give_grant(GrantContent(bob.public_id, Effect.DENY, tool=name, reason="No."), actor=alice)


def through(name: str, **arguments: Any) -> dict[str, Any]:
    """Arguments of `call_tool`."""
    return {"name": name, "arguments": arguments}
