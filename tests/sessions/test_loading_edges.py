"""Loading where two things cross: agents that share, rights that went, workers that lost their turn."""

from __future__ import annotations

import pytest

from capabilities.models import Agent, Toolkit
from sessions import ledger
from sessions.loading import share_loads
from sessions.models import ChatSession
from tests.cast import allow_toolkit, give_tool, make_agent, make_role
from tests.scripted_openai import ScriptedOpenAI
from tests.sessions.loads import (
    carried,
    kit_tool,
    load_by_hand,
    loads_of,
    make_fast_and_slow,
    make_loading_session,
    payloads,
    reread,
)
from tests.sessions.turns import work
from toolhub.tenants.models import Membership
from toolhub.tenants.scope import organisation_scope

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def session(bob: Membership, provider: ScriptedOpenAI) -> ChatSession:
    """Bob may use everything; his agent has `calculator` and may load `clock` and `ids`."""
    make_role(bob.organisation, bob)
    return make_loading_session(bob, provider.url)


def make_colleague(session: ChatSession, *toolkits: str) -> Agent:
    agent = make_agent(session.organisation, slug="colleague", starts_with_core=False)
    with organisation_scope(session.organisation_id):
        for name in toolkits:
            allow_toolkit(agent, Toolkit.objects.get(name=name))
    return agent


def share(session: ChatSession) -> None:
    with organisation_scope(session.organisation_id):
        share_loads(session, True, actor=session.membership)


# -- Agents that share ------------------------------------------------------------------------------------------------


def test_mr_25_what_clashes_for_one_agent_stays_loaded_for_the_agent_that_loaded_it(
    session: ChatSession, provider: ScriptedOpenAI
) -> None:
    make_fast_and_slow(session)
    colleague = make_colleague(session, "fast")
    give_tool(colleague, kit_tool(session.organisation, "current_time"))
    share(session)
    load_by_hand(session, "fast")
    with organisation_scope(session.organisation_id):
        accepted = ledger.accept(reread(session), "Hello.", member=session.membership, agent=colleague)

    turn = work(accepted.turn)

    assert carried(provider.requests[-1])[0] == "current_time"
    assert payloads(turn, "loads_dropped") == []
    assert loads_of(session) == [("fast", "person", "")]
