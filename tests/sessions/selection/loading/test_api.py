from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from capabilities.models import Agent, AgentScope, Tool
from sessions.access import session_or_404
from sessions.models import ChatSession, LoadedToolkit, LoadSource
from sessions.selection.loading.queries import loads_of
from sessions.selection.queries import selection_preview
from tests.cast import (
    allow_toolkit,
    give_tool,
    hold_credential,
    make_agent,
    make_category,
    make_member,
    make_role,
    make_session,
    make_token,
    make_tool,
    make_toolkit,
)
from tests.rest import API, Rest
from toolhub.tenants.models import Access, AdminRight, AuditEntry, Membership, Organisation, Right, Scope
from toolhub.tenants.rows.cursors import sealed_place
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db


@pytest.fixture
def agent(acme: Organisation) -> Agent:
    """May load `devops` and `research`, which it begins with, and its own deferred `clock`."""
    agent = make_agent(acme, starts_with_core=False)
    ops = make_category(acme, "ops", is_core=False)
    tools = {name: make_tool(acme, name, category=ops) for name in ("docker", "github", "papers", "clock")}
    allow_toolkit(agent, make_toolkit(acme, "devops", tools["docker"], tools["github"], description="Deploys."))
    allow_toolkit(agent, make_toolkit(acme, "research", tools["papers"]), initial=True)
    give_tool(agent, tools["clock"], is_deferred=True)
    return agent


@pytest.fixture
def session(bob: Membership, agent: Agent) -> ChatSession:
    make_role(bob.organisation, bob)
    return make_session(bob, agent)


def url_of(session: ChatSession, more: str = "") -> str:
    return f"sessions/{session.pk}/toolkits{more}"


def listed(rest: Rest, session: ChatSession) -> dict[str, Any]:
    return {each["name"]: each for each in rest.get(url_of(session)).json["results"]}


def give_right(member: Membership, right: Right, category: str = "") -> None:
    own = {"organisation": member.organisation, "membership": member}
    with organisation_scope(member.organisation):
        AdminRight.objects.create(**own, right=right, category=category)


def test_it_tells_what_is_loaded_and_what_could_be(bob: Membership, session: ChatSession) -> None:
    reply = Rest(bob).get(url_of(session))

    assert {name: reply.json[name] for name in ("agent", "shares_loads")} == {"agent": "starter", "shares_loads": False}
    rows = {each["name"]: each for each in reply.json["results"]}
    assert list(rows) == ["research", "devops", "clock"]
    assert rows["devops"]["tools"] == ["docker", "github"]
    assert rows["devops"]["tokens"] > 0
    assert rows["devops"]["description"] == "Deploys."
    assert {name: (row["kind"], row["loaded"], row["sticky"]) for name, row in rows.items()} == {
        "research": ("toolkit", True, True),
        "devops": ("toolkit", False, False),
        "clock": ("tool", False, False),
    }


def test_a_toolkit_without_a_tool_for_the_member_is_not_listed(acme: Organisation, agent: Agent) -> None:
    member = make_member(acme, "nora")
    session = make_session(member, agent)

    assert listed(Rest(member), session).keys() == {"research"}


def test_a_member_loads_and_unloads_and_both_are_on_record(bob: Membership, session: ChatSession) -> None:
    rest = Rest(bob)

    first = rest.post(url_of(session), {"toolkit": "devops"})
    again = rest.post(url_of(session), {"toolkit": "devops"})
    row = listed(rest, session)["devops"]
    gone = rest.ask("DELETE", url_of(session, "/devops"))
    not_there = rest.ask("DELETE", url_of(session, "/devops"))

    assert (first.status, first.json["status"], first.json["tools"]) == (201, "loaded", ["docker", "github"])
    assert first.json["takes_effect"] == "next_request"
    assert (again.status, again.json["status"]) == (200, "already_loaded")
    assert (row["loaded"], row["source"], row["loaded_by"]) == (True, "person", str(bob.public_id))
    assert (gone.status, gone.json["status"]) == (200, "unloaded")
    assert (not_there.status, not_there.json["status"]) == (200, "not_loaded")
    with organisation_scope(bob.organisation):
        actions = AuditEntry.objects.filter(action__startswith="session.").order_by("pk")
        assert list(actions.values_list("action", "actor_label")) == [
            ("session.load", "bob@example.com"),
            ("session.unload", "bob@example.com"),
        ]


def test_a_load_is_on_the_sessions_next_turn(bob: Membership, session: ChatSession) -> None:
    rest = Rest(bob)
    rest.post(url_of(session), {"toolkit": "clock"})

    tools = rest.get(f"sessions/{session.pk}/tools").json["tools"]

    assert "clock" in [each["function"]["name"] for each in tools]


def test_mr_10_what_is_refused_says_why(acme: Organisation, bob: Membership, session: ChatSession) -> None:
    make_toolkit(acme, "finance", make_tool(acme, "ledger"))
    rest = Rest(bob)

    missing = rest.post(url_of(session), {"toolkit": "nothing"})
    not_allowed = rest.post(url_of(session), {"toolkit": "finance"})
    sticky = rest.ask("DELETE", url_of(session, "/research"))

    assert missing.error == (400, "unknown", "toolkit")
    assert "devops" in missing.json["error"]["message"]
    assert not_allowed.error == (403, "not_allowed", None)
    assert sticky.error == (409, "sticky", None)
    assert rest.ask("DELETE", url_of(session, "/nothing")).error == (404, "not_found", None)


def test_mr_23_a_conflict_names_both_sides(
    acme: Organisation, bob: Membership, agent: Agent, session: ChatSession
) -> None:
    with organisation_scope(acme):
        papers = agent.agent_toolkits.get(toolkit__name="research").toolkit.toolkit_tools.get().tool
    slow = make_toolkit(acme, "slow", papers, overrides={"papers": {"timeout": 90.0}})
    allow_toolkit(agent, slow)

    reply = Rest(bob).post(url_of(session), {"toolkit": "slow"})

    assert reply.error == (409, "conflict", None)
    message = reply.json["error"]["message"]
    assert [word for word in ("research", "slow", "papers", "timeout 90") if word not in message] == []


def test_mr_10_an_agent_of_its_members_own_refuses_shared_tools(acme: Organisation, bob: Membership) -> None:
    agent = make_agent(acme, starts_with_core=False, scope=AgentScope.MEMBER, slug="own")
    tool = make_tool(acme, "repositories")
    with organisation_scope(acme):
        Tool.objects.filter(pk=tool.pk).update(service="github")
    hold_credential(acme, "github")
    allow_toolkit(agent, make_toolkit(acme, "code", tool))
    make_role(acme, bob)

    reply = Rest(bob).post(url_of(make_session(bob, agent)), {"toolkit": "code"})

    assert reply.error == (409, "scope_incompatible", None)
    assert "They are repositories." in reply.json["error"]["message"]


@pytest.mark.parametrize("body", [{}, {"toolkit": "devops", "category": "ops"}, {"agent": "starter"}])
def test_exactly_one_thing_is_loaded(bob: Membership, session: ChatSession, body: dict[str, str]) -> None:
    assert Rest(bob).post(url_of(session), body).error == (400, "invalid", "toolkit")


@pytest.mark.parametrize("slug", ["nobody", "theirs", ""])
def test_an_agent_that_is_not_there_is_unknown(
    charlie: Membership, bob: Membership, session: ChatSession, slug: str
) -> None:
    make_agent(charlie.organisation, slug="theirs")
    rest = Rest(bob)

    assert rest.get(url_of(session), agent=slug).error == (400, "unknown", "agent")
    if slug:
        assert rest.post(url_of(session), {"toolkit": "devops", "agent": slug}).error == (400, "unknown", "agent")


# -- Categories -------------------------------------------------------------------------------------------------------


def test_zk_23_a_category_is_loaded_by_who_holds_the_right_for_it(
    acme: Organisation, bob: Membership, session: ChatSession
) -> None:
    make_tool(acme, "light", category=make_category(acme, "ha", is_core=False))

    refused = Rest(bob).post(url_of(session), {"category": "ha"})
    give_right(bob, Right.LOAD_CATEGORIES, "ha")
    rest = Rest(bob)
    shown = listed(rest, session)
    other = rest.post(url_of(session), {"category": "ops"})
    loaded = rest.post(url_of(session), {"category": "ha"})

    assert refused.error == (403, "not_allowed", None)
    assert (shown["ha"]["kind"], shown["ha"]["tools"], shown["ha"]["loaded"]) == ("category", ["light"], False)
    assert "ops" not in shown
    assert other.error == (403, "not_allowed", None)
    assert (loaded.status, loaded.json["tools"]) == (201, ["light"])
    assert listed(rest, session)["ha"]["loaded"] is True


def test_zk_21_a_category_that_is_not_there_is_unknown(alice: Membership, agent: Agent) -> None:
    make_role(alice.organisation, alice)

    reply = Rest(alice).post(url_of(make_session(alice, agent)), {"category": "nothing"})

    assert reply.error == (400, "unknown", "category")


# -- Who --------------------------------------------------------------------------------------------------------------


def test_another_members_session_takes_the_right(alice: Membership, bob: Membership, session: ChatSession) -> None:
    carol = make_member(bob.organisation, "carol")
    operator = Rest(alice)

    assert Rest(carol).post(url_of(session), {"toolkit": "devops"}).status == 404
    assert operator.post(url_of(session), {"toolkit": "devops"}).status == 201
    give_right(carol, Right.SESSIONS)
    assert Rest(carol).ask("DELETE", url_of(session, "/devops")).status == 200
    with organisation_scope(bob.organisation):
        by_whom = AuditEntry.objects.filter(action__in=["session.load", "session.unload"]).order_by("pk")
        assert list(by_whom.values_list("actor_label", flat=True)) == ["alice@example.com", "carol@example.com"]


def test_a_viewer_reads_and_loads_nothing(acme: Organisation, agent: Agent) -> None:
    viewer = make_member(acme, "vera", Access.VIEWER)
    session = make_session(viewer, agent)
    rest = Rest(viewer)

    assert rest.get(url_of(session)).status == 200
    assert rest.post(url_of(session), {"toolkit": "devops"}).error == (403, "forbidden", None)
    assert rest.ask("DELETE", url_of(session, "/devops")).error == (403, "forbidden", None)


def test_strangers_find_nothing(charlie: Membership, session: ChatSession) -> None:
    rest = Rest(charlie)

    assert rest.get(url_of(session)).status == 404
    assert rest.post(url_of(session), {"toolkit": "devops"}).status == 404
    assert rest.get(f"sessions/{session.pk}/loads").status == 404


def test_a_token_for_chatting_changes_its_own_members_sessions_alone(
    client: Client, alice: Membership, agent: Agent, session: ChatSession
) -> None:
    make_role(alice.organisation, alice, slug="every")
    own = make_session(alice, agent)
    headers = {"Authorization": f"Bearer {make_token(alice, scopes=[Scope.READ, Scope.CHAT])}"}

    def load_into(where: ChatSession) -> int:
        body = {"toolkit": "devops"}
        return client.post(API + url_of(where), body, content_type="application/json", headers=headers).status_code

    assert load_into(own) == 201
    assert load_into(session) == 403


def test_sharing_loads_over_rest_is_on_record(bob: Membership, session: ChatSession) -> None:
    body = b'{"shares_loads": true, "title": "Deploy"}'

    reply = Rest(bob).ask("PATCH", f"sessions/{session.pk}", body)

    assert (reply.json["shares_loads"], reply.json["title"]) == (True, "Deploy")
    with organisation_scope(bob.organisation):
        assert AuditEntry.objects.get(action="session.share_loads").actor_label == "bob@example.com"


# -- History ----------------------------------------------------------------------------------------------------------


def test_the_history_tells_who_loaded_and_unloaded(bob: Membership, alice: Membership, session: ChatSession) -> None:
    Rest(bob).post(url_of(session), {"toolkit": "devops"})
    Rest(alice).ask("DELETE", url_of(session, "/devops"))
    Rest(bob).post(url_of(session), {"toolkit": "clock"})

    rows = Rest(bob).get(f"sessions/{session.pk}/loads").json["results"]

    told = [(each["name"], each["source"], each["loaded_by"], each["unload_reason"]) for each in rows]
    assert told == [("clock", "person", str(bob.public_id), ""), ("devops", "person", str(bob.public_id), "unloaded")]
    assert rows[1]["unloaded_by"] == str(alice.public_id)
    assert (rows[0]["call"], rows[0]["unloaded_at"]) == (None, None)


# -- Reading ----------------------------------------------------------------------------------------------------------


def test_the_panel_selects_the_tools_of_the_next_turn(bob: Membership, agent: Agent, session: ChatSession) -> None:
    for mode in ("next_request", "same_run", "constant"):
        with organisation_scope(bob.organisation):
            Agent.objects.update(loading_mode=mode)
            Rest(bob).post(url_of(session), {"toolkit": "clock"})
            fresh = session_or_404(bob, session.pk)
            look = loads_of(fresh, fresh.agent)

            assert look.selection == selection_preview(fresh)
            assert [tool.name for tool in look.selection.tools] != []


@pytest.mark.parametrize("count", [1, 3])
def test_the_queries_do_not_grow_with_what_is_loaded(
    acme: Organisation, bob: Membership, agent: Agent, session: ChatSession, count: int
) -> None:
    rest = Rest(bob)
    for number in range(count):
        allow_toolkit(agent, make_toolkit(acme, f"kit_{number}", make_tool(acme, f"in_kit_{number}")))
        rest.post(url_of(session), {"toolkit": f"kit_{number}"})

    with CaptureQueriesContext(connection) as captured:
        found = rest.get(url_of(session)).json["results"]

    assert len([each for each in found if each["loaded"]]) == count + 1
    assert len(captured) == 7


@pytest.mark.long
def test_200_toolkits_take_the_same_queries(acme: Organisation, bob: Membership, agent: Agent) -> None:
    tool = make_tool(acme, "shared")
    for number in range(200):
        allow_toolkit(agent, make_toolkit(acme, f"kit_{number}", tool))
    make_role(acme, bob)
    session = make_session(bob, agent)
    rest = Rest(bob)
    rest.get("registry")

    found: list[dict[str, Any]] = []
    query: dict[str, str] = {}
    while True:
        with CaptureQueriesContext(connection) as captured:
            part = rest.get(url_of(session), **query).json
        assert len(captured) == 6
        assert len(part["results"]) <= 15 + 1  # what is loaded stands on the first page
        found += part["results"]
        if part["next"] is None:
            break
        query = {"cursor": part["next"]}

    assert len({each["name"] for each in found}) == len(found) == 203
    assert [each["name"] for each in rest.get(url_of(session), limit=30).json["results"]] == [
        each["name"] for each in found[:31]
    ]
    assert rest.get(url_of(session), limit=31).error == (400, "invalid", "limit")
    assert rest.get(url_of(session), cursor=sealed_place("toolkit gone")).error == (400, "invalid", "cursor")
    assert rest.get(url_of(session), cursor=sealed_place("nothing")).error == (400, "invalid", "cursor")
    with organisation_scope(acme):
        assert not LoadedToolkit.objects.filter(source=LoadSource.PERSON).exists()


def test_zk_42_a_load_raises_the_sessions_version_and_no_other_one(
    acme: Organisation, bob: Membership, agent: Agent, session: ChatSession
) -> None:
    """ZK-45: what one session loads changes no other; what the organisation changes raises all."""
    rest, other = Rest(bob), make_session(bob, agent)

    def versions() -> list[int]:
        each = [rest.get(f"sessions/{one.pk}/tools").json["version"] for one in (session, other)]
        return [*each, rest.get("registry").json["version"]]

    mine, others, registry = versions()
    assert rest.post(url_of(session), {"toolkit": "devops"}).status == 201
    assert versions() == [mine + 1, others, registry]
    assert rest.ask("DELETE", url_of(session, "/devops")).status in (200, 204)
    assert versions() == [mine + 2, others, registry]
    make_tool(acme, "another")
    assert versions() == [mine + 3, others + 1, registry + 1]
