"""Imports and their definitions, as pages and the API show them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.core.exceptions import ValidationError
from django.db.models import Count, Q, QuerySet, Sum, TextField
from django.db.models.functions import Cast
from django.http import Http404

from capabilities.catalogue.imports.matching import next_of, versions_at_hand
from capabilities.catalogue.imports.writes.decide import belongs_to, import_rows, origin_of
from capabilities.common.refused import ChangeRefused
from capabilities.common.rights import may_administer
from capabilities.contract.warnings import TITLES
from capabilities.models import (
    UNDECIDED,
    Category,
    ImportedStatus,
    ImportedTool,
    ImportSource,
    ImportStatus,
    StoredCredential,
    Tool,
    ToolImport,
    ToolVersion,
)
from toolhub.tenants.models import Membership, Right
from toolhub.tenants.rows.keyset import Keyset, Page
from toolhub.tenants.rows.public_ids import public_id_of

#: Groups that the filter of a page lists.
MAX_GROUPS = 200
#: The badge of each status.
BADGES = {
    ImportedStatus.NEW: "wait",
    ImportedStatus.CHANGED: "warn",
    ImportedStatus.GONE: "warn",
    ImportedStatus.REFUSED: "bad",
    ImportedStatus.ACCEPTED: "ok",
    ImportedStatus.UNCHANGED: "off",
    ImportedStatus.DISMISSED: "off",
}
IMPORT_BADGES = {
    ImportStatus.QUEUED: "wait",
    ImportStatus.RUNNING: "run",
    ImportStatus.REVIEW: "wait",
    ImportStatus.FAILED: "bad",
    ImportStatus.CLOSED: "off",
}
#: Columns that nobody reads in a list.
HEAVY = ("document", "summary", "content")


def shown_imports() -> QuerySet[ToolImport]:
    """Return imports with the number of definitions found, and of those that wait for a decision."""
    waiting = Count("found", filter=Q(found__status__in=UNDECIDED))
    return (
        ToolImport.objects.select_related("server", "membership__user")
        .defer("document", "content")
        .annotate(waiting_count=waiting, found_count=Count("found"))
    )


def imports_page(*, q: str = "", status: str = "", after: str = "", before: str = "") -> Page[ToolImport]:
    """Return one page of imports, newest first. `q` is looked for in titles and addresses. One query."""
    rows = shown_imports()
    if q:
        rows = rows.filter(Q(title__icontains=q) | Q(url__icontains=q))
    if status:
        rows = rows.filter(status=status)
    return Keyset(rows, ("-pk",)).page(after, before)


def import_numbers() -> tuple[int, int]:
    """Count the imports in all, and those to review. One query."""
    row = ToolImport.objects.aggregate(every=Count("pk"), review=Count("pk", filter=Q(status=ImportStatus.REVIEW)))
    return row["every"], row["review"]


def import_or_404(public_id: UUID) -> ToolImport:
    """Return the import of this id. Raises Http404 where the organisation has none."""
    joins = ("server", "membership__user", "credential", "category")
    found = ToolImport.objects.select_related(*joins).defer("document").filter(public_id=public_id).first()
    if found is None:
        raise Http404("No such import.")
    return found


def imported_or_404(tool_import: ToolImport, public_id: UUID) -> ImportedTool:
    """Return the tool of an import by this id. Raises Http404 where the organisation has none."""
    rows = import_rows(tool_import).select_related("tool__current_version", "tool__category", "decided_by__user")
    found = rows.filter(public_id=public_id).first()
    if found is None:
        raise Http404("No such definition in this import.")
    found.tool_import = tool_import
    return found


@dataclass(frozen=True)
class FoundFilter:
    """Filter of an import's definitions; empty for any."""

    q: str = ""
    status: str = ""
    warning: str = ""
    group: str = ""

    @property
    def is_any(self) -> bool:
        return not any((self.q, self.status, self.warning, self.group))


def found_rows(tool_import: ToolImport, wanted: FoundFilter) -> QuerySet[ImportedTool]:
    """The definitions that the filter means. `q` is looked for in names and descriptions."""
    rows = import_rows(tool_import)
    if wanted.q:
        rows = rows.filter(
            Q(name__icontains=wanted.q) | Q(original_name__icontains=wanted.q) | Q(description__icontains=wanted.q)
        )
    if wanted.status == "waiting":
        rows = rows.filter(status__in=UNDECIDED)
    elif wanted.status == "collision":
        rows = rows.exclude(collision="")
    elif wanted.status:
        rows = rows.filter(status=wanted.status)
    if wanted.warning:
        # No database that is used has an index on parts of JSON here, and one writes it as the other does.
        code = f'"code": "{wanted.warning}"'
        rows = rows.annotate(said=Cast("warnings", TextField())).filter(said__contains=code)
    if wanted.group:
        rows = rows.filter(group=wanted.group)
    return rows


def found_page(
    tool_import: ToolImport, wanted: FoundFilter, *, after: str = "", before: str = ""
) -> Page[ImportedTool]:
    """Return one page of definitions in the order of the source. One query."""
    rows = found_rows(tool_import, wanted).defer("parameters", "implementation", "annotations")
    return Keyset(rows, ("position",)).page(after, before)


def rows_named(tool_import: ToolImport, public_ids: Iterable[Any]) -> QuerySet[ImportedTool]:
    """The definitions with these ids. Raises ChangeRefused for one that is not of this import. One query."""
    wanted: set[UUID] = set()
    for each in public_ids:
        found = each if isinstance(each, UUID) else public_id_of(str(each))
        if found is None:
            raise ChangeRefused("tools", "There is no such definition in this import.", code="unknown")
        wanted.add(found)
    rows = import_rows(tool_import).filter(public_id__in=wanted)
    try:
        if rows.count() != len(wanted):
            raise ChangeRefused("tools", "There is no such definition in this import.", code="unknown")
    except ValidationError as error:
        raise ChangeRefused("tools", "There is no such definition in this import.", code="unknown") from error
    return rows


@dataclass(frozen=True)
class ReviewNumbers:
    """Numbers at the head of a review."""

    statuses: Mapping[str, int]
    tokens: int
    groups: tuple[tuple[str, int], ...]
    warnings: tuple[tuple[str, str, int], ...]

    @property
    def waiting(self) -> int:
        return sum(self.statuses.get(status, 0) for status in UNDECIDED)

    @property
    def found(self) -> int:
        return sum(self.statuses.values()) - self.statuses.get(ImportedStatus.GONE, 0)


def review_numbers(tool_import: ToolImport) -> ReviewNumbers:
    """Count by status, group and warning; `tokens` are of what still waits. Two queries."""
    rows = import_rows(tool_import).order_by()
    counted = rows.values("status").annotate(count=Count("pk"), sum=Sum("tokens"))
    statuses = {row["status"]: (row["count"], row["sum"] or 0) for row in counted}
    groups = rows.exclude(group="").values("group").annotate(count=Count("pk")).order_by("group")[:MAX_GROUPS]
    warnings = tool_import.summary.get("warnings", {}) if isinstance(tool_import.summary, dict) else {}
    return ReviewNumbers(
        statuses={status: count for status, (count, _) in statuses.items()},
        tokens=sum(statuses.get(status, (0, 0))[1] for status in UNDECIDED),
        groups=tuple((row["group"], row["count"]) for row in groups),
        warnings=tuple(
            (code, TITLES[code], count) for code, count in sorted(warnings.items()) if code in TITLES and count
        ),
    )


def categories_of(member: Membership) -> list[Category]:
    """The categories that the member may put tools into. One query."""
    reach = member.reach(Right.CATALOGUE)
    return [each for each in Category.objects.order_by("title", "name") if reach.covers(each.name)]


def may_decide(member: Membership, tool_import: ToolImport, rows: Iterable[ImportedTool] = ()) -> bool:
    """Return whether the member administers what these definitions belong to; of none, the import itself. No query
    where their tools are at hand."""
    return may_administer(member, Right.CATALOGUE, belongs_to(tool_import, rows))


def decides_in(member: Membership, tool_import: ToolImport) -> bool:
    """Return whether the member may decide on some definition of the import. One query unless on the import itself."""
    if may_decide(member, tool_import):
        return True
    own = member.reach(Right.CATALOGUE).categories
    return import_rows(tool_import).filter(status__in=UNDECIDED, tool__category__name__in=own).exists()


def credentials_to_pick() -> list[StoredCredential]:
    """Return the credentials by title, without what they hold. One query."""
    return list(StoredCredential.objects.defer("client_secret", "server_metadata").order_by("title", "pk"))


def suggested_credential(tool_import: ToolImport, stored: Iterable[StoredCredential]) -> StoredCredential | None:
    """The credential to begin with: the import's own, or the one that is sent to the base address and signs as the
    document asks. None where the document asks for none."""
    if tool_import.credential is not None:
        return tool_import.credential
    needed = tool_import.summary.get("credentials", []) if isinstance(tool_import.summary, dict) else []
    wanted = {(each.get("kind"), each.get("parameter", "")) for each in needed if isinstance(each, dict)}
    if tool_import.source == ImportSource.TOOLKIT:
        asked = [each for each in needed if isinstance(each, dict)]
        origins = set(asked[0].get("origins", [])) if len(asked) == 1 else set()
        of_file = [each for each in stored if origins and origins <= set(each.origins) and _signs_so(each, wanted)]
        return of_file[0] if len(of_file) == 1 else None
    try:
        origin = origin_of(tool_import.base_url) if tool_import.base_url else ""
    except ChangeRefused:
        return None
    matching = [each for each in stored if origin in each.origins and _signs_so(each, wanted)]
    return matching[0] if len(matching) == 1 else None


def _signs_so(credential: StoredCredential, wanted: Collection[tuple[Any, Any]]) -> bool:
    return (credential.kind, credential.parameter) in wanted


def versions_compared(row: ImportedTool) -> tuple[ToolVersion, ToolVersion] | None:
    """The tool's newest version and, not saved, the one that accepting would write; None where there is none before.
    One query."""
    tool = row.tool
    if tool is None or row.status != ImportedStatus.CHANGED:
        return None
    known = versions_at_hand([tool]).get(tool.pk, [])
    before = tool.current_version or (known[-1] if known else None)
    if before is None:
        return None
    content = next_of(row, tool, before, row.tool_import)
    fields = {name: getattr(content, name) for name in content.__dataclass_fields__ if name != "name"}
    after = ToolVersion(organisation_id=row.organisation_id, tool=tool, number=before.number + 1, **fields)
    return before, after


def tools_accepted(tool_import: ToolImport) -> list[Tool]:
    """The tools that were accepted from the import and are there, by name, with their categories. One query."""
    rows = import_rows(tool_import).filter(status=ImportedStatus.ACCEPTED, tool__isnull=False)
    tools = Tool.objects.select_related("category").filter(pk__in=rows.order_by().values("tool"), is_enabled=True)
    return list(tools.order_by("name"))


def tools_that_came_of(rows: Iterable[ImportedTool]) -> dict[int, Tool]:
    """The tools of rows that have one, by key. One query."""
    keys = [row.tool_id for row in rows if row.tool_id is not None]
    return Tool.objects.in_bulk(keys)
