"""A toolkit as the text of a file: its tools as they are in force, and nothing of people, rights or secrets."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from django.core.exceptions import PermissionDenied
from django.db import transaction

from capabilities.catalogue.imports.writes.start import MAX_FILE
from capabilities.catalogue.versions.queries import may_read_code
from capabilities.common.refused import ChangeRefused
from capabilities.contract.knobs import safety_knobs
from capabilities.contract.loading import RESERVED_TOOLS
from capabilities.contract.toolkit_file import BUILTIN, HTTP, MCP, PYTHON, with_hash
from capabilities.contract.wire import canonical_json, sha256_hex
from capabilities.models import (
    HelperVersion,
    McpServer,
    StoredCredential,
    Tool,
    Toolkit,
    ToolkitCategory,
    ToolkitTool,
    ToolTestCase,
    ToolVersion,
    Transport,
)
from toolhub.tenants.audit.writes import record
from toolhub.tenants.models import Membership, Right

#: Fixed headers and query values that look like a secret: those belong into a credential, and leave no house.
_SECRET = re.compile(r"auth|cookie|key|passw|pwd|secret|session|sign|token", re.IGNORECASE)
#: Characters of why a tool is left out.
MAX_WHY = 300


@dataclass(frozen=True)
class Exported:
    """A toolkit's file, and what is not in it: (tool, because)."""

    toolkit: str
    text: str
    sha256: str
    left_out: Sequence[tuple[str, str]]
    summary: Mapping[str, Any]

    @property
    def file_name(self) -> str:
        return f"{self.toolkit}.toolkit.json"


def export_toolkit(toolkit: Toolkit, *, actor: Membership | None) -> Exported:
    """Build the toolkit's file for this member, on record in the audit; None: for whoever runs the installation.

    Tools whose code, address or server the member may not read are left out. Needs the right `catalogue`. Raises
    ChangeRefused for a toolkit of which nothing is left, or that is too large.
    """
    if actor is not None and not actor.reach(Right.CATALOGUE):
        raise PermissionDenied("This needs the admin right catalogue.")
    exported = toolkit_file(toolkit, reader=actor)
    after = {"sha256": exported.sha256, **exported.summary}
    with transaction.atomic():
        record("toolkit.export", toolkit, actor=actor, after=after)
    return exported


def toolkit_file(toolkit: Toolkit, *, reader: Membership | None) -> Exported:
    """Build the toolkit's file for this reader, without a record in the audit. Raises ChangeRefused as `export_toolkit`
    does. Eight queries, however many tools there are."""
    lines = _lines(toolkit)
    tools = {
        tool.name: tool
        for tool in Tool.objects.filter(name__in=[line["tool"] for line in lines]).select_related(
            "category", "current_version", "credential", "server"
        )
    }
    left_out = {name: why for name in sorted(tools) if (why := _why_left_out(tools[name], reader))}
    kept = [tools[name] for name in sorted(tools) if name not in left_out]
    modules = _modules(kept)
    tests = _tests(kept)
    entries = []
    for tool in kept:
        entry = _entry(tool, modules, tests)
        if isinstance(entry, str):
            left_out[tool.name] = entry
        else:
            entries.append(entry)
    if not entries:
        why = next((f" {name}: {text}" for name, text in sorted(left_out.items())), "")
        raise ChangeRefused("toolkit", f"There is nothing to export of {toolkit}.{why}")
    content = {
        "toolkit": {"name": toolkit.name, "description": toolkit.description, "tools": lines},
        "tools": entries,
        "modules": _named_modules(entries, modules),
        "credentials": _credentials(kept, entries),
        "servers": _servers(kept, entries),
        "left_out": [{"tool": name, "because": why[:MAX_WHY]} for name, why in sorted(left_out.items())],
    }
    document = with_hash(content)
    text = canonical_json(document)
    if len(text) > MAX_FILE:
        raise ChangeRefused(
            "toolkit",
            f"The file would have {len(text):,} characters; {MAX_FILE:,} are the most. Make two toolkits of it.",
        )
    return Exported(toolkit.name, text, document["sha256"], sorted(left_out.items()), _summary(content))


def _summary(content: Mapping[str, Any]) -> dict[str, Any]:
    kinds = Counter(each["kind"] for each in content["tools"])
    return {"tools": dict(kinds), "modules": len(content["modules"]), "left_out": len(content["left_out"])}


def _lines(toolkit: Toolkit) -> list[dict[str, Any]]:
    """The tools that the toolkit names, and those of its categories behind them. Two queries.

    Overrides that decide what a call may do stay at home: the organisation that runs a tool decides on that.
    """
    rows = ToolkitTool.objects.filter(toolkit=toolkit).order_by("position", "tool__name")
    found = [
        {
            "tool": name,
            "timeout": timeout,
            "max_result_chars": chars,
            "knobs": {each: value for each, value in knobs.items() if each not in safety_knobs(knobs)},
        }
        for name, timeout, chars, knobs in rows.values_list("tool__name", "timeout", "max_result_chars", "knobs")
    ]
    named = {line["tool"] for line in found}
    whole = ToolkitCategory.objects.filter(toolkit=toolkit, category__tools__isnull=False)
    names = whole.order_by("category__name", "category__tools__name").values_list("category__tools__name", flat=True)
    found += [
        {"tool": name, "timeout": None, "max_result_chars": None, "knobs": {}}
        for name in names
        if name not in named and name not in RESERVED_TOOLS
    ]
    return found


def _why_left_out(tool: Tool, reader: Membership | None) -> str:
    """Why the tool is not in the file; "" where it is."""
    if tool.quarantine:
        return "It is kept back: " + tool.quarantine
    if tool.current_version is None:
        return "No version of it is in force."
    if not tool.is_enabled:
        return "It is switched off."
    if tool.kind == BUILTIN:
        return ""
    if reader is not None and not may_read_code(reader, tool.category.name):
        return "You may not read what runs behind it: this needs the right catalogue for its category."
    return _secret_in(tool.current_version.implementation) if tool.kind == HTTP else ""


def _secret_in(implementation: Mapping[str, Any]) -> str:
    fixed = [("header", *each) for each in (implementation.get("headers") or {}).items()]
    fixed += [("query value", *each) for each in (implementation.get("query") or {}).items()]
    fixed += [("query value", *each) for each in parse_qsl(str(implementation.get("url", "")).partition("?")[2])]
    for word, name, value in fixed:
        if _SECRET.search(str(name)) and value:
            return f"Its fixed {word} {name} may be a secret: put that into a credential."
    return ""


#: Description and code of each version of a helper module that a tool uses.
_Modules = Mapping[tuple[str, int], tuple[str, str]]


def _modules(tools: Iterable[Tool]) -> _Modules:
    """One query, none where no tool uses one."""
    names = {name for tool in tools for name in _helpers(tool)}
    if not names:
        return {}
    rows = HelperVersion.objects.filter(module__name__in=names)
    columns = ("module__name", "number", "module__description", "code")
    return {(name, number): (words, code) for name, number, words, code in rows.values_list(*columns)}


def _helpers(tool: Tool) -> Mapping[str, int]:
    version = tool.current_version
    helpers = version.implementation.get("helpers") if version is not None and tool.kind == PYTHON else None
    return helpers or {}


def _tests(tools: Sequence[Tool]) -> dict[int, list[dict[str, Any]]]:
    """Saved tests by their tool's key. One query."""
    found: dict[int, list[dict[str, Any]]] = {}
    cases = ToolTestCase.objects.filter(tool__in=[tool.pk for tool in tools if tool.kind == PYTHON]).order_by("name")
    columns = ("tool_id", "name", "arguments", "expected", "expects_error")
    for key, name, arguments, expected, expects_error in cases.values_list(*columns):
        found.setdefault(key, []).append(
            {"name": name, "arguments": arguments, "expected": expected, "expects_error": expects_error}
        )
    return found


def _entry(tool: Tool, modules: _Modules, tests: Mapping[int, list[dict[str, Any]]]) -> dict[str, Any] | str:
    """The tool as the file has it; or why it cannot be there."""
    if tool.kind == BUILTIN:
        return {"name": tool.name, "kind": BUILTIN}
    version = tool.current_version
    assert version is not None
    entry = {"name": tool.name, "kind": str(tool.kind), **_content(version)}
    if tool.kind == MCP:
        return "Its server is gone." if tool.server is None else entry | {"server": tool.server.name}
    entry["credential"] = tool.credential.name if tool.credential is not None else ""
    if tool.kind == PYTHON:
        missing = [name for name, number in _helpers(tool).items() if (name, number) not in modules]
        if missing:
            return f"Its module {missing[0]} is not there any more."
        entry["implementation"] = {name: entry["implementation"][name] for name in ("runtime", "code")}
        entry["helpers"] = {name: sha256_hex(modules[name, number][1]) for name, number in _helpers(tool).items()}
        entry["tests"] = tests.get(tool.pk, [])
    return entry


def _content(version: ToolVersion) -> dict[str, Any]:
    """Return the definition that is in force. How far its results are trusted is left out: whoever runs the tool
    decides on that."""
    return {
        "description": version.description,
        "parameters": version.parameters,
        "instructions": version.instructions,
        "human_format": version.human_format,
        "effect": version.effect,
        "on_crash": version.on_crash,
        "timeout": float(version.timeout),
        "max_result_chars": version.max_result_chars,
        "implementation": dict(version.implementation),
    }


def _named_modules(entries: Iterable[Mapping[str, Any]], modules: _Modules) -> list[dict[str, Any]]:
    """Each content once, whatever its numbers here."""
    by_hash = {(name, sha256_hex(code)): (words, code) for (name, _), (words, code) in modules.items()}
    used = sorted({each for entry in entries for each in entry.get("helpers", {}).items()})
    return [{"name": name, "description": by_hash[name, sha][0], "code": by_hash[name, sha][1]} for name, sha in used]


def _credentials(tools: Iterable[Tool], entries: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """List the ways in which requests are signed, by name: never a secret, never who has one."""
    named = {entry.get("credential") for entry in entries}
    found = {tool.credential.name: tool.credential for tool in tools if tool.credential and tool.kind != MCP}
    return [_credential(found[name]) for name in sorted(found) if name in named]


def _credential(row: StoredCredential) -> dict[str, Any]:
    return {
        "name": row.name,
        "kind": str(row.kind),
        "parameter": row.parameter,
        "prefix": row.prefix,
        "origins": [str(each) for each in row.origins],
    }


def _servers(tools: Iterable[Tool], entries: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    named = {entry.get("server") for entry in entries}
    found = {tool.server.name: tool.server for tool in tools if tool.server is not None}
    return [
        {"name": name, "transport": str(found[name].transport), "address": address_of(found[name])}
        for name in sorted(found)
        if name in named
    ]


def address_of(server: McpServer) -> str:
    """Return the server's address, without what may be a secret: the query, and a user in front of the host."""
    return server.stdio_name if server.transport == Transport.STDIO else bare_address(server.url)


def bare_address(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))
