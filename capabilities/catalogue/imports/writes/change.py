"""Audited changes of what an imported tool would be, before it is accepted, and the end of an import."""

from __future__ import annotations

from django.db.models import QuerySet

from capabilities.catalogue.imports.matching import (
    content_of,
    versions_at_hand,
)
from capabilities.catalogue.imports.reading import status_against
from capabilities.catalogue.imports.writes.decide import (
    EFFECTS,
    only_import,
    origin_for,
    origin_of,
    require_for,
    undecided,
)
from capabilities.catalogue.tools.writes import (
    check_tool_name,
)
from capabilities.common.names import check_name_free
from capabilities.common.refused import ChangeRefused
from capabilities.common.rights import configuration_write
from capabilities.contract.effects import READ
from capabilities.contract.wire import TOOL_NAME
from capabilities.models import (
    UNDECIDED,
    ImportedStatus,
    ImportedTool,
    ImportSource,
    ImportStatus,
    ToolImport,
)
from toolhub.tenants.audit.writes import record
from toolhub.tenants.models import Membership


@configuration_write("name")
def change_imported(
    row: ImportedTool,
    *,
    actor: Membership,
    name: str | None = None,
    effect: str | None = None,
    is_destructive: bool | None = None,
) -> ImportedTool:
    """Set another name, or another guess of what it does, for a definition that waits for a decision. Raises
    ChangeRefused.

    A tool that is there keeps its name.
    """
    row.refresh_from_db()
    require_for(actor, row.tool_import, [row])
    if row.status not in UNDECIDED:
        raise ChangeRefused("name", "It is decided already.", code="conflict")
    before = {"name": row.name, "effect": row.effect, "is_destructive": row.is_destructive}
    if name is not None and name != row.name:
        _check_name(row, name)
        row.name, row.collision = name, ""
    if effect is not None:
        if effect not in EFFECTS:
            raise ChangeRefused("effect", f"It is one of {', '.join(EFFECTS)}.")
        row.effect_why = row.effect_why if effect == row.effect else ""
        row.effect = effect
    if is_destructive is not None:
        row.is_destructive = is_destructive
    if row.effect == READ and row.is_destructive:
        raise ChangeRefused("effect", "What only reads destroys nothing: choose one of the two.")
    after = {"name": row.name, "effect": row.effect, "is_destructive": row.is_destructive}
    if before != after:
        row.save(update_fields=["name", "collision", "effect", "effect_why", "is_destructive"])
        record("import.change", row, actor=actor, before=before, after=after)
    return row


@configuration_write("tools")
def set_effects(
    rows: QuerySet[ImportedTool], effect: str, *, actor: Membership, is_destructive: bool | None = None
) -> int:
    """Set the same guess of the effect for all of these definitions that wait for a decision. Returns how many changed.
    All or none, with one audit row. Raises ChangeRefused."""
    if effect not in EFFECTS:
        raise ChangeRefused("effect", f"It is one of {', '.join(EFFECTS)}.")
    if effect == READ and is_destructive:
        raise ChangeRefused("effect", "What only reads destroys nothing: choose one of the two.")
    waiting = list(undecided(rows))
    if not waiting:
        return 0
    tool_import = only_import(waiting)
    require_for(actor, tool_import, waiting)
    before: dict[str, str] = {}
    for row in waiting:
        destroys = (row.is_destructive if is_destructive is None else is_destructive) and effect != READ
        if (row.effect, row.is_destructive) != (effect, destroys):
            before[row.name or row.original_name] = row.effect
            row.effect, row.is_destructive, row.effect_why = effect, destroys, ""
    changed = [row for row in waiting if (row.name or row.original_name) in before]
    ImportedTool.objects.bulk_update(changed, ["effect", "is_destructive", "effect_why"], batch_size=200)
    if changed:
        record("import.change", tool_import, actor=actor, before={"effects": before}, after={"effect": effect})
    return len(changed)


def _check_name(row: ImportedTool, name: str) -> None:
    if row.tool_id is not None:
        raise ChangeRefused("name", "A tool keeps its name: sessions and models know it by that.")
    if not TOOL_NAME.match(name):
        raise ChangeRefused("name", "A tool name has 1 to 64 characters of a-z, A-Z, 0-9, _ and -.")
    check_tool_name(name, origin_for(row, row.tool_import, None), organisation_id=row.organisation_id)
    check_name_free(ImportedTool.objects.filter(tool_import=row.tool_import_id).exclude(pk=row.pk), "a tool", name)


@configuration_write("base_url")
def set_base_url(tool_import: ToolImport, url: str, *, actor: Membership) -> ToolImport:
    """Set the base address for calls whose document gives only their path. What was found is compared anew. Raises
    ChangeRefused."""
    tool_import.refresh_from_db()
    require_for(actor, tool_import, ())
    if tool_import.status != ImportStatus.REVIEW or tool_import.source != ImportSource.OPENAPI:
        raise ChangeRefused("base_url", "This import is closed: read its source again.", code="conflict")
    url = url.strip().rstrip("/")
    if "{" in url or "?" in url or "#" in url:
        raise ChangeRefused("base_url", "Give an address without {arguments}, a query or a fragment.")
    origin_of(url)
    before = tool_import.base_url
    if url == before:
        return tool_import
    tool_import.base_url = url[:1_000]
    tool_import.save(update_fields=["base_url"])
    _match_again(tool_import)
    record("import.base_url", tool_import, actor=actor, before={"base_url": before}, after={"base_url": url})
    return tool_import


def _match_again(tool_import: ToolImport) -> None:
    statuses = (ImportedStatus.CHANGED, ImportedStatus.UNCHANGED)
    rows = list(ImportedTool.objects.filter(tool_import=tool_import, status__in=statuses).select_related("tool"))
    versions = versions_at_hand(row.tool for row in rows if row.tool is not None)
    for row in rows:
        row.status = status_against(versions.get(row.tool_id or 0, []), content_of(row, tool_import))
    ImportedTool.objects.bulk_update(rows, ["status"], batch_size=200)


@configuration_write("import")
def close_import(tool_import: ToolImport, *, actor: Membership) -> None:
    """Close an import whose rest nobody decides on: it stays on record, and can be accepted no more."""
    waiting = ImportedTool.objects.filter(tool_import=tool_import, status__in=UNDECIDED)
    require_for(actor, tool_import, waiting.select_related("tool__category").only("tool", "tool__category"))
    if ToolImport.objects.filter(pk=tool_import.pk, status=ImportStatus.REVIEW).update(status=ImportStatus.CLOSED):
        record("import.close", tool_import, actor=actor, after={"title": tool_import.title})
