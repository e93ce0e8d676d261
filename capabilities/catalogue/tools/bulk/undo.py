"""The way back from a change to many tools: by its entries in the audit, for the tools that nobody changed since."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from django.db.models import QuerySet

from capabilities.catalogue.tools.bulk.writes import ToolsChange, change_tools
from capabilities.common.refused import ChangeRefused
from capabilities.common.rights import configuration_write
from capabilities.models import Tool
from toolhub.tenants.audit.queries import newest_number
from toolhub.tenants.audit.writes import request_id
from toolhub.tenants.models import AuditEntry, Membership

#: Entries of changes to many tools; those of one tool name it as their target.
ACTIONS = ("tool.enable", "tool.disable", "tool.move", "tool.update")
#: Entries that one request writes, at most; those among which they are looked for.
MOST_ENTRIES, NEWEST = 4, 50


@dataclass(frozen=True)
class Undone:
    """Names of the tools that are as they were before, and of those that somebody changed since."""

    restored: Sequence[str]
    changed_since: Sequence[str]


def entries_of_request(member: Membership) -> list[int]:
    """Return the numbers of the entries on many tools that the member's present request wrote. Two queries."""
    newest = newest_number(member.organisation_id)
    entries = _entries(member).filter(number__gt=newest - NEWEST, request_id=request_id.get())
    return list(entries.order_by("number").values_list("number", flat=True)) if request_id.get() else []


@configuration_write("entries")
def undo_change(numbers: Collection[int], *, actor: Membership) -> Undone:
    """Set what the actor changed in many tools at once back to what it was, where it still is as it was left.

    Switches, categories and effects go back; an effect that still waits for approval stays as it is. Raises
    ChangeRefused where no entry of the actor's has one of these numbers, and what `change_tools` raises.
    """
    entries = list(_entries(actor).filter(number__in=[*numbers][:MOST_ENTRIES]).order_by("-number"))
    if not entries:
        raise ChangeRefused("entries", "There is nothing to undo.")
    restored: set[str] = set()
    left: set[str] = set()
    for entry in entries:
        names = entry.after["tools"]
        back: dict[ToolsChange, list[str]] = {}
        for tool in Tool.objects.select_related("category", "current_version").filter(name__in=names):
            if (change := _way_back(entry, tool)) is not None:
                back.setdefault(change, []).append(tool.name)
        for change, of_it in back.items():
            change_tools(of_it, change, actor=actor)
        done = {name for of_it in back.values() for name in of_it}
        restored |= done
        left |= set(names) - done
    return Undone(sorted(restored - left), sorted(left))


def _entries(actor: Membership) -> QuerySet[AuditEntry]:
    return AuditEntry.objects.filter(actor=actor, target_type="tool", target_id="", action__in=ACTIONS)


def _way_back(entry: AuditEntry, tool: Tool) -> ToolsChange | None:
    """Return the change that undoes the entry for this tool, None where the tool is not as the entry left it."""
    before, after = entry.before, entry.after
    if entry.action == "tool.move":
        return (
            ToolsChange(category=before["categories"][tool.name]) if tool.category.name == after["category"] else None
        )
    if entry.action == "tool.update":
        is_so = tool.current_version is not None and tool.current_version.effect == after["effect"]
        waits = tool.name in after.get("waiting", ())
        return ToolsChange(effect=before["effects"][tool.name]) if is_so and not waits else None
    if (tool.is_enabled, tool.off_message) != (after["is_enabled"], after.get("off_message", "")):
        return None
    message = before.get("off_messages", {}).get(tool.name, "")
    return ToolsChange(is_enabled=before["is_enabled"], off_message=message)
