"""Names that imitate others are refused to all who write names, and by the database."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import IntegrityError, transaction

from capabilities.access.roles.writes import RoleContent, create_role
from capabilities.agents.toolkits.writes import ToolkitContent, create_toolkit
from capabilities.catalogue.categories.writes import CategoryContent, create_category
from capabilities.catalogue.tools.install import install_builtin
from capabilities.catalogue.tools.writes import Definition, create_tool
from capabilities.common.refused import ChangeRefused
from capabilities.models import Category, Tool, Toolkit
from tests.cast import make_category, make_tool
from toolhub.tenants.models import Membership, Organisation

SCHEMA = {"type": "object", "properties": {}}


def tool(name: str, actor: Membership) -> Any:
    return create_tool(Category.objects.get(name="utility"), Definition(name, "Does.", SCHEMA), actor=actor)


WRITERS: dict[str, Callable[[str, Membership], Any]] = {
    "tool": tool,
    "category": lambda name, actor: create_category(name, CategoryContent("A title"), actor=actor),
    "toolkit": lambda name, actor: create_toolkit(ToolkitContent(name), actor=actor),
    "role": lambda name, actor: create_role(RoleContent("", name), actor=actor),
}


@pytest.fixture(autouse=True)
def category(in_acme: Organisation) -> Category:
    return make_category(in_acme)


@pytest.mark.parametrize("kind", WRITERS)
def test_a_name_that_imitates_another_is_refused(kind: str, alice: Membership) -> None:
    WRITERS[kind]("Research_team", alice)

    with pytest.raises(ChangeRefused) as refused:
        WRITERS[kind]("research_Team", alice)
    assert refused.value.field == "name"


def test_a_role_in_letters_of_another_alphabet_is_refused(alice: Membership) -> None:
    WRITERS["role"]("Editors", alice)

    with pytest.raises(ChangeRefused):
        WRITERS["role"]("\u0415ditors", alice)


@pytest.mark.parametrize("name", ["mcp__evil__x", "Agent_ra__y", "MCP__evil__x"])
def test_nobody_takes_the_name_of_an_imported_tool_or_an_agents_by_hand(name: str, alice: Membership) -> None:
    with pytest.raises(ChangeRefused) as refused:
        tool(name, alice)
    assert refused.value.code == "reserved"


@pytest.mark.parametrize("model", [Tool, Category, Toolkit])
def test_the_database_holds_it(model: Any, in_acme: Organisation, category: Category) -> None:
    more = {"category": category} if model is Tool else {}
    model.objects.create(organisation=in_acme, name="one", **more)

    with pytest.raises(IntegrityError), transaction.atomic():
        model.objects.create(organisation=in_acme, name="ONE", **more)


def test_a_name_of_before_that_imitates_another_stays(in_acme: Organisation) -> None:
    make_tool(in_acme, "old")
    second = make_tool(in_acme, "other")
    Tool.objects.filter(pk=second.pk).update(name="OLD", name_key=None)

    second.refresh_from_db()
    second.save()
    second.refresh_from_db()
    assert second.name_key is None


def test_a_new_built_in_tool_has_its_name_whoever_imitates_it(in_acme: Organisation) -> None:
    imitation = make_tool(in_acme, "Calculator")

    install_builtin(in_acme)

    imitation.refresh_from_db()
    assert (imitation.name_key, Tool.objects.get(name="calculator").name_key) == (None, "calculator")
