"""Toolkits as files: exported, reviewed, accepted by another organisation, and exported again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.core.management import CommandError, call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext

from capabilities.agents.sharing import exports
from capabilities.agents.sharing.exports import Exported, export_toolkit, toolkit_file
from capabilities.agents.sharing.imported_toolkits import save_imported_toolkit
from capabilities.agents.toolkits.writes import content_of
from capabilities.catalogue.imports.writes.change import change_imported
from capabilities.catalogue.imports.writes.decide import accept_imported, import_rows
from capabilities.catalogue.tools.writes import Origin, set_instructions
from capabilities.catalogue.versions.writes import decide_version
from capabilities.common.refused import ChangeRefused
from capabilities.common.rights import ChangeForbidden
from capabilities.contract.wire import sha256_hex
from capabilities.models import (
    HelperModule,
    HelperVersion,
    ImportStatus,
    McpServer,
    StoredCredential,
    Tool,
    ToolImport,
    ToolKind,
    Toolkit,
    ToolTestCase,
    ToolVersion,
    VersionStatus,
)
from tests.capabilities.agents.sharing.toolkits import (
    CODE,
    MODULE,
    SECRET,
    accept,
    add_credential,
    add_module,
    add_server,
    approve_modules,
    make_money,
    propose_module,
    read_file,
    rows_of,
    statuses_of,
)
from tests.capabilities.contract.test_toolkit_file import sealed
from tests.cast import make_category, make_member, make_tool, make_toolkit
from toolhub.tenants.models import Access, AuditEntry, Membership, Organisation, Right
from toolhub.tenants.people.writes import GivenRight, give_right
from toolhub.tenants.rows.scope import organisation_scope


@pytest.fixture
def money(acme: Organisation) -> Toolkit:
    return make_money(acme)


@pytest.fixture
def exported(money: Toolkit) -> Exported:
    with organisation_scope(money.organisation_id):
        return toolkit_file(money, reader=None)


@pytest.fixture
def ready(globex: Organisation) -> Organisation:
    """Globex, with what the tools of the file need."""
    make_tool(globex, "calculator")
    add_credential(globex)
    add_server(globex, url="https://mcp.example.org/mcp")
    return globex


@pytest.fixture
def carol(globex: Organisation) -> Membership:
    """The second admin of Globex, who did not import."""
    return make_member(globex, "carol", Access.ADMIN)


def file_of(exported: Exported) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(exported.text)
    return document


def changed(exported: Exported, change: Any) -> str:
    document = file_of(exported)
    for name in ("format", "version", "sha256"):
        del document[name]
    change(document)
    return sealed(document)


def tool_in(document: dict[str, Any], name: str) -> dict[str, Any]:
    return next(each for each in document["tools"] if each["name"] == name)


# -- Export -----------------------------------------------------------------------------------------------------------


def test_a_toolkit_is_exported_with_its_tools_in_force(exported: Exported) -> None:
    document = file_of(exported)

    assert [each["name"] for each in document["tools"]] == ["calculator", "mcp__far__ask", "price", "rates"]
    assert tool_in(document, "calculator") == {"name": "calculator", "kind": "builtin"}
    price = tool_in(document, "price")
    assert (price["implementation"], price["timeout"]) == ({"runtime": "monty", "code": CODE}, 7.0)
    assert price["helpers"] == {"money": sha256_hex(document["modules"][0]["code"])}
    assert price["tests"] == [
        {"name": "two", "arguments": {"net": 2}, "expected": {"gross": 4}, "expects_error": False}
    ]
    assert tool_in(document, "rates")["credential"] == "rates"
    assert document["servers"] == [{"name": "far", "transport": "http", "address": "https://mcp.example.org/mcp"}]
    assert document["credentials"] == [
        {"name": "rates", "kind": "bearer", "parameter": "", "prefix": "", "origins": ["https://rates.example.org"]}
    ]
    assert document["toolkit"]["tools"][:2] == [
        {"tool": "price", "timeout": 3.0, "max_result_chars": None, "knobs": {}},
        {"tool": "rates", "timeout": None, "max_result_chars": None, "knobs": {}},
    ]
    assert document["sha256"] == exported.sha256


def test_tools_not_in_force_are_left_out_of_the_file_with_the_reason(exported: Exported) -> None:
    why = dict(exported.left_out)
    assert sorted(why) == ["kept", "leaky", "off"]
    assert "switched off" in why["off"]
    assert "It changed at its source." in why["kept"]
    assert "X-Api-Key may be a secret" in why["leaky"]


def test_no_secret_and_nothing_of_people_is_in_a_file(exported: Exported, alice: Membership) -> None:
    assert SECRET not in exported.text
    for word in ("@example.com", "organisation", "public_id", "created", "decided", "status"):
        assert word not in exported.text


def test_a_tool_without_a_version_in_force_is_left_out(acme: Organisation) -> None:
    tool = make_tool(acme, "calculator")
    other = make_tool(acme, "uuid")
    toolkit = make_toolkit(acme, "two", tool, other)
    with organisation_scope(acme):
        Tool.objects.filter(pk=other.pk).update(current_version=None)

        assert toolkit_file(toolkit, reader=None).left_out == [("uuid", "No version of it is in force.")]


def test_whole_categories_are_exported_as_their_tools(acme: Organisation) -> None:
    category = make_category(acme, "utility")
    make_tool(acme, "calculator", category=category)
    toolkit = make_toolkit(acme, "all", categories=(category,))
    with organisation_scope(acme):
        document = file_of(toolkit_file(toolkit, reader=None))

    assert [line["tool"] for line in document["toolkit"]["tools"]] == ["calculator"]


def test_an_export_is_on_record_and_needs_the_right(money: Toolkit, alice: Membership, bob: Membership) -> None:
    with organisation_scope(money.organisation_id):
        with pytest.raises(PermissionDenied):
            export_toolkit(money, actor=bob)
        found = export_toolkit(money, actor=alice)

        entry = AuditEntry.objects.get(action="toolkit.export")
    assert entry.after["sha256"] == found.sha256


def test_code_is_exported_only_by_who_may_read_it(money: Toolkit, alice: Membership, bob: Membership) -> None:
    """Bob administers another category: he gets what anybody sees."""
    make_category(money.organisation, "utility")
    with organisation_scope(money.organisation_id):
        give_right(bob, GivenRight(Right.CATALOGUE, "utility"), actor=alice)
        bob.refresh_from_db()
        found = export_toolkit(money, actor=Membership.objects.get(pk=bob.pk))

    assert [each["name"] for each in file_of(found)["tools"]] == ["calculator"]
    assert "may not read" in dict(found.left_out)["price"]
    assert CODE not in found.text


def test_a_toolkit_of_which_nothing_is_left_is_refused(acme: Organisation) -> None:
    with organisation_scope(acme), pytest.raises(ChangeRefused, match="nothing to export"):
        toolkit_file(make_toolkit(acme, "empty"), reader=None)


def test_a_toolkit_that_is_too_large_is_refused(money: Toolkit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exports, "MAX_FILE", 1_000)
    with organisation_scope(money.organisation_id), pytest.raises(ChangeRefused, match="Make two toolkits"):
        toolkit_file(money, reader=None)


def test_an_export_takes_the_same_queries_for_more_tools(money: Toolkit) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as found, organisation_scope(money.organisation_id):
            toolkit_file(money, reader=None)
        return len(found)

    before = queries()
    more = [make_tool(money.organisation, name) for name in ("uuid", "hash", "json_format")]
    make_toolkit(money.organisation, "other", *more)
    with organisation_scope(money.organisation_id):
        for position, tool in enumerate(more, start=10):
            money.toolkit_tools.create(organisation_id=money.organisation_id, tool=tool, position=position)

    assert queries() == before <= 8


# -- Import -----------------------------------------------------------------------------------------------------------


def test_a_file_waits_for_review_and_is_no_tool(exported: Exported, ready: Organisation, charlie: Membership) -> None:
    with organisation_scope(ready):
        tool_import = read_file(exported.text, charlie)

        assert (tool_import.status, tool_import.title, tool_import.reason) == (ImportStatus.REVIEW, "money", "")
        assert statuses_of(tool_import) == {
            "calculator": "unchanged",
            "mcp__far__ask": "new",
            "price": "new",
            "rates": "new",
        }
        assert list(Tool.objects.values_list("name", flat=True)) == ["calculator"]
        assert not Toolkit.objects.exists()
        assert not HelperModule.objects.exists()
        assert rows_of(tool_import)["price"].tokens > 0
        built_in, here = rows_of(tool_import)["calculator"], Tool.objects.get(name="calculator").current_version
        assert here is not None
        assert (built_in.description, built_in.warnings) == (here.description, [])


def test_round_trip_gives_the_same_hash(
    exported: Exported, ready: Organisation, charlie: Membership, carol: Membership
) -> None:
    """Exported by Acme, imported and accepted by Globex, approved there, and exported again."""
    with organisation_scope(ready):
        tool_import = read_file(exported.text, charlie)
        credential = ready_credential()

        accepted = accept(tool_import, charlie, credential=credential)

        assert sorted(accepted.created) == ["mcp__far__ask", "price", "rates"]
        assert list(accepted.waiting) == ["price"]
        assert list(accepted.modules) == ["money 1"]
        version = ToolVersion.objects.get(tool__name="price")
        with pytest.raises(ChangeForbidden):
            decide_version(version, approve=True, actor=charlie)
        with pytest.raises(ChangeRefused, match="module money"):
            decide_version(version, approve=True, actor=carol)
        approve_modules(carol)
        decide_version(version, approve=True, actor=carol)

        toolkit = Toolkit.objects.get(name="money")
        again = toolkit_file(toolkit, reader=None)
        here, there = file_of(again), file_of(exported)
        left_out = there.pop("left_out"), here.pop("left_out")
        lines = there["toolkit"].pop("tools"), here["toolkit"].pop("tools")
        for each in (here, there):
            del each["sha256"]
    assert here == there
    assert left_out[1] == []
    assert [line for line in lines[0] if line["tool"] not in {each["tool"] for each in left_out[0]}] == lines[1]


def ready_credential() -> StoredCredential:
    return StoredCredential.objects.get(name="rates")


def test_a_file_with_nothing_left_out_comes_back_byte_by_byte(
    money: Toolkit, ready: Organisation, charlie: Membership, carol: Membership
) -> None:
    with organisation_scope(money.organisation_id):
        money.toolkit_tools.filter(tool__name__in=["off", "kept", "leaky"]).delete()
        exported = toolkit_file(money, reader=None)
    with organisation_scope(ready):
        accept(read_file(exported.text, charlie), charlie, credential=ready_credential())
        approve_modules(carol)
        decide_version(ToolVersion.objects.get(tool__name="price"), approve=True, actor=carol)

        again = toolkit_file(Toolkit.objects.get(name="money"), reader=None)

    assert again.text == exported.text


def test_rows_of_the_importer_are_its_own(exported: Exported, ready: Organisation, charlie: Membership) -> None:
    with organisation_scope(ready):
        accept(read_file(exported.text, charlie), charlie, credential=ready_credential())

        rates = Tool.objects.get(name="rates")
        assert (rates.organisation_id, rates.credential) == (ready.pk, ready_credential())
        assert Tool.objects.get(name="mcp__far__ask").server_id == McpServer.objects.get().pk
        assert Tool.objects.get(name="price").source == "Toolkit file money"
        version = ToolVersion.objects.get(tool=rates)
        assert (version.untrusted_output, version.created_by) == (True, charlie)
        case = ToolTestCase.objects.get()
        assert (case.tool.name, case.arguments, case.expected) == ("price", {"net": 2}, {"gross": 4})


def test_the_same_file_twice_is_unchanged(exported: Exported, ready: Organisation, charlie: Membership) -> None:
    with organisation_scope(ready):
        accept(read_file(exported.text, charlie), charlie, credential=ready_credential())

        again = read_file(exported.text, charlie)

        assert set(statuses_of(again).values()) == {"unchanged"}
        assert again.status == ImportStatus.CLOSED


def test_words_that_people_here_set_do_not_make_the_source_changed(
    exported: Exported, ready: Organisation, charlie: Membership
) -> None:
    with organisation_scope(ready):
        accept(read_file(exported.text, charlie), charlie, credential=ready_credential())
        set_instructions(Tool.objects.get(name="rates"), "Only on work days.", actor=charlie)

        assert set(statuses_of(read_file(exported.text, charlie)).values()) == {"unchanged"}


def test_a_toolkit_that_changed_at_its_source_is_an_update(
    exported: Exported, ready: Organisation, charlie: Membership
) -> None:
    with organisation_scope(ready):
        accept(read_file(exported.text, charlie), charlie, credential=ready_credential())

        def change(document: dict[str, Any]) -> None:
            tool_in(document, "rates")["instructions"] = "Say the date."
            document["toolkit"]["tools"] = document["toolkit"]["tools"][:2]

        again = read_file(changed(exported, change), charlie)

        assert statuses_of(again) == {
            "calculator": "unchanged",
            "mcp__far__ask": "unchanged",
            "price": "unchanged",
            "rates": "changed",
        }
        done = accept(again, charlie)
        assert list(done.updated) == ["rates"]
        assert "There is a toolkit money already" in done.note
        assert ToolVersion.objects.get(tool__name="rates", status="approved").instructions == "Say the date."
        assert len(content_of(Toolkit.objects.get()).tools) == 4
        save_imported_toolkit(again, actor=charlie)
        assert [line.tool for line in content_of(Toolkit.objects.get()).tools] == ["price", "rates"]


def test_changed_code_waits_again_beside_the_version_in_force(
    exported: Exported, ready: Organisation, charlie: Membership, carol: Membership
) -> None:
    with organisation_scope(ready):
        accept(read_file(exported.text, charlie), charlie, credential=ready_credential())
        approve_modules(carol)
        decide_version(ToolVersion.objects.get(tool__name="price"), approve=True, actor=carol)

        def change(document: dict[str, Any]) -> None:
            tool_in(document, "price")["implementation"]["code"] = CODE.replace("gross(net)", "gross(net + 1)")

        again = read_file(changed(exported, change), charlie)
        done = accept(again, charlie)

        assert list(done.waiting) == ["price"]
        assert list(done.modules) == []
        versions = ToolVersion.objects.filter(tool__name="price").order_by("number")
        assert list(versions.values_list("status", flat=True)) == ["approved", "pending"]
        assert versions[1].implementation["helpers"] == {"money": 1}


def test_what_was_rejected_can_be_imported_again(
    exported: Exported, ready: Organisation, charlie: Membership, carol: Membership
) -> None:
    with organisation_scope(ready):
        accept(read_file(exported.text, charlie), charlie, credential=ready_credential())
        version = ToolVersion.objects.get(tool__name="price")
        decide_version(version, approve=False, reason="No.", actor=carol)

        assert statuses_of(read_file(exported.text, charlie))["price"] == "changed"


# -- Names, modules, servers, credentials -----------------------------------------------------------------------------


def test_a_name_that_is_taken_is_another_one_in_the_toolkit_too(
    exported: Exported, ready: Organisation, charlie: Membership
) -> None:
    mine = make_tool(ready, "rates", description="Globex's own.")
    with organisation_scope(ready):
        tool_import = read_file(exported.text, charlie)
        row = rows_of(tool_import)["rates"]
        assert (row.name, bool(row.collision)) == ("money__rates", True)
        accept(tool_import, charlie, credential=ready_credential())

        assert "money__rates" in [line.tool for line in content_of(Toolkit.objects.get()).tools]
        assert ToolVersion.objects.filter(tool=mine).count() == 1


def test_a_module_with_the_same_content_is_used_as_it_is(
    exported: Exported, ready: Organisation, charlie: Membership
) -> None:
    add_module(ready, "def gross(net):\n    return 0\n")
    add_module(ready)
    with organisation_scope(ready):
        done = accept(read_file(exported.text, charlie), charlie, credential=ready_credential())

        assert list(done.modules) == []
        version = ToolVersion.objects.get(tool__name="price")
        assert version.implementation["helpers"] == {"money": 2}


def test_a_module_with_another_content_becomes_a_version_that_waits(
    exported: Exported, ready: Organisation, charlie: Membership
) -> None:
    add_module(ready, "def gross(net):\n    return 0\n")
    with organisation_scope(ready):
        done = accept(read_file(exported.text, charlie), charlie, credential=ready_credential())

        assert list(done.modules) == ["money 2"]
        first, second = HelperVersion.objects.order_by("number")
        assert (first.status, second.status) == (VersionStatus.APPROVED, VersionStatus.PENDING)
        assert HelperModule.objects.get().current_version == first


def test_a_module_that_was_rejected_is_not_used(exported: Exported, ready: Organisation, charlie: Membership) -> None:
    with organisation_scope(ready):
        rejected = propose_module(charlie, MODULE)
        HelperVersion.objects.filter(pk=rejected.pk).update(status=VersionStatus.REJECTED)

        accept(read_file(exported.text, charlie), charlie, credential=ready_credential())

        assert ToolVersion.objects.get(tool__name="price").implementation["helpers"] == {"money": 2}


def test_modules_need_the_right_for_every_category(
    exported: Exported, ready: Organisation, charlie: Membership
) -> None:
    """Dora administers one category: code that every tool may import is not hers to bring."""
    dora = make_member(ready, "dora")
    category = make_category(ready, "imported", is_core=True)
    with organisation_scope(ready):
        give_right(dora, GivenRight(Right.CATALOGUE, "imported"), actor=charlie)
        dora = Membership.objects.get(pk=dora.pk)
        tool_import = read_file(exported.text, dora)
        price = import_rows(tool_import).filter(original_name="price")

        with pytest.raises(PermissionDenied):
            accept_imported(price, category, actor=dora)
        assert not HelperModule.objects.exists()
        rates = accept_imported(import_rows(tool_import).filter(original_name="rates"), category, actor=dora)
        assert list(rates.waiting) == ["rates"]
        assert "needs the right toolkits" in rates.note


def test_a_tool_of_a_server_that_is_not_here_is_refused(exported: Exported, globex: Organisation) -> None:
    charlie = make_member(globex, "charlie", Access.ADMIN)
    add_server(globex, "far", url="https://elsewhere.example.org/mcp")
    with organisation_scope(globex):
        rows = rows_of(read_file(exported.text, charlie))

    assert (rows["mcp__far__ask"].status, rows["calculator"].status) == ("refused", "refused")
    assert "server https://mcp.example.org/mcp first" in rows["mcp__far__ask"].reason
    assert "no built-in tool calculator" in rows["calculator"].reason


def test_a_tool_of_a_server_that_is_here_under_another_name_is_bound_to_it(
    exported: Exported, globex: Organisation, charlie: Membership
) -> None:
    near = add_server(globex, "near", url="https://mcp.example.org/mcp/")
    with organisation_scope(globex):
        tool_import = read_file(exported.text, charlie)
        assert rows_of(tool_import)["mcp__far__ask"].name == "mcp__near__ask"
        accept(tool_import, charlie)

        assert Tool.objects.get(name="mcp__near__ask").server == near


def test_a_tool_that_its_server_brought_already_stays_as_it_is(
    exported: Exported, ready: Organisation, charlie: Membership
) -> None:
    """What a server offers is the server's word: a file does not change it."""
    with organisation_scope(ready):
        server = McpServer.objects.get()
    origin = Origin(ToolKind.MCP, server=server)
    tool = make_tool(ready, "mcp__far__ask", origin=origin, implementation={"name": "ask"}, description="The server's.")
    with organisation_scope(ready):
        tool_import = read_file(exported.text, charlie)
        assert statuses_of(tool_import)["mcp__far__ask"] == "unchanged"
        accept(tool_import, charlie, credential=ready_credential())

        assert ToolVersion.objects.filter(tool=tool).count() == 1
        assert "mcp__far__ask" in [line.tool for line in content_of(Toolkit.objects.get()).tools]


def test_a_server_that_goes_before_the_decision_is_said(
    exported: Exported, ready: Organisation, charlie: Membership
) -> None:
    with organisation_scope(ready):
        tool_import = read_file(exported.text, charlie)
        McpServer.objects.all().delete()

        with pytest.raises(ChangeRefused, match="is gone"):
            accept(tool_import, charlie, credential=ready_credential())


def test_a_credential_is_taken_only_by_tools_that_ask_for_it_and_only_where_it_is_sent(
    money: Toolkit, ready: Organisation, charlie: Membership
) -> None:
    make_more(money)
    with organisation_scope(money.organisation_id):
        exported = toolkit_file(money, reader=None)
    with organisation_scope(ready):
        other = add_credential(ready, "other", origins=["https://other.example.org"])
        tool_import = read_file(exported.text, charlie)
        with pytest.raises(ChangeRefused, match="is not sent to https://rates"):
            accept(tool_import, charlie, credential=other)
        accept(tool_import, charlie, credential=ready_credential())

        assert Tool.objects.get(name="plain").credential is None
        assert Tool.objects.get(name="rates").credential == ready_credential()
        assert Tool.objects.get(name="price").credential is None


def make_more(money: Toolkit) -> None:
    plain = make_tool(
        money.organisation,
        "plain",
        origin=Origin(ToolKind.HTTP),
        implementation={"method": "GET", "url": "https://plain.example.org/"},
    )
    with organisation_scope(money.organisation_id):
        money.toolkit_tools.create(organisation_id=money.organisation_id, tool=plain, position=20)


def test_code_gets_no_credential_for_another_address(
    exported: Exported, ready: Organisation, charlie: Membership
) -> None:
    """The code of a file asks for the rates; the reviewer picks the bank's by mistake."""

    def change(document: dict[str, Any]) -> None:
        tool_in(document, "price")["credential"] = "rates"

    with organisation_scope(ready):
        bank = add_credential(ready, "bank", origins=["https://bank.example.org"])
        tool_import = read_file(changed(exported, change), charlie)
        price = import_rows(tool_import).filter(original_name="price")
        with pytest.raises(ChangeRefused, match="Bank is not sent there"):
            accept_imported(price, make_category(ready, "imported"), actor=charlie, credential=bank)


def test_who_may_not_approve_signs_no_tool_in_force(
    exported: Exported, ready: Organisation, charlie: Membership
) -> None:
    """A second reading with a credential: what signs a tool that runs is decided by who may approve it."""
    with organisation_scope(ready):
        accept(read_file(exported.text, charlie), charlie)
        olive = make_member(ready, "olive", Access.OPERATOR)

        def change(document: dict[str, Any]) -> None:
            tool_in(document, "rates")["description"] = "Another one."

        accept(read_file(changed(exported, change), olive), olive, credential=ready_credential())

        assert Tool.objects.get(name="rates").credential is None


# -- What is wrong in a file ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "{}", "[1]", "no json", "x" * 1_000])
def test_a_malformed_toolkit_file_fails_with_a_message(text: str, ready: Organisation, charlie: Membership) -> None:
    with organisation_scope(ready):
        if not text:
            with pytest.raises(ChangeRefused, match="Choose the file"):
                read_file(text, charlie)
            return
        tool_import = read_file(text, charlie)

    assert tool_import.status == ImportStatus.FAILED
    assert tool_import.reason.endswith(".")


def test_a_changed_byte_fails_the_import(exported: Exported, ready: Organisation, charlie: Membership) -> None:
    with organisation_scope(ready):
        tool_import = read_file(exported.text.replace("Prices and rates", "Prices and bates"), charlie)

    assert (tool_import.status, "was changed after it was exported" in tool_import.reason) == ("failed", True)


@pytest.mark.parametrize(
    ("change", "tool", "reason"),
    [
        (lambda t: t["implementation"].update(code="def run(net):\n    yield 1\n"), "price", "Line 2"),
        (lambda t: t["implementation"].update(code="def walk():\n    pass\n"), "price", "run"),
        (lambda t: t["implementation"].update(runtime="shell"), "price", "runtime"),
        (lambda t: t["implementation"].update(more=1), "price", "has no more"),
        (lambda t: t.update(timeout=100_000.0), "price", "timeout"),
        (lambda t: t.update(max_result_chars=-1), "price", "max_result_chars"),
        (lambda t: t.update(description="x" * 9_000), "price", "description under"),
        (lambda t: t.update(instructions="x" * 5_000), "price", "instructions under"),
        (lambda t: t.update(human_format="x" * 500), "price", "line under"),
        (lambda t: t.update(parameters={"type": "objekt"}), "price", ""),
        (lambda t: t["implementation"].update(url="ftp://x/"), "rates", "http"),
        (lambda t: t["implementation"].update(method="TELEPORT"), "rates", ""),
        (lambda t: t["implementation"].update(headers={"Authorization": "x"}), "rates", ""),
        (lambda t: t["implementation"].update(name=7), "mcp__far__ask", "server calls the tool"),
        (lambda t: t.update(name="bulk"), "bulk", "taken by the service"),
    ],
)
def test_a_tool_that_cannot_be_is_refused_and_the_others_are_not(
    exported: Exported, ready: Organisation, charlie: Membership, change: Any, tool: str, reason: str
) -> None:
    def apply(document: dict[str, Any]) -> None:
        change(tool_in(document, tool if tool != "bulk" else "rates"))
        for line in document["toolkit"]["tools"]:
            line["tool"] = tool if tool == "bulk" and line["tool"] == "rates" else line["tool"]

    with organisation_scope(ready):
        rows = rows_of(read_file(changed(exported, apply), charlie))

    assert (rows[tool].status, reason in rows[tool].reason) == ("refused", True), rows[tool].reason
    assert rows[tool].reason
    assert [name for name, row in rows.items() if row.status == "refused"] == [tool]


def test_a_module_that_cannot_be_refuses_its_tools(
    exported: Exported, ready: Organisation, charlie: Membership
) -> None:
    code = "class Money(int):\n    pass\n"

    def change(document: dict[str, Any]) -> None:
        document["modules"][0]["code"] = code
        tool_in(document, "price")["helpers"] = {"money": sha256_hex(code)}

    with organisation_scope(ready):
        row = rows_of(read_file(changed(exported, change), charlie))["price"]

    assert (row.status, row.reason.startswith("Its module money:")) == ("refused", True)


def test_hidden_characters_are_said_and_not_sent(exported: Exported, ready: Organisation, charlie: Membership) -> None:
    def change(document: dict[str, Any]) -> None:
        rates = tool_in(document, "rates")
        rates["description"] += "\u200b\U000e0041"
        rates["instructions"] = "First\u202e call price."
        tool_in(document, "price")["implementation"]["code"] = CODE + "# \u202e\n"

    with organisation_scope(ready):
        tool_import = read_file(changed(exported, change), charlie)
        rows = rows_of(tool_import)
        codes = {each["code"] for each in rows["rates"].warnings}
        assert codes >= {"hidden_characters", "turned_text"}
        assert "turned_text" in {each["code"] for each in rows["price"].warnings}
        accept(tool_import, charlie, credential=ready_credential())

        version = ToolVersion.objects.get(tool__name="rates")
    assert (version.description, version.instructions) == ("Does rates.", "First call price.")


def test_a_tool_declared_read_only_that_deletes_gets_a_warning(
    exported: Exported, ready: Organisation, charlie: Membership
) -> None:
    def change(document: dict[str, Any]) -> None:
        tool_in(document, "rates")["implementation"]["method"] = "DELETE"

    with organisation_scope(ready):
        row = rows_of(read_file(changed(exported, change), charlie))["rates"]

    assert "effect_unclear" in {each["code"] for each in row.warnings}


def test_a_retry_is_not_taken_over_where_the_reviewer_says_otherwise(
    exported: Exported, ready: Organisation, charlie: Membership
) -> None:
    def change(document: dict[str, Any]) -> None:
        tool_in(document, "rates")["on_crash"] = "retry"

    with organisation_scope(ready):
        tool_import = read_file(changed(exported, change), charlie)
        change_imported(rows_of(tool_import)["rates"], actor=charlie, effect="external")
        accept(tool_import, charlie, credential=ready_credential())

        version = ToolVersion.objects.get(tool__name="rates")
    assert (version.effect, version.on_crash, version.in_untrusted) == ("external", "never", "ask")


def test_a_thousand_tools_are_reviewed(acme: Organisation, globex: Organisation, charlie: Membership) -> None:
    tools = [
        {
            "name": f"tool_{number}", "kind": "http", "description": "Reads.", "instructions": "", "human_format": "",
            "parameters": {"type": "object", "properties": {}}, "effect": "read", "on_crash": "never", "timeout": 20.0,
            "max_result_chars": 40_000, "credential": "",
            "implementation": {"method": "GET", "url": f"https://api.example.org/{number}"},
        }
        for number in range(1_000)
    ]  # fmt: skip
    lines = [{"tool": each["name"], "timeout": None, "max_result_chars": None, "knobs": {}} for each in tools]
    empty: dict[str, Any] = {"modules": [], "credentials": [], "servers": [], "left_out": []}
    text = sealed({"toolkit": {"name": "many", "description": "", "tools": lines}, "tools": tools, **empty})
    with organisation_scope(globex):
        tool_import = read_file(text, charlie)
        assert tool_import.summary["statuses"] == {"new": 1_000}
        done = accept(tool_import, charlie)
        assert len(done.created) == 1_000
        assert len(content_of(Toolkit.objects.get()).tools) == 1_000


def test_charlie_of_another_organisation_sees_no_import_of_acme(
    exported: Exported, alice: Membership, charlie: Membership
) -> None:
    with organisation_scope(alice.organisation_id):
        read_file(exported.text, alice)
    with organisation_scope(charlie.organisation_id):
        assert not ToolImport.objects.exists()


# -- The commands -----------------------------------------------------------------------------------------------------


def test_the_commands_carry_a_toolkit_from_one_organisation_to_another(
    money: Toolkit, ready: Organisation, charlie: Membership, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "money.json"
    call_command("export_toolkit", "money", organisation="acme", output=str(path))
    said = capsys.readouterr().out
    assert "4 tools, SHA-256" in said
    assert "Left out: off, because" in said

    call_command("import_toolkit", str(path), organisation="globex", member="charlie@example.com")

    said = capsys.readouterr().out
    with organisation_scope(ready):
        tool_import = ToolImport.objects.get()
        assert tool_import.membership == charlie
    assert "money: 3 new, 1 unchanged." in said
    assert f"/o/globex/imports/{tool_import.public_id}/" in said


def test_an_import_by_the_operator_of_the_installation_needs_no_member(
    exported: Exported, ready: Organisation, tmp_path: Path
) -> None:
    (tmp_path / "f.json").write_text(exported.text)
    call_command("import_toolkit", str(tmp_path / "f.json"), organisation="globex")

    with organisation_scope(ready):
        assert (ToolImport.objects.get().membership, ToolImport.objects.get().status) == (None, "review")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["export_toolkit", "none", "--organisation", "acme", "--output", "x"], "no toolkit none"),
        (["export_toolkit", "money", "--organisation", "none", "--output", "x"], "no organisation none"),
        (["export_toolkit", "money", "--organisation", "acme", "--output", "/nowhere/x"], "cannot be written"),
        (["import_toolkit", "/nowhere/x", "--organisation", "acme"], "cannot be read"),
        (["import_toolkit", __file__, "--organisation", "none"], "no organisation none"),
        (["import_toolkit", __file__, "--organisation", "acme"], "JSON is broken"),
        (["import_toolkit", __file__, "--organisation", "acme", "--member", "x@y.z"], "is no member"),
        (["import_toolkit", __file__, "--organisation", "acme", "--member", "bob@example.com"], "right catalogue"),
    ],
)
def test_the_commands_refuse_in_words(money: Toolkit, bob: Membership, arguments: list[str], words: str) -> None:
    with pytest.raises(CommandError, match=words):
        call_command(*arguments)
