"""What an unload leaves to the session's other agents."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from capabilities.models import Agent, AgentToolkit, Toolkit
from sessions.models import ChatSession, LoadedToolkit
from sessions.selection.loading import writes as loading
from sessions.selection.loading.loadable import LoadResult, LoadTarget
from sessions.selection.loading.writes import By, share_loads
from tests.cast import allow_toolkit, make_agent, make_category, make_role, make_tool, make_toolkit
from tests.rest import Rest
from tests.scripted_openai import Say, ScriptedOpenAI, call
from tests.sessions.loads import answers_in, make_loading_session
from tests.sessions.run_turns import run
from toolhub.tenants.models import Membership, Organisation

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def session(bob: Membership, provider: ScriptedOpenAI, in_acme: Organisation) -> ChatSession:
    make_role(bob.organisation, bob)
    return make_loading_session(bob, provider.url)


@pytest.fixture
def colleague(session: ChatSession) -> Agent:
    """Another agent, who may load `clock` too."""
    agent = make_agent(session.organisation, slug="colleague", starts_with_core=False)
    allow_toolkit(agent, Toolkit.objects.get(name="clock"))
    return agent


def begin(session: ChatSession) -> None:
    """The session's first agent has `clock` from the start."""
    AgentToolkit.objects.filter(agent=session.agent, toolkit__name="clock").update(is_initial=True)
    run(session)


def unload(session: ChatSession, agent: Agent) -> LoadResult:
    return loading.unload(LoadTarget(session, agent), "clock", by=By(session.membership))


def loaded_by(session: ChatSession) -> list[str]:
    rows = LoadedToolkit.objects.filter(session=session, unloaded_at=None).order_by("pk")
    return list(rows.values_list("agent__slug", flat=True))


def test_mr_25_an_agent_unloads_only_what_it_loaded_itself(session: ChatSession, colleague: Agent) -> None:
    for agent in (session.agent, colleague):
        loading.load(LoadTarget(session, agent), "clock", by=By(session.membership))

    assert unload(session, colleague).status == "unloaded"

    assert loaded_by(session) == ["starter"]


def test_mr_25_where_loads_are_shared_an_agent_unloads_what_another_loaded(
    session: ChatSession, colleague: Agent
) -> None:
    share_loads(session, True, actor=session.membership)
    session.refresh_from_db()
    loading.load(LoadTarget(session, session.agent), "clock", by=By(session.membership))

    assert unload(session, colleague).status == "unloaded"

    assert loaded_by(session) == []


def test_mr_09_where_loads_are_shared_what_is_initial_of_one_agent_no_other_unloads(
    session: ChatSession, colleague: Agent
) -> None:
    share_loads(session, True, actor=session.membership)
    session.refresh_from_db()
    begin(session)

    result = unload(session, colleague)

    assert result.status == "sticky"
    assert "belongs to the agent Starter" in result.message
    assert loaded_by(session) == ["starter"]


# -- Two of one name --------------------------------------------------------------------------------------------------


@pytest.fixture
def twins(session: ChatSession, alice: Membership) -> ChatSession:
    """A toolkit and a category, both called `ops`, are loaded."""
    organisation = session.organisation
    category = make_category(organisation, "ops", is_core=False)
    make_tool(organisation, "deploy", category=category)
    docker = make_tool(organisation, "docker", category=make_category(organisation, "kit"))
    allow_toolkit(session.agent, make_toolkit(organisation, "ops", docker))
    place = LoadTarget(session, session.agent)
    assert loading.load(place, "ops", by=By(session.membership)).status == "loaded"
    assert loading.load_category(place, "ops", by=By(alice)).status == "loaded"
    return session


def kinds_loaded(session: ChatSession) -> list[str]:
    rows = LoadedToolkit.objects.filter(session=session, unloaded_at=None, name="ops").order_by("pk")
    return ["category" if row.category_id else "toolkit" for row in rows]


AMBIGUOUS = (
    "Nothing is unloaded: a toolkit and a category of the name ops are loaded. Say which one with kind: "
    "toolkit, category."
)


@pytest.mark.parametrize(("kind", "left"), [("toolkit", ["category"]), ("category", ["toolkit"])])
def test_an_unload_ends_the_one_of_two_that_it_names(twins: ChatSession, kind: str, left: list[str]) -> None:
    result = loading.unload(LoadTarget(twins, twins.agent), "ops", by=By(twins.membership), kind=kind)

    assert (result.status, kinds_loaded(twins)) == ("unloaded", left)
    assert result.message.startswith(f"{kind.title()} 'ops' ")


def test_an_unload_that_could_mean_two_ends_neither_and_says_how_to_name_one(twins: ChatSession) -> None:
    result = loading.unload(LoadTarget(twins, twins.agent), "ops", by=By(twins.membership))

    assert (result.status, result.message) == ("ambiguous", AMBIGUOUS)
    assert (result.more, kinds_loaded(twins)) == ({"kinds": ["toolkit", "category"]}, ["toolkit", "category"])


def test_one_of_two_that_is_initial_stays_and_the_other_needs_no_kind(twins: ChatSession) -> None:
    AgentToolkit.objects.filter(toolkit__name="ops").update(is_initial=True)
    place = LoadTarget(twins, twins.agent)

    statuses = [loading.unload(place, "ops", by=By(twins.membership), kind=kind).status for kind in ("toolkit", "")]

    assert (statuses, kinds_loaded(twins)) == (["sticky", "unloaded"], ["toolkit"])


def test_a_kind_that_is_not_loaded_under_that_name_ends_nothing(session: ChatSession) -> None:
    place, by = LoadTarget(session, session.agent), By(session.membership)
    loading.load(place, "clock", by=by)

    statuses = [loading.unload(place, "clock", by=by, kind=kind).status for kind in ("category", "tool", "toolkit")]

    assert statuses == ["unknown", "unknown", "unloaded"]


def test_the_model_names_one_of_two_by_its_kind(twins: ChatSession, provider: ScriptedOpenAI) -> None:
    provider.enqueue(  # in two rounds: calls of one reply run side by side
        Say(calls=[call("unload_tools", {"toolkit": "ops"}, id="a")]),
        Say(calls=[call("unload_tools", {"toolkit": "ops", "kind": "category"}, id="b")]),
        Say("Done."),
    )

    neither, one = answers_in(run(twins))

    assert (neither["status"], neither["message"], one["status"]) == ("ambiguous", AMBIGUOUS, "unloaded")
    assert kinds_loaded(twins) == ["toolkit"]


def test_over_rest_one_of_two_is_named_by_its_kind(twins: ChatSession) -> None:
    rest, path = Rest(twins.membership), f"sessions/{twins.pk}/toolkits/ops"

    assert rest.ask("DELETE", path).error == (409, "ambiguous", None)
    assert rest.ask("DELETE", path, query={"kind": "else"}).error == (400, "invalid", "kind")
    assert rest.ask("DELETE", path, query={"kind": "toolkit"}).json["status"] == "unloaded"
    assert rest.ask("DELETE", path).json["status"] == "unloaded"
    assert kinds_loaded(twins) == []


def test_the_panel_unloads_the_line_that_was_clicked(twins: ChatSession, client: Client) -> None:
    client.force_login(twins.membership.user)
    page = client.get(f"/o/acme/sessions/{twins.pk}/toolkits/").content.decode()
    assert re.findall(r'name="kind" value="(\w+)"', page) == ["toolkit", "category"]

    client.post(f"/o/acme/sessions/{twins.pk}/toolkits/unload/", {"name": "ops", "kind": "toolkit"})

    assert kinds_loaded(twins) == ["category"]
