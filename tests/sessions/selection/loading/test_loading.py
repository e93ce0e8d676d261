"""Toolkits loaded and unloaded in whole turns, in each loading mode: the lines MR-04 to MR-26, MR-39 and MR-41."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from pytest_django import Settings

from capabilities.catalogue.tools.writes import set_instructions
from capabilities.common.registry_version import touch_registry
from capabilities.models import (
    Agent,
    AgentScope,
    AgentToolkit,
    Effect,
    Grant,
    LanguageModel,
    LoadingMode,
    Tool,
    Toolkit,
    ToolkitTool,
)
from sessions.models import ChatSession, LoadedToolkit, StepKind, StepStatus, Turn, TurnStatus
from sessions.selection.loading.queries import loads_of as loads_seen
from sessions.turns import accepting
from tests.cast import (
    allow_toolkit,
    give_tool,
    hold_credential,
    make_agent,
    make_category,
    make_member,
    make_role,
    make_session,
    make_tool,
    make_toolkit,
)
from tests.scripted_openai import Say, ScriptedOpenAI, call
from tests.sessions.loads import (
    AT_FIRST,
    CONSTANT,
    answers_in,
    ask,
    carried,
    carried_next,
    kit_tool,
    load,
    load_by_hand,
    loads_of,
    make_fast_and_slow,
    make_loading_session,
    make_small_kits,
    payloads,
    prompt_of,
    reread,
    set_mode,
    unload,
    unload_by_hand,
)
from tests.sessions.run_turns import run, steps_of, tool_steps_of, work
from tests.sessions.trials import run_trial
from toolhub.tenants.models import AuditEntry, Membership, Organisation
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = [pytest.mark.long, pytest.mark.django_db(transaction=True)]

EACH_MODE = pytest.mark.parametrize("mode", list(LoadingMode))
EXTENDING = pytest.mark.parametrize("mode", [LoadingMode.NEXT_REQUEST, LoadingMode.SAME_RUN])


@pytest.fixture
def session(bob: Membership, provider: ScriptedOpenAI) -> ChatSession:
    """Bob may use everything; his agent has `calculator` and may load `clock` and `ids`."""
    made = make_loading_session(bob, provider.url)
    make_role(bob.organisation, bob)
    return made


# -- The meta-tools ---------------------------------------------------------------------------------------------------


@EXTENDING
def test_mr_04_an_agent_with_toolkits_to_load_gets_the_tools_that_load(
    session: ChatSession, provider: ScriptedOpenAI, mode: LoadingMode
) -> None:
    set_mode(session.agent, mode)

    assert carried_next(session, provider) == AT_FIRST


def test_mr_04_an_agent_whose_tools_never_change_gets_those_that_search_and_call(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    set_mode(session.agent, LoadingMode.CONSTANT)

    assert carried_next(session, provider) == CONSTANT


@EXTENDING
def test_mr_05_an_agent_with_nothing_to_load_gets_none_of_them(
    session: ChatSession, provider: ScriptedOpenAI, mode: LoadingMode
) -> None:
    set_mode(session.agent, mode)
    with organisation_scope(session.organisation_id):
        AgentToolkit.objects.all().delete()
        touch_registry(session.organisation_id)

    assert carried_next(session, provider) == ["calculator"]


def test_mr_05_a_member_who_may_use_nothing_gets_none_of_them(bob: Membership, provider: ScriptedOpenAI) -> None:
    assert carried_next(make_loading_session(bob, provider.url), provider) == []


def test_mr_06_list_toolkits_tells_description_tools_and_state(session: ChatSession, provider: ScriptedOpenAI) -> None:
    with organisation_scope(session.organisation_id):
        AgentToolkit.objects.filter(toolkit__name="ids").update(is_initial=True)
        touch_registry(session.organisation_id)

    (told,) = ask(session, provider, call("list_toolkits"))

    assert told == {
        "toolkits": [
            {
                "name": "clock",
                "description": "Time and dates",
                "tools": ["current_time", "date_arithmetic"],
                "loaded": False,
                "sticky": False,
            },
            {"name": "ids", "description": "", "tools": ["uuid"], "loaded": True, "sticky": True},
        ]
    }


def test_mr_06_what_a_toolkit_lacks_is_told_and_what_the_member_may_not_use_is_left_out(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    organisation = session.organisation
    docker = make_service_tool(organisation, "docker")
    allow_toolkit(session.agent, make_toolkit(organisation, "devops", docker, kit_tool(organisation, "uuid")))
    deny(session.membership, "uuid")

    (told,) = ask(session, provider, call("list_toolkits"))

    assert [(each["name"], each["tools"], each.get("needs_set_up")) for each in told["toolkits"]] == [
        ("clock", ["current_time", "date_arithmetic"], None),
        ("devops", ["docker"], ["docker"]),
    ]


def make_service_tool(organisation: Organisation, name: str) -> Tool:
    """A tool that needs the service of its own name, which is not set up."""
    tool = make_tool(organisation, name, category=make_category(organisation, "kit"))
    with organisation_scope(organisation):
        Tool.objects.filter(pk=tool.pk).update(service=name)
    return tool


def deny(member: Membership, *names: str) -> None:
    with organisation_scope(member.organisation):
        for tool in Tool.objects.filter(name__in=names):
            Grant.objects.create(organisation=member.organisation, membership=member, tool=tool, effect=Effect.DENY)


def test_mr_01_mr_02_mr_07_mr_08_a_toolkit_comes_and_goes_by_its_name(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    ask(session, provider, load("clock"))
    with_clock = carried_next(session, provider)
    ask(session, provider, unload("clock"))

    assert with_clock == [*AT_FIRST, "current_time", "date_arithmetic"]
    assert carried_next(session, provider) == AT_FIRST
    assert loads_of(session) == [("clock", "model", "unloaded")]


def test_mr_09_initial_toolkits_stay(session: ChatSession, provider: ScriptedOpenAI) -> None:
    with organisation_scope(session.organisation_id):
        AgentToolkit.objects.filter(toolkit__name="ids").update(is_initial=True)
        touch_registry(session.organisation_id)

    (told,) = ask(session, provider, unload("ids"))

    assert told["status"] == "sticky"
    assert carried_next(session, provider) == ["calculator", *AT_FIRST[1:], "uuid"]


# -- What a load answers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "when", "message"),
    [
        (
            LoadingMode.NEXT_REQUEST,
            "next_request",
            "Toolkit 'clock' will be available on the next request in this session.",
        ),
        (
            LoadingMode.SAME_RUN,
            "next_round",
            "Toolkit 'clock' will be available with your next step, not within this batch of calls.",
        ),
    ],
)
def test_mr_10_mr_14_load_answers_loaded_and_says_from_when_on(
    session: ChatSession, provider: ScriptedOpenAI, mode: LoadingMode, when: str, message: str
) -> None:
    set_mode(session.agent, mode)

    (told,) = ask(session, provider, load("clock"))

    assert told == {
        "status": "loaded",
        "toolkit": "clock",
        "message": message,
        "tools": ["current_time", "date_arithmetic"],
        "takes_effect": when,
    }


def test_mr_10_a_load_by_hand_of_what_never_changes_the_tools_takes_effect_at_once(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    set_mode(session.agent, LoadingMode.CONSTANT)
    with organisation_scope(session.organisation_id):
        session.agent.refresh_from_db()

    told = load_by_hand(session, "clock").as_dict()

    assert (told["status"], told["takes_effect"]) == ("loaded", "now")
    assert "search_tools and called with call_tool" in told["message"]
    assert carried_next(session, provider) == CONSTANT


def test_mr_10_load_answers_already_loaded(session: ChatSession, provider: ScriptedOpenAI) -> None:
    ask(session, provider, load("clock"))

    (told,) = ask(session, provider, load("clock"))

    assert told == {"status": "already_loaded", "toolkit": "clock", "message": "clock is loaded already."}
    assert loads_of(session) == [("clock", "model", "")]


def test_mr_10_an_initial_toolkit_is_already_loaded(session: ChatSession, provider: ScriptedOpenAI) -> None:
    with organisation_scope(session.organisation_id):
        AgentToolkit.objects.filter(toolkit__name="ids").update(is_initial=True)
        touch_registry(session.organisation_id)

    (told,) = ask(session, provider, load("ids"))

    assert told["status"] == "already_loaded"


@EXTENDING
def test_mr_10_unload_answers_unloaded_and_says_from_when_on(
    session: ChatSession, provider: ScriptedOpenAI, mode: LoadingMode
) -> None:
    set_mode(session.agent, mode)
    ask(session, provider, load("clock"))

    (told,) = ask(session, provider, unload("clock"))

    message = told.pop("message")
    assert message.startswith("Toolkit 'clock' will no longer")
    assert told == {"status": "unloaded", "toolkit": "clock", "takes_effect": "next_request"}


def test_mr_10_unload_answers_not_loaded(session: ChatSession, provider: ScriptedOpenAI) -> None:
    (told,) = ask(session, provider, unload("clock"))

    assert told == {"status": "not_loaded", "toolkit": "clock", "message": "clock is not loaded."}


@pytest.mark.parametrize("change", [load, unload], ids=["load", "unload"])
def test_mr_10_a_name_that_nothing_has_is_unknown_with_what_is_allowed(
    session: ChatSession, provider: ScriptedOpenAI, change: Callable[[str], Any]
) -> None:
    (told,) = ask(session, provider, change("nothing"))

    assert told == {
        "status": "unknown",
        "toolkit": "nothing",
        "message": "There is no toolkit nothing.",
        "allowed": ["clock", "ids"],
    }


def test_mr_10_a_toolkit_of_another_organisation_is_as_unknown(
    session: ChatSession, provider: ScriptedOpenAI, globex: Organisation
) -> None:
    make_toolkit(globex, "secret", make_tool(globex, "uuid"))

    (told,) = ask(session, provider, load("secret"))

    assert (told["status"], told["message"]) == ("unknown", "There is no toolkit secret.")


def test_mr_10_a_toolkit_that_is_not_the_agents_is_not_allowed(session: ChatSession, provider: ScriptedOpenAI) -> None:
    (told,) = ask(session, provider, load("units"))

    message = told.pop("message")
    assert "may not load the toolkit units" in message
    assert told == {"status": "not_allowed", "toolkit": "units", "allowed": ["clock", "ids"]}
    assert loads_of(session) == []


def test_mr_10_a_toolkit_of_which_the_member_may_use_nothing_is_not_allowed(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    deny(session.membership, "uuid")

    (told,) = ask(session, provider, load("ids"))

    message = told.pop("message")
    assert message.startswith("Access denied: ")
    assert "none of the tools of ids" in message
    assert told == {"status": "not_allowed", "toolkit": "ids", "allowed": ["clock"]}
    assert loads_of(session) == []


def test_mr_10_unload_of_what_is_initial_is_sticky(session: ChatSession, provider: ScriptedOpenAI) -> None:
    with organisation_scope(session.organisation_id):
        AgentToolkit.objects.filter(toolkit__name="ids").update(is_initial=True)
        touch_registry(session.organisation_id)

    (told,) = ask(session, provider, unload("ids"))

    message = told.pop("message")
    assert message.startswith("ids belongs to this agent")
    assert told == {"status": "sticky", "toolkit": "ids"}
    assert loads_of(session) == [("ids", "initial", "")]


def test_mr_10_mr_23_two_toolkits_that_do_not_agree_on_a_tool_are_in_conflict(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    make_fast_and_slow(session)
    ask(session, provider, load("fast"))
    before = carried_next(session, provider)
    count = reread(session).load_count

    (told,) = ask(session, provider, load("slow"))

    message = told.pop("message")
    assert "toolkit fast and toolkit slow both have" in message
    assert told == {
        "status": "conflict",
        "toolkit": "slow",
        "tool": "current_time",
        "existing": {"from": "toolkit fast", "overrides": {"timeout": 5.0}},
        "candidate": {"from": "toolkit slow", "overrides": {"timeout": 9.0}},
    }
    assert (loads_of(session), reread(session).load_count) == ([("fast", "model", "")], count)
    assert carried_next(session, provider) == before


def test_mr_10_shared_credentials_are_incompatible_with_an_agent_of_the_member(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    organisation = session.organisation
    github = make_service_tool(organisation, "github")
    hold_credential(organisation, "github")
    allow_toolkit(session.agent, make_toolkit(organisation, "code", github, kit_tool(organisation, "unit_convert")))
    with organisation_scope(organisation):
        Agent.objects.update(scope=AgentScope.MEMBER)

    (told,) = ask(session, provider, load("code"))

    message = told.pop("message")
    assert "only with its member's own credentials" in message
    assert told == {"status": "scope_incompatible", "toolkit": "code", "tools": ["github"]}
    assert loads_of(session) == []


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("list_toolkits", {}),
        ("load_tools", {"arg-toolkit": "clock"}),
        ("unload_tools", {"arg-toolkit": "clock"}),
        ("search_tools", {"arg-query": "time"}),
    ],
)
def test_mr_10_without_a_session_there_is_an_error(
    session: ChatSession, client: Client, name: str, form: dict[str, str]
) -> None:
    client.force_login(session.membership.user)

    client.post(f"/o/acme/tools/{name}/try/", form | {"confirm": "on"})
    run = run_trial(session.membership)

    assert run.is_good
    told = json.loads(run.result)
    assert told["status"] == "error"
    assert "no session to load into" in told["message"]
    assert loads_of(session) == []


def test_a_load_by_hand_is_audited_and_one_by_the_model_is_on_record_with_its_call(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    load_by_hand(session, "ids")
    provider.enqueue(Say(calls=[load("clock")]), Say("Done."))
    turn = run(session)
    unload_by_hand(session, "ids")

    with organisation_scope(session.organisation_id):
        entries = AuditEntry.objects.filter(action__startswith="session.").order_by("pk")
        audited = list(entries.values_list("action", "actor_label"))
        rows = {each.name: each for each in LoadedToolkit.objects.all()}
    assert [action for action, _ in audited] == ["session.load", "session.unload"]
    assert all("bob@example.com" in actor for _, actor in audited)
    assert (rows["clock"].loaded_in_id, rows["clock"].loaded_by_id) == (
        tool_steps_of(turn)[0].pk,
        session.membership_id,
    )
    assert (rows["ids"].loaded_in_id, rows["ids"].unloaded_by_id) == (None, session.membership_id)


# -- When it shows ----------------------------------------------------------------------------------------------------


def test_mr_11_mr_13_a_load_shows_on_the_next_request_not_later_in_the_run(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    provider.enqueue(Say(calls=[load("clock")]), Say(calls=[call("current_time")]), Say("Next time."))

    turn = run(session)

    assert [carried(request) for request in provider.requests] == [AT_FIRST] * 3
    assert len({json.dumps(request["tools"]) for request in provider.requests}) == 1
    refused = answers_in(turn)[1]
    error = refused.pop("error")
    assert "not available before the next message" in error
    assert refused == {"success": False, "tool": "current_time"}
    (told,) = ask(session, provider, call("current_time"))
    assert carried(provider.requests[3]) == [*AT_FIRST, "current_time", "date_arithmetic"]
    assert "error" not in told


def test_mr_12_an_unload_shows_on_the_next_request_too(session: ChatSession, provider: ScriptedOpenAI) -> None:
    ask(session, provider, load("clock"))
    seen = len(provider.requests)
    provider.enqueue(Say(calls=[unload("clock")]), Say(calls=[call("current_time")]), Say("Done."))

    turn = run(session)

    both = [*AT_FIRST, "current_time", "date_arithmetic"]
    assert [carried(request) for request in provider.requests[seen:]] == [both] * 3
    assert tool_steps_of(turn)[1].status == StepStatus.DONE
    assert carried_next(session, provider) == AT_FIRST


def test_mr_15_in_the_same_run_a_load_shows_on_the_next_round_and_never_in_the_same_batch(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    set_mode(session.agent, LoadingMode.SAME_RUN)
    provider.enqueue(
        Say(calls=[load("clock"), call("current_time", id="early")]),
        Say(calls=[call("current_time", id="late")]),
        Say("It is noon."),
    )

    turn = run(session)

    both = [*AT_FIRST, "current_time", "date_arithmetic"]
    assert [carried(request) for request in provider.requests] == [AT_FIRST, both, both]
    assert [(step.tool_name, step.status) for step in tool_steps_of(turn)] == [
        ("load_tools", StepStatus.DONE),
        ("current_time", StepStatus.REFUSED),
        ("current_time", StepStatus.DONE),
    ]
    assert answers_in(turn)[1]["success"] is False
    assert (turn.status, turn.answer) == (TurnStatus.DONE, "It is noon.")


def test_mr_15_in_the_same_run_an_unload_waits_for_the_next_request(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    set_mode(session.agent, LoadingMode.SAME_RUN)
    ask(session, provider, load("clock"))
    seen = len(provider.requests)
    provider.enqueue(Say(calls=[unload("clock")]), Say(calls=[call("current_time")]), Say("Done."))

    turn = run(session)

    assert len({json.dumps(request["tools"]) for request in provider.requests[seen:]}) == 1
    assert tool_steps_of(turn)[1].status == StepStatus.DONE
    assert carried_next(session, provider) == AT_FIRST


@pytest.mark.parametrize("most", [0, 1, 4])
def test_mr_15_after_so_many_continuations_a_note_says_that_the_rest_comes_later(
    session: ChatSession, provider: ScriptedOpenAI, settings: Settings, most: int
) -> None:
    settings.TOOLHUB_MAX_CONTINUATIONS = most
    set_mode(session.agent, LoadingMode.SAME_RUN)
    make_small_kits(session, most + 2)
    with organisation_scope(session.organisation_id):
        Agent.objects.update(max_rounds=20)
    provider.enqueue(*(Say(calls=[load(f"kit_{number + 1}")]) for number in range(most + 2)), Say("Enough."))

    turn = run(session)

    parts = [f"part_{number + 1}" for number in range(most + 2)]
    in_each = [[*AT_FIRST, *parts[: min(number, most)]] for number in range(most + 3)]
    assert [carried(request) for request in provider.requests] == in_each
    when = [told["takes_effect"] for told in answers_in(turn)]
    assert when == ["next_round"] * most + ["next_request"] * 2
    assert "on the next request" in answers_in(turn)[-1]["message"]
    (note,) = steps_of(turn, StepKind.NOTE)
    assert f"loaded {most} times in this turn" in note.text
    assert (turn.status, turn.answer) == (TurnStatus.DONE, "Enough.")
    assert carried_next(session, provider) == [*AT_FIRST, *parts]


def test_mr_15_four_continuations_are_the_default(settings: Settings) -> None:
    assert settings.TOOLHUB_MAX_CONTINUATIONS == 4


def test_mr_15_a_turn_that_waited_for_its_next_round_takes_up_a_load_by_hand(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    set_mode(session.agent, LoadingMode.SAME_RUN)

    def loaded_meanwhile(request: Any) -> Say:
        load_by_hand(session, "ids")
        return Say(calls=[call("calculator", {"expression": "1+1"})])

    provider.enqueue(loaded_meanwhile, Say("Two."))

    run(session)

    assert [carried(request) for request in provider.requests] == [AT_FIRST, [*AT_FIRST, "uuid"]]


# -- State ------------------------------------------------------------------------------------------------------------


def test_mr_16_what_is_loaded_is_a_row_of_the_session_and_its_agent(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    ask(session, provider, load("clock"))

    with organisation_scope(session.organisation_id):
        row = LoadedToolkit.objects.select_related("toolkit").get()
    assert row.toolkit is not None
    assert (row.session_id, row.agent_id, row.toolkit.name, row.source) == (
        session.pk,
        session.agent_id,
        "clock",
        "model",
    )


@EACH_MODE
def test_mr_17_initial_toolkits_are_there_from_the_first_request(
    session: ChatSession, provider: ScriptedOpenAI, mode: LoadingMode
) -> None:
    set_mode(session.agent, mode)
    with organisation_scope(session.organisation_id):
        AgentToolkit.objects.filter(toolkit__name="ids").update(is_initial=True)
        touch_registry(session.organisation_id)

    (told,) = ask(session, provider, call("uuid"))

    first = CONSTANT if mode == LoadingMode.CONSTANT else AT_FIRST
    assert carried(provider.requests[0]) == [*first, "uuid"]
    assert "error" not in told
    assert loads_of(session) == [("ids", "initial", "")]


def test_mr_18_later_requests_read_what_was_loaded_and_put_it_behind(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    ask(session, provider, load("ids"))
    run(session)
    ask(session, provider, load("clock"))

    assert carried_next(session, provider) == [*AT_FIRST, "uuid", "current_time", "date_arithmetic"]
    assert loads_of(session) == [("ids", "model", ""), ("clock", "model", "")]


def fallen(turn: Turn) -> list[tuple[str, str]]:
    """What a turn's events say of loads that hold no longer."""
    return [(load["name"], load["reason"]) for each in payloads(turn, "loads_dropped") for load in each["loads"]]


@EXTENDING
def test_mr_19_a_toolkit_that_was_deleted_falls_with_an_event(
    session: ChatSession, provider: ScriptedOpenAI, mode: LoadingMode
) -> None:
    set_mode(session.agent, mode)
    ask(session, provider, load("clock"))
    with organisation_scope(session.organisation_id):
        Toolkit.objects.filter(name="clock").delete()

    turn = run(session)

    assert carried(provider.requests[-1]) == AT_FIRST
    assert fallen(turn) == [("clock", "gone")]
    assert loads_of(session) == [("clock", "model", "gone")]
    assert fallen(run(session)) == []


@EACH_MODE
def test_mr_19_a_toolkit_that_the_agent_may_not_load_any_more_falls_with_an_event(
    session: ChatSession, provider: ScriptedOpenAI, mode: LoadingMode
) -> None:
    load_by_hand(session, "clock")
    load_by_hand(session, "ids")
    set_mode(session.agent, mode)
    with organisation_scope(session.organisation_id):
        AgentToolkit.objects.filter(toolkit__name="clock").delete()
        touch_registry(session.organisation_id)

    turn = run(session)

    assert carried(provider.requests[-1]) == (CONSTANT if mode == LoadingMode.CONSTANT else [*AT_FIRST, "uuid"])
    assert fallen(turn) == [("clock", "not_allowed")]
    assert loads_of(session) == [("clock", "person", "not_allowed"), ("ids", "person", "")]


@EXTENDING
def test_mr_19_a_toolkit_of_which_the_member_may_use_nothing_any_more_falls_with_an_event(
    session: ChatSession, provider: ScriptedOpenAI, mode: LoadingMode
) -> None:
    set_mode(session.agent, mode)
    ask(session, provider, load("clock"))
    deny(session.membership, "current_time")
    assert fallen(run(session)) == []
    deny(session.membership, "date_arithmetic")

    turn = run(session)

    assert carried(provider.requests[-1]) == AT_FIRST
    assert fallen(turn) == [("clock", "not_permitted")]


def test_mr_19_toolkits_that_an_edit_brought_into_conflict_fall_with_an_event(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    clock = kit_tool(session.organisation, "current_time")
    allow_toolkit(session.agent, make_toolkit(session.organisation, "more", clock))
    ask(session, provider, load("clock"))
    ask(session, provider, load("more"))
    with organisation_scope(session.organisation_id):
        ToolkitTool.objects.filter(toolkit__name="more").update(timeout=3.0)
        touch_registry(session.organisation_id)

    turn = run(session)

    assert carried(provider.requests[-1]) == [*AT_FIRST, "current_time", "date_arithmetic"]
    assert fallen(turn) == [("more", "conflict")]


def test_mr_19_a_toolkit_that_became_initial_later_reaches_an_old_session_and_stays(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    run(session)
    with organisation_scope(session.organisation_id):
        AgentToolkit.objects.filter(toolkit__name="ids").update(is_initial=True)
        touch_registry(session.organisation_id)

    (told,) = ask(session, provider, unload("ids"))

    assert carried(provider.requests[-1]) == [*AT_FIRST, "uuid"]
    assert told["status"] == "sticky"
    assert loads_of(session) == [("ids", "initial", "")]


def test_mr_19_one_that_is_initial_no_longer_stays_loaded_and_can_be_unloaded(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    with organisation_scope(session.organisation_id):
        AgentToolkit.objects.filter(toolkit__name="ids").update(is_initial=True)
        touch_registry(session.organisation_id)
    run(session)
    with organisation_scope(session.organisation_id):
        AgentToolkit.objects.filter(toolkit__name="ids").update(is_initial=False)
        touch_registry(session.organisation_id)

    (told,) = ask(session, provider, unload("ids"))

    assert carried(provider.requests[-1]) == [*AT_FIRST, "uuid"]
    assert told["status"] == "unloaded"
    assert carried_next(session, provider) == AT_FIRST


def test_mr_19_what_falls_is_a_warning_in_the_log(
    session: ChatSession, provider: ScriptedOpenAI, caplog: pytest.LogCaptureFixture
) -> None:
    ask(session, provider, load("clock"))
    with organisation_scope(session.organisation_id):
        AgentToolkit.objects.filter(toolkit__name="clock").delete()
        touch_registry(session.organisation_id)

    for _ in range(2):
        run(session)

    lines = [each.getMessage() for each in caplog.records if each.name == "sessions.selection.loading.writes"]
    (line,) = lines
    assert f"Session {session.pk}: toolkit clock" in line
    assert line.endswith("(not_allowed)")


def test_mr_19_what_is_listed_and_begun_with_follows_the_order_of_the_allowed_list(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    load_by_hand(session, "ids")
    load_by_hand(session, "clock")
    with organisation_scope(session.organisation_id):
        AgentToolkit.objects.filter(toolkit__name="clock").update(position=9)
        touch_registry(session.organisation_id)
        panel = [line.name for line in loads_seen(ChatSession.objects.get(), session.agent).loaded]
    (listed,) = ask(session, provider, call("list_toolkits"))
    with organisation_scope(session.organisation_id):
        AgentToolkit.objects.update(is_initial=True)
        touch_registry(session.organisation_id)
    begun = make_session(session.membership, session.agent)

    assert (panel, [each["name"] for each in listed["toolkits"]]) == (["ids", "clock"], ["ids", "clock"])
    assert carried_next(begun, provider) == [*AT_FIRST, "uuid", "current_time", "date_arithmetic"]


@pytest.mark.parametrize(
    "value",
    [
        [],
        "x",
        7,
        {"AGENT": "x"},
        {"AGENT": [None, "a", {}, 1.5, 10**30, [1]]},
        {"AGENT": {"tool_set": "x", "messages": "y"}},
        {"AGENT": {"tool_set": 10**30, "messages": [None, {}]}},
        {"AGENT": [1, 1, 1]},
    ],
    ids=str,
)
def test_mr_19_malformed_saved_values_are_tolerated(session: ChatSession, provider: ScriptedOpenAI, value: Any) -> None:
    ask(session, provider, load("clock"))
    text = json.dumps(value).replace("AGENT", str(session.agent_id))
    with organisation_scope(session.organisation_id):
        ChatSession.objects.update(tool_order=json.loads(text), last_prompt=json.loads(text))

    turn = run(session)

    assert (turn.status, turn.answer) == (TurnStatus.DONE, "OK.")
    assert sorted(carried(provider.requests[-1])) == sorted([*AT_FIRST, "current_time", "date_arithmetic"])
    assert isinstance(reread(session).tool_order, dict)


# -- Conflicts --------------------------------------------------------------------------------------------------------


def test_mr_22_a_tool_of_the_agents_own_is_looked_at_too(session: ChatSession, provider: ScriptedOpenAI) -> None:
    sums = kit_tool(session.organisation, "calculator")
    overrides: dict[str, dict[str, Any]] = {"calculator": {"timeout": 4.0, "max_result_chars": 50}}
    allow_toolkit(session.agent, make_toolkit(session.organisation, "sums", sums, overrides=overrides))

    (told,) = ask(session, provider, load("sums"))

    assert (told["status"], told["tool"]) == ("conflict", "calculator")
    assert told["existing"] == {"from": "agent", "overrides": {}}
    assert told["candidate"] == {"from": "toolkit sums", "overrides": {"timeout": 4.0, "max_result_chars": 50}}
    assert carried_next(session, provider) == AT_FIRST


def test_mr_23_when_the_one_is_unloaded_the_other_can_be_loaded(session: ChatSession, provider: ScriptedOpenAI) -> None:
    make_fast_and_slow(session)
    ask(session, provider, load("fast"))
    ask(session, provider, unload("fast"))

    (told,) = ask(session, provider, load("slow"))

    assert told["status"] == "loaded"
    assert loads_of(session) == [("fast", "model", "unloaded"), ("slow", "model", "")]


def test_mr_24_an_identical_duplicate_is_allowed_and_the_tool_that_is_there_is_kept(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    organisation = session.organisation
    both = make_toolkit(organisation, "both", kit_tool(organisation, "calculator"), kit_tool(organisation, "uuid"))
    allow_toolkit(session.agent, both)
    ask(session, provider, load("ids"))
    before = carried_next(session, provider)

    (told,) = ask(session, provider, load("both"))

    assert (told["status"], told["tools"]) == ("loaded", ["calculator", "uuid"])
    assert carried_next(session, provider) == before == [*AT_FIRST, "uuid"]


def test_mr_24_what_two_toolkits_hold_stays_when_one_of_them_is_unloaded(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    allow_toolkit(session.agent, make_toolkit(session.organisation, "more", kit_tool(session.organisation, "uuid")))
    ask(session, provider, load("ids"), load("more", "two"))
    ask(session, provider, unload("ids"))

    assert carried_next(session, provider) == [*AT_FIRST, "uuid"]


def test_a_toolkits_word_on_a_tool_counts_when_it_is_run(session: ChatSession, provider: ScriptedOpenAI) -> None:
    ids = kit_tool(session.organisation, "uuid")
    overrides: dict[str, dict[str, Any]] = {"uuid": {"max_result_chars": 300}}
    allow_toolkit(session.agent, make_toolkit(session.organisation, "brief", ids, overrides=overrides))
    ask(session, provider, load("brief"))
    provider.enqueue(Say(calls=[call("uuid", {"count": 20})]), Say("Done."))

    (step,) = tool_steps_of(run(session))

    assert len(step.result) > 300
    assert len(step.result_sent) <= 300


# -- Whose loads ------------------------------------------------------------------------------------------------------


def ask_agent(session: ChatSession, agent: Agent, provider: ScriptedOpenAI) -> list[str]:
    """Names of the tools that a turn of another agent of the session begins with."""
    seen = len(provider.requests)
    with organisation_scope(session.organisation_id):
        turn = accepting.accept(session, "You?", member=session.membership, agent=agent).turn
    work(turn)
    return carried(provider.requests[seen])


def make_colleague(session: ChatSession) -> Agent:
    """Another agent, who may load `clock` too."""
    colleague = make_agent(session.organisation, slug="colleague", starts_with_core=False)
    with organisation_scope(session.organisation_id):
        allow_toolkit(colleague, Toolkit.objects.get(name="clock"))
    return colleague


def test_mr_25_what_one_agent_loads_is_not_there_for_another_of_the_session(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    colleague = make_colleague(session)
    ask(session, provider, load("clock"), load("ids", "two"))

    assert ask_agent(session, colleague, provider) == AT_FIRST[1:]


def test_mr_25_agents_of_a_session_that_shares_its_loads_have_them_as_far_as_they_may(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    colleague = make_colleague(session)
    with organisation_scope(session.organisation_id):
        ChatSession.objects.update(shares_loads=True)
    ask(session, provider, load("clock"), load("ids", "two"))

    assert ask_agent(session, colleague, provider) == [*AT_FIRST[1:], "current_time", "date_arithmetic"]
    assert set(carried_next(session, provider)) == {*AT_FIRST, "current_time", "date_arithmetic", "uuid"}
    assert [end for _, _, end in loads_of(session)] == ["", ""]


def test_mr_26_loading_in_one_session_changes_no_other_of_the_member_or_of_anybody(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    other = make_session(session.membership, session.agent)
    dora = make_member(session.organisation, "dora")
    make_role(session.organisation, dora)
    doras = make_session(dora, session.agent)
    ask(session, provider, load("clock"))

    assert carried_next(other, provider) == AT_FIRST
    assert carried_next(doras, provider) == AT_FIRST
    assert (loads_of(other), loads_of(doras)) == ([], [])


# -- Search and deferred tools ----------------------------------------------------------------------------------------


def test_mr_39_search_tools_ranks_what_is_not_at_hand(session: ChatSession, provider: ScriptedOpenAI) -> None:
    exact, words, nothing = ask(
        session,
        provider,
        call("search_tools", {"query": "current_time"}, id="a"),
        call("search_tools", {"query": "clock", "max_results": 1}, id="b"),
        call("search_tools", {"query": "calculator"}, id="c"),
    )

    assert exact["tools"][0] == {
        "name": "current_time",
        "description": kit_description(session, "current_time"),
        "score": 100,
        "toolkit": "clock",
    }
    assert [(each["name"], each["score"]) for each in words["tools"]] == [("current_time", 60)]
    assert nothing == {"tools": []}


def kit_description(session: ChatSession, name: str) -> str:
    version = kit_tool(session.organisation, name).current_version
    assert version is not None
    return version.description


@pytest.mark.parametrize("number", [0, 21])
def test_mr_39_a_search_asks_for_one_to_twenty_results(
    session: ChatSession, provider: ScriptedOpenAI, number: int
) -> None:
    (told,) = ask(session, provider, call("search_tools", {"query": "time", "max_results": number}))

    assert told["success"] is False
    assert "max_results" in told["error"]


def test_mr_39_what_was_loaded_in_this_turn_and_is_not_sent_yet_is_found_with_when_it_comes(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    search = call("search_tools", {"query": "current_time"}, id="search")
    provider.enqueue(Say(calls=[load("clock")]), Say(calls=[search]), Say("Done."))

    first = answers_in(run(session))[1]["tools"][0]
    (later,) = ask(session, provider, search)

    assert (first["name"], first["score"], first["loaded"], first["takes_effect"]) == (
        "current_time",
        100,
        True,
        "next_request",
    )
    assert first["message"].startswith("It is loaded, and will be available")
    assert later == {"tools": []}, "it is at hand"


def test_mr_39_what_is_loaded_and_falls_over_the_limit_is_not_promised(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    with organisation_scope(session.organisation_id):
        LanguageModel.objects.update(tool_limit=len(AT_FIRST))
    search = call("search_tools", {"query": "current_time"}, id="search")
    provider.enqueue(Say(calls=[load("clock")]), Say(calls=[search]), Say("Done."))

    assert answers_in(run(session))[1] == {"tools": []}


def test_mr_39_a_search_gives_five_where_nothing_is_said(session: ChatSession, provider: ScriptedOpenAI) -> None:
    make_small_kits(session, 7)

    (told,) = ask(session, provider, call("search_tools", {"query": "part"}))

    names = {each["name"] for each in told["tools"]}
    assert (len(told["tools"]), len(names), names <= {f"part_{number}" for number in range(1, 8)}) == (5, 5, True)


def test_mr_39_a_deferred_tool_is_found_loaded_and_unloaded_by_its_own_name(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    give_tool(session.agent, kit_tool(session.organisation, "unit_convert"), is_deferred=True)
    before = carried_next(session, provider)

    (found,) = ask(session, provider, call("search_tools", {"query": "convert"}))
    (told,) = ask(session, provider, load("unit_convert"))
    with_it = carried_next(session, provider)
    ask(session, provider, unload("unit_convert"))

    assert [each["name"] for each in found["tools"]] == ["unit_convert"]
    assert (told["status"], told["tools"]) == ("loaded", ["unit_convert"])
    assert (before, with_it, carried_next(session, provider)) == (AT_FIRST, [*AT_FIRST, "unit_convert"], AT_FIRST)


def test_mr_39_deferred_tools_alone_bring_the_tools_that_load(bob: Membership, provider: ScriptedOpenAI) -> None:
    session = make_loading_session(bob, provider.url)
    make_role(bob.organisation, bob)
    give_tool(session.agent, kit_tool(bob.organisation, "uuid"), is_deferred=True)
    with organisation_scope(bob.organisation):
        AgentToolkit.objects.all().delete()
        touch_registry(session.organisation_id)

    assert carried_next(session, provider) == AT_FIRST


def test_mr_39_a_deferred_tool_that_is_sent_from_the_start_again_ends_its_load(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    own = give_tool(session.agent, kit_tool(session.organisation, "unit_convert"), is_deferred=True)
    ask(session, provider, load("unit_convert"))
    with organisation_scope(session.organisation_id):
        own.is_deferred = False
        own.save()
        touch_registry(session.organisation_id)

    turn = run(session)

    assert sorted(carried(provider.requests[-1])) == sorted([*AT_FIRST, "unit_convert"])
    assert fallen(turn) == [("unit_convert", "not_allowed")]


# -- Constant tools ---------------------------------------------------------------------------------------------------


def test_mr_39_where_tools_never_change_a_tool_is_found_and_called_under_its_own_rights_and_record(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    set_mode(session.agent, LoadingMode.CONSTANT)
    convert = {"date": "2026-11-22", "days": 3}
    provider.enqueue(
        Say(calls=[call("search_tools", {"query": "date arithmetic"})]),
        Say(calls=[call("call_tool", {"name": "date_arithmetic", "arguments": convert})]),
        Say("Wednesday."),
    )

    turn = run(session)

    (found, told) = answers_in(turn)
    assert found["tools"][0]["name"] == "date_arithmetic"
    assert found["tools"][0]["call_with"] == "call_tool"
    assert "date" in found["tools"][0]["parameters"]["properties"]
    assert "2026-11-25" in json.dumps(told)
    step = tool_steps_of(turn)[1]
    assert (step.tool_name, step.called_through, step.status) == ("date_arithmetic", "call_tool", StepStatus.DONE)
    assert [carried(request) for request in provider.requests] == [CONSTANT] * 3


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("unit_convert", "Unknown or inactive tool: unit_convert"),
        ("nothing", "Unknown or inactive tool: nothing"),
        ("call_tool", "Unknown or inactive tool: call_tool"),
        ("uuid", "Access denied: denied by a grant of this member."),
    ],
)
def test_where_tools_never_change_call_tool_reaches_no_more_than_what_can_be_had(
    session: ChatSession, provider: ScriptedOpenAI, name: str, told: str
) -> None:
    set_mode(session.agent, LoadingMode.CONSTANT)
    deny(session.membership, "uuid")

    (answer,) = ask(session, provider, call("call_tool", {"name": name, "arguments": {}}))

    assert (answer["success"], answer["error"]) == (False, told)


def test_where_tools_change_call_tool_is_not_there(session: ChatSession, provider: ScriptedOpenAI) -> None:
    (answer,) = ask(session, provider, call("call_tool", {"name": "uuid", "arguments": {}}))

    assert answer == {"success": False, "error": "Unknown or inactive tool: call_tool"}


def test_where_tools_never_change_load_tools_is_not_there(session: ChatSession, provider: ScriptedOpenAI) -> None:
    set_mode(session.agent, LoadingMode.CONSTANT)

    (answer,) = ask(session, provider, load("clock"))

    assert answer == {"success": False, "error": "Unknown or inactive tool: load_tools"}
    assert loads_of(session) == []


# -- Instructions -----------------------------------------------------------------------------------------------------


@EXTENDING
def test_mr_41_instructions_are_told_only_while_their_tool_is_at_hand(
    session: ChatSession, provider: ScriptedOpenAI, alice: Membership, mode: LoadingMode
) -> None:
    set_mode(session.agent, mode)
    with organisation_scope(session.organisation_id):
        set_instructions(kit_tool(session.organisation, "current_time"), "Say the zone.", actor=alice)
    ask(session, provider, load("clock"))
    ask(session, provider, unload("clock"))
    run(session)

    told = ["Say the zone." in prompt_of(request) for request in provider.requests]
    same_run = mode == LoadingMode.SAME_RUN
    # Loaded in the first turn, unloaded in the second: there for all of the second, gone in the third.
    assert told == [False, same_run, True, True, False]


def test_mr_41_where_tools_never_change_instructions_come_with_the_tool_that_is_found(
    session: ChatSession, provider: ScriptedOpenAI, alice: Membership
) -> None:
    set_mode(session.agent, LoadingMode.CONSTANT)
    with organisation_scope(session.organisation_id):
        set_instructions(kit_tool(session.organisation, "current_time"), "Say the zone.", actor=alice)

    (told,) = ask(session, provider, call("search_tools", {"query": "current_time"}))

    assert told["tools"][0]["instructions"] == "Say the zone."
    assert [prompt_of(request) for request in provider.requests] == ["", ""]


def test_mr_41_instructions_of_initial_tools_stand_behind_the_prompt_in_every_mode(
    session: ChatSession, provider: ScriptedOpenAI, alice: Membership
) -> None:
    with organisation_scope(session.organisation_id):
        set_instructions(kit_tool(session.organisation, "uuid"), "Never guess one.", actor=alice)
        AgentToolkit.objects.filter(toolkit__name="ids").update(is_initial=True)
        touch_registry(session.organisation_id)
        Agent.objects.update(prompt="Be brief.")

    for mode in LoadingMode:
        set_mode(session.agent, mode)
        run(session)

    assert {prompt_of(request) for request in provider.requests} == {"Be brief.\n\nuuid: Never guess one."}
