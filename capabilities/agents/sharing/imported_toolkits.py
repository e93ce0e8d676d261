"""The toolkit of an imported file: made of the tools that were accepted, and of those that were here already."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import PermissionDenied
from django.db import transaction

from capabilities.agents.toolkits.writes import (
    ToolkitContent,
    ToolkitLine,
    content_of,
    create_toolkit,
    update_toolkit,
)
from capabilities.common.refused import ChangeRefused
from capabilities.common.rights import configuration_write, may_administer, require
from capabilities.contract.knobs import safety_knobs
from capabilities.contract.wire import canonical_json
from capabilities.models import ImportedStatus, ImportedTool, ImportSource, ToolImport, Toolkit
from toolhub.tenants.models import Membership, Right

#: States of a file's definition that is by now a tool here.
_HERE = (ImportedStatus.ACCEPTED, ImportedStatus.UNCHANGED)


@dataclass(frozen=True)
class ImportedToolkit:
    """Toolkit of a file as it would be here: its content, the toolkit of its name that there is, and what differs."""

    content: ToolkitContent
    existing: Toolkit | None
    #: Whether that one was made of this import.
    is_own: bool
    #: Tools that the file's toolkit names and that are no tool here yet.
    missing: tuple[str, ...]
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    is_same: bool = False

    @property
    def can_be_saved(self) -> bool:
        return bool(self.content.tools) and not self.is_same


def imported_toolkit(tool_import: ToolImport) -> ImportedToolkit | None:
    """None for an import of another kind. At most five queries."""
    file_content = tool_import.content.get("toolkit") if tool_import.source == ImportSource.TOOLKIT else None
    if not file_content:
        return None
    names_here = _tools_here(tool_import)
    lines = tuple(_line(each, names_here[each["tool"]]) for each in file_content["tools"] if each["tool"] in names_here)
    content = ToolkitContent(file_content["name"], file_content["description"], lines)
    existing = tool_import.toolkit or Toolkit.objects.filter(name=file_content["name"]).first()
    stored = content_of(existing) if existing is not None else None
    if existing is not None:
        content = ToolkitContent(existing.name, content.description, lines)
    old = {line.tool for line in stored.tools} if stored is not None else set()
    return ImportedToolkit(
        content,
        existing,
        existing is not None and existing.pk == tool_import.toolkit_id,
        tuple(each["tool"] for each in file_content["tools"] if each["tool"] not in names_here),
        tuple(line.tool for line in lines if line.tool not in old),
        tuple(sorted(old - {line.tool for line in lines})),
        stored is not None and _is_same(stored, content),
    )


def _tools_here(tool_import: ToolImport) -> dict[str, str]:
    """Names here, by what the file calls them. One query."""
    rows = ImportedTool.objects.filter(tool_import=tool_import, tool__isnull=False)
    rows = rows.exclude(status=ImportedStatus.GONE)
    found: dict[str, str] = {}
    for original, name, status in rows.values_list("original_name", "tool__name", "status"):
        if status in _HERE or status == ImportedStatus.CHANGED:  # then the tool is here in its earlier form
            found.setdefault(original, name)
    return found


def _line(entry: Mapping[str, Any], name: str) -> ToolkitLine:
    """Overrides that decide what a call may do are not taken from a file."""
    knobs = {each: value for each, value in entry["knobs"].items() if not safety_knobs([each])}
    return ToolkitLine(name, entry["timeout"], entry["max_result_chars"], knobs)


def _is_same(stored: ToolkitContent, content: ToolkitContent) -> bool:
    """Return whether the file would change nothing of the toolkit that is here."""
    return stored.description == content.description and _plain(stored.tools) == _plain(_with_safety(content, stored))


def _plain(lines: tuple[ToolkitLine, ...]) -> str:
    return canonical_json([[line.tool, line.timeout, line.max_result_chars, dict(line.knobs)] for line in lines])


@configuration_write("toolkit")
def save_imported_toolkit(tool_import: ToolImport, *, actor: Membership) -> Toolkit:
    """Make the toolkit of a file, or bring the one of its name up to the file. Needs the right `toolkits`.

    It holds the tools that were accepted by now or were here already; its whole categories stay. Raises ChangeRefused
    where there is none, and for what no toolkit may hold.
    """
    require(actor, Right.TOOLKITS)
    tool_import = ToolImport.objects.select_related("toolkit").get(pk=tool_import.pk)
    found = imported_toolkit(tool_import)
    if found is None:
        raise ChangeRefused("toolkit", "This import is of no toolkit file.", code="conflict")
    if not found.content.tools:
        raise ChangeRefused("toolkit", "None of its tools was accepted yet.", code="conflict")
    if found.existing is None:
        toolkit = create_toolkit(found.content, actor=actor)
    else:
        stored = content_of(found.existing)
        kept = ToolkitContent(
            stored.name, found.content.description, _with_safety(found.content, stored), stored.categories
        )
        toolkit = update_toolkit(found.existing, kept, actor=actor)
    ToolImport.objects.filter(pk=tool_import.pk).update(toolkit=toolkit)
    return toolkit


def _with_safety(content: ToolkitContent, stored: ToolkitContent) -> tuple[ToolkitLine, ...]:
    """The file's lines, with what the toolkit here says of what a call of a tool may do."""
    own = {line.tool: {name: line.knobs[name] for name in safety_knobs(line.knobs)} for line in stored.tools}
    return tuple(
        ToolkitLine(line.tool, line.timeout, line.max_result_chars, {**line.knobs, **own.get(line.tool, {})})
        for line in content.tools
    )


def after_accept(tool_import: ToolImport, actor: Membership) -> str:
    """Make the toolkit with the first tools that are accepted, and add the later ones; one that was here before is only
    offered. Returns what became of it, in a sentence. In the caller's transaction."""
    tool_import.refresh_from_db(fields=["toolkit"])
    found = imported_toolkit(tool_import)
    if found is None or not found.can_be_saved:
        return ""
    name = found.content.name
    if found.existing is not None and not found.is_own:
        return f"There is a toolkit {name} already: look at what the file would change in it, below."
    if not may_administer(actor, Right.TOOLKITS):
        return f"Its toolkit {name} was not made: this needs the right toolkits."
    try:
        with transaction.atomic():
            save_imported_toolkit(tool_import, actor=actor)
    except (ChangeRefused, PermissionDenied) as error:
        return f"Its toolkit {name} was not made: {error}"
    return f"The toolkit {name} is {'updated' if found.existing is not None else 'made'}: no agent may load it yet."
