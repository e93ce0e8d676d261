"""What a process keeps of an organisation's catalogue: every write of the catalogue is seen by the next selection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from capabilities.agents.agents.writes import AgentContent, update_agent
from capabilities.agents.toolkits.writes import ToolkitContent, ToolkitLine, delete_toolkit, update_toolkit
from capabilities.catalogue.categories.writes import CategoryContent, move_tool, update_category
from capabilities.catalogue.tools.writes import (
    Definition,
    create_tool,
    set_instructions,
    set_tool_enabled,
    set_tools_enabled,
    update_tool,
)
from capabilities.choosing.pipeline.specs import current_specs
from capabilities.common.memory import Memory
from capabilities.models import Agent, Category, Tool, Toolkit
from capabilities.running.registry import registry
from capabilities.running.services.writes import clear_service, save_service
from sessions.loop.conversation.running import RunningTurn
from sessions.models import ChatSession, LoadedToolkit, Turn
from sessions.selection.queries import Selection
from tests.cast import (
    allow_toolkit,
    make_agent,
    make_category,
    make_meta_tools,
    make_role,
    make_session,
    make_tool,
    make_toolkit,
)
from tests.sessions.run_turns import running, selected_for
from toolhub.tenants.models import Membership, Organisation
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db

SCHEMA: dict[str, Any] = {"type": "object", "properties": {}}


@pytest.fixture
def session(bob: Membership, alice: Membership) -> ChatSession:
    """An agent with a tool of its own, the core, and two toolkits, of which one is initial."""
    acme = bob.organisation
    make_meta_tools(acme)
    make_tool(acme, "calculator", category=make_category(acme, "utility", is_core=False))
    make_tool(acme, "uuid", category=make_category(acme, "core"))
    kit = make_toolkit(
        acme, "kit", make_tool(acme, "task_create", category=make_category(acme, "tasks", is_core=False))
    )
    more = make_toolkit(acme, "more", make_tool(acme, "rg", category=make_category(acme, "files", is_core=False)))
    agent = make_agent(acme)
    allow_toolkit(agent, kit, initial=True)
    allow_toolkit(agent, more)
    make_role(acme, bob)
    with organisation_scope(acme):
        update_agent(agent, content_of(agent, tools=("calculator",)), actor=alice)
    return make_session(bob, agent)


def content_of(agent: Agent, **changes: Any) -> AgentContent:
    return replace(AgentContent(agent.slug, agent.name, agent.model), **changes)


def as_claimed(session: ChatSession) -> RunningTurn:
    """A turn as a worker has it that read the registry version with it."""
    session = ChatSession.objects.select_related("agent__model__provider").get(pk=session.pk)
    row = Turn(organisation_id=session.organisation_id, session=session, agent=session.agent, seq=1)
    row.membership_id = session.membership_id
    return running(
        row,
        registry_version=Organisation.objects.get(pk=session.organisation_id).registry_version,
        has_loads=LoadedToolkit.objects.filter(session=session).exists(),
    )


def from_memory_and_from_the_database(session: ChatSession) -> tuple[Selection, Selection]:
    turn = as_claimed(session)
    remembered = selected_for(turn)
    turn.registry_version = None
    return remembered, selected_for(turn)


def tool(name: str = "calculator") -> Tool:
    return Tool.objects.get(name=name)


def service_of(name: str) -> Any:
    return registry.services[name]


WRITES: dict[str, Callable[[ChatSession, Membership], object]] = {
    "switch a tool off": lambda session, alice: set_tool_enabled(tool(), False, actor=alice),
    "switch tools off": lambda session, alice: set_tools_enabled(["uuid", "rg"], False, actor=alice),
    "word a tool anew": lambda session, alice: set_instructions(tool(), "Add with care.", actor=alice),
    "a new version": lambda session, alice: update_tool(
        tool(), Definition("calculator", "Another text.", SCHEMA), actor=alice
    ),
    "a new tool in the core": lambda session, alice: create_tool(
        Category.objects.get(name="core"), Definition("brand_new", "Does it.", SCHEMA), actor=alice
    ),
    "move a tool out of the core": lambda session, alice: move_tool(tool("uuid"), "utility", actor=alice),
    "a category that is core no more": lambda session, alice: update_category(
        Category.objects.get(name="core"), CategoryContent("Core", is_core=False), actor=alice
    ),
    "other tools of the agent": lambda session, alice: update_agent(
        session.agent, content_of(session.agent, tools=("rg",)), actor=alice
    ),
    "no core": lambda session, alice: update_agent(
        session.agent, content_of(session.agent, starts_with_core=False), actor=alice
    ),
    "a deferred tool": lambda session, alice: update_agent(
        session.agent, content_of(session.agent, tools=("calculator",), deferred_tools=("calculator",)), actor=alice
    ),
    "no toolkits": lambda session, alice: update_agent(
        session.agent, content_of(session.agent, allowed_toolkits=(), initial_toolkits=()), actor=alice
    ),
    "another initial toolkit": lambda session, alice: update_agent(
        session.agent, content_of(session.agent, allowed_toolkits=("more",), initial_toolkits=("more",)), actor=alice
    ),
    "another toolkit content": lambda session, alice: update_toolkit(
        Toolkit.objects.get(name="kit"), ToolkitContent("kit", tools=(ToolkitLine("rg", timeout=3.0),)), actor=alice
    ),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_write_is_seen_by_the_next_selection(session: ChatSession, alice: Membership, write: str) -> None:
    with organisation_scope(session.organisation_id):
        before, _ = from_memory_and_from_the_database(session)
        WRITES[write](session, alice)

        remembered, stored = from_memory_and_from_the_database(session)

        assert remembered == stored
        assert remembered != before


def test_a_service_that_is_set_up_or_cleared_is_seen(session: ChatSession, alice: Membership) -> None:
    name = next(name for name, each in registry.services.items() if not each.works_unset and each.is_available)
    with organisation_scope(session.organisation_id):
        make_tool(alice.organisation, "needs_it", category=Category.objects.get(name="core"))
        Tool.objects.filter(name="needs_it").update(service=name)
        spec = service_of(name)
        values = {field.name: field.default or "https://example.org" for field in spec.fields if field.is_required}

        before, _ = from_memory_and_from_the_database(session)
        save_service(spec, values, actor=alice)
        set_up, stored = from_memory_and_from_the_database(session)
        clear_service(spec, actor=alice)
        cleared, again = from_memory_and_from_the_database(session)

    assert set_up == stored != before
    assert cleared == again == before


def test_a_call_sees_a_tool_as_it_is_at_the_version_of_now(session: ChatSession, alice: Membership) -> None:
    with organisation_scope(session.organisation_id):
        versions = [tool().current_version_id or 0, tool("uuid").current_version_id or 0]
        turn = as_claimed(session)
        at = {"organisation_id": turn.row.organisation_id, "at": turn.registry_version}
        assert {each.name for each in current_specs(versions, **at) if each.is_enabled} == {"calculator", "uuid"}

        set_tool_enabled(tool("uuid"), False, actor=alice)
        update_tool(tool(), Definition("calculator", "Another text.", SCHEMA), actor=alice)

        at["at"] = as_claimed(session).registry_version
        assert [(each.name, each.is_enabled) for each in current_specs(versions, **at)] == [("uuid", False)]


def test_a_toolkit_that_is_deleted_is_seen(session: ChatSession, alice: Membership) -> None:
    with organisation_scope(session.organisation_id):
        update_agent(session.agent, content_of(session.agent, allowed_toolkits=("kit", "more")), actor=alice)
        from_memory_and_from_the_database(session)
        update_agent(session.agent, content_of(session.agent, allowed_toolkits=("kit",)), actor=alice)
        delete_toolkit(Toolkit.objects.get(name="more"), actor=alice)

        remembered, stored = from_memory_and_from_the_database(session)

    assert remembered == stored


def test_an_organisation_never_meets_what_another_one_left_in_memory(session: ChatSession, charlie: Membership) -> None:
    with organisation_scope(session.organisation_id):
        from_memory_and_from_the_database(session)
    make_tool(charlie.organisation, "uuid", category=make_category(charlie.organisation, "core"))
    make_role(charlie.organisation, charlie)
    theirs = make_session(charlie, make_agent(charlie.organisation))

    with organisation_scope(charlie.organisation_id):
        remembered, stored = from_memory_and_from_the_database(theirs)

    assert remembered == stored
    assert {each.name for each in remembered.tools} == {"uuid"}


def test_memory_is_bounded_and_forgets_what_was_asked_for_longest_ago() -> None:
    memory: Memory[int] = Memory(2)
    for key in ("a", "b", "a", "c"):
        memory.get(key, lambda: 1)

    assert [memory.get(key, lambda: 2) for key in ("a", "c", "b")] == [1, 1, 2]
