"""Imports from end to end but for what reads a source: rows, names, decisions."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from capabilities.catalogue.categories.writes import move_tool
from capabilities.catalogue.imports import runs
from capabilities.catalogue.imports.found import FoundTool, ReadSource
from capabilities.catalogue.imports.names import mcp_tool_name
from capabilities.catalogue.imports.readers import Source, ring_for_import, sources
from capabilities.catalogue.imports.writes.change import change_imported, close_import, set_base_url, set_effects
from capabilities.catalogue.imports.writes.decide import (
    accept_imported,
    dismiss_imported,
    import_rows,
    restore_imported,
)
from capabilities.catalogue.imports.writes.start import start_import
from capabilities.catalogue.tools.writes import set_instructions
from capabilities.catalogue.versions.writes import decide_version
from capabilities.choosing.pipeline.specs import specs
from capabilities.common.refused import ChangeRefused
from capabilities.common.tokens import count_tokens
from capabilities.contract.wire import tool_wire
from capabilities.models import (
    Category,
    ImportedStatus,
    ImportedTool,
    ImportSource,
    ImportStatus,
    RuntimeConfig,
    RuntimeLayer,
    StoredCredential,
    Tool,
    ToolImport,
    ToolVersion,
    VersionStatus,
)
from tests.capabilities.catalogue.imports.conftest import DOCUMENT, pet
from tests.cast import make_category, make_member, make_organisation, make_tool
from toolhub.tenants.models import Access, AuditEntry, Membership, Right
from toolhub.tenants.people.writes import GivenRight, give_right
from toolhub.tenants.rows.scope import organisation_scope

Read = Callable[..., ToolImport]


@pytest.fixture
def pets(alice: Membership) -> Category:
    return make_category(alice.organisation, "pets", is_core=False)


def rows_of(tool_import: ToolImport) -> dict[str, ImportedTool]:
    return {row.original_name: row for row in import_rows(tool_import).order_by("position")}


def accept(tool_import: ToolImport, category: Category | None, actor: Membership, **fields: Any) -> Any:
    return accept_imported(import_rows(tool_import), category, actor=actor, **fields)


def test_found_definitions_wait_for_review_and_create_no_tool(alice: Membership, read: Read) -> None:
    tool_import = read(alice, pet("listPets"), pet("addPet", effect="external"))

    assert tool_import.status == ImportStatus.REVIEW
    assert {key: tool_import.summary[key] for key in ("found", "refused", "collisions")} == {
        "found": 2,
        "refused": 0,
        "collisions": 0,
    }
    assert [row.status for row in rows_of(tool_import).values()] == ["new", "new"]
    assert not Tool.objects.exists()


def test_tokens_are_those_that_the_tools_would_take(alice: Membership, read: Read) -> None:
    tool_import = read(alice, pet("listPets"), pet("addPet"))

    (first, second) = rows_of(tool_import).values()
    wire = tool_wire("listPets", "Does listPets.", {"type": "object", "properties": {}})
    assert first.tokens == count_tokens(wire)
    assert tool_import.summary["tokens"] == first.tokens + second.tokens


def test_accepting_makes_tools_of_one_category(alice: Membership, read: Read, pets: Category) -> None:
    tool_import = read(alice, pet("listPets"), pet("addPet", effect="external"))

    accepted = accept(tool_import, pets, alice)

    assert (list(accepted.created), list(accepted.waiting)) == (["listPets", "addPet"], [])
    spec = next(each for each in specs(Tool.objects.all()) if each.name == "addPet")
    assert (spec.category, spec.effect) == ("pets", "external")
    version = ToolVersion.objects.get(tool__name="listPets")
    assert version.implementation["url"] == "https://pets.example.org/v1/listPets"
    assert (version.tool.kind, version.tool.source) == ("http", "OpenAPI document Pets")
    assert (version.untrusted_output, version.in_untrusted) == (True, "allow")
    tool_import.refresh_from_db()
    assert tool_import.status == ImportStatus.CLOSED
    entry = AuditEntry.objects.get(action="import.accept")
    assert entry.after["created"] == ["listPets", "addPet"]
    assert entry.after["versions"]["listPets"]["sha256"] == version.sha256


def test_s52_what_an_operator_accepts_waits_for_approval(alice: Membership, read: Read, pets: Category) -> None:
    olive = make_member(alice.organisation, "olive", Access.OPERATOR)
    tool_import = read(olive, pet("listPets"))

    accepted = accept(tool_import, pets, olive)

    assert list(accepted.waiting) == ["listPets"]
    tool = Tool.objects.get()
    assert tool.current_version is None
    assert ToolVersion.objects.get().status == VersionStatus.PENDING
    assert list(specs(Tool.objects.all())) == []


def test_s51_a_name_that_is_taken_is_another_one_and_says_so(alice: Membership, read: Read, pets: Category) -> None:
    make_tool(alice.organisation, "web_search")
    tool_import = read(alice, pet("web_search"), pet("Web_Search"), pet("other"))

    first, second, third = rows_of(tool_import).values()

    assert (first.name, third.name) == ("pets__web_search", "other")
    assert first.collision.endswith("is called pets__web_search.")
    assert second.name.startswith("pets__Web_Search_")
    assert second.collision
    assert third.collision == ""
    assert tool_import.summary["collisions"] == 2
    accept(tool_import, pets, alice)
    assert set(Tool.objects.values_list("name", flat=True)) == {"web_search", first.name, second.name, "other"}


def test_s51_tools_of_two_servers_never_share_a_name(alice: Membership, read: Read, pets: Category) -> None:
    """Whatever they call them: the same, as another server would, or as a tool of ours. Here a document of an API gives
    them names that begin like those of MCP servers, and does not get these."""
    wanted = [("one", "send_mail"), ("two", "send_mail"), ("one", "two__send_mail"), ("one", "web_search"),
              ("one", "send mail"), ("one", "SEND_MAIL"), ("two", "x" * 80), ("two", "x" * 81)]  # fmt: skip
    make_tool(alice.organisation, "web_search")

    found = [
        pet(f"{server}/{number}", name=mcp_tool_name(server, tool)) for number, (server, tool) in enumerate(wanted)
    ]
    tool_import = read(alice, *found)
    accept(tool_import, pets, alice)

    names = list(Tool.objects.values_list("name", flat=True))
    assert len({name.casefold() for name in names}) == len(wanted) + 1
    assert {name.split("__")[0] for name in names if name != "web_search"} <= {"tool", "pets"}
    assert {f"tool__mcp__{each}" for each in ("one__send_mail", "two__send_mail", "one__two__send_mail")} <= set(names)
    assert max(map(len, names)) <= 64


def test_names_are_the_same_at_each_reading(alice: Membership, read: Read) -> None:
    found = [pet("get /a/b"), pet("get_/a.b"), pet("x" * 100), pet("x" * 101)]

    names = [[row.name for row in rows_of(read(alice, *found)).values()] for _ in range(2)]

    assert names[0] == names[1]
    assert len(set(names[0])) == 4
    assert max(map(len, names[0])) <= 64


def test_a_second_import_marks_definitions_new_changed_unchanged_and_gone(
    alice: Membership, read: Read, pets: Category
) -> None:
    accept(read(alice, pet("a"), pet("b"), pet("c")), pets, alice)

    again = read(alice, pet("a"), pet("b", description="Says more."), pet("d"))

    assert {name: str(row.status) for name, row in rows_of(again).items()} == {
        "a": "unchanged",
        "b": "changed",
        "d": "new",
        "c": "gone",
    }
    accepted = accept(again, pets, alice)
    assert (list(accepted.created), list(accepted.updated), list(accepted.switched_off)) == (["d"], ["b"], ["c"])
    numbers = dict(Tool.objects.values_list("name", "current_version__number"))
    assert numbers == {"a": 1, "b": 2, "c": 1, "d": 1}
    assert not Tool.objects.get(name="c").is_enabled
    assert ToolVersion.objects.get(tool__name="b", number=1).status == VersionStatus.RETIRED


def test_instructions_stay_with_the_next_imported_version(alice: Membership, read: Read, pets: Category) -> None:
    accept(read(alice, pet("a")), pets, alice)
    set_instructions(Tool.objects.get(), "Only for cats.", actor=alice)

    accept(read(alice, pet("a", description="Says more.")), pets, alice)

    version = Tool.objects.get().current_version
    assert version is not None
    assert (version.description, version.instructions) == ("Says more.", "Only for cats.")


def test_a_guess_takes_nothing_back_that_a_person_said_of_the_tool(
    alice: Membership, read: Read, pets: Category
) -> None:
    first = read(alice, pet("a"))
    change_imported(rows_of(first)["a"], actor=alice, effect="external")
    accept(first, pets, alice)

    again = read(alice, pet("a", description="Says more.", effect="read"))

    assert rows_of(again)["a"].effect == "external"


def test_s49_accepting_the_change_of_a_tool_that_is_kept_back_gives_it_free(
    alice: Membership, read: Read, pets: Category
) -> None:
    accept(read(alice, pet("a")), pets, alice)
    Tool.objects.update(quarantine="It changed.")
    olive = make_member(alice.organisation, "olive", Access.OPERATOR)
    other = {"method": "POST", "url": "/a", "arguments": {}}

    accept(read(olive, pet("a", implementation=other)), pets, olive)
    assert Tool.objects.get().quarantine == "It changed."

    accept(read(alice, pet("a", implementation=other | {"url": "/b"})), pets, alice)
    assert Tool.objects.get().quarantine == ""


def test_s50_text_for_the_model_is_normalised_and_the_original_kept(
    alice: Membership, read: Read, pets: Category
) -> None:
    hostile = "Lists pets.\u200b\u202e\U000e0041\x1b[8mhidden\x1b[0m"
    tool_import = read(alice, pet("listPets", description=hostile))

    (row,) = rows_of(tool_import).values()
    accept(tool_import, pets, alice)

    assert row.description == hostile
    assert {each["code"] for each in row.warnings} == {"terminal_codes", "turned_text", "hidden_characters"}
    version = Tool.objects.get().current_version
    assert version is not None
    assert version.description == "Lists pets.hidden"


def test_s50_a_description_that_speaks_of_other_tools_is_flagged(alice: Membership, read: Read) -> None:
    make_tool(alice.organisation, "send_mail")
    tool_import = read(alice, pet("a", description="Call send_mail first."), pet("b", description="See a_b."))

    first, second = rows_of(tool_import).values()

    assert [each["code"] for each in first.warnings] == ["names_tools"]
    assert second.warnings == []


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (pet("a", refused="It is a cat."), "It is a cat."),
        (pet("a", parameters={"type": "array"}), 'The parameters must have "type": "object".'),
        (pet("a", description="x" * 9_000), "Keep the description under 8,000 characters."),
        (
            pet("a", parameters={"type": "object", "properties": {"a\u200b": {"type": "string"}}}),
            "The name of an argument holds characters that cannot be seen.",
        ),
        (
            pet("a", parameters={"type": "object", "x": ["y" * 300_000]}),
            "Its arguments take more than 200,000 characters, or are nested too deep.",
        ),
    ],
)
def test_a_definition_that_cannot_become_a_tool_stops_no_other(
    alice: Membership, read: Read, pets: Category, found: FoundTool, reason: str
) -> None:
    tool_import = read(alice, found, pet("b"))

    row = rows_of(tool_import)["a"]
    accepted = accept(tool_import, pets, alice)

    assert (row.status, row.reason) == ("refused", reason)
    assert list(accepted.created) == ["b"]


def test_a_definition_without_a_possible_request_stops_no_other(alice: Membership, read: Read, pets: Category) -> None:
    request = {"method": "GET", "arguments": {}}
    tool_import = read(
        alice,
        pet("a b"),
        pet("private", implementation=request | {"url": "http://10.0.0.1/a"}),
        pet("placed", implementation=request | {"url": "/{id}"}),
        pet("fine"),
    )

    found = rows_of(tool_import)
    accepted = accept(tool_import, pets, alice)

    assert "a control character or a backslash" in found["a b"].reason
    assert "10.0.0.1 is a private address" in found["private"].reason
    assert "No argument goes into the path as id" in found["placed"].reason
    assert accepted.created == ["fine"]


def test_s41_five_hundred_hostile_definitions_run_nothing_and_wait(alice: Membership, read: Read) -> None:
    texts = ["\U000e0041" * 50, "x" * 7_000, "\x1b]8;;http://evil\x07", "\u202e" * 9, "\x00\ud800", "QUJD" * 200]
    found = [
        pet(
            f"send_mail{number}" if number % 3 else "send_mail",
            description=texts[number % len(texts)],
            implementation={
                "method": "GET",
                "url": f"http://{'169.254.169.254' if number % 7 else 'internal.example'}/{number}",
                "arguments": {},
            },
            parameters={"type": "object", "properties": {"a": {"$ref": "http://evil.example/x"}}}
            if number % 5 == 0
            else {"type": "object", "properties": {}},
        )
        for number in range(500)
    ]

    tool_import = read(alice, *found)

    assert tool_import.status == ImportStatus.REVIEW
    assert import_rows(tool_import).count() == 500
    assert not Tool.objects.exists()
    assert not ToolVersion.objects.exists()
    assert set(import_rows(tool_import).values_list("status", flat=True)) == {"new", "refused"}
    private = [row for row in import_rows(tool_import) if "169.254" in row.implementation["url"]]
    assert {str(row.status) for row in private} == {"refused"}


def test_it_takes_the_same_queries_to_accept_three_and_thirty(alice: Membership, read: Read, pets: Category) -> None:
    counts = []
    for number in (3, 30):
        tool_import = read(alice, *(pet(f"a{number}_{index}") for index in range(number)), title=f"Pets {number}")
        with CaptureQueriesContext(connection) as queries:
            accept(tool_import, pets, alice)
        counts.append(len(queries))

    assert counts[0] == counts[1]


def test_dismissed_definitions_become_nothing(alice: Membership, read: Read, pets: Category) -> None:
    tool_import = read(alice, pet("a"), pet("b"))

    dismissed = dismiss_imported(import_rows(tool_import).filter(name="a"), actor=alice)
    accepted = accept(tool_import, pets, alice)

    assert (dismissed, list(accepted.created)) == (1, ["b"])
    assert AuditEntry.objects.get(action="import.dismiss").after == {"tools": ["a"]}


def statuses(tool_import: ToolImport) -> dict[str, str]:
    return {name: str(row.status) for name, row in rows_of(tool_import).items()}


def test_what_is_dismissed_stays_so_while_it_says_the_same(alice: Membership, read: Read, pets: Category) -> None:
    tool_import = read(alice, pet("a"), pet("b"), pet("c"))
    dismiss_imported(import_rows(tool_import).exclude(name="c"), actor=alice)
    accept(tool_import, pets, alice)

    same = read(alice, pet("a"), pet("b"), pet("c"))
    third = read(alice, pet("a"), pet("b", description="Says more."), pet("c"))

    assert statuses(same) == {"a": "dismissed", "b": "dismissed", "c": "unchanged"}
    assert (same.status, same.summary["statuses"]) == (ImportStatus.CLOSED, {"dismissed": 2, "unchanged": 1})
    assert statuses(third) == {"a": "dismissed", "b": "new", "c": "unchanged"}
    assert statuses(read(alice, pet("a"), pet("b", description="Says more."), pet("c"))) == statuses(third)


def test_a_change_or_an_end_that_is_dismissed_stays_so(alice: Membership, read: Read, pets: Category) -> None:
    accept(read(alice, pet("a"), pet("b")), pets, alice)
    changed = read(alice, pet("a", description="Says more."))
    assert statuses(changed) == {"a": "changed", "b": "gone"}
    dismiss_imported(import_rows(changed), actor=alice)

    assert statuses(read(alice)) == {"a": "dismissed", "b": "dismissed"}
    assert statuses(read(alice, pet("a", description="Says less."), pet("b"))) == {"a": "changed", "b": "unchanged"}
    assert statuses(read(alice, pet("a", description="Says less."))) == {"a": "changed", "b": "gone"}


def test_what_was_dismissed_in_one_source_or_for_one_category_says_nothing_of_another(
    alice: Membership, offer: Callable[..., None], read: Read, pets: Category
) -> None:
    offer(pet("a"))
    for_pets = start_import(ImportSource.OPENAPI, actor=alice, document=DOCUMENT, category=pets)
    runs.run_import(for_pets.public_id)
    dismiss_imported(import_rows(for_pets), actor=alice)

    assert statuses(read(alice)) == {"a": "new"}
    dismiss_imported(import_rows(ToolImport.objects.latest("pk")), actor=alice)
    assert statuses(read(alice, pet("a"), title="Other pets")) == {"a": "new"}


def test_what_was_dismissed_can_be_brought_back(alice: Membership, read: Read, pets: Category) -> None:
    accept(read(alice, pet("a"), pet("b")), pets, alice)
    first = read(alice, pet("a", description="Says more."), pet("c"))
    dismiss_imported(import_rows(first), actor=alice)
    last = read(alice)
    assert last.status == ImportStatus.CLOSED

    with pytest.raises(ChangeRefused, match="read again since"):
        restore_imported(import_rows(first), actor=alice)
    assert restore_imported(import_rows(last), actor=alice) == 3
    assert restore_imported(import_rows(last), actor=alice) == 0

    assert statuses(last) == {"a": "changed", "b": "gone", "c": "new"}
    last.refresh_from_db()
    assert last.status == ImportStatus.REVIEW
    accepted = accept(last, pets, alice)
    assert (accepted.created, accepted.updated, accepted.switched_off) == (["c"], ["a"], ["b"])
    assert AuditEntry.objects.get(action="import.restore").after == {"tools": ["a", "c", "b"]}


def test_a_guess_and_a_name_can_be_changed_before_it_is_accepted(alice: Membership, read: Read, pets: Category) -> None:
    tool_import = read(alice, pet("a"), pet("b"))
    row = rows_of(tool_import)["a"]

    change_imported(row, actor=alice, name="list_pets", effect="external", is_destructive=True)
    accept(tool_import, pets, alice)

    assert Tool.objects.get(name="list_pets").current_version.effect == "external"  # type: ignore[union-attr]
    with pytest.raises(ChangeRefused, match="decided"):
        change_imported(row, actor=alice, effect="read")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "not a name"}, "1 to 64 characters"),
        ({"name": "B"}, "There is a tool named B already"),
        ({"name": "CALCULATOR"}, "There is a tool named CALCULATOR already"),
        ({"effect": "none"}, "one of"),
        ({"is_destructive": True}, "only reads"),
    ],
)
def test_a_change_that_cannot_be_says_why(alice: Membership, read: Read, change: dict[str, Any], message: str) -> None:
    make_tool(alice.organisation, "calculator")
    tool_import = read(alice, pet("a"), pet("b"))

    with pytest.raises(ChangeRefused, match=message):
        change_imported(rows_of(tool_import)["a"], actor=alice, **change)


def test_another_base_url_is_where_the_calls_go(alice: Membership, read: Read, pets: Category) -> None:
    accept(read(alice, pet("a")), pets, alice)
    again = read(alice, pet("a"), pet("b"))

    set_base_url(again, "https://staging.example.org/v2/", actor=alice)

    assert rows_of(again)["a"].status == ImportedStatus.CHANGED
    accept(again, pets, alice)
    urls = {row.tool.name: row.implementation["url"] for row in ToolVersion.objects.filter(status="approved")}
    assert urls == {"a": "https://staging.example.org/v2/a", "b": "https://staging.example.org/v2/b"}


@pytest.mark.parametrize(
    "url", ["ftp://a.example", "nothing", "https://user@a.example", "https://{host}.example", "https://a.example?x=1"]
)
def test_a_base_url_that_is_none_is_refused(alice: Membership, read: Read, url: str) -> None:
    tool_import = read(alice, pet("a"))

    with pytest.raises(ChangeRefused) as refusal:
        set_base_url(tool_import, url, actor=alice)

    assert refusal.value.field == "base_url"


def test_without_an_address_nothing_is_accepted(alice: Membership, read: Read, pets: Category) -> None:
    tool_import = read(alice, pet("a"), base_url="")

    with pytest.raises(ChangeRefused, match="names no address"):
        accept(tool_import, pets, alice)


def test_a_credential_goes_only_where_it_is_sent(alice: Membership, read: Read, pets: Category) -> None:
    stored = StoredCredential.objects.create(
        organisation=alice.organisation, name="k", title="Key", kind="bearer", origins=["https://other.example.org"]
    )
    tool_import = read(alice, pet("a"))

    with pytest.raises(ChangeRefused, match=r"not sent to https://pets\.example\.org"):
        accept(tool_import, pets, alice, credential=stored)
    stored.origins = ["https://pets.example.org"]
    stored.save()
    accept(tool_import, pets, alice, credential=stored)

    assert Tool.objects.get().credential == stored


def test_a_file_of_definitions_can_be_reviewed_and_not_accepted(alice: Membership, pets: Category) -> None:
    document = '{"server": "mail", "tools": [{"name": "send mail", "inputSchema": {"type": "object"}}]}'
    tool_import = start_import(ImportSource.DEFINITIONS, actor=alice, document=document)
    runs.run_import(tool_import.public_id)
    tool_import.refresh_from_db()

    (row,) = rows_of(tool_import).values()

    assert (row.name, tool_import.title, row.effect) == ("mcp__mail__send_mail", "mail", "external")
    with pytest.raises(ChangeRefused, match="add the MCP server"):
        accept(tool_import, pets, alice)


# -- Who may ----------------------------------------------------------------------------------------------------------


def test_bob_without_the_right_neither_asks_nor_decides(alice: Membership, read: Read, pets: Category) -> None:
    bob = make_member(alice.organisation, "bob")
    tool_import = read(alice, pet("a"))
    row = rows_of(tool_import)["a"]

    for attempt in (
        lambda: start_import(ImportSource.OPENAPI, actor=bob, document=DOCUMENT),
        lambda: accept(tool_import, pets, bob),
        lambda: dismiss_imported(import_rows(tool_import), actor=bob),
        lambda: change_imported(row, actor=bob, effect="write"),
        lambda: set_base_url(tool_import, "https://a.example", actor=bob),
        lambda: close_import(tool_import, actor=bob),
    ):
        with pytest.raises(PermissionDenied):
            attempt()
    assert not Tool.objects.exists()


def test_a_right_for_one_category_accepts_into_that_one_alone(alice: Membership, read: Read, pets: Category) -> None:
    bob = make_member(alice.organisation, "bob")
    give_right(bob, GivenRight(Right.CATALOGUE, "pets"), actor=alice)
    bob = Membership.objects.get(pk=bob.pk)
    tool_import = read(bob, pet("a"), pet("b"))

    with pytest.raises(PermissionDenied):
        accept(tool_import, make_category(alice.organisation, "other"), bob)
    accepted = accept(tool_import, pets, bob)

    assert list(accepted.waiting) == ["a", "b"]


@pytest.fixture
def bob(alice: Membership, pets: Category) -> Membership:
    """He administers the one category pets."""
    bob = make_member(alice.organisation, "bob")
    give_right(bob, GivenRight(Right.CATALOGUE, "pets"), actor=alice)
    return Membership.objects.get(pk=bob.pk)


def attempts(tool_import: ToolImport, category: Category, actor: Membership) -> list[Callable[[], Any]]:
    """Everything that decides on the import or a definition of it."""
    rows = import_rows(tool_import)
    return [
        lambda: accept(tool_import, category, actor),
        lambda: dismiss_imported(rows, actor=actor),
        lambda: restore_imported(rows, actor=actor),
        lambda: [change_imported(row, actor=actor, effect="write") for row in rows],
        lambda: set_base_url(tool_import, "https://a.example", actor=actor),
        lambda: close_import(tool_import, actor=actor),
    ]


def test_an_import_without_a_category_is_for_who_administers_the_whole_catalogue(
    alice: Membership, bob: Membership, read: Read, pets: Category
) -> None:
    tool_import = read(alice, pet("a"), pet("b"))
    dismiss_imported(import_rows(tool_import).filter(name="b"), actor=alice)

    for attempt in attempts(tool_import, pets, bob):
        with pytest.raises(PermissionDenied):
            attempt()

    assert {name: str(row.status) for name, row in rows_of(tool_import).items()} == {"a": "new", "b": "dismissed"}
    tool_import.refresh_from_db()
    assert (tool_import.status, tool_import.base_url) == ("review", "https://pets.example.org/v1")


def test_an_import_of_another_category_is_not_his(
    alice: Membership, bob: Membership, offer: Callable[..., None]
) -> None:
    other = make_category(alice.organisation, "other")
    offer(pet("a"), pet("b"))
    tool_import = start_import(ImportSource.OPENAPI, actor=alice, document=DOCUMENT, category=other)
    runs.run_import(tool_import.public_id)
    dismiss_imported(import_rows(tool_import).filter(name="b"), actor=alice)

    for attempt in attempts(tool_import, other, bob):
        with pytest.raises(PermissionDenied):
            attempt()
    with pytest.raises(PermissionDenied):
        start_import(ImportSource.OPENAPI, actor=bob, document=DOCUMENT, category=other)


def test_he_decides_on_what_is_of_his_category_and_on_tools_that_are_in_it(
    alice: Membership, bob: Membership, read: Read, pets: Category
) -> None:
    own = read(bob, pet("a"), pet("b"), pet("c"))
    assert own.category == pets
    dismiss_imported(import_rows(own).filter(name="b"), actor=bob)
    restore_imported(import_rows(own).filter(name="b"), actor=bob)
    set_base_url(own, "https://a.example", actor=bob)
    accept(own, pets, bob)
    for version in ToolVersion.objects.select_related("tool"):
        decide_version(version, approve=True, actor=alice)
    move_tool(Tool.objects.get(name="c"), make_category(alice.organisation, "other").name, actor=alice)

    again = read(alice, pet("a", description="A."), pet("b", description="B."), pet("c", description="C."), pet("d"))
    changed = import_rows(again)

    assert accept_imported(changed.filter(name="a"), None, actor=bob).updated == ["a"]
    assert dismiss_imported(changed.filter(name="b"), actor=bob) == 1
    for name in ("c", "d"):  # another category's, and nobody's yet
        with pytest.raises(PermissionDenied):
            dismiss_imported(changed.filter(name=name), actor=bob)
    with pytest.raises(PermissionDenied):
        close_import(again, actor=bob)


def test_who_administers_several_categories_chooses_one_for_a_document(
    alice: Membership, bob: Membership, pets: Category
) -> None:
    other = make_category(alice.organisation, "other")
    give_right(bob, GivenRight(Right.CATALOGUE, "other"), actor=alice)
    bob = Membership.objects.get(pk=bob.pk)

    with pytest.raises(ChangeRefused, match="Choose the category") as refused:
        start_import(ImportSource.OPENAPI, actor=bob, document=DOCUMENT)
    chosen = start_import(ImportSource.OPENAPI, actor=bob, document=DOCUMENT, category=other)

    assert (refused.value.field, chosen.category) == ("category", other)


def test_rule_12_a_version_that_an_operator_accepts_is_not_in_force_for_the_operator(
    alice: Membership, read: Read, pets: Category
) -> None:
    accept(read(alice, pet("a")), pets, alice)
    olive = make_member(alice.organisation, "olive", Access.OPERATOR)
    again = read(olive, pet("a", implementation={"method": "DELETE", "url": "/all", "arguments": {}}))

    accept(again, pets, olive)

    tool = Tool.objects.get()
    assert tool.current_version is not None
    assert tool.current_version.number == 1
    assert ToolVersion.objects.get(number=2).status == VersionStatus.PENDING


def test_an_import_is_not_read_for_a_member_who_lost_the_right(alice: Membership, offer: Callable[..., None]) -> None:
    offer(pet("a"))
    bob = make_member(alice.organisation, "bob", Access.OPERATOR)
    tool_import = start_import(ImportSource.OPENAPI, actor=bob, document=DOCUMENT)
    Membership.objects.filter(pk=bob.pk).update(access=Access.MEMBER)

    runs.run_import(tool_import.public_id)

    tool_import.refresh_from_db()
    assert (tool_import.status, tool_import.reason) == ("failed", runs.NO_RIGHT)


def test_an_import_that_ended_meanwhile_gets_no_definitions(alice: Membership, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(tool_import: ToolImport) -> Any:
        ToolImport.objects.update(status=ImportStatus.FAILED)
        return ReadSource((pet("a"),), title="Pets")

    monkeypatch.setitem(sources._values, ImportSource.OPENAPI, Source(read))
    tool_import = start_import(ImportSource.OPENAPI, actor=alice, document=DOCUMENT)

    runs.run_import(tool_import.public_id)

    tool_import.refresh_from_db()
    assert (tool_import.status, import_rows(tool_import).count()) == (ImportStatus.FAILED, 0)


def test_what_changes_something_asks_behind_text_from_outside(alice: Membership, read: Read, pets: Category) -> None:
    accept(read(alice, pet("a"), pet("b", effect="external"), pet("c", effect="write")), pets, alice)

    versions = ToolVersion.objects.values_list("tool__name", "in_untrusted", "on_crash")
    assert set(versions) == {("a", "allow", "retry"), ("b", "ask", "never"), ("c", "ask", "never")}


def test_charlie_sees_nothing_and_collides_with_nothing(alice: Membership, read: Read, pets: Category) -> None:
    accept(read(alice, pet("a")), pets, alice)
    charlie = make_member(make_organisation("globex"), "charlie", Access.ADMIN)

    with organisation_scope(charlie.organisation):
        tool_import = read(charlie, pet("a"))
        (row,) = rows_of(tool_import).values()

        assert (row.status, row.name, row.collision, row.tool) == ("new", "a", "", None)
        assert ToolImport.objects.count() == 1


# -- By a worker ------------------------------------------------------------------------------------------------------


def test_an_import_is_read_once(alice: Membership, offer: Callable[..., None]) -> None:
    offer(pet("a"))
    tool_import = start_import(ImportSource.OPENAPI, actor=alice, document=DOCUMENT)

    runs.run_import(tool_import.public_id)
    offer(pet("a"), pet("b"))
    runs.run_import(tool_import.public_id)

    assert import_rows(tool_import).count() == 1


def test_the_bell_is_rung_after_the_commit(
    alice: Membership, monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any
) -> None:
    rung: list[Any] = []
    monkeypatch.setattr(ring_for_import, "_function", rung.append)

    with django_capture_on_commit_callbacks(execute=True):
        tool_import = start_import(ImportSource.OPENAPI, actor=alice, document=DOCUMENT)
        assert rung == []

    assert rung == [tool_import.public_id]


def test_a_reader_that_falls_over_fails_the_import_in_a_sentence(
    alice: Membership, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fall(_: ToolImport) -> Any:
        raise RuntimeError("secret")

    monkeypatch.setitem(sources._values, ImportSource.OPENAPI, Source(fall))
    tool_import = start_import(ImportSource.OPENAPI, actor=alice, document=DOCUMENT)

    runs.run_import(tool_import.public_id)

    tool_import.refresh_from_db()
    assert (tool_import.status, tool_import.reason) == ("failed", runs.FELL_OVER)


@pytest.mark.parametrize(("status", "reason"), [("queued", runs.NOT_TAKEN), ("running", runs.NO_RESULT)])
def test_the_sweep_fails_imports_past_their_deadline(alice: Membership, status: str, reason: str) -> None:
    tool_import = start_import(ImportSource.OPENAPI, actor=alice, document=DOCUMENT)
    past = timezone.now() - timedelta(seconds=1)
    ToolImport.objects.update(status=status, deadline_at=past)

    runs.sweep()

    tool_import.refresh_from_db()
    assert (tool_import.status, tool_import.reason, tool_import.is_open) == ("failed", reason, False)


def test_an_import_that_nobody_was_called_for_is_rung_for_once(alice: Membership) -> None:
    tool_import = start_import(ImportSource.OPENAPI, actor=alice, document=DOCUMENT)
    ToolImport.objects.update(rang_at=None)

    assert runs.unrung(2.0) == [tool_import.public_id]
    assert runs.unrung(2.0) == []


def test_only_so_many_imports_wait_at_once(alice: Membership) -> None:
    for _ in range(5):
        start_import(ImportSource.OPENAPI, actor=alice, document=DOCUMENT)

    with pytest.raises(ChangeRefused, match="5 imports are not read yet"):
        start_import(ImportSource.OPENAPI, actor=alice, document=DOCUMENT)


@pytest.mark.parametrize(
    "fields", [{}, {"document": DOCUMENT, "url": "https://a.example"}, {"url": "file:///etc/passwd"}, {"url": "x"}]
)
def test_an_import_of_nothing_that_can_be_read_is_refused(alice: Membership, fields: dict[str, Any]) -> None:
    with pytest.raises(ChangeRefused):
        start_import(ImportSource.OPENAPI, actor=alice, **fields)

    assert not ToolImport.objects.exists()


def test_a_closed_import_is_decided_on_no_more(alice: Membership, read: Read, pets: Category) -> None:
    tool_import = read(alice, pet("a"))

    close_import(tool_import, actor=alice)

    with pytest.raises(ChangeRefused, match="closed"):
        accept(tool_import, pets, alice)


def test_a_document_goes_the_whole_way_from_its_text_to_the_review(alice: Membership) -> None:
    """No reader is stood in for: what a document says of itself comes to the import that it is read for."""
    document = {
        "openapi": "3.1.0",
        "info": {"title": "Rides", "version": "1"},
        "servers": [{"url": "https://rides.example.org/v1"}],
        "paths": {"/trains": {"get": {"operationId": "trains", "summary": "Lists trains."}}},
    }
    tool_import = start_import(ImportSource.OPENAPI, actor=alice, document=json.dumps(document))

    runs.run_import(tool_import.public_id)

    tool_import.refresh_from_db()
    assert (tool_import.status, tool_import.reason) == (ImportStatus.REVIEW, "")
    assert (tool_import.title, tool_import.base_url) == ("Rides", "https://rides.example.org/v1")
    assert tool_import.content == {}
    assert [row.name for row in import_rows(tool_import)] == ["trains"]


def test_content_that_cannot_be_stored_fails_the_import(alice: Membership, monkeypatch: pytest.MonkeyPatch) -> None:
    def strange(_: ToolImport) -> Any:
        return ReadSource(content="no mapping")  # type: ignore[arg-type]

    monkeypatch.setitem(sources._values, ImportSource.OPENAPI, Source(strange))
    tool_import = start_import(ImportSource.OPENAPI, actor=alice, document=DOCUMENT)

    runs.run_import(tool_import.public_id)

    tool_import.refresh_from_db()
    assert (tool_import.status, tool_import.reason) == ("failed", runs.FELL_OVER)


def test_what_is_too_large_to_be_sent_says_so_in_the_review(alice: Membership, read: Read) -> None:
    text = " ".join(f"word{number}" for number in range(190))
    properties = {f"p{number}": {"type": "string", "description": text} for number in range(30)}
    placed = {"method": "GET", "url": "/large", "arguments": {name: {"in": "query"} for name in properties}}
    large = pet("large", parameters={"type": "object", "properties": properties}, implementation=placed)

    rows = rows_of(read(alice, large, pet("small")))

    assert [each["code"] for each in rows["large"].warnings] == ["too_large"]
    assert f"{rows['large'].tokens:,}" in rows["large"].warnings[0]["text"]
    assert rows["small"].warnings == []
    with_room = {"max_definition_tokens": 900_000}
    RuntimeConfig.objects.create(
        organisation=alice.organisation, layer=RuntimeLayer.ORGANISATION, values={"tools": {"large": with_room}}
    )
    assert rows_of(read(alice, large, pet("small")))["large"].warnings == []


# -- Effects and approvals of many at once ----------------------------------------------------------------------------


def test_the_effect_of_many_definitions_is_set_at_once_and_none_where_one_is_not_there(
    alice: Membership, read: Read, pets: Category
) -> None:
    tool_import = read(alice, pet("a", effect="external"), pet("b", effect="external", is_destructive=True), pet("c"))

    assert set_effects(import_rows(tool_import), "read", actor=alice) == 2

    rows = rows_of(tool_import)
    assert [(row.effect, row.is_destructive) for row in rows.values()] == [("read", False)] * 3
    entry = AuditEntry.objects.get(action="import.change")
    assert entry.before == {"effects": {"a": "external", "b": "external"}}
    accept(tool_import, pets, alice)
    assert {tool.in_untrusted for tool in ToolVersion.objects.all()} == {"allow"}
    assert set_effects(import_rows(tool_import), "write", actor=alice) == 0


@pytest.mark.parametrize(("effect", "destroys"), [("destroys", None), ("read", True)])
def test_an_unknown_effect_is_refused_and_changes_none(
    alice: Membership, read: Read, effect: str, destroys: bool | None
) -> None:
    tool_import = read(alice, pet("a", effect="external"))

    with pytest.raises(ChangeRefused):
        set_effects(import_rows(tool_import), effect, actor=alice, is_destructive=destroys)

    assert rows_of(tool_import)["a"].effect == "external"


def test_who_does_not_administer_the_import_sets_no_effect(alice: Membership, bob: Membership, read: Read) -> None:
    tool_import = read(alice, pet("a", effect="external"))

    with pytest.raises(PermissionDenied):
        set_effects(import_rows(tool_import), "read", actor=bob)


def test_accepting_says_when_calls_ask_a_person_and_takes_the_right_for_it(
    alice: Membership, bob: Membership, read: Read, pets: Category
) -> None:
    give_right(bob, GivenRight(Right.CATALOGUE), actor=alice)
    tool_import = read(alice, pet("a"), pet("b"))

    with pytest.raises(PermissionDenied):
        accept(tool_import, pets, bob, knobs={"ask": "always"})
    assert not Tool.objects.exists()

    accept(tool_import, pets, alice, knobs={"ask": "always", "in_untrusted": "ask"})
    said = {"ask": "always", "in_untrusted": "ask"}
    assert RuntimeConfig.objects.get().values == {"tools": {"a": said, "b": said}}
