"""Why a tool is, or is not, in what an agent sends: the verdict of every stage, and the changes that would matter."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext

from capabilities.catalogue.tools.recipients.writes import NO_AGENT
from capabilities.catalogue.tools.writes import (
    Definition,
    Origin,
    create_tool,
    definition_of,
    set_tool_enabled,
    update_tool,
)
from capabilities.catalogue.versions.writes import decide_version, keep_tool_back, release_tool
from capabilities.choosing.pipeline.stages import STAGES, permitted, router, within_limit
from capabilities.common.refused import ChangeRefused
from capabilities.models import (
    Agent,
    AgentScope,
    AgentTool,
    AgentToolkit,
    Dialect,
    Effect,
    Grant,
    LanguageModel,
    LoadingMode,
    Policy,
    PolicyProfile,
    Provider,
    RoleMode,
    RoleRule,
    ServiceSetting,
    Tool,
    ToolKind,
    VersionStatus,
    kept_back,
)
from sessions.insight.explain.fixes import fix
from sessions.insight.explain.reasons import ALONE, POLICIES, SENDING, TOOLS_A_PAGE, Asked, Reasons
from sessions.insight.explain.reasons import STAGES as ANSWERED
from sessions.insight.explain.remedies.table import REMEDIES, Remedies
from sessions.insight.explain.remedies.ways import Change
from sessions.insight.explain.why import Explained, Explanation, Subject, explain
from sessions.models import ChatSession, LoadedToolkit, LoadSource
from sessions.selection.loading.loadable import LoadResult
from sessions.selection.queries import selection_preview
from tests.cast import (
    allow_toolkit,
    give_tool,
    hold_credential,
    make_agent,
    make_category,
    make_meta_tools,
    make_role,
    make_session,
    make_tool,
    make_toolkit,
)
from tests.rest import Rest
from toolhub.tenants.models import AdminRight, AuditEntry, Membership, Organisation, Right
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db

SERVICES = ("", "", "", "", "home_assistant", "searxng")
TOOLS = [f"tool_{number}" for number in range(9)]


def fresh_session(session: ChatSession) -> ChatSession:
    return ChatSession.objects.select_related("agent__model__provider", "membership__user").get(pk=session.pk)


def explained(session: ChatSession, **asked: Any) -> Explanation:
    session = fresh_session(session)
    return explain(Subject(session.membership, session.agent, session), Asked(**asked))


def test_mr_40_a_tool_that_the_provider_searches_says_so(bob: Membership) -> None:
    acme = bob.organisation
    make_meta_tools(acme)
    tool = make_tool(acme, "papers", category=make_category(acme, "ops", is_core=False))
    agent = make_agent(acme, starts_with_core=False, loading_mode=LoadingMode.NATIVE_SEARCH)
    allow_toolkit(agent, make_toolkit(acme, "research", tool))
    make_role(acme, bob)
    with organisation_scope(acme):
        Provider.objects.update(dialect=Dialect.RESPONSES, takes_tool_search=True)
        session = make_session(bob, agent)
        (papers,) = explained(session, tool="papers").tools

    stop = papers.reasons.first_stop
    assert papers.reasons.state == "loadable"
    assert stop is not None
    assert "the provider searches it in research" in stop.reason


def test_every_stage_of_the_selection_has_a_column() -> None:
    assert (*ALONE.values(), permitted, *POLICIES.values(), *SENDING.values(), router, within_limit) == STAGES


# -- Random worlds ----------------------------------------------------------------------------------------------------


def random_world(bob: Membership, dice: random.Random) -> ChatSession:
    acme = bob.organisation
    own = {"organisation": acme}
    categories = [make_category(acme, name, is_core=name == "core") for name in ("core", "files", "web")]
    make_meta_tools(acme)
    tools = []
    for name in TOOLS:
        tool = make_tool(acme, name, category=dice.choice(categories))
        Tool.objects.filter(pk=tool.pk).update(is_enabled=dice.random() < 0.8, service=dice.choice(SERVICES))
        random_decision(tool, dice)
        tools.append(tool)
    for service in ("home_assistant", "searxng"):
        ServiceSetting.objects.create(**own, service=service, is_complete=dice.random() < 0.7)
    agent = make_agent(
        acme,
        starts_with_core=dice.random() < 0.5,
        loading_mode=dice.choice(
            [LoadingMode.NEXT_REQUEST, LoadingMode.SAME_RUN, LoadingMode.CONSTANT, LoadingMode.NATIVE_SEARCH]
        ),
        scope=dice.choice([AgentScope.ORGANISATION, AgentScope.MEMBER]),
    )
    LanguageModel.objects.update(tool_limit=dice.choice([2, 5, 7, 128]))
    Provider.objects.update(dialect=Dialect.RESPONSES, takes_tool_search=dice.random() < 0.8)
    for place, tool in enumerate(dice.sample(tools, 3), start=1):
        give_tool(agent, tool, position=place, is_deferred=dice.random() < 0.5)
    session = make_session(bob, agent, tool_order=random_order(agent, tools, dice))
    if dice.random() < 0.2:
        ChatSession.objects.update(delegated_tools=[tool.pk for tool in dice.sample(tools, 5)])
    for number in range(4):
        held = dice.sample(tools, 3)
        said = {held[0].name: {"timeout": 5.0}} if dice.random() < 0.3 else None
        whole = (dice.choice(categories),) if dice.random() < 0.3 else ()
        toolkit = make_toolkit(acme, f"kit_{number}", *held, categories=whole, overrides=said)
        if number:
            allow_toolkit(agent, toolkit, initial=dice.random() < 0.3)
            if dice.random() < 0.5:
                LoadedToolkit.objects.create(
                    **own, session=session, agent=agent, toolkit=toolkit, name=toolkit.name, source=LoadSource.PERSON
                )
    random_rights(bob, tools, dice)
    for provider in (None, agent.model.provider):
        if dice.random() < 0.4:
            random_policy(acme, provider, dice)
    return session


def random_decision(tool: Tool, dice: random.Random) -> None:
    """Some are kept back, of some a version waits, and some have no version in force."""
    with organisation_scope(tool.organisation_id):
        if dice.random() < 0.2:
            content = replace(definition_of(tool, tool.versions.get()), description="Another.")
            update_tool(tool, content, actor=None, status=VersionStatus.PENDING)
            if dice.random() < 0.5:
                tool.versions.filter(number=1).update(status=VersionStatus.REJECTED)
                Tool.objects.filter(pk=tool.pk).update(current_version=None)
                return
        if dice.random() < 0.2:
            Tool.objects.filter(pk=tool.pk).update(**kept_back("It changed."), is_offered=dice.random() < 0.7)


def random_policy(acme: Organisation, provider: Provider | None, dice: random.Random) -> None:
    def some(most: int) -> list[str]:
        return dice.sample([*TOOLS, "group:core", "group:web", "*", "tool_?", "*_tools"], dice.randint(0, most))

    own = {"organisation": acme, "provider": provider}
    profile = PolicyProfile.objects.create(
        organisation=acme, name=f"p{dice.random()}", patterns=some(6) or ["*"], reads_only=dice.random() < 0.3
    )
    Policy.objects.create(
        **own,
        profile=profile if dice.random() < 0.4 else None,
        allow=some(5) if dice.random() < 0.5 else [],
        also_allow=some(2),
        deny=some(2),
    )


def random_order(agent: Agent, tools: list[Tool], dice: random.Random) -> dict[str, list[int]]:
    return {str(agent.pk): [tool.pk for tool in dice.sample(tools, 4)]} if dice.random() < 0.4 else {}


def random_rights(bob: Membership, tools: list[Tool], dice: random.Random) -> None:
    own = {"organisation": bob.organisation}
    for mode in dice.sample([RoleMode.ALL, RoleMode.LISTED, RoleMode.NONE], dice.randint(0, 3)):
        role = make_role(bob.organisation, bob, mode, mode.value)
        for tool in dice.sample(tools, 5):
            effect = dice.choice([Effect.ALLOW, Effect.ALLOW, Effect.DENY])
            RoleRule.objects.create(**own, role=role, tool=tool, effect=effect)
    for _ in range(dice.randint(0, 4)):
        tool = dice.choice(tools)
        thing: dict[str, Any] = {"tool": tool} if dice.random() < 0.7 else {"category": tool.category}
        Grant.objects.create(**own, membership=bob, effect=dice.choice(list(Effect)), **thing)


def make_real(change: Change, tool: Reasons, session: ChatSession, alice: Membership) -> None:
    """Do what the change says, by the write that comes with it."""
    if change.code == "set_up":
        ServiceSetting.objects.filter(service=change.args[0]).update(is_complete=True)
        return
    assert change.write is not None, change
    refused = None
    try:
        with transaction.atomic():
            result = change.write(alice)
        assert not isinstance(result, LoadResult) or result.status in ("loaded", "unloaded")
    except ChangeRefused as error:
        refused = error
    if refused is not None:
        # The dice made an agent that could not be saved as it is.
        assert change.view == "agent_update", refused
        assert refused.field in ("tools", "allowed_toolkits", "initial_toolkits"), refused
        make_by_hand(change, tool, session)


def make_by_hand(change: Change, tool: Reasons, session: ChatSession) -> None:
    agent, spec = session.agent, tool.spec
    match change.code:
        case "widen_scope":
            Agent.objects.filter(slug=change.args[0]).update(scope=AgentScope.ORGANISATION)
        case "make_initial":
            kit = re.search(r"toolkit (\w+)", change.text)
            AgentToolkit.objects.filter(agent=agent, toolkit__name=kit and kit.group(1)).update(is_initial=True)
        case "send_at_once":
            AgentTool.objects.filter(agent=agent, tool=spec.tool_id).update(is_deferred=False)
        case "add_tool":
            own = {"organisation": session.organisation, "agent": agent}
            AgentTool.objects.create(**own, tool_id=spec.tool_id, position=99)
        case _:
            raise AssertionError(change)


def sent_now(session: ChatSession) -> set[str]:
    return {tool.name for tool in selection_preview(fresh_session(session)).tools}


CODES = {
    "switch_on",
    "set_up",
    "widen_scope",
    "ask_for_clients",
    "load_toolkit",
    "load_tool",
    "unload",
    "make_initial",
    "send_at_once",
    "add_tool",
    "revoke_grant",
    "give_grant",
    "allow_in_role",
    "send_again",
    "raise_definition_limit",
    "raise_limit",
    "release",
    "approve_version",
    "let_through",
    "let_through_to_provider",
    "pin_tool",
    "route_nothing",
}


@pytest.mark.long
@pytest.mark.parametrize("seed", range(25))
def test_explain_agrees_with_the_selection_in_random_organisations(
    alice: Membership, bob: Membership, seed: int
) -> None:
    with organisation_scope(bob.organisation):
        session = random_world(bob, random.Random(seed))
        found = explained(session)
        selection = selection_preview(fresh_session(session))

        assert {each.reasons.spec.name for each in found.tools if each.reasons.is_sent} == sent_now(session)
        assert (found.sent, found.tokens) == (len(selection.tools), selection.tokens)
        first_no = {each.tool: each for each in reversed(selection.verdicts) if not each.kept}
        for each in found.tools:
            tool = each.reasons
            assert bool(tool.stops) is not tool.is_sent, tool
            if tool.spec.name in first_no and tool.first_stop is not None:
                said = first_no[tool.spec.name]
                assert (tool.first_stop.stage.replace("loaded", "gather"), tool.first_stop.reason) == (
                    said.stage,
                    said.reason,
                )
            for change in each.changes:
                assert change.code in CODES
                with transaction.atomic():
                    make_real(change, tool, session, alice)
                    assert tool.spec.name in sent_now(session), (change, tool)
                    transaction.set_rollback(True)


# -- One world at a time ----------------------------------------------------------------------------------------------


@pytest.fixture
def agent(acme: Organisation) -> Agent:
    return make_agent(acme, starts_with_core=False)


@pytest.fixture
def bobs(bob: Membership, agent: Agent) -> ChatSession:
    make_role(bob.organisation, bob)
    return make_session(bob, agent)


def line_of(session: ChatSession, name: str) -> Explained:
    with organisation_scope(session.organisation_id):
        return next(each for each in explained(session).tools if each.reasons.spec.name == name)


def codes(line: Explained) -> list[str]:
    return [change.code for change in line.changes]


def test_a_tool_that_nothing_offers_could_be_the_agents_own(acme: Organisation, bobs: ChatSession) -> None:
    tool = make_tool(acme, "deploy")
    make_toolkit(acme, "devops", tool)

    line = line_of(bobs, "deploy")

    assert line.sentence.startswith("Starter does not send deploy for Bob: ")
    assert "it is in devops, which the agent may not" in line.sentence
    assert line.sentence.endswith(NO_AGENT)
    assert codes(line) == ["add_tool"]


def test_a_tool_of_a_toolkit_that_is_not_loaded_can_be_loaded(
    acme: Organisation, agent: Agent, bobs: ChatSession
) -> None:
    allow_toolkit(agent, make_toolkit(acme, "devops", make_tool(acme, "deploy")))

    line = line_of(bobs, "deploy")

    assert line.reasons.state == "loadable"
    assert codes(line) == ["load_toolkit", "make_initial", "add_tool"]
    assert line.changes[0].text == "toolkit devops is loaded in this session"


def test_two_stops_leave_no_single_change(bob: Membership, agent: Agent, bobs: ChatSession) -> None:
    tool = make_tool(bob.organisation, "deploy")
    give_tool(agent, tool)
    with organisation_scope(bob.organisation):
        Tool.objects.update(is_enabled=False)
        Grant.objects.create(organisation=bob.organisation, membership=bob, tool=tool, effect=Effect.DENY)

    line = line_of(bobs, "deploy")

    assert codes(line) == []
    for words in ("Two things stop deploy for Bob", "switched off", "a grant of this member", "All of them"):
        assert words in line.sentence


def test_two_grants_that_deny_are_not_undone_by_revoking_one(bob: Membership, agent: Agent, bobs: ChatSession) -> None:
    tool = make_tool(bob.organisation, "deploy")
    give_tool(agent, tool)
    for thing in ({"tool": tool}, {"category": tool.category}):
        with organisation_scope(bob.organisation):
            Grant.objects.create(organisation=bob.organisation, membership=bob, effect=Effect.DENY, **thing)
        said = line_of(bobs, "deploy")

    assert codes(said) == []


def test_what_the_limit_cuts_off_comes_in_with_more_room_or_less_loaded(
    acme: Organisation, agent: Agent, bobs: ChatSession
) -> None:
    kits = [make_toolkit(acme, f"kit_{name}", make_tool(acme, name)) for name in ("first", "second")]
    for kit in kits:
        allow_toolkit(agent, kit)
    with organisation_scope(acme):
        LanguageModel.objects.update(tool_limit=1)
        for kit in kits:
            LoadedToolkit.objects.create(
                organisation=acme, session=bobs, agent=agent, toolkit=kit, name=kit.name, source=LoadSource.PERSON
            )

    line = line_of(bobs, "second")

    room, unload = (change.text for change in line.changes)
    assert room.endswith("takes 2 tools or more")
    assert unload.startswith("toolkit kit_first is unloaded")


def test_a_child_session_says_what_was_not_handed_over(acme: Organisation, agent: Agent, bobs: ChatSession) -> None:
    give_tool(agent, make_tool(acme, "deploy"))
    with organisation_scope(acme):
        ChatSession.objects.update(delegated_tools=[])

    line = line_of(bobs, "deploy")

    assert (line.reasons.first_stop and line.reasons.first_stop.stage, codes(line)) == ("delegation", [])
    assert "No single change" in line.sentence


@pytest.mark.parametrize("count", [10, 1_000])
def test_it_takes_six_queries_at_most_however_many_tools_there_are(
    bob: Membership, bobs: ChatSession, count: int, django_assert_max_num_queries: Any
) -> None:
    make_many(bob.organisation, count)
    for number in range(count // 100 + 1):
        with organisation_scope(bob.organisation):
            tool = Tool.objects.order_by("?").first()
        assert tool is not None
        allow_toolkit(bobs.agent, make_toolkit(bob.organisation, f"kit_{number}", tool))
    with organisation_scope(bob.organisation):
        session = fresh_session(bobs)
        for state in ("", "sent", "loadable", "stopped"):
            with django_assert_max_num_queries(6):
                explain(Subject(session.membership, session.agent, session), Asked(state=state))


def make_many(acme: Organisation, count: int, **fields: Any) -> None:
    """Tools that are only good for lists."""
    category = make_category(acme, "many", **fields)
    first = make_tool(acme, "first", category=category)
    with organisation_scope(acme):
        version = first.current_version
        assert version is not None
        tools = Tool.objects.bulk_create(
            Tool(organisation=acme, category=category, name=f"many_{number:05}", current_version=version)
            for number in range(count - 1)
        )
        assert len(tools) == count - 1


# -- REST -------------------------------------------------------------------------------------------------------------


def test_the_api_tells_verdicts_changes_and_numbers(alice: Membership, agent: Agent) -> None:
    give_tool(agent, make_tool(alice.organisation, "deploy"))

    reply = Rest(alice).get("explain", message="Deploy it.")

    (row,) = reply.json.pop("results")
    assert reply.json == {
        "next": None,
        "member": str(alice.public_id),
        "agent": "starter",
        "session": None,
        "sent": 0,
        "tokens": 0,
        "tool_limit": 128,
        "routing": "off",
        "all_tokens": 0,
        "is_offered": True,
        "tools_off": False,
    }
    assert (row["tool"], row["state"], row["first_stop"]) == ("deploy", "stopped", "role")
    assert [each["stage"] for each in row["verdicts"] if each["stops"]] == ["role"]
    assert row["changes"] == [
        {
            "code": "give_grant",
            "text": "a grant allows it to Alice",
            "page": "/o/acme/grants/new/?tool=deploy&member=alice%40example.com",
            "right": "roles",
        }
    ]


def test_the_pages_of_the_api_are_the_whole_list(alice: Membership, agent: Agent) -> None:
    for number in range(5):
        make_tool(alice.organisation, f"tool_{number}")
    rest = Rest(alice)

    whole = rest.get("explain").json["results"]
    first = rest.get("explain", limit=3).json
    second = rest.get("explain", limit=3, cursor=first["next"]).json

    assert (first["results"] + second["results"], second["next"]) == (whole, None)


def test_the_api_takes_the_same_queries_for_1_and_3_tools(alice: Membership, agent: Agent) -> None:
    rest = Rest(alice)
    rest.get("registry")
    counts = []
    for names in (["a"], ["b", "c"]):
        for name in names:
            allow_toolkit(agent, make_toolkit(alice.organisation, f"kit_{name}", make_tool(alice.organisation, name)))
        with CaptureQueriesContext(connection) as captured:
            assert rest.get("explain").status == 200
        counts.append(len(captured))

    assert counts == [8, 8]


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ({"member": "00000000-0000-4000-8000-000000000000"}, (400, "unknown", "member")),
        ({"member": "x"}, (400, "invalid", "member")),
        ({"agent": "nobody"}, (400, "unknown", "agent")),
        ({"session": "00000000-0000-4000-8000-000000000000"}, (400, "unknown", "session")),
        ({"session": "x"}, (400, "invalid", "session")),
        ({"category": "nothing"}, (400, "unknown", "category")),
        ({"state": "happy"}, (400, "invalid_choice", "state")),
        ({"message": "x" * 100_001}, (400, "max_length", "message")),
        ({"limit": 201}, (400, "invalid", "limit")),
        ({"cursor": "x"}, (400, "invalid", "cursor")),
        ({"page": 2}, (400, "invalid", "page")),
    ],
)
def test_the_api_refuses_what_is_not_there(
    alice: Membership, agent: Agent, query: dict[str, Any], error: tuple[int, str, str]
) -> None:
    assert Rest(alice).get("explain", **query).error == error


def test_only_those_with_the_right_explain_another_member(alice: Membership, bob: Membership, agent: Agent) -> None:
    make_tool(bob.organisation, "deploy")

    assert Rest(bob).get("explain", member=str(bob.public_id)).status == 200
    assert Rest(bob).get("explain", member=str(alice.public_id)).error == (403, "forbidden", None)
    assert Rest(bob).get("explain", member="00000000-0000-4000-8000-000000000000").error == (403, "forbidden", None)
    assert Rest(alice).get("explain", member=str(bob.public_id)).json["member"] == str(bob.public_id)


def test_a_session_is_that_members_and_visible(
    alice: Membership, bob: Membership, charlie: Membership, bobs: ChatSession
) -> None:
    alices = make_session(alice, bobs.agent)
    unknown = (400, "unknown", "session")

    assert Rest(bob).get("explain", session=str(bobs.pk)).json["session"] == str(bobs.pk)
    assert Rest(bob).get("explain", session=str(alices.pk)).error == unknown
    assert Rest(charlie).get("explain", session=str(alices.pk)).error == unknown
    assert Rest(alice).get("explain", session=str(bobs.pk)).json["member"] == str(bob.public_id)
    assert Rest(alice).get("explain", session=str(bobs.pk), member=str(alice.public_id)).error == unknown


# -- The page ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def browser(client: Client, bob: Membership) -> Client:
    client.force_login(bob.user)
    return client


def test_a_member_reads_why_a_tool_is_not_there(browser: Client, bobs: ChatSession) -> None:
    make_tool(bobs.organisation, "deploy")

    page = browser.get("/o/acme/explain/").content.decode()

    assert "nothing offers it to this agent" in page
    assert "does not change which tools are sent" in page
    assert 'name="member"' not in page


def test_a_member_is_told_that_another_takes_a_right(browser: Client, alice: Membership, agent: Agent) -> None:
    assert browser.get("/o/acme/explain/", {"member": "alice@example.com"}).status_code == 403


def test_a_member_without_the_right_finds_where_to_ask(browser: Client, bob: Membership, agent: Agent) -> None:
    give_tool(agent, make_tool(bob.organisation, "deploy"))

    page = browser.get("/o/acme/explain/").content.decode()

    assert '/tools/deploy/">a grant allows it to Bob' in page


def tool_lines(page: str) -> list[str]:
    """The lines of the page's tools."""
    return page.split('<li class="explain-tool')[1:]


def stops_of(line: str) -> list[str]:
    return re.findall(r"<strong>([^<]+):</strong>", line)


def passed_of(line: str) -> list[str]:
    return re.findall(r"<dt>([^<]+)</dt>", line)


def test_what_is_wrong_stands_before_its_fix_and_what_passes_is_folded_to_one_line(
    client: Client, alice: Membership, bob: Membership, agent: Agent
) -> None:
    make_role(bob.organisation, bob)
    for name in ("deploy", "destroy"):
        give_tool(agent, make_tool(bob.organisation, name))
    with organisation_scope(bob.organisation):
        Tool.objects.filter(name="deploy").update(is_enabled=False)
    client.force_login(alice.user)

    page = client.get("/o/acme/explain/", {"member": "bob@example.com", "q": "de"}).content.decode()

    lines = {re.findall(r">(\w+)</a>", line)[0]: line for line in tool_lines(page)}
    stopped, sent = lines["deploy"], lines["destroy"]
    assert (stops_of(stopped), stops_of(sent)) == (["Enabled"], [])
    assert stopped.index("<strong>Enabled") < stopped.index("Would be sent if") < stopped.index('class="explain-fix"')
    assert ("Would be sent if" in sent, "explain-fixes" in sent) == (False, False)
    for line in (stopped, sent):
        assert f"{len(passed_of(line))} checks passed" in line
        assert '<details class="fold explain-passed">' in line
        assert len({*stops_of(line), *passed_of(line)}) == len(stops_of(line)) + len(passed_of(line))
    assert set(passed_of(sent)) == {*stops_of(stopped), *passed_of(stopped)}
    assert {"Loaded", "Enabled", "Role", "Grants", "Limit"} <= set(passed_of(sent))


def test_of_a_tool_that_no_single_change_lets_through_each_stop_stands_there(
    client: Client, alice: Membership, bob: Membership, agent: Agent
) -> None:
    give_tool(agent, make_tool(bob.organisation, "deploy"))
    with organisation_scope(bob.organisation):
        Tool.objects.filter(name="deploy").update(is_enabled=False)
    client.force_login(alice.user)

    page = client.get("/o/acme/explain/", {"member": "bob@example.com", "q": "deploy"}).content.decode()

    (line,) = tool_lines(page)
    assert stops_of(line) == ["Enabled", "Role"]
    assert ("All of them have to change" in line, "Would be sent if" in line) == (True, False)


def test_who_may_use_nothing_is_given_a_role_from_there_by_who_may(
    client: Client, alice: Membership, bob: Membership, agent: Agent
) -> None:
    give_tool(agent, make_tool(bob.organisation, "deploy"))
    make_role(bob.organisation, alice, slug="ops")
    offered = []
    for reader in (alice, bob):
        client.force_login(reader.user)
        page = client.get("/o/acme/explain/", {"member": "bob@example.com"}).content.decode()
        offered.append(re.findall(r'<option value="ops"', page))
    client.force_login(alice.user)
    of_alice = client.get("/o/acme/explain/").content.decode()

    assert [len(each) for each in offered] == [1, 0]
    assert f"/o/acme/members/{bob.public_id}/roles/" not in of_alice


def test_the_page_names_what_is_not_there(client: Client, alice: Membership, agent: Agent) -> None:
    client.force_login(alice.user)

    answer = client.get("/o/acme/explain/", {"member": "nobody@example.com"})

    assert answer.status_code == 422
    assert "There is no member nobody@example.com." in answer.content.decode()


def test_the_filter_swaps_the_table_alone(browser: Client, bobs: ChatSession) -> None:
    for name in ("deploy", "destroy"):
        make_tool(bobs.organisation, name)

    part = browser.get("/o/acme/explain/", {"q": "depl"}, headers={"HX-Request": "true"}).content.decode()

    assert part.strip().startswith('<div id="explained">')
    assert ("deploy" in part, "destroy" in part) == (True, False)


def test_an_organisation_without_agents_is_told_so(browser: Client) -> None:
    answer = browser.get("/o/acme/explain/")

    assert (answer.status_code, "There is no agent yet" in answer.content.decode()) == (200, True)


@pytest.mark.long
def test_the_page_stays_small_with_10_000_tools(client: Client, alice: Membership, bob: Membership) -> None:
    make_role(alice.organisation, bob)
    make_many(alice.organisation, 10_000)
    session = make_session(bob, make_agent(alice.organisation))
    client.force_login(alice.user)
    address = {"member": "bob@example.com", "session": str(session.pk), "state": "stopped"}

    with CaptureQueriesContext(connection) as captured:
        page = client.get("/o/acme/explain/", address).content

    assert page.count(b'class="explain-head"') == TOOLS_A_PAGE
    assert (len(captured) <= 17, len(page) <= 200_000) == (True, True), (len(captured), len(page))


def test_of_several_stops_each_has_a_link_to_where_it_is_changed(
    client: Client, alice: Membership, bob: Membership, agent: Agent, bobs: ChatSession
) -> None:
    tool = make_tool(bob.organisation, "web_search")
    with organisation_scope(bob.organisation):
        Tool.objects.update(is_enabled=False, service="searxng")
        Grant.objects.create(organisation=bob.organisation, membership=bob, tool=tool, effect=Effect.DENY)
        AdminRight.objects.create(organisation=bob.organisation, membership=bob, right=Right.AGENTS)
    client.force_login(alice.user)
    of_alice = client.get("/o/acme/explain/", {"member": "bob@example.com"}).content.decode()
    client.force_login(bob.user)
    of_bob = client.get("/o/acme/explain/").content.decode()

    links = re.compile(r'class="explain-place"\s+href="([^"]+)"')
    assert links.findall(of_alice) == [
        f"/o/acme/agents/{agent.slug}/edit/",
        "/o/acme/tools/web_search/",
        "/o/acme/services/searxng/",
        f"/o/acme/members/{bob.public_id}/tools/?q=web_search",
    ]
    assert links.findall(of_bob) == [f"/o/acme/agents/{agent.slug}/edit/"]


# -- What comes first, and what Explain does itself -------------------------------------------------------------------


@pytest.fixture
def ladder(in_acme: Organisation, bobs: ChatSession) -> ChatSession:
    """One tool for each step away from being sent; their names are in the opposite order."""
    organisation, agent = bobs.organisation, bobs.agent
    make_meta_tools(organisation)
    home = make_category(organisation, "ladder", is_core=False)
    names = ("e_sent", "d_loadable", "c_off", "b_twice", "a_not_offered")
    tools = {name: make_tool(organisation, name, category=home) for name in names}
    for name in ("e_sent", "c_off", "b_twice"):
        give_tool(agent, tools[name])
    allow_toolkit(agent, make_toolkit(organisation, "kit", tools["d_loadable"]))
    Tool.objects.filter(name__in=("c_off", "b_twice")).update(is_enabled=False)
    Grant.objects.create(
        organisation=organisation, membership=bobs.membership, tool=tools["b_twice"], effect=Effect.DENY
    )
    return bobs


def asked_for(session: ChatSession, **asked: Any) -> Explanation:
    session = fresh_session(session)
    return explain(Subject(session.membership, session.agent, session), Asked(**asked))


def test_what_is_sent_comes_first_then_what_one_change_lets_through_then_the_rest(ladder: ChatSession) -> None:
    found, after = [], ""
    while True:
        page = asked_for(ladder, category="ladder", limit=2, after=after)
        found += [(each.reasons.spec.name, each.reasons.state) for each in page.tools]
        if not page.after:
            break
        after = page.after

    assert found == [
        ("e_sent", "sent"),
        ("c_off", "stopped"),
        ("d_loadable", "loadable"),
        ("b_twice", "stopped"),
        ("a_not_offered", "not_offered"),
    ]


def test_of_words_what_they_find_best_comes_first_whatever_its_state(ladder: ChatSession) -> None:
    found = [each.reasons.spec.name for each in asked_for(ladder, q="TWICE ladder").tools]

    assert found[0] == "b_twice"
    assert [each.reasons.spec.name for each in asked_for(ladder, q="c_off").tools] == ["c_off"]


def test_what_nobody_offers_is_grey(ladder: ChatSession, client: Client) -> None:
    client.force_login(ladder.membership.user)
    page = client.get("/o/acme/explain/", {"category": "ladder", "state": "not_offered"}).content.decode()

    assert page.count('class="explain-tool is-not-offered"') == page.count('class="explain-head"') == 1
    assert "badge-bad" not in page


def press(client: Client, session: ChatSession, member: Membership, **fields: str) -> Any:
    client.force_login(member.user)
    subject = {"member": session.membership.user.email, "session": str(session.pk), "category": "ladder"}
    return client.post("/o/acme/explain/fix/", subject | fields)


def buttons(client: Client, session: ChatSession, member: Membership) -> set[tuple[str, str, str]]:
    client.force_login(member.user)
    subject = {"member": session.membership.user.email, "session": str(session.pk), "category": "ladder"}
    page = client.get("/o/acme/explain/", subject).content.decode()
    pattern = r'name="tool" value="(.*?)">\s*<input type="hidden" name="code" value="(.*?)">\s*'
    return set(re.findall(pattern + r'<input type="hidden" name="target" value="(.*?)">', page))


def test_a_button_makes_the_change_on_record_and_comes_back(
    ladder: ChatSession, client: Client, alice: Membership
) -> None:
    assert buttons(client, ladder, alice) == {("c_off", "switch_on", ""), ("d_loadable", "load_toolkit", "toolkit:kit")}

    for tool, code, target in (
        ("c_off", "switch_on", ""),
        ("d_loadable", "load_toolkit", "toolkit:kit"),
    ):
        answer = press(client, ladder, alice, tool=tool, code=code, target=target)
        assert answer.status_code == 302
        assert answer["Location"].startswith("/o/acme/explain/?member=bob%40example.com&session=")
    Tool.objects.filter(name="b_twice").update(is_enabled=True)
    press(client, ladder, alice, tool="b_twice", code="revoke_grant", target="")

    sent = {each.reasons.spec.name for each in asked_for(ladder, state="sent").tools}
    assert {"c_off", "d_loadable", "b_twice"} <= sent
    actions = set(AuditEntry.objects.filter(actor=alice).values_list("action", flat=True))
    assert {"tool.enable", "session.load", "grant.revoke"} <= actions


def test_a_button_that_would_do_nothing_any_more_changes_nothing(
    ladder: ChatSession, client: Client, alice: Membership
) -> None:
    for fields in (
        {"tool": "c_off", "code": "revoke_grant", "target": ""},
        {"tool": "b_twice", "code": "switch_on", "target": ""},
        {"tool": "e_sent", "code": "unload", "target": "toolkit:kit"},
        {"tool": "missing", "code": "switch_on"},
        {"tool": "", "code": "switch_on"},
    ):
        page = client.get(press(client, ladder, alice, **fields)["Location"]).content.decode()
        assert "This would change nothing any more" in page

    assert (Grant.objects.count(), Tool.objects.filter(is_enabled=False).count()) == (1, 2)


def test_who_may_not_make_a_change_has_no_button_and_is_refused(
    ladder: ChatSession, client: Client, bob: Membership, charlie: Membership
) -> None:
    assert buttons(client, ladder, bob) == {("d_loadable", "load_toolkit", "toolkit:kit")}
    assert press(client, ladder, bob, tool="c_off", code="switch_on", target="").status_code == 403
    assert press(client, ladder, charlie, tool="c_off", code="switch_on", target="").status_code == 404
    assert Tool.objects.get(name="c_off").is_enabled is False


def test_a_change_that_does_not_let_the_tool_through_after_all_is_taken_back(
    ladder: ChatSession, alice: Membership, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = fresh_session(ladder)
    subject = Subject(session.membership, session.agent, session)
    real = Remedies.of

    def with_another_write(self: Remedies, tool: Reasons) -> tuple[Change, ...]:
        write = partial(set_tool_enabled, Tool.objects.select_related("category").get(name="b_twice"), True)
        return tuple(replace(each, write=lambda actor: write(actor=actor)) for each in real(self, tool))

    monkeypatch.setattr(Remedies, "of", with_another_write)

    with pytest.raises(ChangeRefused, match="c_off would not be sent after this either: nothing was changed"):
        fix(subject, "c_off", "switch_on", "", actor=alice)

    assert Tool.objects.filter(is_enabled=False).count() == 2
    assert not AuditEntry.objects.filter(action="tool.enable").exists()


def test_the_table_has_a_line_for_each_code_and_a_stage_for_each_line() -> None:
    assert {each.code for each in REMEDIES} == CODES
    assert {each.stage for each in REMEDIES} == set(ANSWERED) - {"delegation"}


def test_a_toolkit_is_no_remedy_where_loading_it_is_refused(
    in_acme: Organisation, agent: Agent, bobs: ChatSession
) -> None:
    """The agent acts with its member's own credentials, and another tool of the toolkit with the organisation's."""
    shared, plain = make_tool(in_acme, "shared"), make_tool(in_acme, "plain")
    allow_toolkit(agent, make_toolkit(in_acme, "kit", shared, plain))
    assert codes(line_of(bobs, "plain")) == ["load_toolkit", "make_initial", "add_tool"]

    Tool.objects.filter(name="shared").update(service="home_assistant")
    hold_credential(in_acme, "home_assistant")
    Agent.objects.filter(pk=agent.pk).update(scope=AgentScope.MEMBER)

    assert codes(line_of(bobs, "plain")) == ["add_tool"]


# -- What waits for a decision ----------------------------------------------------------------------------------------


def python_tool(acme: Organisation, author: Membership, agent: Agent, *, status: VersionStatus) -> Tool:
    """A Python tool that the agent wrote in a turn of the author's."""
    content = Definition(
        "agent_everyday__double",
        "Doubles a number.",
        {"type": "object", "properties": {}},
        implementation={"runtime": "monty", "code": "def run():\n    return 2", "helpers": {}},
    )
    origin = Origin(ToolKind.PYTHON, made_by_agent=agent)
    return create_tool(make_category(acme, "made"), content, actor=author, origin=origin, status=status)


def approve(tool: Tool, actor: Membership) -> None:
    decide_version(tool.versions.get(status=VersionStatus.PENDING), approve=True, actor=actor)


@pytest.mark.usefixtures("in_acme")
def test_a_tool_that_waits_says_since_when_and_who_may_approve_it(
    acme: Organisation, bob: Membership, alice: Membership, agent: Agent, bobs: ChatSession, client: Client
) -> None:
    tool = python_tool(acme, bob, agent, status=VersionStatus.PENDING)

    (found,) = explained(bobs, tool=tool.name).tools

    (stop,) = found.reasons.stops
    assert (found.reasons.state, stop.stage, stop.short) == ("stopped", "enabled", "waits for approval")
    assert stop.reason.endswith("version 1 waits for approval")
    assert (stop.since, stop.done_by) == (tool.versions.get().created_at, f"the agent {agent} for {bob}")
    (change,) = found.changes
    assert (change.code, change.right) == ("approve_version", Right.APPROVE_CODE)
    assert f"approve_code other than {bob}" in change.text
    assert change.text.endswith("approves version 1")
    assert found.sentence.endswith(f"{stop.reason}.")
    client.force_login(alice.user)
    page = client.get(f"/o/acme/explain/?session={bobs.pk}&q=double").content.decode()
    assert "/o/acme/tools/agent_everyday__double/versions/1/" in page
    assert "Submitted" in page
    (told,) = Rest(alice).get(f"explain?session={bobs.pk}&q=double").json["results"]
    (verdict,) = [each for each in told["verdicts"] if each["stops"]]
    assert verdict["since"] == stop.since.isoformat()  # type: ignore[union-attr]
    assert told["changes"][0]["page"] == "/o/acme/tools/agent_everyday__double/versions/1/"

    approve(tool, alice)

    (found,) = explained(bobs, tool=tool.name).tools
    assert found.reasons.is_sent  # as it was said


@pytest.mark.usefixtures("in_acme")
def test_a_tool_without_a_version_that_another_agent_made_is_not_said_to_come(
    acme: Organisation, bob: Membership, alice: Membership, bobs: ChatSession
) -> None:
    tool = python_tool(acme, bob, make_agent(acme, slug="other"), status=VersionStatus.PENDING)

    (found,) = explained(bobs, tool=tool.name).tools

    assert (found.reasons.state, found.changes) == ("not_offered", ())
    approve(tool, alice)
    (found,) = explained(bobs, tool=tool.name).tools
    assert not found.reasons.is_sent


@pytest.mark.usefixtures("in_acme")
def test_a_tool_that_is_kept_back_says_why_since_when_and_who_releases_it(
    acme: Organisation, bob: Membership, alice: Membership, agent: Agent, bobs: ChatSession
) -> None:
    tool = python_tool(acme, bob, agent, status=VersionStatus.PENDING)
    approve(tool, alice)
    keep_tool_back(tool, "It doubles twice.", actor=alice)

    (found,) = explained(bobs, tool=tool.name).tools

    (stop,) = found.reasons.stops
    assert (stop.short, stop.done_by) == ("kept back", str(alice))
    assert stop.reason.endswith(": It doubles twice")
    assert stop.since == Tool.objects.get(pk=tool.pk).quarantined_at
    (change,) = found.changes
    assert (change.code, change.view, change.right) == ("release", "tool_detail", Right.APPROVE_CODE)
    # The turn says the same: it is the same stage.
    verdicts = selection_preview(fresh_session(bobs)).verdicts
    (verdict,) = [each for each in verdicts if each.tool == tool.name and not each.kept]
    assert (verdict.stage, verdict.reason) == ("enabled", stop.reason)

    release_tool(tool, actor=alice)

    (found,) = explained(bobs, tool=tool.name).tools
    assert found.reasons.is_sent


@pytest.mark.usefixtures("in_acme")
def test_what_its_server_does_not_offer_is_not_said_to_be_released(
    acme: Organisation, bob: Membership, alice: Membership, agent: Agent, bobs: ChatSession
) -> None:
    tool = python_tool(acme, bob, agent, status=VersionStatus.PENDING)
    approve(tool, alice)
    Tool.objects.filter(pk=tool.pk).update(**kept_back("It changed."), is_offered=False)

    (found,) = explained(bobs, tool=tool.name).tools
    assert found.changes == ()

    content = replace(definition_of(tool, tool.versions.get()), description="Another.")
    update_tool(tool, content, actor=None, status=VersionStatus.PENDING)
    (found,) = explained(bobs, tool=tool.name).tools
    assert [each.code for each in found.changes] == ["approve_version"]
