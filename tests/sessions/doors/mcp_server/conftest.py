from __future__ import annotations

from collections.abc import Iterator

import pytest

from capabilities.common.registry_version import touch_registry
from capabilities.models import Agent, ApprovalRule
from tests.capabilities.running.mcp_client.over_http import http_server
from tests.capabilities.running.mcp_client.scripted import Script
from tests.cast import give_tool, make_agent, make_category, make_meta_tools, make_reader, make_role, make_tool
from tests.sessions.doors.mcp_server.far_side import FarSide
from tests.sessions.doors.mcp_server.gateway import web_server, workers
from toolhub.tenants.models import Membership, Organisation
from toolhub.tenants.rows.scope import organisation_scope


@pytest.fixture
def origin(transactional_db: None) -> Iterator[str]:
    """A web server, with workers beside it."""
    with web_server() as found, workers():
        yield found


@pytest.fixture
def agent(transactional_db: None, acme: Organisation) -> Agent:
    """`desk` of Acme has `generate_uuid` and `calculator`, `task_create` of the core, and the meta-tools."""
    found = make_agent(acme, slug="desk", prompt="Be brief.")
    make_tool(acme, "task_create", category=make_category(acme, "tasks"))
    give_tool(found, make_tool(acme, "generate_uuid", category=make_category(acme, "ids", is_core=False)), position=1)
    give_tool(found, make_tool(acme, "calculator", category=make_category(acme, "maths", is_core=False)), position=2)
    make_meta_tools(acme)
    make_reader(acme)
    return found


@pytest.fixture
def far(agent: Agent, bob: Membership) -> Iterator[FarSide]:
    """A tool of the desk whose far side waits; Bob may call it."""
    make_role(bob.organisation, bob)
    script = Script()
    with http_server(script) as url:
        yield FarSide(agent, script, url)


@pytest.fixture
def asks_first(agent: Agent, bob: Membership) -> None:
    """Calls of `calculator` wait until Bob, or somebody else, allows them."""
    make_role(bob.organisation, bob)
    with organisation_scope(bob.organisation):
        ApprovalRule.objects.create(organisation=bob.organisation, name="ask", tool_pattern="calculator")
        touch_registry(bob.organisation_id)
