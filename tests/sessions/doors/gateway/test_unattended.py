"""What a client of `/v1` gets of tools that ask a person, by the setting of its agent."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from capabilities.access.approval_rules.writes import RuleContent, create_rule
from capabilities.agents.hooks.writes import HookContent, create_hook
from capabilities.common.registry_version import touch_registry
from capabilities.models import Agent, ClientApprovals, LoadingMode, RuntimeConfig
from sessions.asking.approvals.writes import approve_with_consent
from sessions.doors.chats.writes import open_session
from sessions.models import Approval, Step, StepKind, StepStatus, TurnStatus
from sessions.turns.accepting import accept
from tests.cast import (
    allow_toolkit,
    give_tool,
    make_agent,
    make_category,
    make_member,
    make_meta_tools,
    make_role,
    make_session,
    make_token,
    make_tool,
    make_toolkit,
    make_turn,
)
from tests.scripted_openai import Say, ScriptedOpenAI, call
from tests.sessions.doors.gateway.conftest import Gateway, until
from tests.sessions.doors.gateway.test_following import BODY
from tests.sessions.run_turns import as_claimed, selected_for, verdicts_of
from toolhub.tenants.models import Access, Membership
from toolhub.tenants.rows.scope import organisation_scope

SUM = call("calculator", {"expression": "1+2"})
CHAT = "/v1/chat/completions"


def hide(gateway: Gateway, **fields: Any) -> None:
    with organisation_scope(gateway.member.organisation):
        Agent.objects.filter(slug="helper").update(client_approvals=ClientApprovals.HIDE, **fields)
        touch_registry(gateway.member.organisation_id)


def ask_first(gateway: Gateway, tool: str = "calculator", **fields: Any) -> None:
    with organisation_scope(gateway.member.organisation):
        admin = Membership.objects.filter(access=Access.ADMIN).first() or make_member(
            gateway.member.organisation, "Ada", Access.ADMIN
        )
        create_rule(RuleContent(tool_pattern=tool, **fields), actor=admin)


def sent(provider: ScriptedOpenAI, number: int = -1) -> list[str]:
    return [tool["function"]["name"] for tool in provider.requests[number].get("tools", ())]


def approvals(gateway: Gateway) -> int:
    with organisation_scope(gateway.member.organisation):
        return Approval.objects.count()


def test_mr_43_by_default_the_tool_is_there_and_the_client_is_told_where_to_answer(
    gateway: Gateway, provider: ScriptedOpenAI
) -> None:
    ask_first(gateway)
    provider.enqueue(Say(calls=[SUM]))

    text = gateway.post(CHAT, BODY).text

    assert sent(provider) == ["calculator"]
    assert "The call of calculator waits" in text
    assert [turn.is_unattended for turn in gateway.turns()] == [False]


@pytest.mark.parametrize("streams", [False, True])
def test_mr_43_a_tool_that_would_ask_is_left_out_where_the_agent_says_so(
    gateway: Gateway, provider: ScriptedOpenAI, streams: bool
) -> None:
    with organisation_scope(gateway.member.organisation):
        give_tool(gateway.agent, make_tool(gateway.member.organisation, "current_time"))
    ask_first(gateway)
    hide(gateway)
    provider.enqueue(Say("Without it."))

    assert "Without it." in gateway.post(CHAT, {**BODY, "stream": streams}).text

    assert sent(provider) == ["current_time"]
    (turn,) = gateway.turns()
    with organisation_scope(gateway.member.organisation):
        (step,) = Step.objects.select_related("verdict_set").filter(turn=turn, kind=StepKind.MODEL)
        (why,) = [each["reason"] for each in verdicts_of(step) if each["stage"] == "approval"]
    assert "asks a person (rule calculator)" in why


def test_mr_43_a_call_of_a_hidden_tool_is_refused_and_nobody_is_asked(
    gateway: Gateway, provider: ScriptedOpenAI
) -> None:
    ask_first(gateway)
    hide(gateway)
    provider.enqueue(Say(calls=[SUM]), Say("I cannot."))

    assert gateway.post(CHAT, BODY).json()["choices"][0]["message"]["content"] == "I cannot."

    (turn,) = gateway.turns()
    (step,) = gateway.steps(turn)
    assert (turn.status, step.status, approvals(gateway)) == (TurnStatus.DONE, StepStatus.REFUSED, 0)
    assert "nobody answers this client" in step.result_sent


def test_mr_43_a_tool_whose_rule_came_after_the_selection_is_refused_where_the_call_runs(
    gateway: Gateway, provider: ScriptedOpenAI
) -> None:
    hide(gateway)
    provider.enqueue(Say(calls=[SUM], delay=1.5), Say("I cannot."))
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(gateway.post, CHAT, BODY)
        until(lambda: bool(provider.requests))
        ask_first(gateway)
        said = asked.result().json()["choices"][0]["message"]["content"]

    (turn,) = gateway.turns()
    (step,) = gateway.steps(turn)
    assert sent(provider, 0) == ["calculator"]
    assert (said, step.status, approvals(gateway)) == ("I cannot.", StepStatus.REFUSED, 0)
    assert "a person would have to approve it" in step.result_sent


def test_mr_43_a_turn_in_the_browser_with_the_same_agent_still_has_the_tool(
    gateway: Gateway, provider: ScriptedOpenAI
) -> None:
    ask_first(gateway)
    hide(gateway)
    provider.enqueue(Say(calls=[SUM]))
    with organisation_scope(gateway.member.organisation):
        agent = Agent.objects.select_related("model__provider").get(slug="helper")
        turn = accept(open_session(gateway.member, agent), "Add", member=gateway.member).turn

    until(lambda: approvals(gateway) == 1)

    assert sent(provider) == ["calculator"]
    until(lambda: gateway.turns()[0].status == TurnStatus.WAITING_APPROVAL)
    assert gateway.turns()[0].pk == turn.pk


def test_mr_43_a_tool_of_which_some_calls_ask_stays_and_such_a_call_is_refused(
    gateway: Gateway, provider: ScriptedOpenAI
) -> None:
    ask_first(gateway, argument="expression", argument_pattern="*1000*")
    hide(gateway)
    large = call("calculator", {"expression": "1+1000"})
    provider.enqueue(Say(calls=[SUM, large]), Say("Three."))

    gateway.post(CHAT, BODY)

    assert sent(provider, 0) == ["calculator"]
    assert [step.status for step in gateway.steps(gateway.turns()[0])] == [StepStatus.DONE, StepStatus.REFUSED]
    assert approvals(gateway) == 0


def test_mr_43_a_call_of_which_a_hook_asks_is_refused(gateway: Gateway, provider: ScriptedOpenAI) -> None:
    with organisation_scope(gateway.member.organisation):
        admin = make_member(gateway.member.organisation, "Ada", Access.ADMIN)
        create_hook(HookContent({"name": "look", "action": "ask", "settings": {"message": "Why"}}), actor=admin)
    hide(gateway)
    provider.enqueue(Say(calls=[SUM]), Say("I cannot."))

    gateway.post(CHAT, BODY)

    (step,) = gateway.steps(gateway.turns()[0])
    assert (step.status, approvals(gateway)) == (StepStatus.REFUSED, 0)


def test_mr_43_a_question_to_the_user_is_left_out_too(gateway: Gateway, provider: ScriptedOpenAI) -> None:
    with organisation_scope(gateway.member.organisation):
        give_tool(gateway.agent, make_tool(gateway.member.organisation, "ask_user"))
    hide(gateway)
    provider.enqueue(Say(calls=[call("ask_user", {"question": "Which?"})]), Say("Which one?"))

    gateway.post(CHAT, BODY)

    assert sent(provider) == ["calculator"]
    (step,) = gateway.steps(gateway.turns()[0])
    assert (step.status, approvals(gateway)) == (StepStatus.REFUSED, 0)


@pytest.mark.parametrize("mode", [LoadingMode.SAME_RUN, LoadingMode.CONSTANT])
def test_mr_43_nothing_that_loads_brings_a_hidden_tool_back(
    gateway: Gateway, provider: ScriptedOpenAI, mode: LoadingMode
) -> None:
    organisation = gateway.member.organisation
    with organisation_scope(organisation):
        make_meta_tools(organisation)
        category = make_category(organisation, "task", title="Tasks")
        tools = [make_tool(organisation, name, category=category) for name in ("task_create", "task_list")]
        kits = [make_toolkit(organisation, "writing", tools[0]), make_toolkit(organisation, "both", *tools)]
        for kit in kits:
            allow_toolkit(gateway.agent, kit)
    ask_first(gateway, "task_create")
    hide(gateway, loading_mode=mode)
    create = {"title": "buy milk"}
    calls = [
        call("search_tools", {"query": "create a task"}),
        call("call_tool", {"name": "task_create", "arguments": create}),
    ]
    if mode == LoadingMode.SAME_RUN:
        calls = [calls[0], call("load_tools", {"toolkit": "writing"}), call("load_tools", {"toolkit": "both"})]
    provider.enqueue(Say(calls=calls), Say(calls=[call("task_create", create)]), Say("I cannot."))

    gateway.post(CHAT, BODY)

    found = [step.result for step in gateway.steps(gateway.turns()[0])]
    assert "task_create" not in [each["name"] for each in json.loads(found[0])["tools"]]
    assert all("task_create" not in sent(provider, number) for number in range(3))
    if mode == LoadingMode.SAME_RUN:
        assert "calls of the tools of writing ask" in found[1]
        assert json.loads(found[2])["tools"] == ["task_list"]
        assert "task_list" in sent(provider)
    assert gateway.steps(gateway.turns()[0])[-1].status == StepStatus.REFUSED
    assert approvals(gateway) == 0


def test_mr_43_an_agent_that_was_asked_for_a_part_goes_without_the_tool_too(
    gateway: Gateway, provider: ScriptedOpenAI
) -> None:
    organisation = gateway.member.organisation
    with organisation_scope(organisation):
        for name in ("task_list", "spawn_agent"):
            give_tool(gateway.agent, make_tool(organisation, name))
        below = make_agent(organisation, provider.url, slug="below", starts_with_core=False)
        for name in ("calculator", "task_list"):
            give_tool(below, gateway.agent.tools.get(name=name))
    ask_first(gateway)
    hide(gateway)
    spawn = call("spawn_agent", {"agent": "below", "message": "Add 1 and 2."})
    provider.enqueue(Say(calls=[spawn]), Say(calls=[SUM]), Say("I cannot."), Say("It cannot."))

    text = gateway.post(CHAT, BODY).json()["choices"][0]["message"]["content"]

    child = gateway.turns()[1]
    assert (text, child.is_unattended, sent(provider, 1)) == ("It cannot.", True, ["task_list"])
    assert [step.status for step in gateway.steps(child)] == [StepStatus.REFUSED]
    assert approvals(gateway) == 0


@pytest.mark.parametrize(("knob", "is_sent"), [("always", False), ("first_time", False), ("off", True)])
def test_mr_43_a_runtime_setting_that_asks_hides_as_a_rule_does(
    gateway: Gateway, provider: ScriptedOpenAI, knob: str, is_sent: bool
) -> None:
    with organisation_scope(gateway.member.organisation):
        values = {"tools": {"calculator": {"ask": knob}}}
        RuntimeConfig.objects.create(organisation=gateway.member.organisation, layer="organisation", values=values)
    hide(gateway)
    provider.enqueue(Say("Hello."))

    gateway.post(CHAT, BODY)

    assert ("calculator" in sent(provider)) is is_sent


def test_mr_43_a_tool_that_was_allowed_until_a_date_is_there(gateway: Gateway, provider: ScriptedOpenAI) -> None:
    ask_first(gateway, when="first_in_session")
    provider.enqueue(Say(calls=[SUM]), Say("Three."))
    gateway.post(CHAT, BODY)
    with organisation_scope(gateway.member.organisation):
        until_then = timezone.now() + timedelta(hours=1)
        approve_with_consent(Approval.objects.get(), actor=gateway.member, until=until_then)
    until(lambda: gateway.turns()[0].status == TurnStatus.DONE)
    hide(gateway)
    provider.enqueue(Say(calls=[SUM]), Say("Three."))

    gateway.post(CHAT, BODY)

    turn = gateway.turns()[1]
    assert (turn.is_unattended, [step.status for step in gateway.steps(turn)]) == (True, [StepStatus.DONE])


@pytest.mark.django_db
def test_hiding_takes_the_same_queries_for_one_tool_and_for_three(bob: Membership) -> None:
    counts = []
    with organisation_scope(bob.organisation):
        admin = make_member(bob.organisation, "Ada", Access.ADMIN)
        agent = make_agent(bob.organisation, client_approvals=ClientApprovals.HIDE)
        create_rule(RuleContent(tool_pattern="*", when="first_in_session"), actor=admin)
        for names in (["calculator"], ["current_time", "task_list"]):
            for name in names:
                give_tool(agent, make_tool(bob.organisation, name))
            turn = as_claimed(make_turn(make_session(bob, agent), is_unattended=True))
            with CaptureQueriesContext(connection) as queries:
                assert selected_for(turn).tools == ()
            counts.append(len(queries))
    assert counts[0] == counts[1]


@pytest.mark.django_db
def test_explain_tells_what_a_client_goes_without_and_why(client: Client, bob: Membership) -> None:
    with organisation_scope(bob.organisation):
        admin = make_member(bob.organisation, "Ada", Access.ADMIN)
        agent = make_agent(bob.organisation, client_approvals=ClientApprovals.HIDE, starts_with_core=False)
        give_tool(agent, make_tool(bob.organisation, "calculator"))
        give_tool(agent, make_tool(bob.organisation, "current_time"))
        make_role(bob.organisation, admin)
        create_rule(RuleContent("sums", tool_pattern="calculator"), actor=admin)
    headers = {"Authorization": f"Bearer {make_token(admin)}"}

    def told(**query: str) -> dict[str, Any]:
        found = client.get("/api/v1/explain", {"q": "calculator", **query}, headers=headers).json()["results"]
        return next(each for each in found if each["tool"] == "calculator")

    assert (told()["state"], told(client="false")["state"]) == ("sent", "sent")
    left_out = told(client="true")
    assert (left_out["state"], left_out["first_stop"]) == ("stopped", "approval")
    assert "asks a person (rule sums)" in left_out["sentence"]
    assert [(each["code"], each["right"]) for each in left_out["changes"]] == [("ask_for_clients", "agents")]
    client.force_login(admin.user)
    page = client.get(f"/o/{bob.organisation.slug}/explain/", {"client": "1", "q": "calculator"}).content.decode()
    assert "asks a person" in page
    assert "An API client" in page
