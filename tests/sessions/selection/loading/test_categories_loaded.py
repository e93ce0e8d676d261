"""Whole categories loaded by those with the right, and what a session has at hand: the lines ZK-01 to ZK-46."""

from __future__ import annotations

import json
from typing import Any

import pytest

from capabilities.catalogue.tools.recipients.writes import NO_AGENT
from capabilities.common.registry_version import touch_registry
from capabilities.models import (
    Agent,
    Category,
    Effect,
    Grant,
    LanguageModel,
    LoadingMode,
    Provider,
    RoleMembership,
    RoleMode,
    RoleRule,
    Tool,
)
from sessions.models import ChatSession, StepStatus, TurnStatus
from sessions.selection.active_tools import (
    compute_definitions,
    get_active_tool_definitions,
    get_active_tool_names,
    get_active_tool_permissions,
)
from sessions.selection.loading.loadable import LoadTarget
from sessions.selection.loading.writes import NOTHING_TO_LOAD, By, load_category, unload
from tests.cast import (
    allow_toolkit,
    make_agent,
    make_category,
    make_member,
    make_meta_tools,
    make_role,
    make_session,
    make_tool,
    make_toolkit,
)
from tests.scripted_openai import Json, Say, ScriptedOpenAI, call
from tests.sessions.loads import answers_in, ask, carried, carried_next, loads_of, payloads, set_mode
from tests.sessions.run_turns import events_of, run, steps_of, tool_steps_of, verdicts_of
from toolhub.tenants.models import Access, AdminRight, Membership, Organisation, Right
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = [pytest.mark.long, pytest.mark.django_db(transaction=True)]

EACH_MODE = pytest.mark.parametrize("mode", list(LoadingMode))
#: What an agent with the core, and with whole categories to load, begins with.
AT_FIRST = ["calculator", "list_toolkits", "load_tool_category", "unload_tools"]
CONSTANT = ["calculator", "list_toolkits", "search_tools", "call_tool", "load_tool_category", "unload_tools"]
GRAPH = ["kg_add_entity", "kg_search"]
PREDICTIONS = ["series_list"]


@pytest.fixture
def agent(acme: Organisation, provider: ScriptedOpenAI) -> Agent:
    """With the core: `calculator`. The organisation has three categories beyond it."""
    make_meta_tools(acme)
    make_tool(acme, "calculator")
    for category, names in (
        ("knowledge_graph", GRAPH),
        ("predictions", PREDICTIONS),
        ("codebase", ["code_outline", "code_search"]),
    ):
        home = make_category(acme, category, is_core=False)
        for name in names:
            make_tool(acme, name, category=home)
    return make_agent(acme, provider.url)


@pytest.fixture
def alices(alice: Membership, agent: Agent) -> ChatSession:
    """A session of the administrator, who may use everything."""
    make_role(alice.organisation, alice)
    return make_session(alice, agent)


@pytest.fixture
def bobs(bob: Membership, agent: Agent) -> ChatSession:
    """A session of a member, who may use everything and load nothing."""
    make_role(bob.organisation, bob)
    return make_session(bob, agent)


def load(category: Any, id: str = "load") -> Json:
    return call("load_tool_category", {"category": category}, id=id)


def give_right(member: Membership, category: str = "") -> None:
    with organisation_scope(member.organisation):
        AdminRight.objects.create(
            organisation=member.organisation, membership=member, right=Right.LOAD_CATEGORIES, category=category
        )


def preview(session: ChatSession) -> ChatSession:
    """The session as a reader gets it."""
    return ChatSession.objects.select_related("agent__model__provider").get(pk=session.pk)


# -- The limit --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("own", "limit"), [(None, 128), (40, 40)], ids=["provider", "model"])
def test_zk_01_zk_05_a_request_over_the_limit_is_trimmed_with_a_verdict_and_an_event(
    alices: ChatSession, provider: ScriptedOpenAI, own: int | None, limit: int
) -> None:
    many = make_category(alices.organisation, "many")
    for number in range(130):
        make_tool(alices.organisation, f"tool_{number:03}", category=many)
    with organisation_scope(alices.organisation):
        LanguageModel.objects.update(tool_limit=own)

    turn = run(alices)

    assert (turn.status, turn.answer) == (TurnStatus.DONE, "OK.")
    assert len(provider.requests[0]["tools"]) == limit
    (told,) = payloads(turn, "tools_over_limit")
    (step,) = steps_of(turn)
    over = [each for each in verdicts_of(step) if each["stage"] == "limit"]
    assert told == {"count": len(over), "tools": [each["tool"] for each in over][:20]}
    assert len(over) == 131 + len(AT_FIRST[1:]) - limit
    assert {each["reason"] for each in over} == {f"over the limit of {limit} tools"}


def test_zk_05_the_limit_is_a_setting_of_each_provider(alices: ChatSession, provider: ScriptedOpenAI) -> None:
    with organisation_scope(alices.organisation):
        Provider.objects.update(tool_limit=3)

    turn = run(alices)

    assert carried(provider.requests[0]) == AT_FIRST[1:]
    assert payloads(turn, "tools_over_limit") == [{"count": 1, "tools": AT_FIRST[:1]}]


def test_zk_01_within_the_limit_nothing_is_said_of_it(alices: ChatSession) -> None:
    assert "tools_over_limit" not in events_of(run(alices))


def test_zk_02_zk_03_a_session_starts_with_the_core_and_more_comes_on_request(
    alices: ChatSession, provider: ScriptedOpenAI
) -> None:
    assert carried_next(alices, provider) == AT_FIRST

    ask(alices, provider, load("knowledge_graph"), load("predictions", "two"))

    assert sorted(carried_next(alices, provider)) == sorted([*AT_FIRST, *GRAPH, *PREDICTIONS])


def test_zk_04_every_category_is_at_hand_or_listed_as_one_to_load(
    alices: ChatSession, provider: ScriptedOpenAI
) -> None:
    (told,) = ask(alices, provider, call("list_toolkits"))

    with organisation_scope(alices.organisation):
        every = set(Category.objects.values_list("name", flat=True))
    listed = [each["name"] for each in told["categories"]]
    assert listed == ["codebase", "knowledge_graph", "predictions"]
    assert every == {*listed, "utility", "dynamic"}


# -- The active set ---------------------------------------------------------------------------------------------------


def test_zk_06_zk_10_definitions_permissions_and_names_come_from_one_computation(alices: ChatSession) -> None:
    with organisation_scope(alices.organisation):
        found = compute_definitions(preview(alices))

    assert found.names == AT_FIRST
    assert [each["function"]["name"] for each in found.defs] == AT_FIRST
    assert list(found.perms) == AT_FIRST


def test_zk_11_definitions_are_in_openai_form_and_those_that_are_sent(
    alices: ChatSession, provider: ScriptedOpenAI
) -> None:
    with organisation_scope(alices.organisation):
        definitions = get_active_tool_definitions(preview(alices))

    run(alices)
    assert definitions == provider.requests[0]["tools"]
    assert {each["type"] for each in definitions} == {"function"}
    assert all(set(each["function"]) >= {"name", "description", "parameters"} for each in definitions)


def test_zk_12_permissions_are_asked_when_the_predicate_is(alices: ChatSession, alice: Membership) -> None:
    with organisation_scope(alices.organisation):
        permissions = get_active_tool_permissions(preview(alices), alice)
        before = permissions["calculator"]()
        RoleMembership.objects.all().delete()

        assert (before, permissions["calculator"]()) == (True, False)


def test_zk_13_names_are_a_list(alices: ChatSession) -> None:
    with organisation_scope(alices.organisation):
        assert get_active_tool_names(preview(alices)) == AT_FIRST


def test_zk_14_zk_33_each_getter_sees_a_load_at_its_next_call(alices: ChatSession, provider: ScriptedOpenAI) -> None:
    with organisation_scope(alices.organisation):
        before = preview(alices)
    ask(alices, provider, load("predictions"))

    with organisation_scope(alices.organisation):
        assert get_active_tool_names(before) == [*AT_FIRST, "series_list"]
        assert len(get_active_tool_definitions(before)) == len(AT_FIRST) + 1
        assert get_active_tool_permissions(before)["series_list"]() is True


def test_zk_15_tools_of_categories_that_are_not_active_are_not_looked_at(alices: ChatSession) -> None:
    with organisation_scope(alices.organisation):
        looked_at = {each.tool for each in compute_definitions(preview(alices)).selection.verdicts}

    assert looked_at == set(AT_FIRST)


def test_zk_16_loading_a_category_twice_is_harmless(alices: ChatSession, provider: ScriptedOpenAI) -> None:
    ask(alices, provider, load("predictions"))

    (told,) = ask(alices, provider, load("predictions"))

    assert (told["success"], told["loaded_category"]) == (True, "predictions")
    assert loads_of(alices) == [("predictions", "model", "")]
    assert carried_next(alices, provider) == [*AT_FIRST, "series_list"]


@pytest.mark.parametrize("name", ["utility", "dynamic"])
def test_zk_16_zk_24_what_is_always_there_needs_no_load_and_stays(
    alices: ChatSession, provider: ScriptedOpenAI, name: str
) -> None:
    loaded, unloaded = ask(alices, provider, load(name), call("unload_tools", {"toolkit": name}))

    assert (loaded["success"], loaded["message"]) == (True, f"{name} is there from the start.")
    assert unloaded["status"] == "sticky"
    assert (loads_of(alices), carried_next(alices, provider)) == ([], AT_FIRST)


def test_zk_24_of_an_agent_that_has_nothing_to_load_nobody_says_that_dynamic_is_there(alices: ChatSession) -> None:
    with organisation_scope(alices.organisation):
        bare = make_agent(alices.organisation, slug="bare", starts_with_core=False)
        place, by = LoadTarget(make_session(alices.membership, bare), bare), By(alices.membership)

        loaded, unloaded = load_category(place, "dynamic", by=by), unload(place, "dynamic", by=by)

    assert (loaded.status, unloaded.status) == ("not_allowed", "not_loaded")
    assert loaded.message == f"dynamic is not loaded: {NOTHING_TO_LOAD}"


@pytest.mark.parametrize(
    "getter",
    [compute_definitions, get_active_tool_definitions, get_active_tool_permissions, get_active_tool_names],
)
def test_zk_33_a_sessions_tools_are_asked_for_its_own_member_only(
    alices: ChatSession, bob: Membership, getter: Any
) -> None:
    with organisation_scope(alices.organisation), pytest.raises(ValueError, match="its own member"):
        getter(preview(alices), bob)


def test_the_active_tools_take_five_queries_and_two_again(alices: ChatSession, django_assert_num_queries: Any) -> None:
    with organisation_scope(alices.organisation):
        session = preview(alices)

        with django_assert_num_queries(5):
            compute_definitions(session)
        with django_assert_num_queries(2):
            compute_definitions(session)


# -- load_tool_category -----------------------------------------------------------------------------------------------


def test_zk_17_zk_18_zk_19_there_is_one_tool_that_takes_a_categorys_name(
    alices: ChatSession, provider: ScriptedOpenAI
) -> None:
    run(alices)

    (function,) = (
        each["function"] for each in provider.requests[0]["tools"] if each["function"]["name"] == "load_tool_category"
    )
    assert function["description"].startswith("Load a whole category")
    assert list(function["parameters"]["properties"]) == ["category"]
    assert function["parameters"]["properties"]["category"]["type"] == "string"
    assert function["parameters"]["required"] == ["category"]


@pytest.mark.parametrize("name", ["", "   "], ids=["empty", "blank"])
def test_zk_19_an_empty_name_is_a_failure_that_asks_for_one(
    alices: ChatSession, provider: ScriptedOpenAI, name: str
) -> None:
    assert ask(alices, provider, load(name)) == [{"success": False, "error": "A category name is required."}]


@pytest.mark.parametrize(
    "arguments",
    [{"category": 5}, {"category": None}, {"category": ["predictions"]}, {}, {"name": "x"}],
    ids=["number", "null", "list", "none", "other"],
)
def test_zk_19_a_name_that_is_no_text_is_a_failure_that_asks_for_one(
    alices: ChatSession, provider: ScriptedOpenAI, arguments: Any
) -> None:
    (told,) = ask(alices, provider, call("load_tool_category", arguments))

    assert (told["success"], told["error"]) == (False, "A category name is required.")
    assert loads_of(alices) == []


def test_mr_39_zk_04_a_search_finds_what_a_category_holds_that_may_be_loaded(
    alices: ChatSession, bobs: ChatSession, provider: ScriptedOpenAI
) -> None:
    home = make_category(alices.organisation, "kit", is_core=False)
    allow_toolkit(
        alices.agent, make_toolkit(alices.organisation, "ids", make_tool(alices.organisation, "uuid", category=home))
    )
    (found,) = ask(alices, provider, call("search_tools", {"query": "outline"}))
    (nothing,) = ask(bobs, provider, call("search_tools", {"query": "outline"}))

    (hit,) = found["tools"]
    assert (hit["name"], hit["score"]) == ("code_outline", 80)
    assert (hit["category"], hit["load_with"]) == ("codebase", "load_tool_category")
    assert nothing == {"tools": []}, "Bob may not load the category"


def test_zk_20_zk_22_the_result_is_a_json_string_that_says_success(
    alices: ChatSession, provider: ScriptedOpenAI
) -> None:
    provider.enqueue(Say(calls=[load("  knowledge_graph ")]), Say("Done."))

    (step,) = tool_steps_of(run(alices))

    told = json.loads(step.result_sent)
    message = told.pop("message")
    assert message.startswith("Category 'knowledge_graph' will be")
    assert told == {
        "success": True,
        "loaded_category": "knowledge_graph",
        "tools": GRAPH,
        "takes_effect": "next_request",
    }
    assert provider.requests[1]["messages"][-1] == {
        "role": "tool",
        "tool_call_id": "load",
        "content": step.result_sent,
    }
    assert carried_next(alices, provider) == [*AT_FIRST, *GRAPH]


def test_zk_21_a_category_that_does_not_exist_is_a_failure(
    alices: ChatSession, provider: ScriptedOpenAI, globex: Organisation
) -> None:
    make_tool(globex, "secret", category=make_category(globex, "vault", is_core=False))

    told = ask(alices, provider, load(" nothing "), load("vault", "two"))

    assert told == [
        {"success": False, "error": "Unknown tool category: nothing"},
        {"success": False, "error": "Unknown tool category: vault"},
    ]
    assert loads_of(alices) == []


def test_zk_22_a_category_of_which_the_member_may_use_nothing_is_a_failure(
    alices: ChatSession, provider: ScriptedOpenAI
) -> None:
    with organisation_scope(alices.organisation):
        home = Category.objects.get(name="predictions")
        Grant.objects.create(
            organisation=alices.organisation, membership=alices.membership, category=home, effect=Effect.DENY
        )

    (told,) = ask(alices, provider, load("predictions"))

    assert told["success"] is False
    assert "none of the tools of predictions" in told["error"]
    assert loads_of(alices) == []


def test_zk_23_zk_32_without_the_right_the_tool_is_not_sent(bobs: ChatSession, provider: ScriptedOpenAI) -> None:
    assert carried_next(bobs, provider) == ["calculator"]


@EACH_MODE
def test_zk_23_zk_30_zk_40_without_the_right_a_call_all_the_same_is_denied(
    bobs: ChatSession, provider: ScriptedOpenAI, mode: LoadingMode
) -> None:
    set_mode(bobs.agent, mode)

    (told,) = ask(bobs, provider, load("knowledge_graph"))

    error = told.pop("error")
    assert error.startswith("Access denied: ")
    assert "load_categories" in error
    assert told == {"success": False, "denied_tool": "load_tool_category"}
    assert loads_of(bobs) == []


def test_zk_23_the_right_is_asked_again_when_the_call_is_made(
    bobs: ChatSession, bob: Membership, provider: ScriptedOpenAI
) -> None:
    give_right(bob)

    def taken_away(request: Json) -> Say:
        with organisation_scope(bob.organisation):
            AdminRight.objects.all().delete()
        return Say(calls=[load("knowledge_graph")])

    provider.enqueue(taken_away, Say("No."))
    (told,) = answers_in(run(bobs))

    assert "load_tool_category" in carried(provider.requests[0])
    assert (told["success"], told["denied_tool"]) == (False, "load_tool_category")
    assert loads_of(bobs) == []


@pytest.mark.parametrize("access", [Access.OPERATOR, Access.ADMIN])
def test_zk_23_operators_and_administrators_may_load_any(
    acme: Organisation, agent: Agent, provider: ScriptedOpenAI, access: Access
) -> None:
    dora = make_member(acme, "dora", access)
    make_role(acme, dora)
    doras = make_session(dora, agent)

    (told,) = ask(doras, provider, load("codebase"))

    assert told["success"] is True


def test_zk_23_a_right_for_one_category_opens_that_one_only(
    bobs: ChatSession, bob: Membership, provider: ScriptedOpenAI
) -> None:
    give_right(bob, "predictions")

    listed, loaded, refused = ask(
        bobs, provider, call("list_toolkits"), load("predictions"), load("knowledge_graph", "two")
    )

    assert [each["name"] for each in listed["categories"]] == ["predictions"]
    assert loaded["success"] is True
    error = refused.pop("error")
    assert error.startswith("Access denied: ")
    assert "load_categories" in error
    assert error.endswith("knowledge_graph.")
    assert refused == {"success": False, "denied_tool": "load_tool_category"}
    assert loads_of(bobs) == [("predictions", "model", "")]


def test_zk_23_a_category_falls_when_whoever_loaded_it_has_lost_the_right(
    bobs: ChatSession, bob: Membership, provider: ScriptedOpenAI
) -> None:
    give_right(bob, "predictions")
    ask(bobs, provider, load("predictions"))
    with organisation_scope(bob.organisation):
        AdminRight.objects.all().delete()

    turn = run(bobs)

    assert carried(provider.requests[-1]) == ["calculator"]
    assert payloads(turn, "loads_dropped") == [{"loads": [{"name": "predictions", "reason": "right_gone"}]}]
    assert loads_of(bobs) == [("predictions", "model", "right_gone")]


def test_zk_24_the_tool_lives_in_the_category_dynamic_which_is_there_for_any_agent_with_the_core(
    alices: ChatSession,
) -> None:
    with organisation_scope(alices.organisation):
        tool = Tool.objects.select_related("category").get(name="load_tool_category")
        names = get_active_tool_names(preview(alices))

    assert (tool.category.name, tool.category.is_core) == ("dynamic", True)
    assert "load_tool_category" in names


@pytest.mark.parametrize(
    ("name", "tool"),
    [("knowledge_graph", "kg_search"), ("predictions", "series_list"), ("codebase", "code_search")],
)
def test_zk_25_knowledge_graph_predictions_and_codebase_can_be_loaded(
    alices: ChatSession, provider: ScriptedOpenAI, name: str, tool: str
) -> None:
    (told,) = ask(alices, provider, load(name))

    assert (told["success"], told["loaded_category"]) == (True, name)
    assert tool in carried_next(alices, provider)


def test_zk_26_in_the_same_run_the_list_grows_after_a_load(alices: ChatSession, provider: ScriptedOpenAI) -> None:
    set_mode(alices.agent, LoadingMode.SAME_RUN)
    provider.enqueue(Say(calls=[load("predictions")]), Say(calls=[call("series_list")]), Say("None."))

    turn = run(alices)

    grown = [*AT_FIRST, "series_list"]
    assert [carried(request) for request in provider.requests] == [AT_FIRST, grown, grown]
    assert [step.status for step in tool_steps_of(turn)] == [StepStatus.DONE] * 2


# -- The dispatcher ---------------------------------------------------------------------------------------------------


def test_zk_27_zk_28_a_tool_that_was_sent_is_refused_when_its_permission_went_meanwhile(
    alices: ChatSession, provider: ScriptedOpenAI
) -> None:
    ask(alices, provider, load("predictions"))

    def forbidden(request: Json) -> Say:
        with organisation_scope(alices.organisation):
            RoleMembership.objects.all().delete()
        return Say(calls=[call("series_list")])

    provider.enqueue(forbidden, Say("No."))
    (told,) = answers_in(run(alices))

    assert told == {
        "success": False,
        "error": "Access denied: this member has no role.",
        "denied_tool": "series_list",
    }


def test_zk_29_a_tool_of_a_category_that_is_not_active_is_refused(bobs: ChatSession, provider: ScriptedOpenAI) -> None:
    assert ask(bobs, provider, call("kg_search", {"query": "x"})) == [
        {"success": False, "error": "Unknown or inactive tool: kg_search", "next_step": NO_AGENT}
    ]


def test_zk_29_who_may_load_the_category_is_told_how(alices: ChatSession, provider: ScriptedOpenAI) -> None:
    (told,) = ask(alices, provider, call("kg_search", {"query": "x"}))

    assert (told["success"], told["category"]) == (False, "knowledge_graph")
    assert told["error"].startswith("kg_search is not loaded.")
    assert "load_tool_category" in told["error"]


def test_zk_29_a_meta_tool_that_is_not_sent_is_no_matter_of_loading(
    alices: ChatSession, provider: ScriptedOpenAI
) -> None:
    assert ask(alices, provider, call("call_tool", {"name": "calculator"})) == [
        {"success": False, "error": "Unknown or inactive tool: call_tool"}
    ]


def test_zk_30_a_tool_that_the_member_may_not_use_is_denied_by_name(
    bobs: ChatSession, bob: Membership, provider: ScriptedOpenAI
) -> None:
    with organisation_scope(bob.organisation):
        tool = Tool.objects.get(name="calculator")
        Grant.objects.create(organisation=bob.organisation, membership=bob, tool=tool, effect=Effect.DENY)

    (told,) = ask(bobs, provider, call("calculator", {"expression": "1+1"}))

    error = told.pop("error")
    assert error.startswith("Access denied: denied by a grant")
    assert told == {"success": False, "denied_tool": "calculator"}


def test_zk_31_one_who_has_left_has_no_permissions(alices: ChatSession, alice: Membership) -> None:
    with organisation_scope(alices.organisation):
        permissions = get_active_tool_permissions(preview(alices))
        alice.user.is_active = False
        alice.user.save()

        assert get_active_tool_names(preview(alices)) == []
        assert {asked() for asked in permissions.values()} == {False}


# -- The document's own tests, in each mode ---------------------------------------------------------------------------


@EACH_MODE
def test_zk_38_with_defaults_what_is_core_is_there_and_works(
    alices: ChatSession, provider: ScriptedOpenAI, mode: LoadingMode
) -> None:
    set_mode(alices.agent, mode)

    (told,) = ask(alices, provider, call("calculator", {"expression": "6*7"}))

    assert told["result"] == 42
    assert carried(provider.requests[0]) == (CONSTANT if mode == LoadingMode.CONSTANT else AT_FIRST)


@EACH_MODE
@pytest.mark.parametrize(
    ("category", "names", "tool", "arguments"),
    [
        ("knowledge_graph", GRAPH, "kg_search", {"query": "Ada"}),
        ("predictions", PREDICTIONS, "series_list", {}),
    ],
    ids=["knowledge_graph", "predictions"],
)
def test_zk_39_an_administrator_loads_a_category_and_its_tools_can_be_called(
    alices: ChatSession,
    provider: ScriptedOpenAI,
    mode: LoadingMode,
    category: str,
    names: list[str],
    tool: str,
    arguments: Json,
) -> None:
    set_mode(alices.agent, mode)
    constant = mode == LoadingMode.CONSTANT
    (told,) = ask(alices, provider, load(category))

    wanted = call("call_tool", {"name": tool, "arguments": arguments}) if constant else call(tool, arguments)
    provider.enqueue(Say(calls=[wanted]), Say("Done."))
    turn = run(alices)

    assert told["success"] is True
    assert carried(provider.requests[-1]) == (CONSTANT if constant else [*AT_FIRST, *names])
    (step,) = tool_steps_of(turn)
    assert (step.tool_name, step.status) == (tool, StepStatus.DONE)


def test_zk_39_a_search_says_how_to_load_what_is_not_loaded_and_how_to_call_what_is(
    alices: ChatSession, provider: ScriptedOpenAI
) -> None:
    set_mode(alices.agent, LoadingMode.CONSTANT)
    (before,) = ask(alices, provider, call("search_tools", {"query": "series"}))
    ask(alices, provider, load("predictions"))

    (after,) = ask(alices, provider, call("search_tools", {"query": "series"}))

    def how(found: Json) -> list[tuple[str, str | None, str | None]]:
        return [(each["name"], each.get("load_with"), each.get("call_with")) for each in found["tools"]]

    assert how(before) == [("series_list", "load_tool_category", None)]
    assert how(after) == [("series_list", None, "call_tool")]


# -- Extras -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flag", "category", "tool"),
    [
        ("canAccessPersonalInfo", "people", "people_search"),
        ("canAccessCalendar", "calendar", "calendar_list"),
        ("canAccessTasks", "tasks", "task_list"),
        ("canAccessGrocery", "grocery", "grocery_list"),
        ("canSetReminders", "reminders", "reminders_add"),
        ("canQueryMemory", "memory", "memory_search"),
        ("canSendMessages", "communication", "message_send"),
    ],
)
def test_zk_41_each_flag_is_a_role_that_lists_a_category(
    bob: Membership, agent: Agent, provider: ScriptedOpenAI, flag: str, category: str, tool: str
) -> None:
    make_tool(bob.organisation, tool, category=make_category(bob.organisation, category))
    role = make_role(bob.organisation, bob, RoleMode.LISTED, flag.lower())
    session = make_session(bob, agent)
    without = carried_next(session, provider)
    with organisation_scope(bob.organisation):
        home = Category.objects.get(name=category)
        RoleRule.objects.create(organisation=bob.organisation, role=role, category=home)
        touch_registry(bob.organisation_id)

    assert (without, carried_next(session, provider)) == ([], [tool])


def test_zk_45_one_sessions_load_changes_no_other_of_the_same_member_or_of_anybody(
    alices: ChatSession, bobs: ChatSession, provider: ScriptedOpenAI
) -> None:
    other = make_session(alices.membership, alices.agent)
    ask(alices, provider, load("predictions"))

    assert carried_next(other, provider) == AT_FIRST
    assert carried_next(bobs, provider) == ["calculator"]
    assert "series_list" in carried_next(alices, provider)


def test_zk_46_a_category_can_be_unloaded(alices: ChatSession, provider: ScriptedOpenAI) -> None:
    ask(alices, provider, load("predictions"))

    (told,) = ask(alices, provider, call("unload_tools", {"toolkit": "predictions"}))

    message = told.pop("message")
    assert message.startswith("Category 'predictions' will no longer")
    assert told == {"status": "unloaded", "toolkit": "predictions", "takes_effect": "next_request"}
    assert carried_next(alices, provider) == AT_FIRST
    assert loads_of(alices) == [("predictions", "model", "unloaded")]


def test_zk_46_a_category_can_be_unloaded_where_an_initial_toolkit_has_the_same_name(
    alices: ChatSession, provider: ScriptedOpenAI
) -> None:
    with organisation_scope(alices.organisation):
        tool = Tool.objects.get(name="kg_search")
    allow_toolkit(alices.agent, make_toolkit(alices.organisation, "predictions", tool), initial=True)
    ask(alices, provider, load("predictions"))

    told = ask(alices, provider, call("unload_tools", {"toolkit": "predictions"}))
    told += ask(alices, provider, call("unload_tools", {"toolkit": "predictions"}))

    assert [each["status"] for each in told] == ["unloaded", "sticky"]
    assert loads_of(alices) == [("predictions", "initial", ""), ("predictions", "model", "unloaded")]
    assert "kg_search" in carried_next(alices, provider)
