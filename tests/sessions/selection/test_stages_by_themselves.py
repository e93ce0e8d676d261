"""Each stage and guard of selection and loading by itself, so that taking one out is seen here, not by luck."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from capabilities.agents.agents.writes import AgentContent, agent_stamp, update_agent
from capabilities.agents.toolkits.writes import ToolkitContent, ToolkitLine, toolkit_stamp, update_toolkit
from capabilities.catalogue.categories.writes import move_tool
from capabilities.common.refused import ChangedMeanwhile
from capabilities.common.registry_version import touch_registry
from capabilities.contract.context import ToolError
from capabilities.models import (
    Agent,
    AgentScope,
    AgentToolkit,
    Effect,
    Grant,
    LoadingMode,
    Role,
    ServiceSetting,
    Tool,
    Toolkit,
)
from capabilities.running.kinds import RUNNERS
from sessions.insight.explain.reasons import Asked
from sessions.insight.explain.why import Subject, explain
from sessions.models import ChatSession, StepStatus
from sessions.selection.queries import selection_preview
from tests.cast import allow_toolkit, give_tool, make_category, make_role, make_tool, make_toolkit
from tests.scripted_openai import Say, ScriptedOpenAI, call
from tests.sessions.loads import (
    ask,
    carried_next,
    kit_tool,
    load_by_hand,
    loads_of,
    make_loading_session,
    reread,
    set_mode,
    unload_by_hand,
)
from tests.sessions.run_turns import run, tool_steps_of
from toolhub.tenants.models import AdminRight, Membership, Organisation, Right
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = [pytest.mark.long, pytest.mark.django_db(transaction=True)]

#: A service with a secret of the organisation's.
SHARED = "home_assistant"


@pytest.fixture
def session(bob: Membership, provider: ScriptedOpenAI) -> ChatSession:
    """Its agent has `calculator`, and may load `clock` and `ids`; Bob may use everything."""
    make_role(bob.organisation, bob)
    return make_loading_session(bob, provider.url)


def make_shared(organisation: Organisation, name: str) -> None:
    """The tool acts with a credential of the organisation, which is set up."""
    with organisation_scope(organisation):
        Tool.objects.filter(name=name).update(service=SHARED)
        ServiceSetting.objects.create(organisation=organisation, service=SHARED, is_complete=True)


def through_call_tool(session: ChatSession, provider: ScriptedOpenAI, name: str) -> dict[str, Any]:
    (answer,) = ask(session, provider, call("call_tool", {"name": name, "arguments": {}}))
    return dict(answer) if isinstance(answer, dict) else {"answer": answer}


# -- What call_tool reaches -------------------------------------------------------------------------------------------


def test_call_tool_runs_no_tool_that_a_members_own_agent_may_not_act_with(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    set_mode(session.agent, LoadingMode.CONSTANT)
    make_shared(session.organisation, "uuid")
    with organisation_scope(session.organisation_id):
        Agent.objects.filter(pk=session.agent_id).update(scope=AgentScope.MEMBER)

    answer = through_call_tool(session, provider, "uuid")

    assert answer == {"success": False, "error": "Unknown or inactive tool: uuid"}


def test_call_tool_runs_no_tool_that_was_not_handed_over_to_the_child(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    set_mode(session.agent, LoadingMode.CONSTANT)
    with organisation_scope(session.organisation_id):
        given = list(Tool.objects.filter(name__in=["calculator", "current_time"]).values_list("pk", flat=True))
        ChatSession.objects.filter(pk=session.pk).update(delegated_tools=given)

    assert through_call_tool(session, provider, "uuid") == {
        "success": False,
        "error": "Unknown or inactive tool: uuid",
    }
    through_call_tool(session, provider, "current_time")
    with organisation_scope(session.organisation_id):
        step = tool_steps_of(session.turns.order_by("-seq")[0])[0]
    assert (step.tool_name, step.status) == ("current_time", StepStatus.DONE)


# -- What search_tools and Explain offer ------------------------------------------------------------------------------


def deny_by_role(member: Membership, name: str) -> None:
    """Everything of the category `kit` but this one."""
    with organisation_scope(member.organisation):
        role = Role.objects.get(slug="all")
        role.mode = "listed"
        role.save()
        tool = Tool.objects.select_related("category").get(name=name)
        role.rules.create(organisation=member.organisation, category=tool.category, effect="allow")
        role.rules.create(organisation=member.organisation, tool=tool, effect="deny")
        touch_registry(member.organisation_id)


@pytest.mark.parametrize("mode", [LoadingMode.NEXT_REQUEST, LoadingMode.CONSTANT])
def test_search_tools_finds_nothing_that_the_member_may_not_use(
    session: ChatSession, provider: ScriptedOpenAI, mode: LoadingMode
) -> None:
    set_mode(session.agent, mode)
    search = call("search_tools", {"query": "uuid"})
    (before,) = ask(session, provider, search)
    assert "uuid" in [tool["name"] for tool in before["tools"]]

    deny_by_role(session.membership, "uuid")

    (after,) = ask(session, provider, search)
    assert "uuid" not in [tool["name"] for tool in after["tools"]]


def switched_off(session: ChatSession, name: str) -> None:
    Tool.objects.filter(name=name).update(is_enabled=False)


def of_the_organisation(session: ChatSession, name: str) -> None:
    make_shared(session.organisation, name)
    Agent.objects.update(scope=AgentScope.MEMBER)


def not_handed_over(session: ChatSession, name: str) -> None:
    given = list(Tool.objects.exclude(name=name).values_list("pk", flat=True))
    ChatSession.objects.filter(pk=session.pk).update(delegated_tools=given)


def denied(session: ChatSession, name: str) -> None:
    own = {"organisation": session.organisation, "membership": session.membership}
    Grant.objects.create(**own, tool=Tool.objects.get(name=name), effect=Effect.DENY)


@pytest.mark.parametrize("kept_back", [switched_off, of_the_organisation, not_handed_over, denied])
def test_search_tools_finds_nothing_of_a_category_that_loading_it_would_not_bring(
    session: ChatSession, provider: ScriptedOpenAI, kept_back: Callable[[ChatSession, str], None]
) -> None:
    codebase = make_category(session.organisation, "codebase", is_core=False)
    for name in ("code_outline", "code_search"):
        make_tool(session.organisation, name, category=codebase)
    with organisation_scope(session.organisation_id):
        own = {"organisation": session.organisation, "membership": session.membership}
        AdminRight.objects.create(**own, right=Right.LOAD_CATEGORIES)
    search = call("search_tools", {"query": "code"})

    def found() -> set[str]:
        (answer,) = ask(session, provider, search)
        return {tool["name"] for tool in answer["tools"]}

    assert found() == {"code_outline", "code_search"}

    with organisation_scope(session.organisation_id):
        kept_back(session, "code_outline")

    assert found() == {"code_search"}


def test_explain_calls_nothing_loadable_that_the_member_may_not_use(session: ChatSession) -> None:
    def states() -> dict[str, str]:
        with organisation_scope(session.organisation_id):
            fresh = ChatSession.objects.select_related("agent__model__provider", "membership__user").get(pk=session.pk)
            page = explain(Subject(fresh.membership, fresh.agent, fresh), Asked(limit=100))
            return {each.reasons.spec.name: each.reasons.state for each in page.tools}

    assert states()["uuid"] == "loadable"

    deny_by_role(session.membership, "uuid")

    assert (states()["uuid"], states()["current_time"]) == ("stopped", "loadable")


# -- Secrets in results -----------------------------------------------------------------------------------------------


def test_a_secret_that_a_tool_sends_back_is_masked_in_results_and_errors(
    session: ChatSession, provider: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = 's3cret "of" Ärzte'
    monkeypatch.setattr("capabilities.running.credentials.signing.secrets_of", lambda service, values: (secret,))
    make_shared(session.organisation, "calculator")
    answers: list[Any] = [{"echo": secret}, f"plain {secret}", ToolError(f"refused {secret}")]

    def echo(**asked: Any) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setitem(RUNNERS, "builtin", echo)
    sums = [call("calculator", {"expression": f"{number}+1"}, id=f"c{number}") for number in range(3)]
    for each in sums:
        provider.enqueue(Say(calls=[each]), Say("Done."))
        (step,) = tool_steps_of(run(session))
        for text in (step.result, step.result_sent):
            assert "s3cret" not in text
            assert "••••" in text


# -- Toolkits ---------------------------------------------------------------------------------------------------------


def test_a_reserved_tool_that_is_moved_into_a_toolkits_category_does_not_come_with_it(
    session: ChatSession, provider: ScriptedOpenAI, alice: Membership
) -> None:
    acme = session.organisation
    web = make_category(acme, "web", is_core=False)
    make_tool(acme, "fetch", category=web)
    spawn = make_tool(acme, "spawn_agent", category=make_category(acme, "agents", is_core=False))
    allow_toolkit(session.agent, make_toolkit(acme, "online", categories=(web,)))
    with organisation_scope(acme):
        move_tool(Tool.objects.select_related("category").get(pk=spawn.pk), "web", actor=alice)

    assert load_by_hand(session, "online").more["tools"] == ["fetch"]
    assert [name for name in carried_next(session, provider) if name in ("fetch", "spawn_agent")] == ["fetch"]


def test_another_max_result_chars_alone_is_a_conflict(session: ChatSession) -> None:
    clock = kit_tool(session.organisation, "current_time")
    for name, chars in (("short", 500), ("long", 900)):
        overrides: dict[str, dict[str, Any]] = {"current_time": {"max_result_chars": chars}}
        allow_toolkit(session.agent, make_toolkit(session.organisation, name, clock, overrides=overrides))
    assert load_by_hand(session, "short").status == "loaded"

    refused = load_by_hand(session, "long")

    assert refused.status == "conflict"
    assert refused.more["existing"]["overrides"] == {"max_result_chars": 500}
    assert refused.more["candidate"]["overrides"] == {"max_result_chars": 900}
    assert [name for name, _, _ in loads_of(session)] == ["short"]


# -- What was previewed is saved, or nothing --------------------------------------------------------------------------


def test_an_agent_is_not_saved_with_the_stamp_of_what_it_was_before(session: ChatSession, alice: Membership) -> None:
    with organisation_scope(session.organisation_id):
        agent = Agent.objects.select_related("model").get(pk=session.agent_id)
        stamp = agent_stamp(agent)
        wanted = AgentContent(agent.slug, "Mine", agent.model, starts_with_core=False)
        update_agent(agent, AgentContent(agent.slug, "Theirs", agent.model, starts_with_core=False), actor=alice)

        with pytest.raises(ChangedMeanwhile):
            update_agent(agent, wanted, actor=alice, stamp=stamp)

        assert Agent.objects.get(pk=agent.pk).name == "Theirs"
        assert update_agent(agent, wanted, actor=alice, stamp=agent_stamp(agent)).name == "Mine"


def test_a_toolkit_is_not_saved_with_the_stamp_of_what_it_was_before(session: ChatSession, alice: Membership) -> None:
    with organisation_scope(session.organisation_id):
        toolkit = Toolkit.objects.get(name="clock")
        stamp = toolkit_stamp(toolkit)
        wanted = ToolkitContent("clock", "Mine", (ToolkitLine("current_time"),))
        update_toolkit(toolkit, ToolkitContent("clock", "Theirs", (ToolkitLine("current_time"),)), actor=alice)

        with pytest.raises(ChangedMeanwhile):
            update_toolkit(toolkit, wanted, actor=alice, stamp=stamp)

        assert Toolkit.objects.get(name="clock").description == "Theirs"
        assert update_toolkit(toolkit, wanted, actor=alice, stamp=toolkit_stamp(toolkit)).description == "Mine"


# -- What the state machine found alone -------------------------------------------------------------------------------


def test_tools_keep_the_order_in_which_they_were_sent_whatever_is_loaded_or_reordered(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    give_tool(session.agent, kit_tool(session.organisation, "unit_convert"), position=2)
    load_by_hand(session, "ids")
    first = carried_next(session, provider)
    assert first[0] == "calculator"
    assert first[-1] == "uuid"

    with organisation_scope(session.organisation_id):
        session.agent.agent_tools.filter(tool__name="calculator").update(position=9)
        touch_registry(session.organisation_id)
    load_by_hand(session, "clock")
    second = carried_next(session, provider)

    assert second == [*first, "current_time", "date_arithmetic"]
    unload_by_hand(session, "ids")
    assert carried_next(session, provider) == [name for name in second if name != "uuid"]


def test_a_toolkit_that_became_initial_later_joins_a_session_that_goes_on(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    load_by_hand(session, "clock")
    first = carried_next(session, provider)
    with organisation_scope(session.organisation_id):
        AgentToolkit.objects.filter(toolkit__name="ids").update(is_initial=True)
        touch_registry(session.organisation_id)

    assert carried_next(session, provider) == [*first, "uuid"]
    assert loads_of(session) == [("clock", "person", ""), ("ids", "initial", "")]
    assert unload_by_hand(session, "ids").status == "sticky"


def test_the_scope_stage_keeps_back_what_acts_as_the_organisation(session: ChatSession) -> None:
    make_shared(session.organisation, "calculator")
    give_tool(session.agent, kit_tool(session.organisation, "unit_convert"), position=2)

    def sent() -> list[str]:
        with organisation_scope(session.organisation_id):
            agent = Agent.objects.select_related("model__provider").get(pk=session.agent_id)
            return [tool.name for tool in selection_preview(reread(session), agent).tools]

    assert sent()[:2] == ["calculator", "unit_convert"]
    with organisation_scope(session.organisation_id):
        Agent.objects.filter(pk=session.agent_id).update(scope=AgentScope.MEMBER)

    assert "calculator" not in sent()
    assert sent()[0] == "unit_convert"
