"""Files of folders that the catalogue is kept in step with, as pages and REST show them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import QuerySet
from django.http import Http404

from capabilities.agents.sharing.imported_toolkits import imported_toolkit
from capabilities.common.visible import visible_parts
from capabilities.models import HelperModule, HelperVersion, SyncedFile, ToolImport, Toolkit
from toolhub.tenants.models import Membership, Right
from toolhub.tenants.rows.keyset import Keyset, Page

ORDER = ("folder", "path", "pk")
#: States by which files can be found.
BROKEN, GOOD = "broken", "good"


def synced_files(state: str = "") -> QuerySet[SyncedFile]:
    """Return the files by folder and path; `state` is `broken`, `good` or nothing."""
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


# -- Toolkit files ----------------------------------------------------------------------------------------------------


def toolkit_named_or_404(name: str) -> Toolkit:
    """Return the toolkit of this name. One query. Raises Http404 where there is none."""
    toolkit = Toolkit.objects.filter(name=name).first()
    if toolkit is None:
        raise Http404("No such toolkit.")
    return toolkit


def toolkit_review(tool_import: ToolImport, member: Membership) -> Mapping[str, Any]:
    """Return the template values that the review of a toolkit file shows beside its tools. At most seven queries."""
    found = imported_toolkit(tool_import)
    return {
        "template": "capabilities/agents/sharing/_review_toolkit.html",
        "toolkit": found,
        "lines": [line for line in found.content.tools if line.timeout or line.max_result_chars or line.knobs]
        if found is not None
        else [],
        "may_save": found is not None and found.can_be_saved and member.has_right(Right.TOOLKITS),
        "modules": _modules(tool_import),
        "left_out": tool_import.content.get("left_out", []),
        "sha256": tool_import.content.get("sha256", ""),
    }


def _modules(tool_import: ToolImport) -> list[dict[str, Any]]:
    """The file's helper modules, and what each is here: `number` of the version that says the same, or None, and
    whether there is a module of its name. At most two queries."""
    sent = tool_import.content.get("modules", [])
    if not sent:
        return []
    names = {each["name"] for each in sent}
    rows = HelperVersion.objects.filter(module__name__in=names).exclude(status="rejected").order_by("number")
    stored_versions = {
        (name, sha): number for name, sha, number in rows.values_list("module__name", "sha256", "number")
    }
    known = set(HelperModule.objects.filter(name__in=names).values_list("name", flat=True))
    return [
        {
            **{name: each[name] for name in ("name", "description", "problem", "sha256")},
            "number": stored_versions.get((each["name"], each["sha256"])),
            "is_known": each["name"] in known,
            "code": list(visible_parts(each["code"])),
        }
        for each in sent
    ]
