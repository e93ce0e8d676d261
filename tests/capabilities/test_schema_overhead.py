"""What an organisation of a newcomer sends with the messages of the original plan, by role and by keyword.

The plan is that of docs/requirements.md, Roles and schema tokens. Every service counts as set up here, so that no tool
is left out for want of a credential; nothing is called.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace

import pytest
from django.db import transaction
from pytest_django import DjangoDbBlocker

from capabilities.agents.agents.writes import agent_content, own_tools, update_agent
from capabilities.choosing.pipeline.permissions import permissions_of
from capabilities.choosing.pipeline.specs import current_specs
from capabilities.choosing.routing.keywords import Keywords
from capabilities.common.registry_version import touch_registry
from capabilities.models import (
    Agent,
    Effect,
    Role,
    RoleMembership,
    RoleMode,
    RoleRule,
    RoutingMode,
    ServiceSetting,
    Tool,
)
from capabilities.running.registry import registry
from capabilities.starter import FirstAdmin, create_organisation
from sessions.selection.queries import starting_selection
from tests.capabilities.test_starter_catalogue import CORTEX
from tests.cast import make_member
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = [pytest.mark.long, pytest.mark.django_db]

#: Every message that the plan names: its table of savings, its edge cases, and its examples of chat.
SCENARIOS = (
    "What's the weather?",
    "Good morning",
    "Turn off kitchen lights",
    "Search journals for X",
    "Create a task",
    "Run a SQL query",
    "test",
    "what do you think?",
    "Hey can you check something",
    "search journals",
)
#: The plan's word for a narrow set.
NARROW = 8
NAMES = {name for names in CORTEX.values() for name in names.split()}
#: What a role that may not administer does not get of the orchestrator's tools ("(admin)" in the plan).
FOR_ADMINISTRATORS = {"file_read", "file_write", "shell_exec", "cortex_status", "cortex_restart", "email_send"}


@pytest.fixture(scope="module")
def first_admin(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Membership]:
    """Of an organisation that is made once for all tests of this module; each runs in a savepoint behind it."""
    with django_db_blocker.unblock(), transaction.atomic():
        member = create_organisation("Initech", "initech", FirstAdmin("peter@example.com", "a-long-password"))
        with organisation_scope(member.organisation):
            for service in registry.services:
                ServiceSetting.objects.update_or_create(
                    organisation=member.organisation, service=service, defaults={"is_complete": True}
                )
            touch_registry(member.organisation_id)
        member.organisation.refresh_from_db()
        yield member
        transaction.set_rollback(True)


@pytest.fixture
def admin(first_admin: Membership, db: None) -> Iterator[Membership]:
    with organisation_scope(first_admin.organisation):
        yield deepcopy(first_admin)


def agent(slug: str, mode: str | None = None) -> Agent:
    found = Agent.objects.for_display().get(slug=slug)
    if mode is not None:
        found.routing_mode = mode
    return found


def sent(member: Membership, found: Agent, message: str) -> set[str]:
    """Names of the tools that the message would be sent with, without those that load and search others."""
    return {tool.name for tool in starting_selection(member, found, message).tools if not tool.is_meta}


def test_cx_01_cx_02_definitions_go_out_with_the_messages_that_need_them(admin: Membership) -> None:
    orchestrator, everything = agent("orchestrator", RoutingMode.KEYWORDS), agent("orchestrator", RoutingMode.OFF)
    whole = starting_selection(admin, everything, "Create a task")
    task = starting_selection(admin, orchestrator, "Create a task")

    assert sent(admin, orchestrator, "Good morning") == set()
    assert {"task_create"} <= sent(admin, orchestrator, "Create a task") < sent(admin, everything, "Create a task")
    assert task.tokens < 0.3 * whole.tokens


def test_cx_05_the_starter_role_everyday_has_the_core_categories_without_files(admin: Membership) -> None:
    """The exact rules: a category more, such as `file`, would open the workspace to every member."""
    rules = RoleRule.objects.filter(role__slug="everyday").values_list("category__name", "tool__name", "effect")
    core = {each.name for each in registry.categories.values() if each.is_core}

    assert sorted(map(str, rules)) == sorted(str((name, None, Effect.ALLOW.value)) for name in core - {"file"})
    assert "file" in core


def test_cx_05_what_is_marked_for_administrators_takes_a_role_that_opens_it(admin: Membership) -> None:
    member = make_member(admin.organisation, "milton")
    everyday = Role.objects.get(slug="everyday")
    RoleMembership.objects.create(organisation=admin.organisation, role=everyday, membership=member)
    orchestrator = agent("orchestrator", RoutingMode.OFF)
    permissions = permissions_of(member)
    specs = {each.name: each for each in current_specs(list(Tool.objects.values_list("current_version", flat=True)))}

    assert {name for name in FOR_ADMINISTRATORS if permissions.decide(specs[name]).allowed} == set()
    assert sent(member, orchestrator, "go").isdisjoint(FOR_ADMINISTRATORS)
    assert sent(admin, orchestrator, "go") >= FOR_ADMINISTRATORS - {"shell_exec"}


def test_cx_06_each_organisation_edits_lists_of_its_own(admin: Membership) -> None:
    other = create_organisation("Chotchkie", "chotchkie", FirstAdmin("joanna@example.com", "a-long-password"))
    update_agent(agent("research"), replace(agent_content(agent("research")), tools=("web_read",)), actor=admin)

    with organisation_scope(other.organisation):
        theirs = own_tools(agent("research"))
    assert sent(admin, agent("research"), "go") == {"web_read"}
    assert set(theirs) == {"web_search", "web_read", "http_fetch"}


@pytest.mark.parametrize(
    ("slug", "names"),
    [("research", {"web_search", "web_read", "http_fetch"}), ("chat", set()), ("distill", set())],
)
def test_cx_07_cx_08_a_list_gives_those_alone_and_an_empty_one_none(
    admin: Membership, slug: str, names: set[str]
) -> None:
    assert sent(admin, agent(slug), "Search the web for news") == names


def test_cx_09_a_role_says_all_or_opens_nothing(admin: Membership) -> None:
    member = make_member(admin.organisation, "milton")
    role = Role.objects.create(organisation=admin.organisation, slug="new", name="New")
    RoleMembership.objects.create(organisation=admin.organisation, role=role, membership=member)
    research = agent("research")
    fresh = sent(member, research, "go")

    Role.objects.filter(pk=role.pk).update(mode=RoleMode.ALL)
    touch_registry(admin.organisation_id)
    member.organisation.refresh_from_db()

    assert (role.mode, fresh, len(sent(member, research, "go"))) == (RoleMode.NONE, set(), 3)


def test_cx_17_a_keyword_that_stands_in_the_message_calls_for_its_category(admin: Membership) -> None:
    keywords = Keywords.of({name: spec.keywords for name, spec in registry.categories.items()})

    for name in CORTEX:
        for word in registry.categories[name].keywords:
            assert name in dict(keywords.matches(f"Now: {word}, please.")), (name, word)


def test_cx_22_four_in_five_of_the_plan_s_messages_need_a_narrow_set_or_none(admin: Membership) -> None:
    orchestrator = agent("orchestrator", RoutingMode.KEYWORDS)
    counts = {message: len(sent(admin, orchestrator, message) & NAMES) for message in SCENARIOS}
    narrow = [message for message, count in counts.items() if count <= NARROW]

    assert len(narrow) / len(SCENARIOS) >= 0.8, counts
    assert {message: counts[message] for message in ("Good morning", "test", "what do you think?")} == {
        "Good morning": 0,
        "test": 0,
        "what do you think?": 0,
    }
    assert max(counts.values()) < len(sent(admin, agent("orchestrator", RoutingMode.OFF), "go") & NAMES) / 2


def test_cx_41_search_journals_for_x_gives_the_web_and_the_journals_twelve_tools(admin: Membership) -> None:
    orchestrator = agent("orchestrator", RoutingMode.KEYWORDS)
    both = {*CORTEX["web"].split(), *CORTEX["aether"].split()}

    assert (sent(admin, orchestrator, "Search journals for X") & NAMES, len(both)) == (both, 12)


def test_mr_29_an_installation_with_a_shell_sends_all_five_tools_of_the_assistant(admin: Membership) -> None:
    selection = starting_selection(admin, agent("assistant"), "go")

    assert [tool.name for tool in selection.tools if not tool.is_meta] == [
        "file_read",
        "shell_exec",
        "duckduckgo",
        "arxiv",
        "wikipedia",
    ]
