from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied

from capabilities.catalogue.tools.install import install_builtin
from capabilities.catalogue.tools.writes import (
    Definition,
    ToolRefused,
    create_tool,
    set_instructions,
    set_tool_enabled,
    update_tool,
)
from capabilities.common.tokens import count_tokens
from capabilities.contract.wire import sha256_hex, tool_wire
from capabilities.models import Category, Tool, ToolVersion
from capabilities.running.registry import CategorySpec, Registry
from capabilities.running.registry import tool as register
from tests.cast import make_category
from toolhub.tenants.models import AdminRight, AuditEntry, Membership, Organisation, Right

pytestmark = pytest.mark.django_db

ADD = Definition("add", "Adds two numbers.", {"type": "object", "properties": {"x": {"type": "number"}}})


@pytest.fixture
def category(in_acme: Organisation) -> Category:
    return make_category(in_acme)


def version_of(organisation: Organisation) -> int:
    return Organisation.objects.get(pk=organisation.pk).registry_version


def actions() -> list[str]:
    return list(AuditEntry.objects.order_by("pk").values_list("action", flat=True))


@pytest.mark.parametrize(
    ("changed", "field", "message"),
    [
        ({"name": "a b"}, "name", "A tool name has 1 to 64 characters of a-z, A-Z, 0-9, _ and -."),
        ({"name": "x" * 65}, "name", "A tool name has 1 to 64 characters of a-z, A-Z, 0-9, _ and -."),
        ({"name": ""}, "name", "A tool name has 1 to 64 characters of a-z, A-Z, 0-9, _ and -."),
        ({"name": "add\n"}, "name", "A tool name has 1 to 64 characters of a-z, A-Z, 0-9, _ and -."),
        ({"description": " \n"}, "description", "Say what the tool does: the model chooses by this text."),
        ({"description": "x" * 8_001}, "description", "Keep the description under 8,000 characters."),
        (
            {"description": "a\x00"},
            "description",
            "The text holds half a character, or one that databases refuse (U+0000).",
        ),
        (
            {"parameters": {"type": "object", "description": "\x00"}},
            "parameters",
            "The text holds half a character, or one that databases refuse (U+0000).",
        ),
        ({"instructions": "x" * 4_001}, "instructions", "Keep the instructions under 4,000 characters."),
        (
            {"instructions": "a\ud800"},
            "instructions",
            "The text holds half a character, or one that databases refuse (U+0000).",
        ),
        ({"parameters": []}, "parameters", "The parameters must be a JSON Schema object."),
        (
            {"parameters": {"type": "object", "properties": {"a": {"$ref": "https://example.com/s"}}}},
            "parameters",
            "The reference https://example.com/s points outside the schema; write it under $defs.",
        ),
        (
            {"parameters": {"type": "object", "default": float("inf")}},
            "parameters",
            "The parameters hold a number that JSON does not have (NaN or infinite).",
        ),
    ],
)
def test_what_a_provider_would_refuse_is_refused_when_saved(
    category: Category, changed: dict[str, Any], field: str, message: str
) -> None:
    with pytest.raises(ToolRefused) as refused:
        create_tool(category, replace(ADD, **changed), actor=None)

    assert (refused.value.field, str(refused.value)) == (field, message)
    assert (Tool.objects.count(), actions()) == (0, [])


def test_a_new_tool_has_a_version_with_its_bytes_an_audit_row_and_raises_the_registry_version(
    category: Category, alice: Membership
) -> None:
    before = version_of(category.organisation)

    tool = create_tool(category, ADD, actor=alice)

    version = ToolVersion.objects.get()
    wire = tool_wire("add", "Adds two numbers.", ADD.parameters)
    assert (tool.current_version, version.number, version.created_by) == (version, 1, alice)
    assert (version.wire, version.sha256, version.tokens) == (wire, sha256_hex(wire), count_tokens(wire))
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.actor, entry.target_type, entry.target_id) == (
        "tool.create",
        alice,
        "tool",
        str(tool.public_id),
    )
    assert entry.after["parameters"] == ADD.parameters
    assert version_of(category.organisation) == before + 1


def test_a_name_is_taken_once_in_an_organisation(category: Category, globex: Organisation) -> None:
    create_tool(category, ADD, actor=None)

    with pytest.raises(ToolRefused) as refused:
        create_tool(category, ADD, actor=None)

    assert (refused.value.field, str(refused.value)) == ("name", "There is a tool named add already.")


def test_a_change_is_the_next_version_and_the_last_one_stays(category: Category, alice: Membership) -> None:
    tool = create_tool(category, ADD, actor=alice)
    first = tool.current_version
    registry_version = version_of(category.organisation)

    second = update_tool(tool, replace(ADD, description="Sums."), actor=alice)

    tool.refresh_from_db()
    assert tool.current_version == second
    assert [(each.number, each.description) for each in tool.versions.order_by("number")] == [
        (1, "Adds two numbers."),
        (2, "Sums."),
    ]
    assert first is not None
    with pytest.raises(TypeError, match="A tool version is never changed"):
        first.save()
    assert actions() == ["tool.create", "tool.update"]
    assert version_of(category.organisation) == registry_version + 1


def test_the_same_content_is_no_new_version(category: Category) -> None:
    tool = create_tool(category, ADD, actor=None)
    registry_version = version_of(category.organisation)

    same = update_tool(tool, replace(ADD, parameters=dict(sorted(ADD.parameters.items()))), actor=None)

    assert (same, ToolVersion.objects.count()) == (tool.current_version, 1)
    assert (actions(), version_of(category.organisation)) == (["tool.create"], registry_version)


@pytest.mark.parametrize(
    "changed",
    [
        {"effect": "read"},
        {"on_crash": "retry"},
        {"timeout": 1.0},
        {"max_result_chars": 9},
        {"instructions": "Ask."},
        {"untrusted_output": True},
        {"in_untrusted": "ask"},
    ],
)
def test_a_knob_alone_is_a_new_version(category: Category, changed: dict[str, Any]) -> None:
    tool = create_tool(category, ADD, actor=None)

    assert update_tool(tool, replace(ADD, **changed), actor=None).number == 2


def test_a_tool_keeps_its_name(category: Category) -> None:
    tool = create_tool(category, ADD, actor=None)

    with pytest.raises(ToolRefused, match="A tool keeps its name"):
        update_tool(tool, replace(ADD, name="sum"), actor=None)


def test_two_who_looked_at_the_same_version_write_two(category: Category) -> None:
    tool = create_tool(category, ADD, actor=None)
    stale = Tool.objects.select_related("current_version").get(pk=tool.pk)
    update_tool(tool, replace(ADD, description="Second."), actor=None)

    third = update_tool(stale, replace(ADD, description="Third."), actor=None)

    assert third.number == 3


def test_a_switch_is_written_down_once(category: Category, alice: Membership) -> None:
    tool = create_tool(category, ADD, actor=alice)
    registry_version = version_of(category.organisation)

    for enabled in (False, False, True):
        set_tool_enabled(tool, enabled, actor=alice)

    assert actions() == ["tool.create", "tool.disable", "tool.enable"]
    assert (tool.is_enabled, version_of(category.organisation)) == (True, registry_version + 2)


def test_mr_41_instructions_are_a_version_of_their_own_and_leave_the_wire_as_it_is(
    category: Category, alice: Membership
) -> None:
    tool = create_tool(category, ADD, actor=alice)
    first, registry_version = tool.current_version, version_of(category.organisation)

    version = set_instructions(tool, " Add money\r\nin cents. ", actor=alice)
    same = set_instructions(tool, "Add money\nin cents.", actor=alice)

    assert first is not None
    assert (version, version.number, version.created_by) == (same, 2, alice)
    assert (version.instructions, version.wire, version.tokens) == ("Add money\nin cents.", first.wire, first.tokens)
    entry = AuditEntry.objects.get(action="tool.instruct")
    assert (entry.before, entry.after) == (
        {"version": 1, "instructions": ""},
        {"version": 2, "instructions": "Add money\nin cents."},
    )
    assert version_of(category.organisation) == registry_version + 1


def test_mr_41_instructions_ask_for_the_right_of_the_category(category: Category, bob: Membership) -> None:
    tool = create_tool(category, ADD, actor=None)
    with pytest.raises(PermissionDenied):
        set_instructions(tool, "Ask.", actor=bob)

    AdminRight.objects.create(
        organisation=category.organisation, membership=bob, right=Right.CATALOGUE, category=category.name
    )
    member = Membership.objects.get(pk=bob.pk)

    assert set_instructions(tool, "Ask.", actor=member).number == 2


def test_mr_41_a_new_release_keeps_what_an_operator_instructs(in_acme: Organisation, alice: Membership) -> None:
    install_builtin(in_acme, a_source())
    set_instructions(Tool.objects.get(name="roll"), "Fair dice only.", actor=alice)

    again = install_builtin(in_acme, a_source())
    install_builtin(in_acme, a_source("Rolls a die of any sides."))

    version = Tool.objects.select_related("current_version").get(name="roll").current_version
    assert version is not None
    assert (again, version.number, version.instructions) == ([], 3, "Fair dice only.")
    assert version.description == "Rolls a die of any sides."


def a_source(description: str = "Rolls a die.") -> Registry:
    source = Registry()
    source.add_category(CategorySpec("games", "Games", "For fun.", ("dice",)))

    def roll(context: Any, sides: int = 6) -> int:
        return sides

    roll.__doc__ = description
    register(category="games", effect="read", human_format="Rolling", into=source)(roll)
    return source


def test_the_built_in_catalogue_is_installed_once(in_acme: Organisation) -> None:
    first = [tool.name for tool in install_builtin(in_acme, a_source())]
    written = (actions(), version_of(in_acme))
    second = install_builtin(in_acme, a_source())

    assert (first, second) == (["roll"], [])
    assert (actions(), version_of(in_acme)) == written
    assert actions() == ["category.create", "tool.install"]


def test_a_new_release_writes_versions_and_keeps_what_was_switched_and_worded(
    in_acme: Organisation, alice: Membership
) -> None:
    install_builtin(in_acme, a_source())
    tool = Tool.objects.get(name="roll")
    set_tool_enabled(tool, False, actor=alice)
    Category.objects.filter(name="games").update(title="Fun", is_core=True)

    changed = install_builtin(in_acme, a_source("Rolls a die of any sides."))

    tool.refresh_from_db()
    assert [each.name for each in changed] == ["roll"]
    assert tool.current_version is not None
    assert (tool.is_enabled, tool.current_version.number, tool.current_version.description) == (
        False,
        2,
        "Rolls a die of any sides.",
    )
    assert Category.objects.get(name="games").title == "Fun"


def test_a_tool_of_the_organisations_own_is_not_overwritten(in_acme: Organisation) -> None:
    tool = create_tool(make_category(in_acme), replace(ADD, name="roll"), actor=None)
    Tool.objects.filter(pk=tool.pk).update(kind="http")

    assert install_builtin(in_acme, a_source()) == []
    assert ToolVersion.objects.get().description == "Adds two numbers."
