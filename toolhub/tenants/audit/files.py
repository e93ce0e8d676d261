"""The audit as a file for a spreadsheet, sent while it is read."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import AsyncIterator, Iterable

from asgiref.sync import sync_to_async

from toolhub.tenants.audit.queries import MOST_LINES, PART, AuditFilter, audit_entries
from toolhub.tenants.audit.sentences import sentence_of
from toolhub.tenants.models import AuditEntry, Organisation
from toolhub.tenants.rows.connections import give_back_connection
from toolhub.tenants.rows.scope import organisation_scope
from toolhub.tenants.spreadsheets import as_text
from toolhub.tenants.times import shown_as

COLUMNS = (
    "number",
    "at",
    "actor",
    "sentence",
    "action",
    "target_type",
    "target_id",
    "target",
    "before",
    "after",
    "request_id",
    "hash",
)


async def csv_parts(organisation: Organisation, wanted: AuditFilter) -> AsyncIterator[str]:
    """A heading, then the entries, the newest first, up to MOST_LINES. A query for each PART of them. The
    days of the filter are those of the page."""
    yield _written([COLUMNS])
    behind: int | None = None
    for _ in range(MOST_LINES // PART):
        text, behind = await _part(organisation, wanted, behind)
        if text:
            yield text
        if behind is None:
            return


@sync_to_async
def _part(organisation: Organisation, wanted: AuditFilter, behind: int | None) -> tuple[str, int | None]:
    """Return the next lines, and the number of the last entry; None behind the end."""
    try:
        with organisation_scope(organisation), shown_as(organisation):
            entries = audit_entries(wanted)
            if behind is not None:
                entries = entries.filter(number__lt=behind)
            rows = list(entries.order_by("-number")[:PART])
    finally:
        give_back_connection()
    return _written(map(_line, rows)), rows[-1].number if len(rows) == PART else None


def _line(entry: AuditEntry) -> list[str]:
    values = (
        str(entry.number),
        entry.created_at.isoformat(timespec="seconds"),
        entry.actor_label,
        str(sentence_of(entry)),
        entry.action,
        entry.target_type,
        "" if entry.target_id.isdecimal() else entry.target_id,
        entry.target_label,
        *(json.dumps(each, ensure_ascii=False) for each in (entry.before, entry.after)),
        entry.request_id,
        entry.hash,
    )
    return [as_text(value) for value in values]


def _written(lines: Iterable[Iterable[str]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows(lines)
    return text.getvalue()
