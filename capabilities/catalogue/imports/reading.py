"""Reading of a source into rows: each definition checked, named, counted and compared, none of them in force."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from django.db import transaction

from capabilities.catalogue.imports.found import FoundTool, ReadSource
from capabilities.catalogue.imports.matching import (
    KINDS,
    Names,
    content_of,
    content_of_row,
    contents_at_source,
    definitions_of_last_reading,
    dismissed_before,
    effect_kept,
    kind_of,
    known_tools,
    next_of,
    prefix_of,
    says_all_the_same,
    says_the_same,
    speaks_of,
    tools_of_source,
    versions_at_hand,
    wanted_name,
)
from capabilities.catalogue.imports.names import with_prefix
from capabilities.catalogue.tools.writes import Definition, ToolRefused, check_of_kind
from capabilities.choosing.pipeline.runtime_layers import layers_for
from capabilities.common.text import storable, storable_json, storable_value
from capabilities.common.tokens import count_each
from capabilities.contract.names import reserved_for
from capabilities.contract.tool_size import LEAST, size_warnings
from capabilities.contract.warnings import is_hidden, warnings_of
from capabilities.contract.wire import tool_wire
from capabilities.models import UNDECIDED, ImportedStatus, ImportedTool, ImportSource, Tool, ToolImport, ToolKind

#: Definitions of one reading; what is beyond is counted and left out.
MAX_FOUND = 2_000
#: Characters of a name as its source has it, of a group, of a description and of a schema as they are kept.
MAX_ORIGINAL, MAX_GROUP, MAX_TEXT, MAX_JSON = 300, 200, 20_000, 200_000
#: Rows that one statement writes.
BATCH = 200
DISMISSED_BEFORE = "It was dismissed before, and says the same."


#: Sources whose names somebody else chose: none of them takes a beginning that is kept for others.
OF_OTHERS = (ImportSource.OPENAPI, ImportSource.TOOLKIT)


def store_found(tool_import: ToolImport, source: ReadSource) -> dict[str, Any]:
    """Write a row for each definition, and for each tool of this source that is not there any more, and return the
    summary of all. In the caller's transaction. A fixed number of queries, and one for some hundred rows.
    """
    own = tools_of_source(tool_import)
    known = known_tools()
    names = Names(
        {name: each for name, each in known.items() if name not in {tool.name.casefold() for tool in own.values()}},
        prefix_of(tool_import),
    )
    for original, tool in own.items():
        names.reserve(tool.name, original)
    others = speaks_of(known, own.values())
    rows = []
    seen: set[str] = set()
    for position, found in enumerate(source.found[:MAX_FOUND]):
        row = _row_of(found, position, tool_import)
        _name(row, found, names, own, seen)
        row.warnings = [each.as_json() for each in _warnings(found, others)]
        rows.append(row)
    _check_each(rows, tool_import)
    _match(rows, own, tool_import)
    _warn_of_size(rows, tool_import)
    rows += _missing_rows(own, {row.original_name for row in rows} | source.beside, len(rows), tool_import)
    _dismiss_again(rows, tool_import)
    with transaction.atomic():
        ImportedTool.objects.bulk_create(rows, batch_size=BATCH)
    return _summary(rows, source)


def _row_of(found: FoundTool, position: int, tool_import: ToolImport) -> ImportedTool:
    """Build the row of one found tool; what cannot be stored whole is refused."""
    parameters = storable_json(dict(found.parameters), MAX_JSON)
    implementation = storable_json(dict(found.implementation), MAX_JSON)
    more = storable_json(dict(found.more), MAX_JSON)
    row = ImportedTool(
        organisation_id=tool_import.organisation_id,
        tool_import=tool_import,
        position=position,
        original_name=storable(found.original_name, MAX_ORIGINAL),
        group=storable(found.group, MAX_GROUP),
        description=storable(found.description, MAX_TEXT),
        parameters=parameters if parameters is not None else {},
        implementation=implementation if implementation is not None else {},
        effect=found.effect,
        is_destructive=found.is_destructive,
        effect_why=storable(found.effect_why, 300),
        annotations=storable_json(dict(found.annotations), MAX_TEXT) or {},
        kind=found.kind,
        server_id=found.server_id,
        more=more if more is not None else {},
    )
    if found.refused:
        _refuse(row, found.refused)
    elif parameters is None or implementation is None or more is None:
        part = "Its arguments" if more is not None else "Its saved tests"
        _refuse(row, f"{part} take more than {MAX_JSON:,} characters, or are nested too deep.")
    return row


def _refuse(row: ImportedTool, reason: str) -> None:
    row.status, row.reason = ImportedStatus.REFUSED, storable(reason, 500)


def _name(row: ImportedTool, found: FoundTool, names: Names, own: dict[str, Tool], seen: set[str]) -> None:
    """Give the row its name here, or the tool that it is already; one that the source has twice is refused."""
    if row.status == ImportedStatus.REFUSED:
        return
    if row.original_name in seen:
        _refuse(row, f"The source has {row.original_name[:200]} twice.")
        return
    seen.add(row.original_name)
    if found.tool_id is not None:
        row.tool_id, row.name, row.status = found.tool_id, found.name, ImportedStatus.UNCHANGED
        return
    tool = own.get(row.original_name)
    if tool is not None:
        row.tool, row.name = tool, tool.name
        row.effect = effect_kept(tool, found.effect)
        if row.effect != found.effect:
            row.effect_why = ""
    else:
        row.name, row.collision = names.give(_wanted(row, found), row.original_name)


def _wanted(row: ImportedTool, found: FoundTool) -> str:
    """Return the name that it asks for, without a beginning that is kept for others."""
    wanted = wanted_name(found)
    is_others = row.tool_import.source in OF_OTHERS and kind_of(row, row.tool_import) != ToolKind.MCP
    return with_prefix("tool", wanted) if is_others and reserved_for(wanted) else wanted


def _warnings(found: FoundTool, others: frozenset[str]) -> list[Any]:
    found_warnings = warnings_of(
        found.description,
        found.parameters,
        other_names=others - {found.name},
        annotations=[found.annotations, found.more.get("instructions", ""), found.more.get("human_format", "")],
    )
    return [*found_warnings, *found.warnings]


def _check_each(rows: Sequence[ImportedTool], tool_import: ToolImport) -> None:
    """Refuse what could not become a version, and count the tokens of the others in one pass."""
    good: list[tuple[ImportedTool, Definition]] = []
    kind = KINDS.get(ImportSource(tool_import.source))
    for row in rows:
        if row.status != ImportedStatus.NEW:
            continue
        hidden = next((name for name in _argument_names(row.parameters) if any(map(is_hidden, name))), None)
        if hidden is not None:
            _refuse(row, "The name of an argument holds characters that cannot be seen.")
            continue
        content = content_of(row, tool_import)
        try:
            content.check()
            if row.more:
                check_row(row, content)
            elif kind is not None and _has_whole_address(content):
                check_of_kind(kind, content)
        except ToolRefused as error:
            _refuse(row, str(error))
        else:
            good.append((row, content))
    wires = [tool_wire(content.name, content.description, content.parameters) for _, content in good]
    for (row, _), tokens in zip(good, count_each(wires), strict=True):
        row.tokens = tokens


def _warn_of_size(rows: Sequence[ImportedTool], tool_import: ToolImport) -> None:
    """Warn of definitions so large that no model would be sent them. One query, none where no definition is large."""
    large = [row for row in rows if row.tokens > LEAST and row.status != ImportedStatus.REFUSED]
    layers = layers_for(tool_import.organisation_id) if large else ()
    category = tool_import.category.name if tool_import.category is not None else ""
    for row in large:
        row.warnings = [
            *row.warnings,
            *(each.as_json() for each in size_warnings(row.tokens, row.name, category, layers)),
        ]


def _has_whole_address(content: Definition) -> bool:
    """Return whether it says where its calls go; a document may name only their path, and a person the rest."""
    return not str(content.implementation.get("url", "")).startswith("/")


def check_row(row: ImportedTool, content: Definition) -> None:
    """Raise ToolRefused where its kind could not run the content, its helper modules aside: those are not here yet."""
    implementation = dict(content.implementation)
    implementation.pop("helpers", None)
    check_of_kind(row.kind, replace(content, implementation=implementation))


def _argument_names(schema: Any) -> list[str]:
    """Return every name of a property, however deep."""
    found: list[str] = []
    nodes = [schema]
    while nodes:
        node = nodes.pop()
        if isinstance(node, dict):
            named = node.get("properties")
            found += list(named) if isinstance(named, dict) else []
            nodes += node.values()
        elif isinstance(node, list):
            nodes += node
    return found


def _match(rows: Sequence[ImportedTool], own: dict[str, Tool], tool_import: ToolImport) -> None:
    """Mark the definitions whose tool says the same already, and those whose tool says something else."""
    versions = versions_at_hand(own.values())
    # People may have written other words into a server's tool: it is the server's that are compared.
    accepted = contents_at_source(own.values()) if tool_import.server_id is not None else {}
    before = definitions_of_last_reading(tool_import) if any(row.more for row in rows) else {}
    for row in rows:
        if row.status != ImportedStatus.NEW or row.tool is None:
            continue
        if row.more:
            same = before.get(row.tool.pk) == content_of_row(row) or any(
                says_all_the_same(each, next_of(row, row.tool, each, tool_import))
                for each in versions.get(row.tool.pk, [])
            )
            row.status = ImportedStatus.UNCHANGED if same else ImportedStatus.CHANGED
        elif accepted.get(row.tool.pk) == content_of_row(row):
            row.status = ImportedStatus.UNCHANGED
        else:
            row.status = status_against(versions.get(row.tool.pk, []), content_of(row, tool_import))


def status_against(versions: Sequence[Any], content: Definition) -> ImportedStatus:
    same = any(says_the_same(version, content) for version in versions)
    return ImportedStatus.UNCHANGED if same else ImportedStatus.CHANGED


def _missing_rows(own: dict[str, Tool], found: set[str], position: int, tool_import: ToolImport) -> list[ImportedTool]:
    """A row for each tool that is in use and no longer at its source."""
    missing = [(name, tool) for name, tool in sorted(own.items()) if name not in found and tool.is_enabled]
    return [
        ImportedTool(
            organisation_id=tool_import.organisation_id,
            tool_import=tool_import,
            position=position + index,
            original_name=name,
            name=tool.name,
            tool=tool,
            status=ImportedStatus.GONE,
            description=tool.current_version.description if tool.current_version else "",
            effect=tool.current_version.effect if tool.current_version else "",
        )
        for index, (name, tool) in enumerate(missing)
    ]


def _dismiss_again(rows: Sequence[ImportedTool], tool_import: ToolImport) -> None:
    """Dismiss again what was dismissed at the last reading and says the same: it needs no second decision."""
    dismissed = dismissed_before(tool_import)
    for row in rows:
        if row.status in UNDECIDED and dismissed.get(row.original_name) == content_of_row(row):
            row.status, row.reason = ImportedStatus.DISMISSED, DISMISSED_BEFORE


def _summary(rows: Sequence[ImportedTool], source: ReadSource) -> dict[str, Any]:
    """Return the counts of an import that its page shows, beside what the source said."""
    counts = Counter(str(row.status) for row in rows)
    warnings = Counter(warning["code"] for row in rows for warning in row.warnings)
    left_out = max(0, len(source.found) - MAX_FOUND)
    facts: dict[str, Any] = storable_value(dict(source.summary))
    return facts | {
        "found": len(rows) - counts[ImportedStatus.GONE] + left_out,
        "refused": counts[ImportedStatus.REFUSED],
        "collisions": sum(1 for row in rows if row.collision),
        "tokens": sum(row.tokens for row in rows if row.status != ImportedStatus.REFUSED),
        "statuses": dict(counts),
        "warnings": dict(warnings),
        **({"left_out": left_out} if left_out else {}),
    }
