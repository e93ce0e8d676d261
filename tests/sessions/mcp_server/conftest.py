from __future__ import annotations

from collections.abc import Iterator

import pytest

from capabilities.models import Agent
from tests.cast import give_tool, make_agent, make_category, make_meta_tools, make_reader, make_tool
from tests.sessions.mcp_server.gateway import web_server, workers
from toolhub.tenants.models import Organisation


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
