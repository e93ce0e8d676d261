"""Matching of a found definition with the catalogue: new, or a tool that came from the same source; and its name."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from django.db.models import Q, QuerySet

from capabilities.catalogue.imports.found import FoundTool
from capabilities.catalogue.imports.names import tool_name, with_hash, with_prefix
from capabilities.catalogue.tools.writes import Definition, definition_of
from capabilities.common.short_names import short_name_of
from capabilities.contract.effects import READ
from capabilities.contract.trust import ALLOW, ASK, IN_UNTRUSTED
from capabilities.contract.warnings import normalised, normalised_value
from capabilities.contract.wire import canonical_json
from capabilities.models import (
    HelperVersion,
    ImportedStatus,
    ImportedTool,
    ImportSource,
    ImportStatus,
    Tool,
    ToolImport,
    ToolKind,
    ToolVersion,
    VersionStatus,
)

#: Kind of the tools that come from each source; from any other, none can be accepted yet.
KINDS = {ImportSource.OPENAPI: ToolKind.HTTP, ImportSource.MCP: ToolKind.MCP}
#: The sources whose definitions can become tools; those of a toolkit file say their kind themselves.
ACCEPTABLE = frozenset({*KINDS, ImportSource.TOOLKIT})
#: Kinds whose tools are the file's own: those of a server and of this service come from there.
OF_FILES = (ToolKind.HTTP, ToolKind.PYTHON)
#: Characters of the part of a name that says the source, where the name alone is taken.
MAX_PREFIX = 24


@dataclass(frozen=True)
class KnownTool:
    """A tool of the catalogue, for whoever looks for a free name."""

    name: str
    kind: str
    source: str

    @property
    def sentence(self) -> str:
        if self.kind == ToolKind.BUILTIN:
            return f"{self.name} is a built-in tool"
        return f"{self.name} is a tool from {self.source}" if self.source else f"{self.name} is a tool of the catalogue"


@dataclass
class Names:
    """The names in use: of the catalogue, and of what this reading has named so far."""

    catalogue: Mapping[str, KnownTool]
    #: Prefix for a name that is taken.
    prefix: str
    _given: dict[str, str] = field(default_factory=dict)

    def give(self, wanted: str, original_name: str) -> tuple[str, str]:
        """A free name, and why it is not the wanted one: a sentence, or nothing. The same at each reading."""
        taken = self.catalogue.get(wanted.casefold())
        given = self._given.get(wanted.casefold())
        if taken is None and given is None:
            return self._keep(wanted, original_name), ""
        name = with_prefix(self.prefix, wanted) if taken is not None else with_hash(wanted, original_name)
        if self._is_used(name):
            name = with_hash(with_prefix(self.prefix, wanted), f"{self.prefix} {original_name}")
        number = 1
        while self._is_used(name):
            number += 1
            name = with_hash(wanted, f"{self.prefix} {original_name} {number}")
        why = taken.sentence if taken is not None else f"{given} has the name {wanted} already"
        return self._keep(name, original_name), f"{why[:200]}, so this one is called {name}."

    def reserve(self, name: str, original_name: str) -> None:
        """A name that this reading uses, whatever else would like it."""
        self._keep(name, original_name)

    def _keep(self, name: str, original_name: str) -> str:
        self._given[name.casefold()] = original_name[:100]
        return name

    def _is_used(self, name: str) -> bool:
        return name.casefold() in self._given or name.casefold() in self.catalogue


def known_tools() -> dict[str, KnownTool]:
    """The tools of the organisation by their name without case, those set aside too. One query."""
    rows = Tool.every.values_list("name", "kind", "source")
    return {name.casefold(): KnownTool(name, kind, source) for name, kind, source in rows}


def tools_of_source(tool_import: ToolImport) -> dict[str, Tool]:
    """The tools that came from the same source before, by what the source calls them. Two queries."""
    if tool_import.server_id is not None:
        return tools_of_server(tool_import.server_id)
    earlier = _imports_of_source(tool_import).exclude(pk=tool_import.pk)
    rows = ImportedTool.objects.filter(tool_import__in=earlier, tool__isnull=False)
    if tool_import.source == ImportSource.TOOLKIT:
        rows = rows.filter(kind__in=OF_FILES, status=ImportedStatus.ACCEPTED, version__isnull=False)
    keys: dict[str, Any] = dict(rows.order_by("pk").values_list("original_name", "tool_id"))
    tools = Tool.objects.select_related("current_version", "category").in_bulk(keys.values())
    return {name: tools[key] for name, key in keys.items()}


def tools_of_server(server_id: int) -> dict[str, Tool]:
    """The tools of an MCP server by what it calls them, with their version in force and category. Two queries."""
    tools = {
        each.pk: each for each in Tool.objects.filter(server=server_id).select_related("current_version", "category")
    }
    unused = [key for key, tool in tools.items() if tool.current_version is None]
    newest = {each.tool_id: each for each in ToolVersion.objects.filter(tool__in=unused).order_by("number")}
    found: dict[str, Tool] = {}
    for key, tool in sorted(tools.items()):
        version = tool.current_version or newest.get(key)
        name = version.implementation.get("name") if version is not None else None
        if isinstance(name, str):
            found[name] = tool
    return found


#: Content of a definition that its source says: description, schema of the arguments, what runs, and what a toolkit
#: file says beside. Equal where they are the same.
SourceContent = tuple[str, str, str, str]


def content_at_source(description: str, parameters: Any, implementation: Any, more: Any = None) -> SourceContent:
    """Return the content as it is compared: hidden characters, which no version has, make no difference."""
    return (
        normalised(description).strip(),
        canonical_json(normalised_value(parameters)),
        canonical_json(implementation),
        canonical_json(more or {}),
    )


def contents_at_source(tools: Iterable[Tool]) -> dict[int, SourceContent]:
    """Return the source's content of these tools when the version in force was accepted, by the tool's key: what people
    wrote into it since is left out. For tools with a version in force. Two queries."""
    current = {tool.pk: tool.current_version for tool in tools if tool.current_version is not None}
    made_of: dict[int, dict[int, SourceContent]] = {
        key: {0: _content_of_version(each)} for key, each in current.items()
    }
    # The service makes versions of what a source says, word for word.
    for version in ToolVersion.objects.filter(tool__in=list(current), created_by=None):
        made_of[version.tool_id][version.number] = _content_of_version(version)
    rows = ImportedTool.objects.filter(version__tool__in=list(current)).select_related("version")
    for row in rows.order_by("pk"):
        if row.version is not None:
            content = content_at_source(row.description, row.parameters, row.implementation)
            made_of[row.version.tool_id][row.version.number] = content
    return {
        key: contents[max(number for number in contents if number <= current[key].number)]
        for key, contents in made_of.items()
    }


def _content_of_version(version: ToolVersion) -> SourceContent:
    """Return the source's content of a version without a row at hand. A description that stands in for none is none."""
    name = version.implementation.get("name")
    stands_in = isinstance(name, str) and version.description.startswith(f"{normalised(name)} of ")
    return content_at_source("" if stands_in else version.description, version.parameters, version.implementation)


def _imports_of_source(tool_import: ToolImport) -> QuerySet[ToolImport]:
    """Return every reading of the same source: a server, a document on the web by its address, a publication by its
    line, a file by its title."""
    imports = ToolImport.objects.filter(source=tool_import.source)
    if tool_import.server_id is not None:
        return imports.filter(server=tool_import.server_id)
    if tool_import.url:
        return imports.filter(url=tool_import.url)
    if tool_import.line is not None:
        return imports.filter(line=tool_import.line)
    return imports.filter(url="", line=None, title=tool_import.title)


#: Statuses of a reading that came to its end.
WAS_READ = (ImportStatus.REVIEW, ImportStatus.CLOSED)


def later_reading(tool_import: ToolImport) -> ToolImport | None:
    """A later reading of the same source by those who decide on this one. One query."""
    later = _imports_of_source(tool_import).filter(
        pk__gt=tool_import.pk, status__in=WAS_READ, category=tool_import.category_id
    )
    return later.order_by("pk").first()


def dismissed_before(tool_import: ToolImport) -> dict[str, SourceContent]:
    """Return the content that the last reading of the same source found and that was dismissed, by the source's own
    name: dismissed still, while it says the same. A decision for one category counts for no other. Two queries."""
    same_category = Q(category=None) | Q(category=tool_import.category_id)
    earlier = _imports_of_source(tool_import).filter(same_category, status__in=WAS_READ).exclude(pk=tool_import.pk)
    last = earlier.order_by("-pk").first()
    rows = ImportedTool.objects.filter(tool_import=last, status=ImportedStatus.DISMISSED)
    return {row.original_name: content_of_row(row) for row in (rows if last is not None else ())}


def content_of_row(row: ImportedTool) -> SourceContent:
    return content_at_source(row.description, row.parameters, row.implementation, row.more)


def effect_kept(tool: Tool, guessed: str) -> str:
    """The effect of the tool's next version: a guess makes nothing milder that was accepted."""
    version = tool.current_version
    return version.effect if version is not None and version.effect != READ else guessed


def versions_at_hand(tools: Iterable[Tool]) -> dict[int, list[ToolVersion]]:
    """Return by tool key the version in force and those that wait: a reading is compared with them. One query."""
    statuses = (VersionStatus.APPROVED, VersionStatus.PENDING)
    found: dict[int, list[ToolVersion]] = {}
    for version in ToolVersion.objects.filter(tool__in=list(tools), status__in=statuses).order_by("pk"):
        found.setdefault(version.tool_id, []).append(version)
    return found


def says_the_same(version: ToolVersion, content: Definition) -> bool:
    """Return whether what comes from a source is in this version as it is; what people set beside is left out."""
    return (
        version.description == content.description
        and canonical_json(version.parameters) == canonical_json(content.parameters)
        and canonical_json(version.implementation) == canonical_json(content.implementation)
    )


# -- The content of a version -----------------------------------------------------------------------------------------


def prefix_of(tool_import: ToolImport) -> str:
    """Return the prefix for a name of this source that is taken."""
    name = tool_import.server.name if tool_import.server else tool_import.title
    return short_name_of(name, separator="_", longest=MAX_PREFIX) or "imported"


def content_of(row: ImportedTool, tool_import: ToolImport) -> Definition:
    """The tool's first version as it would be: text as a model may read it, and a request with its whole address."""
    content = Definition(
        name=row.name,
        description=normalised(row.description).strip() or fallback_description(row.original_name, tool_import.title),
        parameters=normalised_value(row.parameters),
        effect=row.effect or "external",
        on_crash="retry" if row.effect == READ else "never",
        untrusted_output=True,
        in_untrusted=ALLOW if row.effect == READ else ASK,
        implementation=with_base_url(row.implementation, tool_import.base_url),
    )
    return _with_more(content, row, tool_import) if row.more else content


def kind_of(row: ImportedTool, tool_import: ToolImport) -> ToolKind:
    """Return the kind of its tool. Raises KeyError for a source of which nothing can become a tool."""
    return ToolKind(row.kind) if row.kind else KINDS[ImportSource(tool_import.source)]


def _with_more(content: Definition, row: ImportedTool, tool_import: ToolImport) -> Definition:
    """Return the content with the rest of a toolkit file. Its rule for crashes counts only with the effect it gave."""
    more = row.more
    implementation = dict(content.implementation)
    if row.kind == ToolKind.PYTHON:
        implementation["helpers"] = helper_numbers(tool_import, more.get("helpers", {}))
    return replace(
        content,
        instructions=normalised(more.get("instructions", "")),
        human_format=normalised(more.get("human_format", "")),
        on_crash=more["on_crash"] if row.effect == more.get("effect") else content.on_crash,
        timeout=float(more["timeout"]),
        max_result_chars=more["max_result_chars"],
        implementation=implementation,
    )


#: Statuses of a helper module's versions that count as there: one that was rejected does not.
_THERE = (VersionStatus.PENDING, VersionStatus.APPROVED, VersionStatus.RETIRED)


def helper_numbers(tool_import: ToolImport, wanted: Mapping[str, str]) -> dict[str, int]:
    """The number here of each helper module that is wanted by the SHA-256 of its code; 0 for one that is not here.

    One query for each import that is at hand; `forget_helpers` makes it be asked again.
    """
    if not wanted:
        return {}
    known: dict[tuple[str, str], int] | None = getattr(tool_import, "_helpers", None)
    if known is None:
        names = {each["name"] for each in tool_import.content.get("modules", [])}
        rows = HelperVersion.objects.filter(module__name__in=names, status__in=_THERE).order_by("number")
        known = {(name, sha): number for name, sha, number in rows.values_list("module__name", "sha256", "number")}
        tool_import._helpers = known  # type: ignore[attr-defined]
    return {name: known.get((name, sha), 0) for name, sha in wanted.items()}


def forget_helpers(tool_import: ToolImport) -> None:
    tool_import.__dict__.pop("_helpers", None)


def next_content(tool: Tool, version: ToolVersion | None, content: Definition) -> Definition:
    """The tool's next version: what the source says anew, and of all else what people set."""
    if version is None:
        return content
    kept = definition_of(tool, version)
    return Definition(
        **{
            **{name: getattr(kept, name) for name in kept.__dataclass_fields__},
            "description": content.description,
            "parameters": content.parameters,
            "implementation": content.implementation,
            "effect": content.effect,
            "in_untrusted": content.in_untrusted,
            "on_crash": content.on_crash,
        }
    )


#: Fields of a version that a toolkit file has as well: all but how far its results are trusted.
IN_FILES = (
    "description", "parameters", "implementation", "effect", "on_crash", "timeout", "max_result_chars", "instructions",
    "human_format",
)  # fmt: skip


def next_of(row: ImportedTool, tool: Tool, version: ToolVersion | None, tool_import: ToolImport) -> Definition:
    """The version that accepting the row writes of a tool that is there, after `version`.

    A toolkit file says all of it but trust, where the stricter of both counts.
    """
    content = content_of(row, tool_import)
    if not row.more or version is None:
        return next_content(tool, version, content)
    strictness: dict[str, int] = {each: rank for rank, each in enumerate(IN_UNTRUSTED)}
    return replace(content, in_untrusted=max(content.in_untrusted, version.in_untrusted, key=strictness.__getitem__))


def says_all_the_same(version: ToolVersion, content: Definition) -> bool:
    """Return whether all that a toolkit file says is in this version."""
    return all(canonical_json(getattr(version, each)) == canonical_json(getattr(content, each)) for each in IN_FILES)


def definitions_of_last_reading(tool_import: ToolImport) -> dict[int, SourceContent]:
    """Return the content that the same source gave its tools when they were accepted last, by the tool's key; nothing
    for those whose version was rejected or is a draft. One query."""
    earlier = _imports_of_source(tool_import).exclude(pk=tool_import.pk)
    rows = ImportedTool.objects.filter(
        tool_import__in=earlier, status=ImportedStatus.ACCEPTED, version__isnull=False, tool__isnull=False
    ).exclude(version__status__in=(VersionStatus.REJECTED, VersionStatus.DRAFT))
    return {row.tool_id: content_of_row(row) for row in rows.order_by("pk") if row.tool_id is not None}


def fallback_description(original_name: str, title: str) -> str:
    return f"{normalised(original_name)} of {normalised(title)}" if title else normalised(original_name)


def with_base_url(implementation: Mapping[str, Any], base_url: str) -> dict[str, Any]:
    """Return what runs, with the whole address of a request that the source gives by its path alone."""
    url = implementation.get("url")
    if isinstance(url, str) and url.startswith("/"):
        return {**implementation, "url": base_url.rstrip("/") + url}
    return dict(implementation)


def wanted_name(found: FoundTool) -> str:
    return found.name or tool_name(found.original_name)


def speaks_of(known: Mapping[str, KnownTool], own: Collection[Tool]) -> frozenset[str]:
    """Return the names of others' tools, which a definition of this source must not mention."""
    mine = {tool.name for tool in own}
    return frozenset(each.name for each in known.values() if each.name not in mine)
