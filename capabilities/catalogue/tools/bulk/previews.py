"""Previews of changes to many tools: a change is tried, read from its entries in the audit, and taken back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from capabilities.catalogue.tools.bulk.writes import ToolsChange, ToolsChanged, change_tools
from capabilities.common.taken_back import taken_back
from toolhub.tenants.audit.queries import newest_number
from toolhub.tenants.models import AuditEntry, Membership


@dataclass(frozen=True)
class ChangeLine:
    """Number of tools of which one thing changes from one value to another; `before` is "" where tools differ."""

    what: str
    before: str
    after: str
    count: int


@dataclass(frozen=True)
class BulkPreview:
    done: ToolsChanged
    lines: Sequence[ChangeLine]


def preview_of(names: Collection[str], change: ToolsChange, *, member: Membership) -> BulkPreview:
    """Return what the change would do. Raises what `change_tools` raises; two queries more."""
    with taken_back():
        newest = newest_number(member.organisation_id)
        done = change_tools(names, change, actor=member)
        entries = list(AuditEntry.objects.filter(number__gt=newest, actor=member).order_by("number"))
    lines = [line for entry in entries for line in _lines_of(entry)]
    knobs = [ChangeLine(name, "", value, len(names)) for name, value in change.knobs.items()]
    return BulkPreview(done, [*lines, *knobs])


def _lines_of(entry: AuditEntry) -> list[ChangeLine]:
    for what, several in (("effect", "effects"), ("category", "categories")):
        if several in entry.before:
            counts = Counter(entry.before[several].values())
            return [ChangeLine(what, each, entry.after[what], count) for each, count in sorted(counts.items())]
    return []
