from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from capabilities.common.registry_version import touch_registry
from capabilities.models import Agent, AgentToolkit, Dialect, LoadingMode, Provider
from sessions.models import (
    ChatSession,
    LoadedToolkit,
    LoadSource,
    Step,
    StepKind,
    StepStatus,
    ToolSet,
    Turn,
    TurnEvent,
    TurnStatus,
    UnloadReason,
)
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
    make_turn,
)
from toolhub.tenants.models import Access, AdminRight, AuditEntry, Membership, Organisation, Right
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db

HTMX = {"HX-Request": "true"}


@pytest.fixture
def agent(acme: Organisation) -> Agent:
    agent = make_agent(acme, starts_with_core=False)
    ops = make_category(acme, "ops", is_core=False)
    devops = make_toolkit(acme, "devops", make_tool(acme, "docker", category=ops))
    research = make_toolkit(acme, "research", make_tool(acme, "papers", category=ops))
    allow_toolkit(agent, devops)
    allow_toolkit(agent, research, initial=True)
    return agent


@pytest.fixture
def session(bob: Membership, agent: Agent) -> ChatSession:
    make_role(bob.organisation, bob)
    return make_session(bob, agent, title="Deploy")


@pytest.fixture
def as_bob(client: Client, bob: Membership) -> Client:
    client.force_login(bob.user)
    return client


def url_of(session: ChatSession, more: str = "") -> str:
    return f"/o/{session.organisation.slug}/sessions/{session.pk}/{more}"


def text_of(page: bytes) -> str:
    """What a reader reads: without marks, one space for any."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page.decode()))


def loaded_in(session: ChatSession) -> list[str]:
    with organisation_scope(session.organisation):
        rows = LoadedToolkit.objects.filter(session=session, unloaded_at=None).order_by("pk")
        return list(rows.values_list("name", flat=True))


def add_load(session: ChatSession, name: str, **fields: Any) -> LoadedToolkit:
    with organisation_scope(session.organisation):
        own = {"organisation": session.organisation, "session": session, "agent": session.agent}
        return LoadedToolkit.objects.create(**own, name=name, **({"source": LoadSource.MODEL} | fields))


def add_event(turn: Turn, kind: str, payload: dict[str, Any]) -> None:
    with organisation_scope(turn.organisation):
        number = turn.events.count() + 1
        TurnEvent.objects.create(organisation=turn.organisation, turn=turn, number=number, type=kind, payload=payload)


# -- The panel --------------------------------------------------------------------------------------------------------


def test_the_page_shows_what_is_loaded_and_offers_the_rest(as_bob: Client, session: ChatSession) -> None:
    page = as_bob.get(url_of(session)).content

    assert re.search(r"research \d+ tok always loaded", text_of(page))
    assert b'<option value="devops">' in page
    assert b"Unload research" not in page
    assert b'name="category"' not in page


def empty_panel(client: Client, session: ChatSession) -> str:
    page = text_of(client.get(url_of(session, "toolkits/"), headers=HTMX).content)
    return page.partition("Loaded History ")[2].partition("Tools in the next turn")[0]


def test_an_empty_panel_says_that_the_agent_loads_only_where_it_has_the_tools_for_it(
    as_bob: Client, session: ChatSession
) -> None:
    with organisation_scope(session.organisation):
        session.agent.agent_toolkits.update(is_initial=False)
        alone = empty_panel(as_bob, session)
        make_meta_tools(session.organisation)

        said = empty_panel(as_bob, session)

    for panel, loads_itself in ((alone, False), (said, True)):
        assert "Nothing is loaded." in panel
        assert "You can load a toolkit here." in panel
        assert ("Starter loads toolkits" in panel) is loads_itself


def test_an_empty_panel_of_an_agent_without_toolkits_offers_a_category_to_who_may_load_one(
    as_bob: Client, session: ChatSession, bob: Membership
) -> None:
    with organisation_scope(session.organisation):
        session.agent.agent_toolkits.all().delete()
        assert "Starter has no toolkit" in empty_panel(as_bob, session)
        AdminRight.objects.create(organisation=bob.organisation, membership=bob, right=Right.LOAD_CATEGORIES)

        said = empty_panel(as_bob, session)

    assert "You can load a category here." in said
    assert "loads toolkits" not in said


def test_the_panel_alone_answers_htmx_and_a_page_without_script(as_bob: Client, session: ChatSession) -> None:
    part = as_bob.get(url_of(session, "toolkits/"), headers=HTMX).content
    page = as_bob.get(url_of(session, "toolkits/")).content

    assert b"<html" not in part
    assert b'id="loads"' in part
    assert b'id="session-chip"' in part
    assert b"<html" in page
    assert b'id="loads"' in page


def test_loading_without_script_leads_back_and_says_when_it_shows(as_bob: Client, session: ChatSession) -> None:
    answer = as_bob.post(url_of(session, "toolkits/load/"), {"toolkit": "devops"}, follow=True)

    assert answer.redirect_chain == [(url_of(session), 302)]
    assert "will be available on the next request" in text_of(answer.content)
    assert b'aria-label="Unload devops"' in answer.content
    assert loaded_in(session) == ["devops"]


def test_loading_with_htmx_swaps_the_panel_and_the_number_of_tools(as_bob: Client, session: ChatSession) -> None:
    answer = as_bob.post(url_of(session, "toolkits/load/"), {"toolkit": "devops"}, headers=HTMX)

    assert (answer.status_code, b"<html" in answer.content) == (200, False)
    text = text_of(answer.content)
    assert re.search(r"devops \d+ tok by Bob Unload", text)
    assert re.search(r'id="session-chip"[^>]*hx-swap-oob="true"', answer.content.decode())


def test_unloading_ends_the_load(as_bob: Client, session: ChatSession) -> None:
    as_bob.post(url_of(session, "toolkits/load/"), {"toolkit": "devops"})

    answer = as_bob.post(url_of(session, "toolkits/unload/"), {"name": "devops"}, headers=HTMX)

    assert answer.status_code == 200
    assert "will no longer be available" in text_of(answer.content)
    assert loaded_in(session) == []


@pytest.mark.parametrize(
    ("more", "body", "problem"),
    [
        ("load/", {"toolkit": "nothing"}, "There is no toolkit nothing."),
        ("load/", {"toolkit": "nothing"}, "It may load devops"),
        ("load/", {}, "Choose what to load."),
        ("load/", {"toolkit": "devops", "category": "ops"}, "Choose what to load."),
        ("load/", {"category": "ops"}, "needs the admin right load_categories"),
        ("load/", {"toolkit": "devops", "agent": "nobody"}, "There is no such agent."),
        ("load/", {"toolkit": "a\x00b"}, "Null characters are not allowed."),
        ("unload/", {"name": "research"}, "belongs to this agent from the start"),
        ("unload/", {}, "Name what to unload."),
        ("share/", {"shares": "perhaps"}, "perhaps is not one of the available choices"),
    ],
)
def test_a_refused_load_is_shown_in_the_panel_or_on_its_page(
    as_bob: Client, session: ChatSession, more: str, body: dict[str, str], problem: str
) -> None:
    part = as_bob.post(url_of(session, f"toolkits/{more}"), body, headers=HTMX)
    page = as_bob.post(url_of(session, f"toolkits/{more}"), body)

    assert (part.status_code, page.status_code) == (422, 422)
    assert problem in text_of(part.content)
    assert b"<html" not in part.content
    assert problem in text_of(page.content)
    assert loaded_in(session) == []


def test_a_category_is_offered_to_who_may_load_it(as_bob: Client, bob: Membership, session: ChatSession) -> None:
    with organisation_scope(bob.organisation):
        AdminRight.objects.create(organisation=bob.organisation, membership=bob, right=Right.LOAD_CATEGORIES)

    page = as_bob.get(url_of(session)).content
    answer = as_bob.post(url_of(session, "toolkits/load/"), {"category": "ops"}, headers=HTMX)

    assert b'<option value="ops">' in page
    assert re.search(r"Ops \d+ tok category, by Bob Unload", text_of(answer.content))
    assert b'<option value="ops">' not in answer.content


def test_an_operator_loads_into_a_live_session_and_is_named(
    client: Client, alice: Membership, session: ChatSession
) -> None:
    client.force_login(alice.user)

    client.post(url_of(session, "toolkits/load/"), {"toolkit": "devops"})

    client.force_login(session.membership.user)
    assert re.search(r"devops \d+ tok by Alice Unload", text_of(client.get(url_of(session)).content))
    with organisation_scope(alice.organisation):
        entry = AuditEntry.objects.get(action="session.load")
        assert entry.actor_label == "alice@example.com"


def test_who_may_not_load_sees_no_form_and_is_refused(client: Client, acme: Organisation, agent: Agent) -> None:
    viewer = make_member(acme, "vera", Access.VIEWER)
    session = make_session(viewer, agent)
    client.force_login(viewer.user)

    assert b'name="toolkit"' not in client.get(url_of(session)).content
    for more, body in (("load/", {"toolkit": "devops"}), ("unload/", {"name": "devops"}), ("share/", {"shares": "1"})):
        assert client.post(url_of(session, f"toolkits/{more}"), body).status_code == 403


@pytest.mark.parametrize("more", ["toolkits/load/", "toolkits/unload/", "toolkits/share/"])
def test_strangers_and_colleagues_find_nothing(
    client: Client, acme: Organisation, charlie: Membership, session: ChatSession, more: str
) -> None:
    for member in (charlie, make_member(acme, "carol")):
        client.force_login(member.user)
        assert client.post(url_of(session, more), {"toolkit": "devops"}).status_code == 404
        assert client.get(url_of(session, "toolkits/")).status_code == 404
        assert client.get(url_of(session, "loads/")).status_code == 404


def test_changing_is_post_alone(as_bob: Client, session: ChatSession) -> None:
    assert [as_bob.get(url_of(session, f"toolkits/{more}/")).status_code for more in ("load", "unload", "share")] == [
        405
    ] * 3


# -- Several agents ---------------------------------------------------------------------------------------------------


@pytest.fixture
def helper(acme: Organisation, session: ChatSession) -> Agent:
    """Another agent that the session has used."""
    helper = make_agent(acme, slug="helper", starts_with_core=False)
    allow_toolkit(helper, make_toolkit(acme, "writing", make_tool(acme, "spell")))
    make_turn(session, status=TurnStatus.DONE, answer="Yes.", agent=helper)
    return helper


def test_mr_25_each_agent_of_a_session_has_its_own_loads(as_bob: Client, session: ChatSession, helper: Agent) -> None:
    first = as_bob.get(url_of(session)).content
    other = as_bob.get(url_of(session, "toolkits/?agent=helper"), headers=HTMX).content
    as_bob.post(url_of(session, "toolkits/load/"), {"toolkit": "writing", "agent": "helper"}, headers=HTMX)

    assert b"toolkits/?agent=helper" in first
    assert b'<option value="writing">' in other
    assert b'id="session-chip"' not in other
    assert "writing" not in text_of(as_bob.get(url_of(session)).content)
    assert b"Unload writing" in as_bob.get(url_of(session, "toolkits/?agent=helper")).content


def test_agents_share_their_loads_where_that_is_switched_on(
    as_bob: Client, acme: Organisation, session: ChatSession, helper: Agent
) -> None:
    answer = as_bob.post(url_of(session, "toolkits/share/"), {"shares": "1", "agent": "helper"}, headers=HTMX)
    as_bob.post(url_of(session, "toolkits/share/"), {"shares": "1"})

    assert re.search(r'id="share-loads"[^>]*aria-checked="true"', answer.content.decode(), re.DOTALL)
    with organisation_scope(acme):
        session.refresh_from_db()
        assert session.shares_loads
        entry = AuditEntry.objects.get(action="session.share_loads")
        assert (entry.before, entry.after) == ({"shares_loads": False}, {"shares_loads": True})


# -- History ----------------------------------------------------------------------------------------------------------


def test_the_history_says_who_by_which_call_and_why_it_ended(
    as_bob: Client, bob: Membership, session: ChatSession
) -> None:
    turn = make_turn(session)
    now = timezone.now()
    with organisation_scope(session.organisation):
        step = Step.objects.create(
            organisation=session.organisation, turn=turn, index=2, kind=StepKind.TOOL, status=StepStatus.DONE, round=1
        )
    ended: dict[str, Any] = {"unloaded_at": now - timedelta(minutes=3)}
    add_load(session, "first", source=LoadSource.INITIAL)
    add_load(session, "second", loaded_in=step, **ended, unload_reason=UnloadReason.NOT_ALLOWED)
    add_load(session, "third", source="person", loaded_by=bob, **ended, unload_reason="unloaded", unloaded_by=bob)
    add_load(session, "fourth", loaded_in=step, **ended, unload_reason="unloaded", unloaded_in=step)

    page = as_bob.get(url_of(session, "loads/")).content

    text = text_of(page)
    assert re.findall(r"(first|second|third|fourth) Starter", text) == ["fourth", "third", "second", "first"]
    assert "The agent begins with it" in text
    assert "Dropped: no longer allowed to the agent" in text
    assert "Unloaded by Bob" in text
    assert "Unloaded by the agent turn 1, step 2" in text
    assert f'href="/o/acme/turns/{turn.pk}/steps/2/"'.encode() in page


def test_the_history_pages_by_place(as_bob: Client, session: ChatSession) -> None:
    for number in range(51):
        add_load(session, f"kit_{number:02}")

    first = as_bob.get(url_of(session, "loads/")).content.decode()
    older = re.search(r'href="([^"]+\?after=[\w-]+)"', first)
    assert older is not None
    second = as_bob.get(older[1], headers=HTMX).content.decode()

    assert len(re.findall(r"kit_\d\d", first)) == 50
    assert re.findall(r"kit_\d\d", second) == ["kit_00"]
    assert "<html" not in second


@pytest.mark.parametrize("before", ["x", "0", "-1", "9" * 30])
def test_a_place_that_is_no_number_is_harmless(as_bob: Client, session: ChatSession, before: str) -> None:
    assert as_bob.get(url_of(session, "loads/"), {"before": before}).status_code == 200


def test_the_history_of_nothing_says_so(as_bob: Client, session: ChatSession) -> None:
    assert "Nothing was loaded yet" in text_of(as_bob.get(url_of(session, "loads/")).content)


# -- In the chat ------------------------------------------------------------------------------------------------------


def test_mr_19_a_dropped_load_and_tools_over_the_limit_are_told_in_the_chat(
    as_bob: Client, session: ChatSession
) -> None:
    turn = make_turn(session, status=TurnStatus.DONE, answer="Yes.")
    add_event(turn, "loads_dropped", {"loads": [{"name": "devops", "reason": "not_allowed"}]})
    add_event(turn, "tools_over_limit", {"count": 12, "tools": [f"tool_{number}" for number in range(12)]})

    text = text_of(as_bob.get(url_of(session)).content)

    assert "devops was dropped: no longer allowed" in text
    over = "12 tools do not fit into what one request may carry: tool_0, tool_1, tool_2, tool_3, tool_4 and 7 more."
    assert over in text


def test_mr_40_what_was_added_to_the_conversation_is_told_in_the_chat(as_bob: Client, session: ChatSession) -> None:
    turn = make_turn(session, status=TurnStatus.DONE, answer="Yes.")
    told: list[dict[str, Any]] = [
        {"structured": {"added": ["uuid", "calculator"], "unavailable": []}, "tool_tokens": 1412},
        {"structured": {"added": ["uuid"], "unavailable": [f"tool_{each}" for each in range(7)]}, "tool_tokens": 4},
        {"structured": {"added": [], "unavailable": []}},
    ]
    with organisation_scope(turn.organisation):
        for index, fields in enumerate(told, 1):
            own = {"organisation": turn.organisation, "turn": turn, "index": index}
            Step.objects.create(**own, kind=StepKind.TOOLS, status=StepStatus.DONE, **fields)

    text = text_of(as_bob.get(url_of(session)).content)

    assert "2 tools added: uuid, calculator, 1,412 tokens" in text
    assert "1 tool added: uuid, 4 tokens" in text
    assert "tool_2, tool_3, tool_4 and 2 more" in text
    assert "Tools are available again" in text


@pytest.mark.parametrize(
    ("event", "because", "told"),
    [
        ("tools_declared_anew", "history_cut", "older messages do not fit any more, and tools stood among them."),
        ("tools_declared_anew", "withdrawn", "some that were sent before may not be used any more."),
        ("native_unavailable", "provider", "not added to the conversation: the provider is not known to take that."),
        ("native_unavailable", "<b>", ""),
        ("search_unavailable", "model", "does not search them: the model is not known to do that."),
        ("search_unavailable", "<b>", ""),
    ],
)
def test_mr_40_why_tools_were_not_added_is_told_in_the_chat(
    as_bob: Client, session: ChatSession, event: str, because: str, told: str
) -> None:
    turn = make_turn(session, status=TurnStatus.DONE, answer="Yes.")
    add_event(turn, event, {"because": because})
    with organisation_scope(turn.organisation):
        for number in (1, 2):
            own = {"organisation": turn.organisation, "tokens": 1, "version_ids": [], "wire": "[]"}
            sent = ToolSet.objects.create(**own, key=str(number))
            step = {"organisation": turn.organisation, "turn": turn, "index": number, "round": number}
            Step.objects.create(**step, kind=StepKind.MODEL, status=StepStatus.DONE, tool_set=sent)

    text = text_of(as_bob.get(url_of(session)).content)

    assert told in text
    assert any(end in text for end in ("conversation:", "with them:", "search them:")) == bool(told)


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (["uuid", "calculator"], "The provider searched tools, and found uuid, calculator"),
        ([], "The provider searched tools, and found none"),
        (None, ""),
    ],
)
def test_mr_40_what_the_provider_found_is_told_in_the_chat(
    as_bob: Client, session: ChatSession, found: list[str] | None, told: str
) -> None:
    turn = make_turn(session, status=TurnStatus.DONE, answer="Yes.")
    with organisation_scope(turn.organisation):
        step = {"organisation": turn.organisation, "turn": turn, "index": 1, "round": 1, "status": StepStatus.DONE}
        Step.objects.create(**step, kind=StepKind.MODEL, structured=None if found is None else {"found": found})

    text = text_of(as_bob.get(url_of(session)).content)

    assert told in text
    assert ("The provider searched" in text) == bool(told)


def test_mr_40_the_panel_says_that_the_provider_searches_what_can_be_loaded(
    as_bob: Client, session: ChatSession
) -> None:
    with organisation_scope(session.organisation):
        Provider.objects.update(dialect=Dialect.RESPONSES, takes_tool_search=True)
        Agent.objects.update(loading_mode=LoadingMode.NATIVE_SEARCH)
        AgentToolkit.objects.update(is_initial=False)
        touch_registry(session.organisation_id)

    text = text_of(as_bob.get(url_of(session)).content)

    assert "The provider searches the toolkits" in text
    assert re.search(r"devops searched: 1 tool \d+ research searched: 1 tool \d+", text)


def test_mr_40_a_turn_that_loads_nothing_says_nothing_of_it_in_the_chat(as_bob: Client, session: ChatSession) -> None:
    turn = make_turn(session, status=TurnStatus.DONE, answer="Yes.")
    add_event(turn, "native_unavailable", {"because": "provider"})

    assert "not added to the conversation" not in text_of(as_bob.get(url_of(session)).content)


# -- Queries ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 3])
def test_a_page_with_loads_by_hand_takes_15_queries_however_many(
    as_bob: Client, alice: Membership, session: ChatSession, count: int
) -> None:
    for number in range(count):
        toolkit = make_toolkit(session.organisation, f"kit_{number}", make_tool(session.organisation, f"in_{number}"))
        allow_toolkit(session.agent, toolkit)
        add_load(session, f"kit_{number}", toolkit=toolkit, source=LoadSource.PERSON, loaded_by=alice)
        add_event(make_turn(session), "loads_dropped", {"loads": []})

    with CaptureQueriesContext(connection) as captured:
        page = as_bob.get(url_of(session)).content

    assert text_of(page).count("by Alice Unload") == count
    assert len(captured) == 15


@pytest.mark.parametrize("count", [1, 3])
def test_the_history_takes_the_same_queries_for_one_and_three(
    as_bob: Client, bob: Membership, session: ChatSession, count: int
) -> None:
    for number in range(count):
        add_load(session, f"kit_{number}", source=LoadSource.PERSON, loaded_by=bob)

    with CaptureQueriesContext(connection) as captured:
        as_bob.get(url_of(session, "loads/"))

    assert len(captured) == 8


@pytest.mark.long
def test_200_toolkits_fit_on_the_page(as_bob: Client, session: ChatSession) -> None:
    tool = make_tool(session.organisation, "shared")
    for number in range(200):
        allow_toolkit(session.agent, make_toolkit(session.organisation, f"kit_{number}", tool))

    with CaptureQueriesContext(connection) as captured:
        page = as_bob.get(url_of(session)).content

    assert 15 < page.count(b"<option value=") < 30
    assert b"Find a toolkit" in page
    assert len(page) < 100_000
    assert len(captured) <= 14
    found = as_bob.get(f"{url_of(session)}toolkits/?q=KIT_199").content
    assert b'<option value="kit_199">' in found
    assert b'<option value="kit_0">' not in found
    nothing = as_bob.get(f"{url_of(session)}toolkits/?q=no-such-kit").content
    assert b"No toolkit matches" in nothing
    assert b"Find a toolkit" in nothing
