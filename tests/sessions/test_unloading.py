"""What an unload leaves to the session's other agents."""

from __future__ import annotations

import pytest

from capabilities.models import Agent, AgentToolkit, Toolkit
from sessions import loading
from sessions.loadable import LoadResult, Place
from sessions.loading import By, share_loads
from sessions.models import ChatSession, LoadedToolkit
from tests.cast import allow_toolkit, make_agent, make_role
from tests.scripted_openai import ScriptedOpenAI
from tests.sessions.loads import make_loading_session
from tests.sessions.turns import run
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
    return loading.unload(Place(session, agent), "clock", by=By(session.membership))


def loaded_by(session: ChatSession) -> list[str]:
    rows = LoadedToolkit.objects.filter(session=session, unloaded_at=None).order_by("pk")
    return list(rows.values_list("agent__slug", flat=True))


def test_mr_25_an_agent_unloads_only_what_it_loaded_itself(session: ChatSession, colleague: Agent) -> None:
    for agent in (session.agent, colleague):
        loading.load(Place(session, agent), "clock", by=By(session.membership))

    assert unload(session, colleague).status == "unloaded"

    assert loaded_by(session) == ["starter"]


def test_mr_25_where_loads_are_shared_an_agent_unloads_what_another_loaded(
    session: ChatSession, colleague: Agent
) -> None:
    share_loads(session, True, actor=session.membership)
    session.refresh_from_db()
    loading.load(Place(session, session.agent), "clock", by=By(session.membership))

    assert unload(session, colleague).status == "unloaded"

    assert loaded_by(session) == []


def test_mr_09_where_loads_are_shared_what_is_initial_of_one_agent_no_other_unloads(
    session: ChatSession, colleague: Agent
) -> None:
    share_loads(session, True, actor=session.membership)
    session.refresh_from_db()
    begin(session)

    result = unload(session, colleague)

    assert (result.status, result.message) == (
        "sticky",
        "clock belongs to the agent Starter from the start, and stays.",
    )
    assert loaded_by(session) == ["starter"]
