"""OpenAPI documents, as a file or fetched by the worker that reads them, in a child process."""

from __future__ import annotations

from typing import Any

from capabilities.common import confined
from capabilities.contract.warnings import DefinitionWarning
from capabilities.egress import fetch
from capabilities.importers.found import FoundTool, ReadSource, SourceRefused
from capabilities.importers.names import name_warnings, tool_name
from capabilities.models import ToolImport

#: Seconds and bytes of a document that is fetched.
FETCH_SECONDS = 30.0
MAX_BYTES = 12_000_000
#: Seconds that the child may take, and bytes of what it makes of the document.
SECONDS = 40.0
ANSWER_BYTES = 40_000_000
HEADERS = {"accept": "application/json, application/yaml;q=0.9, text/yaml;q=0.9, */*;q=0.5"}


def read(tool_import: ToolImport) -> ReadSource:
    """Raises SourceRefused, EgressError and ConfinedError. The import keeps the document, and its address where a
    redirect led elsewhere."""
    url = tool_import.url
    if url and not tool_import.document:
        tool_import.document, url = _fetched(url)
    return read_text(tool_import.document, tool_import.organisation_id, url=url)


def read_text(text: str, organisation_id: int, *, url: str = "") -> ReadSource:
    """`url` is where the document came from: relative addresses in it are meant from there."""
    arguments = {"text": text, "url": url}
    found = confined.run("openapi", arguments, organisation_id, seconds=SECONDS, wait=80.0, most=ANSWER_BYTES)
    if "refused" in found:
        raise SourceRefused(found["refused"])
    summary = found["summary"]
    if "beyond" in summary:
        summary = summary | {"left_out": summary.pop("beyond")}
    tools = tuple(map(_found_tool, found["found"]))
    return ReadSource(tools, title=found["title"], summary=summary, base_url=found["base_url"])


def _fetched(url: str) -> tuple[str, str]:
    """The document, and the address that it came from in the end."""
    answer = fetch("GET", url, headers=HEADERS, timeout=FETCH_SECONDS, max_bytes=MAX_BYTES)
    if answer.status >= 400:
        raise SourceRefused(f"The address answered with status {answer.status}: there is no document to read.")
    if answer.truncated:
        raise SourceRefused(f"The document has more than {MAX_BYTES:,} bytes: import a part of it.")
    return answer.text, answer.url


def _found_tool(entry: dict[str, Any]) -> FoundTool:
    said = tuple(DefinitionWarning(each["code"], each["text"]) for each in entry["warnings"])
    warnings = (*name_warnings(entry["name"]), *said)
    return FoundTool(**entry | {"name": tool_name(entry["name"]), "warnings": warnings})
