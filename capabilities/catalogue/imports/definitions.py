"""Lists of MCP tools as files: what a server answered to tools/list, without the server.

They are reviewed like any other; to be called they need the server, so none of them can be accepted from a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from capabilities.catalogue.imports.found import FoundTool, ReadSource, SourceRefused
from capabilities.catalogue.imports.names import mcp_tool_name, name_warnings
from capabilities.common import confined
from capabilities.contract.effects import guess_effect
from capabilities.contract.warnings import DefinitionWarning, header_flaw
from capabilities.models import ToolImport

#: Tools of one list.
MAX_TOOLS = 2_000
NEEDS_SERVER = "A file names no server that could run it: add the MCP server, and import its tools from there."
MENDED = DefinitionWarning(
    "schema_mended", "Its arguments are written in another draft of JSON Schema, or with mistakes: they were put right."
)
#: Seconds and bytes that reading one document may take.
SECONDS = 10.0
ANSWER_BYTES = 12_000_000


def read(tool_import: ToolImport) -> ReadSource:
    return read_text(tool_import.document, tool_import.organisation_id)


def read_text(text: str, organisation_id: int, *, server: str = "") -> ReadSource:
    """The definitions of an answer to tools/list, read in a child process; for the tools of the server of this name,
    or of the one that the text names. Raises SourceRefused and ConfinedError."""
    found = confined.run("definitions", {"text": text}, organisation_id, seconds=SECONDS, wait=60.0, most=ANSWER_BYTES)
    if "refused" in found:
        raise SourceRefused(found["refused"])
    tools, name = found["tools"], server or found["server"]
    summary = found["facts"] | {"format": "MCP tools", "server": name}
    if len(tools) > MAX_TOOLS:
        summary["left_out"] = len(tools) - MAX_TOOLS
    return ReadSource(tuple(found_tool(each, name) for each in tools[:MAX_TOOLS]), title=name, summary=summary)


def found_tool(sent: Any, server: str) -> FoundTool:
    """One entry of tools/list."""
    if not isinstance(sent, Mapping) or not isinstance(sent.get("name"), str) or not sent["name"]:
        return FoundTool("(no name)", refused="It has no name.")
    name: str = sent["name"]
    annotations = sent.get("annotations") if isinstance(sent.get("annotations"), Mapping) else {}
    title = _text(sent.get("title")) or _text((annotations or {}).get("title"))
    guess = guess_effect(name, title=title, description=_text(sent.get("description")), hints=annotations)
    schema = sent.get("inputSchema")
    output_schema = sent.get("outputSchema")
    implementation = {
        "name": name,
        "headers": _headers(schema),
        "output_schema": output_schema if isinstance(output_schema, Mapping) else None,
        "annotations": dict(annotations or {}),
        "task": _task(sent.get("execution")),
    }
    return FoundTool(
        original_name=name,
        name=mcp_tool_name(server, name),
        description=_text(sent.get("description")) or title,
        parameters=schema if isinstance(schema, Mapping) else {"type": "object", "properties": {}},
        implementation=implementation,
        effect=guess.effect,
        is_destructive=guess.is_destructive,
        effect_why=guess.why,
        annotations=dict(annotations or {}),
        warnings=(*name_warnings(name), *((MENDED,) if sent.get("schemaMended") is True else ())),
        refused=_text(sent.get("schemaFlaw")) or header_flaw(schema),
    )


def _headers(schema: Any) -> dict[str, str]:
    """Return which top-level argument goes out as which header (x-mcp-header)."""
    named = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(named, Mapping) or header_flaw(schema):
        return {}
    return {
        name: each["x-mcp-header"]
        for name, each in named.items()
        if isinstance(each, Mapping) and "x-mcp-header" in each
    }


def _task(execution: Any) -> str:
    support = execution.get("taskSupport") if isinstance(execution, Mapping) else None
    return support if support in ("optional", "required", "forbidden") else "forbidden"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
