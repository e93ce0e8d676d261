"""A toolkit with tools of every kind, and what an organisation needs to import it."""

from __future__ import annotations

from typing import Any

from capabilities.catalogue.imports.runs import run_import
from capabilities.catalogue.imports.writes.decide import accept_imported, import_rows
from capabilities.catalogue.imports.writes.start import start_import
from capabilities.catalogue.python_tools.helper_modules.checks import CheckedModule
from capabilities.catalogue.python_tools.helper_modules.writes import create_module, decide_module
from capabilities.catalogue.tools.writes import Origin
from capabilities.contract.wire import sha256_hex
from capabilities.models import (
    HelperModule,
    HelperVersion,
    ImportedTool,
    ImportSource,
    McpServer,
    StoredCredential,
    StoredSecret,
    Tool,
    ToolImport,
    ToolKind,
    Toolkit,
    ToolTestCase,
    VersionStatus,
)
from tests.cast import make_category, make_tool, make_toolkit
from toolhub.tenants.models import Membership, Organisation
from toolhub.tenants.rows.scope import organisation_scope

SECRET = "s3cret-of-acme"
MODULE = "def gross(net):\n    return net * 2\n"
CODE = "import money\n\ndef run(net: float) -> dict:\n    return {'gross': money.gross(net)}\n"
ARGUMENT = {"type": "object", "properties": {"net": {"type": "number"}}, "required": ["net"]}


def add_credential(organisation: Organisation, name: str = "rates", **fields: Any) -> StoredCredential:
    with organisation_scope(organisation):
        defaults = {"title": name.title(), "kind": "bearer", "origins": ["https://rates.example.org"]}
        row = StoredCredential.objects.create(organisation=organisation, name=name, **defaults | fields)
        StoredSecret.objects.create(organisation=organisation, credential=row, values_json=f'{{"token": "{SECRET}"}}')
        return row


def add_server(organisation: Organisation, name: str = "far", **fields: Any) -> McpServer:
    with organisation_scope(organisation):
        url = f"https://mcp.example.org/mcp?key={SECRET}"
        return McpServer.objects.create(
            organisation=organisation, **{"name": name, "title": name.title(), "url": url} | fields
        )


def add_module(organisation: Organisation, code: str = MODULE, name: str = "money") -> HelperVersion:
    """A version of a module that is in force."""
    with organisation_scope(organisation):
        module, _ = HelperModule.objects.get_or_create(organisation=organisation, name=name)
        number = module.versions.count() + 1
        version = HelperVersion.objects.create(
            organisation=organisation,
            module=module,
            number=number,
            code=code,
            sha256=sha256_hex(code),
            runtimes=["monty"],
            status=VersionStatus.APPROVED,
        )
        HelperModule.objects.filter(pk=module.pk).update(current_version=version)
        return version


def make_money(organisation: Organisation) -> Toolkit:
    """Acme's toolkit: a tool of each kind, and three that stay at home."""
    category = make_category(organisation, "prices", is_core=False)
    credential, server = add_credential(organisation), add_server(organisation)
    add_module(organisation)
    price = make_tool(
        organisation,
        "price",
        category=category,
        origin=Origin(ToolKind.PYTHON),
        parameters=ARGUMENT,
        implementation={"runtime": "monty", "code": CODE, "helpers": {"money": 1}},
        human_format="Price of {net}",
        instructions="Ask for the net price first.",
        timeout=7,
    )
    rates = make_tool(
        organisation,
        "rates",
        category=category,
        origin=Origin(ToolKind.HTTP, credential=credential),
        implementation={"method": "GET", "url": "https://rates.example.org/today"},
        untrusted_output=True,
    )
    ask = make_tool(
        organisation,
        "mcp__far__ask",
        category=category,
        origin=Origin(ToolKind.MCP, server=server),
        implementation={"name": "ask"},
        untrusted_output=True,
    )
    calculator = make_tool(organisation, "calculator")
    http = {"origin": Origin(ToolKind.HTTP), "category": category}
    address = {"method": "GET", "url": "https://api.example.org/"}
    off = make_tool(organisation, "off", implementation=address, **http)
    kept = make_tool(organisation, "kept", implementation=address, **http)
    leaky = make_tool(organisation, "leaky", implementation=address | {"headers": {"X-Api-Key": SECRET}}, **http)
    with organisation_scope(organisation):
        ToolTestCase.objects.create(
            organisation=organisation, tool=price, name="two", arguments={"net": 2}, expected={"gross": 4}
        )
        Tool.objects.filter(pk=off.pk).update(is_enabled=False)
        Tool.objects.filter(pk=kept.pk).update(quarantine="It changed at its source.")
    overrides: dict[str, dict[str, Any]] = {"price": {"timeout": 3.0}, "rates": {"knobs": {"ask": "always"}}}
    tools = (price, rates, ask, calculator, off, kept, leaky)
    return make_toolkit(organisation, "money", *tools, overrides=overrides, description="Prices and rates.")


def read_file(text: str, actor: Membership, **fields: Any) -> ToolImport:
    """Import the file, as a worker would."""
    tool_import = start_import(ImportSource.TOOLKIT, actor=actor, document=text, **fields)
    run_import(tool_import.public_id)
    tool_import.refresh_from_db()
    return tool_import


def rows_of(tool_import: ToolImport) -> dict[str, ImportedTool]:
    return {row.original_name: row for row in import_rows(tool_import).order_by("position")}


def statuses_of(tool_import: ToolImport) -> dict[str, str]:
    return {name: row.status for name, row in rows_of(tool_import).items()}


def accept(tool_import: ToolImport, actor: Membership, **fields: Any) -> Any:
    category = make_category(actor.organisation, "imported", is_core=True)
    return accept_imported(import_rows(tool_import), category, actor=actor, **fields)


def propose_module(actor: Membership, code: str, name: str = "money") -> HelperVersion:
    return create_module(name, "", CheckedModule(code, {"monty": ()}), actor=actor)


def approve_modules(actor: Membership) -> None:
    for version in HelperVersion.objects.filter(status=VersionStatus.PENDING):
        decide_module(version, approve=True, actor=actor)
