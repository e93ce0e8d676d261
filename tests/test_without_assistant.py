"""An organisation without the personal assistant: what is not there, and what comes back."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.urls import reverse
from django.utils.timezone import now

from capabilities.access.policies.catalogue import catalogue_tools
from capabilities.access.policies.queries import policy_of_organisation
from capabilities.access.policies.writes import PolicyContent, save_policy
from capabilities.access.roles.writes import RoleContent, create_role, delete_role
from capabilities.agents.agents.writes import AgentContent, agent_content, create_agent, update_agent
from capabilities.agents.sharing.exports import export_toolkit
from capabilities.agents.toolkits.queries import weigh
from capabilities.assistant.models import Task
from capabilities.catalogue.categories.queries import categories_page
from capabilities.catalogue.tools.install import install_builtin
from capabilities.choosing.pipeline.bringing import overrides_in
from capabilities.choosing.pipeline.policies import rules_of
from capabilities.common.refused import ChangeRefused
from capabilities.contract.policy import PolicyLayer, filtered
from capabilities.language_models.providers.writes import delete_model
from capabilities.models import (
    Agent,
    AgentTool,
    AgentToolkit,
    Category,
    LanguageModel,
    PolicyProfile,
    Role,
    RoleMode,
    RoleRule,
    Tool,
    Toolkit,
    ToolkitCategory,
    ToolkitTool,
)
from capabilities.running.assistant import ASSISTANT
from capabilities.running.registry import registry
from capabilities.starter import FirstAdmin, create_organisation
from sessions.doors.schedules.periodic import deliver_reminders
from sessions.models import Notice, Reminder
from tests.cast import allow_toolkit, give_tool, make_agent, make_tool, make_toolkit
from tests.test_tenancy_routes import ADDRESSES, GUARDED, ROUTES, TwoOrganisations, ask, filled, world  # noqa: F401
from toolhub.tenants.menu import BESIDE, is_for
from toolhub.tenants.models import AuditEntry, Membership, Organisation
from toolhub.tenants.organisation.writes import OrganisationContent, update_organisation
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = [pytest.mark.exhaustive, pytest.mark.django_db]

OWN = registry.of(ASSISTANT)
#: Where the assistant's tools may be named: what was changed once is on record.
RECORDS = {"audit_list", "audit_csv", "api-audit"}
#: What is called like a tool of the assistant: a company, and a function of Python tools.
WORDS = {"github", "http_post"}
NAMED = re.compile(rf"(?<![\w-])({'|'.join(sorted(set(OWN.tools) - WORDS))})(?![\w-])")

#: Its pages, as links name them.
PAGES = re.compile(r"/o/acme/(data|notifications)/")


def is_assistants(name: str) -> bool:
    return name.startswith(("data_", "api-data-", "browser_"))


def switch(member: Membership, *, on: bool) -> None:
    with organisation_scope(member.organisation_id):
        organisation = Organisation.objects.get(pk=member.organisation_id)
        content = replace(OrganisationContent.of(organisation), has_assistant=on)
        update_organisation(content, actor=member)


def make(slug: str, *, has_assistant: bool) -> Membership:
    admin = FirstAdmin(f"{slug}@example.com", "a-long-password")
    return create_organisation(slug.title(), slug, admin, has_assistant=has_assistant)


def put_own_tool_into(category: str, world: TwoOrganisations) -> None:  # noqa: F811
    """A tool of the organisation's own in a category of the assistant's, and the category in each toolkit and role."""
    web = Category.objects.get(name=category)
    make_tool(web.organisation, "tide_table", category=web)
    for toolkit in Toolkit.objects.all():
        ToolkitCategory.objects.get_or_create(organisation=web.organisation, toolkit=toolkit, category=web)
    for role in Role.objects.all():
        RoleRule.objects.get_or_create(organisation=web.organisation, role=role, category=web)


def rows(model: type[Any], *fields: str) -> list[tuple[Any, ...]]:
    return sorted(model.objects.values_list(*fields))


def starting_rows(member: Membership) -> dict[str, list[tuple[Any, ...]]]:
    """Everything that an organisation begins with, by names."""
    with organisation_scope(member.organisation_id):
        return {
            "tools": rows(Tool, "name", "category__name", "is_enabled", "current_version__sha256"),
            "categories": rows(Category, "name", "is_core", "title"),
            "rules": rows(RoleRule, "role__slug", "category__name", "effect"),
            "toolkits": rows(ToolkitTool, "toolkit__name", "tool__name", "position"),
            "agents": rows(Agent, "slug", "name", "tools_mode", "starts_with_core", "is_enabled", "model__name"),
            "own": rows(AgentTool, "agent__slug", "tool__name"),
            "allowed": rows(AgentToolkit, "agent__slug", "toolkit__name", "is_initial", "position"),
            "profiles": rows(PolicyProfile, "name"),
        }


@pytest.mark.parametrize("was_on", [False, True])
def test_no_page_or_answer_names_a_tool_of_the_assistant(world: TwoOrganisations, was_on: bool) -> None:  # noqa: F811
    if not was_on:
        Organisation.objects.filter(pk=world.alice.organisation_id).update(has_assistant=False)
        world.alice.organisation.refresh_from_db()
    with organisation_scope(world.alice.organisation_id):
        install_builtin(world.alice.organisation)
        if was_on:
            put_own_tool_into("web", world)
    if was_on:
        switch(world.alice, on=False)
    wrong: list[Any] = []
    asked = 0

    for name in GUARDED:
        for way in (way for way in ROUTES[name].asks if way.method == "GET"):
            asked += 1
            answer = ask(world.client_of(world.alice, ADDRESSES[name]), name, way, world.acme)
            if answer.status != (404 if is_assistants(name) else way.status):
                wrong.append((name, answer.status))
            found = set(NAMED.findall(answer.body)) if name not in RECORDS else set()
            if PAGES.search(answer.body):
                wrong.append((name, "link"))
            if found:
                wrong.append((name, sorted(found)[:5]))

    assert wrong == []
    assert asked > 200


def test_a_new_organisation_without_it_has_the_core_alone() -> None:
    admin = make("initech", has_assistant=False)

    with organisation_scope(admin.organisation_id):
        tools = set(Tool.every.values_list("name", flat=True))
        assert tools == set(registry.tools) - set(OWN.tools)
        assert {"search_tools", "call_tool", "load_tools", "ask_user", "spawn_agent", "cron_add"} <= tools
        assert set(Category.every.values_list("name", flat=True)) == set(registry.categories) - set(OWN.categories)
        assert set(Agent.every.values_list("slug", flat=True)) == {"chat", "distill", "admin"}
        assert not Toolkit.every.exists()
        made = AuditEntry.objects.get(action="organisation.create")
        assert made.after["has_assistant"] is False


def test_switched_on_later_it_has_the_same_rows_as_one_made_with_it() -> None:
    later, from_start = make("initech", has_assistant=False), make("hooli", has_assistant=True)

    switch(later, on=True)

    assert starting_rows(later) == starting_rows(from_start)
    with organisation_scope(later.organisation_id):
        assert len(starting_rows(later)["rules"]) > 10
        (entry,) = AuditEntry.objects.filter(action="role.update")
        assert "allow category web" in entry.after["rules"]
        assert "allow category web" not in entry.before["rules"]


def test_a_rule_that_was_removed_stays_away_when_it_comes_back() -> None:
    admin = make("initech", has_assistant=True)
    with organisation_scope(admin.organisation_id):
        RoleRule.objects.filter(role__slug="everyday", category__name="web").delete()
    rules = starting_rows(admin)["rules"]

    switch(admin, on=False)
    switch(admin, on=True)

    assert starting_rows(admin)["rules"] == rules


def test_a_role_of_their_own_named_everyday_is_given_nothing() -> None:
    admin = make("initech", has_assistant=False)
    with organisation_scope(admin.organisation_id):
        delete_role(Role.objects.get(slug="everyday"), actor=admin)
        create_role(RoleContent("everyday", "Everyday", mode=RoleMode.LISTED), actor=admin)

    switch(admin, on=True)

    assert starting_rows(admin)["rules"] == []


def test_a_toolkit_that_holds_a_category_is_exported_without_tools_that_are_set_aside() -> None:
    admin = make("initech", has_assistant=True)
    with organisation_scope(admin.organisation_id):
        web = Category.objects.get(name="web")
        make_tool(admin.organisation, "tide_table", category=web)
        toolkit = make_toolkit(admin.organisation, "outside", categories=(web,))

    switch(admin, on=False)

    with organisation_scope(admin.organisation_id):
        exported = json.loads(export_toolkit(toolkit, actor=admin).text)
        assert [each["name"] for each in exported["tools"]] == ["tide_table"]
        assert set(overrides_in([toolkit.pk])[toolkit.pk]) == {Tool.objects.get(name="tide_table").pk}
        assert categories_page(q="web").rows[0].tool_count == 1  # type: ignore[attr-defined]
        weigh([toolkit])
        assert toolkit.tool_count == 1  # type: ignore[attr-defined]


def test_what_operators_changed_and_members_kept_is_back_as_it_was() -> None:
    admin = make("initech", has_assistant=True)
    with organisation_scope(admin.organisation_id):
        Tool.objects.filter(name="weather_current").update(is_enabled=False)
        Category.objects.filter(name="web").update(title="Our web", keywords=["fetch"])
        Agent.objects.filter(slug="coder").update(is_enabled=False)
        Task.objects.create(organisation=admin.organisation, membership=admin, number=1, title="Buy milk")
        counts = {model: model.objects.count() for model in (Tool, Category, Toolkit, Agent, AgentTool, ToolkitTool)}
        rules = RoleRule.objects.count()

    switch(admin, on=False)

    with organisation_scope(admin.organisation_id):
        assert set(Tool.objects.values_list("name", flat=True)).isdisjoint(OWN.tools)
        assert not ToolkitTool.objects.exists()
        assert RoleRule.objects.count() < rules
        assert not Agent.objects.filter(slug="research").exists()
        assert not Agent.every.get(slug="research").is_enabled
        install_builtin(admin.organisation)
        assert set(Tool.objects.values_list("name", flat=True)).isdisjoint(OWN.tools)
    switch(admin, on=True)

    with organisation_scope(admin.organisation_id):
        assert counts == {model: model.objects.count() for model in counts}
        assert RoleRule.objects.count() == rules
        assert not Tool.objects.get(name="weather_current").is_enabled
        assert (web := Category.objects.get(name="web")).title == "Our web"
        assert web.keywords == ["fetch"]
        enabled = dict(Agent.objects.values_list("slug", "is_enabled"))
        assert (enabled["coder"], enabled["research"]) == (False, True)
        assert Task.objects.get().title == "Buy milk"
        changes = AuditEntry.objects.filter(action="organisation.update").order_by("number")
        assert [each.after for each in changes] == [{"has_assistant": False}, {"has_assistant": True}]


def test_a_category_that_holds_a_tool_of_their_own_stays() -> None:
    admin = make("initech", has_assistant=True)
    with organisation_scope(admin.organisation_id):
        spawn = Tool.objects.get(name="spawn_agent")
        spawn.category = Category.objects.get(name="web")
        spawn.save()

    switch(admin, on=False)

    with organisation_scope(admin.organisation_id):
        assert list(Category.objects.get(name="web").tools.values_list("name", flat=True)) == ["spawn_agent"]
        assert not Category.objects.filter(name="weather").exists()
        assert Role.objects.get(slug="everyday").rules.filter(category__name="web").exists()


def test_the_menu_and_the_search_of_pages_are_without_it(world: TwoOrganisations) -> None:  # noqa: F811
    switch(world.alice, on=False)
    page = world.by_login(world.alice).get(reverse("organisation_home", args=["acme"])).content.decode()

    assert reverse("data_overview", args=["acme"]) not in page
    assert "browser_list" not in {entry.view for _, entry in BESIDE if is_for(world.alice, entry)}


def test_globex_keeps_it(world: TwoOrganisations) -> None:  # noqa: F811
    switch(world.alice, on=False)

    answer = world.by_login(world.charlie).get(reverse("data_overview", args=["globex"]))

    assert answer.status_code == 200


def test_an_agent_or_toolkit_of_their_own_stays_with_the_tools_that_are_left() -> None:
    admin = make("initech", has_assistant=True)
    with organisation_scope(admin.organisation_id):
        web = list(Tool.objects.filter(category__name="web"))
        spawn = Tool.objects.get(name="spawn_agent")
        empty, half = (make_agent(admin.organisation, slug=slug, starts_with_core=False) for slug in ("empty", "half"))
        toolkit = make_toolkit(admin.organisation, "outside", *web)
        for tool in web:
            give_tool(empty, tool)
            give_tool(half, tool)
        give_tool(half, spawn)
        allow_toolkit(half, toolkit)

    switch(admin, on=False)

    with organisation_scope(admin.organisation_id):
        shown = {agent.slug: agent for agent in Agent.objects.all()}
        assert (shown["empty"].is_enabled, shown["half"].is_enabled) == (True, True)
        assert list(half.agent_tools.values_list("tool__name", flat=True)) == ["spawn_agent"]
        assert not empty.agent_tools.exists()
        assert list(half.agent_toolkits.values_list("toolkit__name", flat=True)) == ["outside"]
        assert Toolkit.objects.filter(name="outside").exists()
        assert not Toolkit.objects.filter(name="research").exists()
        assert "research" not in shown
        update_agent(half, replace(agent_content(half), name="Half"), actor=admin)
    switch(admin, on=True)

    with organisation_scope(admin.organisation_id):
        assert half.agent_tools.count() == len(web) + 1


def test_an_agent_that_a_member_named_like_a_starter_agent_stays() -> None:
    admin = make("initech", has_assistant=False)
    with organisation_scope(admin.organisation_id):
        model = Agent.objects.get(slug="chat").model
        agent = create_agent(AgentContent("research", "Research", model, starts_with_core=False), actor=admin)
    switch(admin, on=True)
    with organisation_scope(admin.organisation_id):
        give_tool(agent, Tool.objects.get(name="web_search"))

    switch(admin, on=False)

    with organisation_scope(admin.organisation_id):
        assert Agent.objects.get(slug="research").is_enabled


def test_a_model_that_an_agent_set_aside_has_is_not_deleted() -> None:
    admin = make("initech", has_assistant=True)
    with organisation_scope(admin.organisation_id):
        offline = Agent.objects.get(slug="chat").model
        other = LanguageModel.objects.create(organisation=admin.organisation, provider=offline.provider, name="other")
        Agent.objects.exclude(slug="research").update(model=other)

    switch(admin, on=False)

    with organisation_scope(admin.organisation_id), pytest.raises(ChangeRefused) as refusal:
        delete_model(offline, actor=admin)
    assert (refusal.value.code, "personal assistant" in str(refusal.value)) == ("in_use", True)


def test_a_reminder_that_was_promised_is_delivered_without_it() -> None:
    admin = make("initech", has_assistant=True)
    with organisation_scope(admin.organisation_id):
        organisation = admin.organisation
        due = now() - timedelta(minutes=1)
        Reminder.objects.create(organisation=organisation, membership=admin, number=1, text="Call Ada", due_at=due)

    switch(admin, on=False)
    deliver_reminders()

    with organisation_scope(admin.organisation_id):
        assert [each.text for each in Notice.objects.all()] == ["Reminder: Call Ada"]
        assert {"reminders_add", "reminders_list"} <= set(Tool.objects.values_list("name", flat=True))


@pytest.mark.parametrize("was_on", [False, True])
def test_the_profile_minimal_counts_without_the_tools_that_it_names(was_on: bool) -> None:
    admin = make("initech", has_assistant=was_on)
    if was_on:
        switch(admin, on=False)

    with organisation_scope(admin.organisation_id):
        policy = save_policy(None, PolicyContent("minimal"), actor=admin)
        assert policy is not None
        assert policy_of_organisation(admin.organisation).warnings == ()
        layer = PolicyLayer("it", rules_of(policy))
        assert [each.name for each in filtered(catalogue_tools(), [layer]).tools] == ["ask_user"]
