"""OpenAPI documents, as a file or fetched by the worker that reads them, in a child process."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from capabilities.catalogue.imports.found import FoundTool, ReadSource, SourceRefused
from capabilities.catalogue.imports.names import name_warnings, tool_name
from capabilities.common import confined
from capabilities.contract.warnings import DefinitionWarning
from capabilities.models import ToolImport
from capabilities.running.egress import fetch

#: Seconds and bytes of a document that is fetched.
FETCH_SECONDS = 30.0
MAX_BYTES = 50_000_000
#: Bytes of a document that is kept beside its import; a larger one is read from its address again.
MAX_KEPT = 12_000_000
#: Bytes of memory that the child may take for each of the document, beside the usual, and at most.
MEMORY_OF_BYTE, MOST_MEMORY = 24, 1_800_000_000
#: Seconds that the child may take, and bytes of what it makes of the document.
SECONDS = 40.0
ANSWER_BYTES = 40_000_000
NO_PART: Mapping[str, Any] = MappingProxyType({})
HEADERS = {"accept": "application/json, application/yaml;q=0.9, text/yaml;q=0.9, */*;q=0.5"}


def read(tool_import: ToolImport) -> ReadSource:
    """Raises SourceRefused, EgressError and ConfinedError. The import keeps the document, and its address where a
    redirect led elsewhere."""
    url = tool_import.url
    text = tool_import.document
    if url and not text:
        text, url = _fetched(url)
        tool_import.document = text if len(text) <= MAX_KEPT else ""
    return read_text(text, tool_import.organisation_id, url=url, part=tool_import.part)


def read_text(text: str, organisation_id: int, *, url: str = "", part: Mapping[str, Any] = NO_PART) -> ReadSource:
    """Read the text of a document. `url` is where it came from: relative addresses in it are meant from there. `part`:
    see `Part`. Raises SourceRefused for a document that cannot be read, and for a part that has no tool."""
    arguments = {"text": text, "url": url, "part": dict(part)}
    memory = min(MOST_MEMORY, confined.MEMORY + MEMORY_OF_BYTE * len(text))
    found = confined.run(
        "openapi", arguments, organisation_id, seconds=SECONDS, wait=80.0, most=ANSWER_BYTES, memory=memory
    )
    if "refused" in found:
        raise SourceRefused(found["refused"])
    summary = found["summary"]
    if "beyond" in summary:
        summary = summary | {"left_out": summary.pop("beyond")}
    tools = tuple(map(_found_tool, found["found"]))
    if not tools and part:
        raise SourceRefused(_nothing_in(summary))
    return ReadSource(
        tools,
        title=found["title"],
        summary=summary,
        base_url=found["base_url"],
        beside=frozenset(found["beside"]),
    )


def _nothing_in(summary: Mapping[str, Any]) -> str:
    tags = ", ".join(f"{name} ({count:,})" for name, count in list(summary.get("tags", {}).items())[:10])
    hint = f" Its largest tags: {tags}." if tags else ""
    return f"None of its {summary.get('operations', 0):,} operations is in the part that was asked for.{hint}"


def _fetched(url: str) -> tuple[str, str]:
    """The document, and the address that it came from in the end."""
    answer = fetch("GET", url, headers=HEADERS, timeout=FETCH_SECONDS, max_bytes=MAX_BYTES)
    if answer.status >= 400:
        raise SourceRefused(f"The address answered with status {answer.status}: there is no document to read.")
    if answer.truncated:
        raise SourceRefused(f"The document has more than {MAX_BYTES:,} bytes: import a part of it.")
    return answer.text, answer.url


def _found_tool(entry: dict[str, Any]) -> FoundTool:
    own_warnings = tuple(DefinitionWarning(each["code"], each["text"]) for each in entry["warnings"])
    warnings = (*name_warnings(entry["name"]), *own_warnings)
    return FoundTool(**entry | {"name": tool_name(entry["name"]), "warnings": warnings})
