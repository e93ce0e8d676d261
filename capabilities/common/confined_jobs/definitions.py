"""The tools of a list of MCP tools, as plain JSON: an answer to tools/list, what stands around it, or the bare list."""

from __future__ import annotations

from typing import Any

from capabilities.contract.documents import DocumentRefused, read_document
from capabilities.contract.mended_schemas import mended_arguments, mended_schema
from capabilities.contract.schemas import SchemaRefused, check_schema

#: Keys that a file may have beside its tools.
FACTS = ("package", "registry", "version", "license", "protocolVersion")


def run(text: str) -> dict[str, Any]:
    """Return `tools`, `server` and `facts`; or `refused` with a sentence."""
    try:
        document = read_document(text)
    except DocumentRefused as error:
        return {"refused": str(error)}
    around = document if isinstance(document, dict) else {"tools": document}
    if isinstance(around.get("result"), dict):
        around = around["result"]
    tools = around.get("tools")
    if not isinstance(tools, list):
        return {"refused": "This is no list of MCP tools: it has no “tools”."}
    for each in tools:
        if isinstance(each, dict):
            _mend(each)
    facts = {name: around[name][:200] for name in FACTS if isinstance(around.get(name), str)}
    return {"tools": tools, "server": _server(around), "facts": facts}


def _server(around: dict[str, Any]) -> str:
    info = around.get("serverInfo")
    named = around.get("server") or (info.get("name") if isinstance(info, dict) else None)
    return named[:100] if isinstance(named, str) and named.strip() else "server"


def _mend(tool: dict[str, Any]) -> None:
    """Put its schema right where it is not taken as it is, or says something that would not be read: `schemaMended`
    says so, `schemaFlaw` why it is refused."""
    tool.pop("schemaFlaw", None)
    sent = tool.get("inputSchema")
    mended = mended_schema(sent) if _flaw(sent) == "" else mended_arguments(sent)
    tool["schemaMended"] = False
    if flaw := _flaw(mended):
        tool["schemaFlaw"] = flaw
    elif mended != sent:
        tool["inputSchema"], tool["schemaMended"] = mended, True


def _flaw(schema: Any) -> str:
    try:
        check_schema(schema)
    except SchemaRefused as error:
        return str(error)
    return ""
