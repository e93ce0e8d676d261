from __future__ import annotations

import pytest
from django.core.exceptions import PermissionDenied
from pytest_django import DjangoAssertNumQueries

from capabilities.catalogue.categories.writes import (
    CategoryContent,
    clean_keywords,
    create_category,
    delete_category,
    move_tool,
    update_category,
)
from capabilities.catalogue.tools.writes import set_tool_enabled, set_tools_enabled
from capabilities.common.refused import ChangeRefused
from capabilities.models import Category, Tool
from tests.cast import make_category, make_tool
from toolhub.tenants.models import AdminRight, AuditEntry, Membership, Organisation, Right


def test_a_category_is_made_changed_and_when_empty_removed(alice: Membership, in_acme: Organisation) -> None:
    category = create_category("ops", CategoryContent("Operations", keywords=(" Deploy ", "deploy", "")), actor=alice)
    assert category.keywords == ["deploy"]

    update_category(category, CategoryContent("Ops", "All of it.", ("roll  out",), is_core=True), actor=alice)
    category.refresh_from_db()
    assert (category.title, category.keywords, category.is_core) == ("Ops", ["roll out"], True)

    delete_category(category, actor=alice)

    assert not Category.objects.exists()
    rows = [row.action for row in AuditEntry.objects.order_by("pk")]
    assert rows == ["category.create", "category.update", "category.delete"]


def test_keywords_are_told_once() -> None:
    assert clean_keywords(["a", " b  c ", "B C", ""]) == ["a", "B C"]


@pytest.mark.parametrize(("name", "code"), [("web", "taken"), ("new", "invalid"), ("a b", "invalid")])
def test_a_name_that_cannot_be_is_refused(
    alice: Membership, acme: Organisation, in_acme: Organisation, name: str, code: str
) -> None:
    make_category(acme, "web")

    with pytest.raises(ChangeRefused) as refused:
        create_category(name, CategoryContent("Any"), actor=alice)

    assert (refused.value.field, refused.value.code) == ("name", code)


@pytest.mark.parametrize("keywords", [("x" * 61,), tuple(f"word{number}" for number in range(201))])
def test_keywords_are_bounded(alice: Membership, in_acme: Organisation, keywords: tuple[str, ...]) -> None:
    with pytest.raises(ChangeRefused) as refused:
        create_category("ops", CategoryContent("Ops", keywords=keywords), actor=alice)

    assert refused.value.field == "keywords"


def test_a_category_with_tools_stays(alice: Membership, acme: Organisation, in_acme: Organisation) -> None:
    category = make_tool(acme).category

    with pytest.raises(ChangeRefused) as refused:
        delete_category(category, actor=alice)

    assert refused.value.code == "in_use"


def test_a_tool_moves_to_another_category(alice: Membership, acme: Organisation, in_acme: Organisation) -> None:
    tool = make_tool(acme)
    make_category(acme, "ops")

    move_tool(tool, "ops", actor=alice)
    move_tool(tool, "ops", actor=alice)

    tool.refresh_from_db()
    row = AuditEntry.objects.get(action="tool.move")
    assert (tool.category.name, row.before, row.after) == ("ops", {"category": "utility"}, {"category": "ops"})


def test_a_tool_moves_to_no_other_organisation(
    alice: Membership, acme: Organisation, globex: Organisation, in_acme: Organisation
) -> None:
    make_category(globex, "theirs")

    with pytest.raises(ChangeRefused) as refused:
        move_tool(make_tool(acme), "theirs", actor=alice)

    assert (refused.value.field, refused.value.code) == ("category", "unknown")


def test_many_tools_are_switched_with_one_audit_row(
    alice: Membership, acme: Organisation, in_acme: Organisation
) -> None:
    for name in ("a", "b", "c"):
        make_tool(acme, name)
    set_tools_enabled(["c"], False, actor=alice)

    assert set_tools_enabled(["b", "a", "c"], False, actor=alice) == 2

    assert not Tool.objects.filter(is_enabled=True).exists()
    row = AuditEntry.objects.filter(action="tool.disable").latest("pk")
    assert (row.target_label, row.after) == ("a, b", {"tools": ["a", "b"], "is_enabled": False})


@pytest.mark.parametrize("count", [1, 30])
def test_the_bulk_switch_takes_the_same_queries_for_any_number(
    alice: Membership,
    acme: Organisation,
    in_acme: Organisation,
    django_assert_num_queries: DjangoAssertNumQueries,
    count: int,
) -> None:
    names = [make_tool(acme, f"tool_{number}").name for number in range(count)]

    with django_assert_num_queries(19):  # ten of them for what the actor may use and talk to, before and after
        set_tools_enabled(names, False, actor=alice)


def test_one_unknown_name_switches_nothing(
    alice: Membership, acme: Organisation, globex: Organisation, in_acme: Organisation
) -> None:
    make_tool(acme, "a")
    make_tool(globex, "theirs")

    with pytest.raises(ChangeRefused) as refused:
        set_tools_enabled(["a", "theirs"], False, actor=alice)

    assert (refused.value.field, refused.value.code) == ("names", "unknown")
    assert Tool.objects.get(name="a").is_enabled


def test_a_right_for_one_category_is_for_its_tools_alone(
    bob: Membership, acme: Organisation, in_acme: Organisation
) -> None:
    web, file = make_category(acme, "web"), make_category(acme, "file")
    fetch, read = make_tool(acme, "fetch", category=web), make_tool(acme, "read", category=file)
    AdminRight.objects.create(organisation=acme, membership=bob, right=Right.CATALOGUE, category="web")

    set_tool_enabled(fetch, False, actor=bob)
    set_tools_enabled(["fetch"], True, actor=bob)
    update_category(web, CategoryContent("The web", is_core=True), actor=bob)
    for change in (
        lambda: set_tool_enabled(read, False, actor=bob),
        lambda: set_tools_enabled(["fetch", "read"], False, actor=bob),
        lambda: move_tool(fetch, "file", actor=bob),
        lambda: move_tool(read, "web", actor=bob),
        lambda: update_category(web, CategoryContent("The web", is_core=False), actor=bob),
        lambda: update_category(file, CategoryContent("Files", is_core=True), actor=bob),
        lambda: create_category("mine", CategoryContent("Mine"), actor=bob),
        lambda: delete_category(web, actor=bob),
    ):
        with pytest.raises(PermissionDenied):
            change()

    assert Tool.objects.filter(is_enabled=True).count() == 2
