from __future__ import annotations

import pytest

from sessions.models import ChatSession
from tests.cast import make_agent, make_category, make_role, make_session, make_tool
from tests.scripted_openai import ScriptedOpenAI
from toolhub.tenants.models import Membership


@pytest.fixture
def session(bob: Membership, provider: ScriptedOpenAI) -> ChatSession:
    """Bob may use every tool of an agent with `task_create`, `calculator` and `uuid`."""
    organisation = bob.organisation
    make_tool(organisation, "task_create", category=make_category(organisation, "tasks"))
    make_tool(organisation, "calculator")
    make_tool(organisation, "uuid")
    make_role(organisation, bob)
    return make_session(bob, make_agent(organisation, provider.url, prompt="Be brief."))
