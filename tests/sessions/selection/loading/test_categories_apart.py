"""A category as a unit: what it provides once it is loaded, and that nothing of the others comes with it."""

from __future__ import annotations

import pytest

from capabilities.contract.loading import META_CATEGORY
from capabilities.models import Agent, Category
from capabilities.running.kinds import RUNNERS
from capabilities.running.registry import registry
from capabilities.starter import FirstAdmin, create_organisation
from sessions.models import ChatSession
from sessions.selection.active_tools import ActiveTools, compute_definitions
from sessions.selection.loading.loadable import LoadTarget
from sessions.selection.loading.writes import By, load_category
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = [pytest.mark.long, pytest.mark.django_db]


@pytest.fixture
def admin() -> Membership:
    return create_organisation("Initech", "initech", FirstAdmin("peter@example.com", "a-long-password"))


def loaded_alone(admin: Membership, agent: Agent, category: Category) -> ActiveTools:
    """What a session has at hand that has loaded this category and nothing else; no service is asked for."""
    session = ChatSession.objects.create(organisation=admin.organisation, membership=admin, agent=agent)
    result = load_category(LoadTarget(session, agent), category.name, by=By(admin))
    assert result.status == "loaded", result
    return compute_definitions(session)


def bare_agent(admin: Membership) -> Agent:
    """It begins with nothing, so that what it has comes from the category alone."""
    starter = Agent.objects.select_related("model__provider").get(slug="starter")
    return Agent.objects.create(
        organisation=admin.organisation, slug="bare", name="Bare", model=starter.model, starts_with_core=False
    )


def sendable_names(category: str) -> set[str]:
    """Names of the category's tools that need no set-up."""
    return {each.name for each in registry.tools.values() if each.category == category and not each.service}


def test_zk_34_each_category_provides_definitions_permissions_names_and_what_runs_them(admin: Membership) -> None:
    with organisation_scope(admin.organisation):
        agent = bare_agent(admin)
        for category in Category.objects.exclude(name=META_CATEGORY):
            active = loaded_alone(admin, agent, category)
            names = sendable_names(category.name)

            assert set(active.names) >= names, category.name
            assert {each["function"]["name"] for each in active.defs} == set(active.names) == set(active.perms)
            assert all(active.perms[name]() for name in names)
            assert all(registry.tools[name].category == category.name for name in names)
            assert all(RUNNERS[spec.kind] for spec in active.selection.tools)


def test_zk_34_what_no_category_is_called_is_not_loaded(admin: Membership) -> None:
    with organisation_scope(admin.organisation):
        agent = bare_agent(admin)
        session = ChatSession.objects.create(organisation=admin.organisation, membership=admin, agent=agent)

        result = load_category(LoadTarget(session, agent), "__all__", by=By(admin))

    assert (result.status, result.message) == ("unknown", "Unknown tool category: __all__")


def test_zk_35_a_category_is_sent_by_itself_and_nothing_of_another_comes_with_it(admin: Membership) -> None:
    with organisation_scope(admin.organisation):
        agent = bare_agent(admin)
        for category in Category.objects.exclude(name=META_CATEGORY):
            active = loaded_alone(admin, agent, category)

            there = {spec.category for spec in active.selection.tools}
            assert there <= {category.name, META_CATEGORY}, category.name
            assert len(active.names) < len(registry.tools)
