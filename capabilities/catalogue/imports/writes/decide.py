"""Audited decisions on imported tools: accept, dismiss, take back a dismissal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone

from capabilities.catalogue.categories.writes import CategoryContent, create_category
from capabilities.catalogue.imports.definitions import NEEDS_SERVER
from capabilities.catalogue.imports.matching import (
    ACCEPTABLE,
    content_of,
    forget_helpers,
    helper_numbers,
    kind_of,
    later_reading,
    next_of,
    versions_at_hand,
)
from capabilities.catalogue.imports.readers import sources
from capabilities.catalogue.python_tools.helper_modules.checks import CheckedModule
from capabilities.catalogue.python_tools.helper_modules.writes import create_module, update_module
from capabilities.catalogue.tools.bulk.writes import set_knobs_of
from capabilities.catalogue.tools.recipients.writes import NOBODY, Recipients, give_tools, sentence_of
from capabilities.catalogue.tools.writes import (
    Definition,
    Origin,
    add_tools,
    set_tools_enabled,
    write_versions,
)
from capabilities.catalogue.versions.rules import changes_code, status_of_new
from capabilities.common.refused import ChangeRefused
from capabilities.common.registry_version import touch_registry
from capabilities.common.rights import configuration_write, may_administer, require
from capabilities.models import (
    RELEASED,
    UNDECIDED,
    Category,
    HelperModule,
    ImportedStatus,
    ImportedTool,
    ImportSource,
    ImportStatus,
    StoredCredential,
    Tool,
    ToolImport,
    ToolKind,
    ToolTestCase,
    ToolVersion,
    VersionStatus,
)
from capabilities.running.egress import EgressRefused, check_url
from toolhub.tenants.audit.writes import record
from toolhub.tenants.models import EVERY_CATEGORY, Membership, Right

#: Text that users and models read of a tool whose source offers it no longer.
GONE_MESSAGE = "Its source does not offer it any more."
EFFECTS = ("read", "write", "external")
NO_KNOBS: Mapping[str, str] = MappingProxyType({})
#: Rows that a decision reads beside the definition.
DECIDED_WITH = (
    "tool__category",
    "tool__current_version",
    "tool_import__server",
    "tool_import__credential",
    "tool_import__category",
    "server",
)


@dataclass(frozen=True)
class Accepted:
    """Outcome of accepted definitions: tools that are new or have a new version, those of them that wait for approval,
    and those that were switched off because they are gone."""

    created: Sequence[str] = ()
    updated: Sequence[str] = ()
    waiting: Sequence[str] = ()
    switched_off: Sequence[str] = ()
    #: Versions of helper modules that came along and wait for approval, such as "money 2".
    modules: Sequence[str] = ()
    #: Outcome for the whole, such as its toolkit: a sentence, or nothing.
    note: str = ""

    @property
    def total(self) -> int:
        return len(self.created) + len(self.updated) + len(self.switched_off)


# -- Decide -----------------------------------------------------------------------------------------------------------


@configuration_write("tools")
def accept_imported(
    rows: QuerySet[ImportedTool],
    category: Category | None,
    *,
    actor: Membership,
    credential: StoredCredential | None = None,
    new_category: str = "",
    to: Recipients = NOBODY,
    knobs: Mapping[str, str] = NO_KNOBS,
) -> Accepted:
    """Make tools, or new versions of tools, of definitions of one import that wait for a decision. All or none.

    New tools go into `category`, or into a new one with the title `new_category`, and are signed with `credential`; a
    tool that is there keeps its own, unless it has none. `to` gets what is accepted. `knobs` (`ask`, `in_untrusted`)
    say when its calls ask a person, and take the right `policies`. Rows that are decided, refused or unchanged are left
    out. A version is in force at once or waits, as `status_of_new` says; a tool that is gone at its source is switched
    off.
    The actor administers what each belongs to (`belongs_to`). Raises ChangeRefused. A fixed number of queries, and
    some for each hundred rows.
    """
    waiting = list(undecided(rows))
    if not waiting:
        return Accepted()
    tool_import = only_import(waiting)
    new = [row for row in waiting if row.status == ImportedStatus.NEW]
    if new_category.strip() and new:
        if category is not None:
            raise ChangeRefused("new_category", "Choose a category, or name a new one: one of the two.")
        category = create_category("", CategoryContent(new_category.strip()[:100]), actor=actor)
    _check_acceptable(tool_import, waiting, category, credential)
    require_for(actor, tool_import, waiting)
    if new and category is not None:
        require(actor, Right.CATALOGUE, {category.name})
    modules = _bring_modules([row for row in waiting if row.status != ImportedStatus.GONE], tool_import, actor)
    created = _create(new, category, tool_import, credential, actor) if category is not None else {}
    updated = _update([row for row in waiting if row.status == ImportedStatus.CHANGED], tool_import, credential, actor)
    missing = [row for row in waiting if row.status == ImportedStatus.GONE and row.tool is not None]
    if missing:
        set_tools_enabled([row.name for row in missing], False, actor=actor, message=GONE_MESSAGE)
    versions = {**created, **updated}
    _keep_tests([row for row in waiting if row.pk in versions and row.kind == ToolKind.PYTHON])
    _decide(waiting, ImportedStatus.ACCEPTED, actor, versions)
    done = Accepted(
        created=[row.name for row in waiting if row.pk in created],
        updated=[row.name for row in waiting if row.pk in updated],
        waiting=[row.name for row in waiting if row.pk in versions and _waits(versions[row.pk])],
        switched_off=[row.name for row in missing],
        modules=modules,
    )
    record("import.accept", tool_import, actor=actor, after=_recorded(done, versions, waiting, category, credential))
    touch_registry(tool_import.organisation_id)
    _close_if_decided(tool_import)
    given = [*done.created, *done.updated]
    give_tools(given, to, actor=actor)
    if given and knobs:
        set_knobs_of(given, knobs, actor=actor)
    source = sources.get(tool_import.source)
    note = source.after_accept(tool_import, actor) if source and source.after_accept else ""
    return replace(done, note=" ".join(text for text in (note, sentence_of(to, given)) if text))


@configuration_write("tools")
def dismiss_imported(rows: QuerySet[ImportedTool], *, actor: Membership) -> int:
    """Decide that these definitions become nothing; what is in the catalogue stays. Returns how many.

    Later readings of the source leave them dismissed while they say the same.
    """
    waiting = list(undecided(rows))
    if not waiting:
        return 0
    tool_import = only_import(waiting)
    require_for(actor, tool_import, waiting)
    _decide(waiting, ImportedStatus.DISMISSED, actor, {})
    record("import.dismiss", tool_import, actor=actor, after={"tools": [row.name for row in waiting]})
    _close_if_decided(tool_import)
    return len(waiting)


@configuration_write("tools")
def restore_imported(rows: QuerySet[ImportedTool], *, actor: Membership) -> int:
    """Have these definitions wait for a decision again that were dismissed, now or at an earlier reading. The import is
    under review from then on. Returns how many. Raises ChangeRefused where the source was read again since."""
    dismissed = list(rows.filter(status=ImportedStatus.DISMISSED).select_related(*DECIDED_WITH).order_by("position"))
    if not dismissed:
        return 0
    tool_import = only_import(dismissed)
    require_for(actor, tool_import, dismissed)
    if later_reading(tool_import) is not None:
        raise ChangeRefused("tools", "Its source was read again since: decide there.", code="conflict")
    for row in dismissed:
        row.status = ImportedStatus.NEW if row.tool is None else ImportedStatus.CHANGED
        if row.tool is not None and not row.implementation:  # there was nothing at the source any more
            row.status = ImportedStatus.GONE
        row.decided_by = row.decided_at = None
        row.reason = ""
    columns = ["status", "reason", "decided_by", "decided_at"]
    ImportedTool.objects.bulk_update(dismissed, columns, batch_size=200)
    ToolImport.objects.filter(pk=tool_import.pk, status=ImportStatus.CLOSED).update(status=ImportStatus.REVIEW)
    record("import.restore", tool_import, actor=actor, after={"tools": [row.name for row in dismissed]})
    return len(dismissed)


def belongs_to(tool_import: ToolImport, rows: Iterable[ImportedTool]) -> set[str]:
    """The categories of these definitions: those of their tools, and for what is no tool yet the import's, which is
    every category where it has none. Of no definitions, the import's. No query where both are at hand."""
    tools = [row.tool for row in rows]
    names = {tool.category.name for tool in tools if tool is not None}
    if not tools or None in tools:
        names.add(tool_import.category.name if tool_import.category is not None else EVERY_CATEGORY)
    return names


def require_for(actor: Membership, tool_import: ToolImport, rows: Iterable[ImportedTool]) -> None:
    """Raise PermissionDenied unless the actor administers what these definitions belong to."""
    names = belongs_to(tool_import, rows)
    require(actor, Right.CATALOGUE, () if EVERY_CATEGORY in names else names)


def undecided(rows: QuerySet[ImportedTool]) -> QuerySet[ImportedTool]:
    return rows.filter(status__in=UNDECIDED).select_related(*DECIDED_WITH).order_by("position")


def only_import(rows: Sequence[ImportedTool]) -> ToolImport:
    """Return the import of these rows. Raises ChangeRefused where they are of several, or none."""
    if len({row.tool_import_id for row in rows}) != 1:
        raise ChangeRefused("tools", "Decide on the tools of one import at a time.")
    return rows[0].tool_import


def _check_acceptable(
    tool_import: ToolImport,
    rows: Sequence[ImportedTool],
    category: Category | None,
    credential: StoredCredential | None,
) -> None:
    """Raise ChangeRefused where these definitions cannot become tools as they are."""
    if tool_import.status != ImportStatus.REVIEW:
        raise ChangeRefused("tools", "This import is closed: read its source again.", code="conflict")
    if tool_import.source not in ACCEPTABLE:
        raise ChangeRefused("tools", NEEDS_SERVER, code="conflict")
    if category is None and any(row.status == ImportedStatus.NEW for row in rows):
        raise ChangeRefused("category", "Choose the category that the new tools go to.")
    rows = [row for row in rows if row.status != ImportedStatus.GONE]
    if tool_import.source == ImportSource.TOOLKIT:
        _check_of_file(tool_import, rows, credential)
        rows = [row for row in rows if row.kind == ToolKind.HTTP and (row.more.get("credential") or not credential)]
    elif tool_import.source != ImportSource.OPENAPI:
        return
    origins = {_checked_origin(content_of(row, tool_import)) for row in rows}
    if credential is not None and credential.origins:
        elsewhere = sorted(origins - set(credential.origins))
        if elsewhere:
            raise ChangeRefused(
                "credential",
                f"{credential} is not sent to {elsewhere[0]}: add that to its addresses, or choose another.",
            )


def _check_of_file(tool_import: ToolImport, rows: Sequence[ImportedTool], credential: StoredCredential | None) -> None:
    """Raise ChangeRefused for a tool whose server is gone by now, and for code that would get a credential for other
    addresses than the one it was written for."""
    without_server = next((row for row in rows if row.kind == ToolKind.MCP and row.server_id is None), None)
    if without_server is not None:
        raise ChangeRefused("tools", f"The server of {without_server.name} is gone: add it, and import the file again.")
    if credential is None:
        return
    named = {each["name"]: each["origins"] for each in tool_import.content.get("credentials", [])}
    for row in rows:
        wanted = named.get(row.more.get("credential", ""), [])
        if row.kind == ToolKind.PYTHON and wanted and not set(wanted) & set(credential.origins):
            raise ChangeRefused(
                "credential", f"{row.name} asks for a credential for {wanted[0]}, and {credential} is not sent there."
            )


def _checked_origin(content: Definition) -> str:
    """Return the origin of its calls. Raises ChangeRefused for what is no address of the web."""
    url = str(content.implementation.get("url", ""))
    if not url.startswith(("http://", "https://")):
        raise ChangeRefused("base_url", "The document names no address of its server: give one first.")
    return origin_of(url)


def origin_of(url: str) -> str:
    """Return https://api.example.org of an address, which may hold {arguments} in its path. Raises ChangeRefused."""
    scheme, _, rest = url.partition("://")
    host = rest.partition("/")[0].partition("?")[0].partition("#")[0]
    try:
        checked = check_url(f"{scheme}://{host}/")
    except EgressRefused as error:
        raise ChangeRefused("base_url", str(error)) from error
    return str(checked).rstrip("/")


def _create(
    rows: Sequence[ImportedTool],
    category: Category,
    tool_import: ToolImport,
    credential: StoredCredential | None,
    actor: Membership,
) -> dict[int, ToolVersion]:
    """Write the first version of each new tool; return them by key of the row."""
    if not rows:
        return {}
    contents = [(content_of(row, tool_import), origin_for(row, tool_import, credential)) for row in rows]
    tools = add_tools(category, contents)
    groups: dict[VersionStatus, list[tuple[ImportedTool, Tool, Definition]]] = {}
    for row, tool, (content, _) in zip(rows, tools, contents, strict=True):
        row.tool = tool
        status = status_of_new(tool.kind, actor, author=None, changes_code=True, category=category.name)
        groups.setdefault(status, []).append((row, tool, content))
    return _written(groups, actor)


def _written(
    groups: Mapping[VersionStatus, Sequence[tuple[ImportedTool, Tool, Definition]]], actor: Membership
) -> dict[int, ToolVersion]:
    """Write the versions, and return them by key of their row."""
    found: dict[int, ToolVersion] = {}
    for status, group in groups.items():
        versions = write_versions([(tool, content) for _, tool, content in group], actor=actor, status=status)
        found |= {row.pk: version for (row, _, _), version in zip(group, versions, strict=True)}
    return found


def origin_for(row: ImportedTool, tool_import: ToolImport, credential: StoredCredential | None) -> Origin:
    kind = kind_of(row, tool_import)
    server = (row.server if row.kind else tool_import.server) if kind == ToolKind.MCP else None
    signed = credential if server is None and (not row.kind or row.more.get("credential")) else None
    return Origin(kind=kind, server=server, credential=signed, source=_source(tool_import))


def _bring_modules(rows: Sequence[ImportedTool], tool_import: ToolImport, actor: Membership) -> list[str]:
    """Write the helper modules that these tools import and that are not here as they are: each is the next version of
    the module of its name, and waits for approval. Returns them."""
    wanted = {each for row in rows for each in row.more.get("helpers", {}).items()}
    missing = sorted(each for each in wanted if not helper_numbers(tool_import, dict([each]))[each[0]])
    if not missing:
        return []
    sent = {(each["name"], each["sha256"]): each for each in tool_import.content.get("modules", [])}
    imported = []
    for name, sha in missing:
        module = sent[name, sha]
        checked = CheckedModule(module["code"], dict.fromkeys(module["runtimes"], ()))
        known = HelperModule.objects.filter(name=name).first()
        if known is None:
            version = create_module(name, module["description"], checked, actor=actor)
        else:
            version = update_module(known, checked, actor=actor)
        imported.append(f"{name} {version.number}")
    forget_helpers(tool_import)
    return imported


def _keep_tests(rows: Sequence[ImportedTool]) -> None:
    """Replace the saved tests of these tools with those of the file. Two queries, and one for some hundred tests."""
    tools = {row.tool_id: row for row in rows if row.tool_id is not None}
    ToolTestCase.objects.filter(tool__in=list(tools)).delete()
    ToolTestCase.objects.bulk_create(
        ToolTestCase(organisation_id=row.organisation_id, tool_id=key, **test)
        for key, row in tools.items()
        for test in row.more.get("tests", [])
    )


def _source(tool_import: ToolImport) -> str:
    """Return the source that its tools name as theirs."""
    if tool_import.server is not None:
        return f"MCP server {tool_import.server.title}"
    kind = "Toolkit file" if tool_import.source == ImportSource.TOOLKIT else "OpenAPI document"
    return f"{kind} {tool_import.title}"


def _update(
    rows: Sequence[ImportedTool], tool_import: ToolImport, credential: StoredCredential | None, actor: Membership
) -> dict[int, ToolVersion]:
    """Write the next version of each tool that is there; return them by key of the row."""
    groups: dict[VersionStatus, list[tuple[ImportedTool, Tool, Definition]]] = {}
    newest = versions_at_hand(row.tool for row in rows if row.tool is not None)
    for row in rows:
        tool = row.tool
        if tool is None:
            continue
        known = newest.get(tool.pk, [])
        content = next_of(row, tool, tool.current_version or (known[-1] if known else None), tool_import)
        content = replace(content, name=tool.name)
        changes = changes_code(tool, content)
        status = status_of_new(tool.kind, actor, author=None, changes_code=changes, category=tool.category.name)
        groups.setdefault(status, []).append((row, tool, content))
    found = _written(groups, actor)
    in_force = [tool.pk for _, tool, _ in groups.get(VersionStatus.APPROVED, [])]
    Tool.objects.filter(pk__in=in_force).exclude(quarantine="").update(**RELEASED)
    if credential is not None:
        # What signs a tool in force is decided by who may approve it.
        unsigned = [
            row.tool.pk
            for row in rows
            if row.tool is not None
            and row.tool.server_id is None
            and (not row.kind or row.more.get("credential"))
            and (
                row.tool.current_version is None or may_administer(actor, Right.APPROVE_CODE, [row.tool.category.name])
            )
        ]
        Tool.objects.filter(pk__in=unsigned, credential=None).update(credential=credential)
    return found


def _waits(version: ToolVersion) -> bool:
    return version.status != VersionStatus.APPROVED


def _decide(
    rows: Sequence[ImportedTool], status: ImportedStatus, actor: Membership, versions: dict[int, ToolVersion]
) -> None:
    now = timezone.now()
    for row in rows:
        row.status, row.decided_by, row.decided_at = status, actor, now
        row.version = versions.get(row.pk)
    ImportedTool.objects.bulk_update(rows, ["status", "tool", "version", "decided_by", "decided_at"], batch_size=200)


def _recorded(
    done: Accepted,
    versions: dict[int, ToolVersion],
    rows: Sequence[ImportedTool],
    category: Category | None,
    credential: StoredCredential | None,
) -> dict[str, Any]:
    """Return the content of the audit row: each tool with the number and the hash of its version."""
    written = {
        row.name: {
            "version": versions[row.pk].number,
            "sha256": versions[row.pk].sha256,
            "status": versions[row.pk].status,
            "effect": versions[row.pk].effect,
        }
        for row in rows
        if row.pk in versions
    }
    return {
        "category": category.name if category is not None and done.created else "",
        "credential": str(credential or ""),
        "created": list(done.created),
        "updated": list(done.updated),
        "switched_off": list(done.switched_off),
        **({"modules": list(done.modules)} if done.modules else {}),
        "versions": written,
    }


def _close_if_decided(tool_import: ToolImport) -> None:
    if not ImportedTool.objects.filter(tool_import=tool_import, status__in=UNDECIDED).exists():
        ToolImport.objects.filter(pk=tool_import.pk, status=ImportStatus.REVIEW).update(status=ImportStatus.CLOSED)


# -- Change what a tool would be --------------------------------------------------------------------------------------


def import_rows(tool_import: ToolImport) -> QuerySet[ImportedTool]:
    """Return the import's definitions."""
    return ImportedTool.objects.filter(tool_import=tool_import)
