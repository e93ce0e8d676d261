"""An organisation without the personal assistant: what is not there, and what comes back."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.urls import reverse

from capabilities.assistant.models import Task
from capabilities.catalogue.tools.install import install_builtin
from capabilities.models import Agent, AgentTool, Category, Role, RoleRule, Tool, Toolkit, ToolkitTool
from capabilities.running.assistant import ASSISTANT
from capabilities.running.registry import registry
from capabilities.starter import FirstAdmin, create_organisation
from tests.test_tenancy_routes import ADDRESSES, GUARDED, ROUTES, TwoOrganisations, ask, filled, world  # noqa: F401
from toolhub.tenants.menu import BESIDE, is_for
from toolhub.tenants.models import AuditEntry, Membership, Organisation
from toolhub.tenants.organisation.writes import OrganisationContent, update_organisation
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = [pytest.mark.exhaustive, pytest.mark.django_db]

OWN = registry.of(ASSISTANT)
#: Where the assistant's tools may be named: what was changed once is on record.
RECORDS = {"audit_list", "api-audit"}
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
        content = OrganisationContent(organisation.name, organisation.time_zone, on)
        update_organisation(content, actor=member)


def make(slug: str, *, has_assistant: bool) -> Membership:
    admin = FirstAdmin(f"{slug}@example.com", "a-long-password")
    return create_organisation(slug.title(), slug, admin, has_assistant=has_assistant)


@pytest.mark.parametrize("was_on", [False, True])
def test_no_page_or_answer_names_a_tool_of_the_assistant(world: TwoOrganisations, was_on: bool) -> None:  # noqa: F811
    if not was_on:
        Organisation.objects.filter(pk=world.alice.organisation_id).update(has_assistant=False)
        world.alice.organisation.refresh_from_db()
    with organisation_scope(world.alice.organisation_id):
        install_builtin(world.alice.organisation)
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


def test_switched_on_later_it_brings_its_tools_and_agents() -> None:
    admin = make("initech", has_assistant=False)

    switch(admin, on=True)

    with organisation_scope(admin.organisation_id):
        assert set(Tool.objects.values_list("name", flat=True)) == set(registry.tools)
        assert {"everyday", "starter"} <= set(Agent.objects.values_list("slug", flat=True))
        assert set(Toolkit.objects.values_list("name", flat=True)) == {"devops", "research"}


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
