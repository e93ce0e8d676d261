"""The audited writes of versions: decide on one that waits, go back to an earlier one, take the tool out of use, keep
it back and release it."""

from __future__ import annotations

from typing import Any

from django.db.models.functions import Now

from capabilities.catalogue.tools.recipients.writes import NOBODY, Recipients, give_tools
from capabilities.catalogue.tools.writes import ToolRefused, definition_of, make_current
from capabilities.catalogue.versions.rules import (
    WORDS,
    differing,
    helper_missing,
    why_not_approve,
    why_not_release,
)
from capabilities.common.refused import ChangeRefused
from capabilities.common.registry_version import touch_registry
from capabilities.common.rights import ChangeForbidden, configuration_write, may_administer, require
from capabilities.common.text import storable
from capabilities.models import (
    MAX_QUARANTINE,
    RELEASED,
    AgentTool,
    HelperVersion,
    Tool,
    ToolKind,
    ToolVersion,
    VersionStatus,
    kept_back,
)
from toolhub.tenants.audit.writes import record
from toolhub.tenants.models import Membership, Right

#: Characters of why a version was rejected or retired.
MAX_REASON = 500
NEEDS_REASON = "Say why: the author reads it beside the version."


@configuration_write("version")
def decide_version(
    version: ToolVersion, *, approve: bool, reason: str = "", to: Recipients = NOBODY, actor: Membership
) -> ToolVersion:
    """Put a version that waits in force, or reject it with a reason. Returns it as it is now.

    Needs the right `approve_code` for the tool's category; nobody approves code of their own (ChangeForbidden). Of two
    who decide at once, one does; the other gets a ChangeRefused `conflict` that says who did. An approval of the newest
    one that waits ends a quarantine. A tool that an agent made becomes one of that agent's own with its first approval.
    `to` gets the tool with an approval. Raises PermissionDenied without the right; ChangeRefused too for a version that
    does not wait, and for one whose module is not approved.
    """
    version, tool = _fresh(version)
    require(actor, Right.APPROVE_CODE, [tool.category.name])
    _check_waits(version)
    if approve and (why := why_not_approve(actor, tool, version)):
        raise ChangeForbidden("version", why)
    if approve and (missing := helper_missing(version)):
        raise ChangeRefused("version", missing, code="conflict")
    text = reason_line(reason, is_needed="" if approve else NEEDS_REASON)
    status = VersionStatus.APPROVED if approve else VersionStatus.REJECTED
    before: dict[str, Any] = {"version": tool.current_version.number if tool.current_version else None}
    _end(version, status, text, actor)
    after: dict[str, Any] = {"version": version.number, "sha256": version.sha256}
    if approve:
        make_current(tool, version)
        if tool.quarantine and not _newer_waiting(version):
            before["quarantine"] = tool.quarantine
            Tool.objects.filter(pk=tool.pk).update(**RELEASED)
        if agent := _given_to_its_agent(tool):
            after["agent"] = agent
    if text:
        after["reason"] = text
    record("tool.version_approve" if approve else "tool.version_reject", tool, actor=actor, before=before, after=after)
    if approve:
        give_tools([tool.name], to, actor=actor)
    touch_registry(tool.organisation_id)
    version.refresh_from_db()
    return version


@configuration_write("number")
def roll_back(tool: Tool, number: int, *, reason: str = "", actor: Membership) -> ToolVersion:
    """Put an earlier version that was in force before back in force, and retire the current one. Returns it.

    Needs the right `approve_code` for the tool's category; `catalogue` is enough where only words differ. A built-in
    tool goes back in its words alone. Raises ChangeRefused for a version that never was in force.
    """
    target = ToolVersion.objects.select_related("tool").filter(tool=tool, number=number).first()
    if target is None:
        raise ChangeRefused("number", f"{tool} has no version {number}.", code="unknown")
    target, tool = _fresh(target)
    current = tool.current_version
    changed = differing(definition_of(tool, current), definition_of(tool, target)) if current else {"implementation"}
    if tool.kind == ToolKind.BUILTIN and changed - {"instructions"}:
        raise ToolRefused("number", "A built-in tool follows the installed toolhub: only its instructions go back.")
    require(actor, Right.APPROVE_CODE if changed - WORDS else Right.CATALOGUE, [tool.category.name])
    if current is not None and current.pk == target.pk:
        raise ChangeRefused("number", f"Version {number} is in force already.", code="conflict")
    text = reason_line(reason)
    is_back = ToolVersion.objects.filter(pk=target.pk, status=VersionStatus.RETIRED).update(
        status=VersionStatus.APPROVED, status_reason=text, decided_by=actor, decided_at=Now()
    )
    if not is_back:
        shown = target.get_status_display().lower()
        raise ChangeRefused("number", f"Version {number} was never in force: it is {shown}.", code="conflict")
    make_current(tool, target)
    if current is not None:
        ToolVersion.objects.filter(pk=current.pk).update(status_reason=f"Rolled back to version {number}.")
    before = {"version": current.number if current else None}
    after = {"version": number, "sha256": target.sha256} | ({"reason": text} if text else {})
    record("tool.roll_back", tool, actor=actor, before=before, after=after)
    touch_registry(tool.organisation_id)
    target.refresh_from_db()
    return target


@configuration_write("tool")
def retire(tool: Tool, *, reason: str = "", actor: Membership) -> None:
    """Take the tool out of use: it stays in the catalogue without a version in force, and can be rolled back.

    Needs the right `catalogue` for its category. Raises ChangeRefused for a built-in tool, and where nothing is in
    force.
    """
    tool = Tool.objects.select_related("category", "current_version").get(pk=tool.pk)
    require(actor, Right.CATALOGUE, [tool.category.name])
    if tool.kind == ToolKind.BUILTIN:
        raise ToolRefused("tool", "A built-in tool is not retired: switch it off.")
    current = tool.current_version
    if current is None:
        raise ChangeRefused("tool", f"{tool} has no version in force.", code="conflict")
    text = reason_line(reason)
    ToolVersion.objects.filter(pk=current.pk).update(status=VersionStatus.RETIRED, status_reason=text)
    Tool.objects.filter(pk=tool.pk).update(current_version=None)
    record("tool.retire", tool, actor=actor, before={"version": current.number}, after={"reason": text} if text else {})
    touch_registry(tool.organisation_id)


@configuration_write("reason")
def keep_tool_back(tool: Tool, reason: str, *, actor: Membership) -> None:
    """Keep the tool back until somebody decides: no model gets it, and calls of it are refused, in running turns too.

    Needs the right `catalogue` or `approve_code` for its category; to say something else of one that is kept back
    already, `approve_code`. Raises ChangeRefused without a reason, and where no version is in force.
    """
    tool = Tool.objects.select_related("category").get(pk=tool.pk)
    category = tool.category.name
    if tool.quarantine or not may_administer(actor, Right.CATALOGUE, [category]):
        require(actor, Right.APPROVE_CODE, [category])
    text = reason_line(reason, is_needed="Say why: whoever decides about it reads it.", most=MAX_QUARANTINE)
    if tool.current_version_id is None:
        raise ToolRefused("reason", f"{tool} has no version in force: no model gets it.", code="conflict")
    if text == tool.quarantine and tool.quarantined_by_id is not None:
        return
    Tool.objects.filter(pk=tool.pk).update(**kept_back(text, actor.pk))
    before = {"quarantine": tool.quarantine} if tool.quarantine else {}
    record("tool.keep_back", tool, actor=actor, before=before, after={"quarantine": text})
    touch_registry(tool.organisation_id)


@configuration_write("tool")
def release_tool(tool: Tool, *, actor: Membership) -> None:
    """Use the version in force again of a tool that is kept back, from the next call on. What waits beside it waits on.

    Needs the right `approve_code` for its category; nobody decides so about code of their own (ChangeForbidden). Raises
    ChangeRefused where it is not kept back, where no version is in force, and where its server offers another one.
    """
    tools = Tool.objects.select_related("category", "server", "current_version__created_by__user")
    tool = tools.get(pk=tool.pk)
    require(actor, Right.APPROVE_CODE, [tool.category.name])
    if why := why_not_release(tool):
        raise ChangeRefused("tool", why, code="conflict")
    if tool.current_version and (why := why_not_approve(actor, tool, tool.current_version)):
        raise ChangeForbidden("tool", why)
    Tool.objects.filter(pk=tool.pk).update(**RELEASED)
    after = {"version": tool.current_version.number if tool.current_version else None}
    record("tool.release", tool, actor=actor, before={"quarantine": tool.quarantine}, after=after)
    touch_registry(tool.organisation_id)


@configuration_write("version")
def withdraw_version(version: ToolVersion, *, actor: Membership) -> ToolVersion:
    """Take a version that waits back to a draft: its author, or the right `catalogue` for the tool's category. Raises
    PermissionDenied for others; ChangeRefused for a version that does not wait."""
    version, tool = _fresh(version)
    is_author = version.created_by is not None and version.created_by.user_id == actor.user_id
    if not is_author:
        require(actor, Right.CATALOGUE, [tool.category.name])
    _check_waits(version)
    _end(version, VersionStatus.DRAFT, "", actor)
    ToolVersion.objects.filter(pk=version.pk).update(decided_by=None, decided_at=None)
    record("tool.version_withdraw", tool, actor=actor, after={"version": version.number})
    version.refresh_from_db()
    return version


def _fresh(version: ToolVersion) -> tuple[ToolVersion, Tool]:
    """Return the version as it is now, and its tool. One query."""
    found = ToolVersion.objects.select_related(
        "tool__category", "tool__current_version", "tool__made_by_agent", "created_by__user", "decided_by__user"
    ).get(pk=version.pk)
    return found, found.tool


def _check_waits(version: ToolVersion) -> None:
    if version.status != VersionStatus.PENDING:
        raise ChangeRefused("version", decided_already(version), code="conflict")


def _end(version: ToolVersion, status: VersionStatus, reason: str, actor: Membership) -> None:
    """End the wait of a version by one conditional UPDATE. Raises ChangeRefused for the second who decides."""
    waiting = ToolVersion.objects.filter(pk=version.pk, status=VersionStatus.PENDING)
    if not waiting.update(status=status, status_reason=reason, decided_by=actor, decided_at=Now()):
        raise ChangeRefused("version", decided_already(_fresh(version)[0]), code="conflict")


def decided_already(version: ToolVersion | HelperVersion) -> str:
    """Return why it does not wait any more."""
    if version.status == VersionStatus.DRAFT:
        return f"Version {version.number} is a draft: it was not submitted, or was taken back."
    verb = "rejected" if version.status == VersionStatus.REJECTED else "approved"
    return f"Version {version.number} was {verb} already, by {version.decided_by or 'toolhub'}."


def _newer_waiting(version: ToolVersion) -> bool:
    newer = ToolVersion.objects.filter(tool_id=version.tool_id, number__gt=version.number)
    return newer.filter(status=VersionStatus.PENDING).exists()


def _given_to_its_agent(tool: Tool) -> str:
    """Make the tool one of the agent's own that made it, once. Returns the agent's slug, "" where nothing changed."""
    agent = tool.made_by_agent
    if agent is None or ToolVersion.objects.filter(tool=tool, status=VersionStatus.RETIRED).exists():
        return ""
    last = AgentTool.objects.filter(agent=agent).order_by("-position").values_list("position", flat=True).first() or 0
    _, is_new = AgentTool.objects.get_or_create(
        organisation_id=tool.organisation_id, agent=agent, tool=tool, defaults={"position": last + 1}
    )
    return agent.slug if is_new else ""


def reason_line(text: str, *, is_needed: str = "", most: int = MAX_REASON) -> str:
    """Return the reason in one line. Raises ChangeRefused where it is too long, or missing; `is_needed` says then why
    it is needed."""
    line = storable(" ".join(text.split()))
    if is_needed and not line:
        raise ChangeRefused("reason", is_needed)
    if len(line) > most:
        raise ChangeRefused("reason", f"Keep the reason under {most} characters.")
    return line
