"""Files of folders that the catalogue is kept in step with, as pages and REST show them."""

from __future__ import annotations

from django.db.models import QuerySet

from capabilities.models import SyncedFile
from toolhub.tenants.keyset import Keyset, Page

ORDER = ("folder", "path", "pk")
#: What a file can be looked for by.
BROKEN, GOOD = "broken", "good"


def synced_files(state: str = "") -> QuerySet[SyncedFile]:
    """By folder and path; `state` is `broken`, `good` or nothing."""
    rows = SyncedFile.objects.select_related("tool__current_version").defer(
        "tool__current_version__wire", "tool__current_version__parameters", "tool__current_version__implementation"
    )
    if state == BROKEN:
        rows = rows.exclude(error="")
    elif state == GOOD:
        rows = rows.filter(error="")
    return rows.order_by(*ORDER)


def synced_page(state: str = "", *, after: str = "", before: str = "") -> Page[SyncedFile]:
    """One query."""
    return Keyset(synced_files(state), ORDER).page(after, before)


def has_synced_files() -> bool:
    """One query."""
    return SyncedFile.objects.exists()
