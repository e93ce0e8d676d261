"""The audited writes of helper modules. None changes a tool: each keeps the version that it was approved with."""

from __future__ import annotations

import keyword
import re
import sys
from typing import Any

from django.db.models import Max
from django.db.models.functions import Now

from capabilities.catalogue.python_tools.helper_modules.checks import CheckedModule
from capabilities.catalogue.versions.rules import status_of_new, why_own
from capabilities.catalogue.versions.writes import NEEDS_REASON, decided_already, reason_line
from capabilities.common.refused import ChangeRefused
from capabilities.common.rights import ChangeForbidden, configuration_write, require
from capabilities.common.text import storable
from capabilities.contract.wire import sha256_hex
from capabilities.models import HelperModule, HelperUse, HelperVersion, ToolKind, VersionStatus
from capabilities.running.sandbox import CONTEXT
from toolhub.tenants.audit.writes import record
from toolhub.tenants.models import Membership, Right

NAME = re.compile(r"[a-z][a-z0-9_]{0,63}\Z")
#: Names that stand for something else in our addresses, or where the code runs.
RESERVED_NAMES = frozenset({"new", "tool", CONTEXT})
MAX_DESCRIPTION = 300
#: Modules of one organisation.
MAX_MODULES = 10_000
#: A version that stays what the module's newest content is.
_GOES_ON = (VersionStatus.DRAFT, VersionStatus.PENDING, VersionStatus.APPROVED)
#: Tools that a refusal names.
NAMED = 3


def check_name(name: str) -> None:
    """Raise ChangeRefused for what Python cannot import, and for what is another thing there."""
    if not NAME.match(name) or keyword.iskeyword(name) or keyword.issoftkeyword(name):
        raise ChangeRefused("name", "A module is named as Python names one: lower-case letters, digits and _.")
    if name in RESERVED_NAMES:
        raise ChangeRefused("name", f"The name {name} is taken by the service itself.")
    if name in sys.stdlib_module_names:
        raise ChangeRefused("name", f"Python has a module {name} of its own: choose another name.")


@configuration_write("name")
def create_module(name: str, description: str, checked: CheckedModule, *, actor: Membership) -> HelperVersion:
    """Add a module with its first version, which waits for somebody else's approval. Needs the right `catalogue` for
    every category. Raises ChangeRefused for a name that is taken, and for code that no runtime takes."""
    require(actor, Right.CATALOGUE)
    check_name(name)
    if HelperModule.objects.filter(name=name).exists():
        raise ChangeRefused("name", f"There is a module {name} already.", code="taken")
    if HelperModule.objects.count() >= MAX_MODULES:
        raise ChangeRefused("name", f"There are {MAX_MODULES:,} modules already.")
    module = HelperModule(organisation_id=actor.organisation_id, name=name, description=_description(description))
    module.save()
    version = _written(module, 1, checked, actor)
    after = {"description": module.description, "version": 1, "sha256": version.sha256, "status": version.status}
    record("python_module.create", module, actor=actor, after=after)
    return version


@configuration_write("code")
def update_module(
    module: HelperModule, checked: CheckedModule, *, description: str | None = None, actor: Membership
) -> HelperVersion:
    """Write the module's next version, which waits for somebody else's approval; return the newest one where the code
    is the same.

    A `description`, which only people read, changes at once. Needs the right `catalogue` for every category. Raises
    PermissionDenied without it; ChangeRefused for a description that is not taken.
    """
    require(actor, Right.CATALOGUE)
    if description is not None:
        describe_module(module, description, actor=actor)
    newest = HelperVersion.objects.filter(module=module).order_by("-number").first()
    if newest is not None and newest.code == checked.code and newest.status in _GOES_ON:
        return newest
    last = HelperVersion.objects.filter(module=module).aggregate(last=Max("number"))["last"] or 0
    version = _written(module, last + 1, checked, actor)
    after = {"version": version.number, "sha256": version.sha256, "status": version.status}
    before = {"version": newest.number, "sha256": newest.sha256} if newest else {}
    record("python_module.update", module, actor=actor, before=before, after=after)
    return version


def _written(module: HelperModule, number: int, checked: CheckedModule, actor: Membership) -> HelperVersion:
    """Write a version of the module. Raises ChangeRefused for code that no runtime can run."""
    if checked.refusal:
        raise ChangeRefused("code", checked.refusal)
    version = HelperVersion(
        organisation_id=module.organisation_id,
        module=module,
        number=number,
        code=checked.code,
        sha256=sha256_hex(checked.code),
        runtimes=checked.runtimes,
        status=status_of_new(ToolKind.PYTHON, actor, author=None, changes_code=True),
        created_by=actor,
    )
    version.save()
    return version


@configuration_write("description")
def describe_module(module: HelperModule, description: str, *, actor: Membership) -> HelperModule:
    """Change what people read of the module. Needs the right `catalogue` for every category. Raises PermissionDenied
    without it; ChangeRefused for a text that is not taken."""
    require(actor, Right.CATALOGUE)
    module = HelperModule.objects.get(pk=module.pk)
    text = _description(description)
    if text != module.description:
        before, module.description = {"description": module.description}, text
        module.save(update_fields=["description"])
        record("python_module.describe", module, actor=actor, before=before, after={"description": text})
    return module


def _description(text: str) -> str:
    line = storable(" ".join(text.split()))
    if len(line) > MAX_DESCRIPTION:
        raise ChangeRefused("description", f"Keep the description under {MAX_DESCRIPTION} characters.")
    return line


@configuration_write("version")
def decide_module(version: HelperVersion, *, approve: bool, reason: str = "", actor: Membership) -> HelperVersion:
    """Put a version that waits in force, or reject it with a reason. Returns it as it is now.

    Needs the right `approve_code` for every category; nobody approves code of their own (ChangeForbidden). Of two who
    decide at once, one does; the other gets a ChangeRefused `conflict` that says who did. Raises PermissionDenied
    without the right.
    """
    require(actor, Right.APPROVE_CODE)
    version = _fresh(version)
    module = version.module
    _check_waits(version)
    if approve and (why := why_own(actor, version.created_by)):
        raise ChangeForbidden("version", why)
    text = reason_line(reason, is_needed="" if approve else NEEDS_REASON)
    status = VersionStatus.APPROVED if approve else VersionStatus.REJECTED
    waiting = HelperVersion.objects.filter(pk=version.pk, status=VersionStatus.PENDING)
    if not waiting.update(status=status, status_reason=text, decided_by=actor, decided_at=Now()):
        _check_waits(_fresh(version))
    current = module.current_version
    before = {"version": current.number if current else None}
    after: dict[str, Any] = {"version": version.number, "sha256": version.sha256}
    if approve:
        _make_current(module, version)
    if text:
        after["reason"] = text
    verb = "approve" if approve else "reject"
    record(f"python_module.version_{verb}", module, actor=actor, before=before, after=after)
    return _fresh(version)


@configuration_write("number")
def roll_back_module(module: HelperModule, number: int, *, reason: str = "", actor: Membership) -> HelperVersion:
    """Put an earlier version that was in force before back in force, and retire the current one. Returns it.

    Needs the right `approve_code` for every category. Raises ChangeRefused for a version that never was in force.
    """
    require(actor, Right.APPROVE_CODE)
    module = HelperModule.objects.select_related("current_version").get(pk=module.pk)
    target = HelperVersion.objects.filter(module=module, number=number).first()
    if target is None:
        raise ChangeRefused("number", f"{module} has no version {number}.", code="unknown")
    current = module.current_version
    if current is not None and current.pk == target.pk:
        raise ChangeRefused("number", f"Version {number} is in force already.", code="conflict")
    text = reason_line(reason)
    retired = HelperVersion.objects.filter(pk=target.pk, status=VersionStatus.RETIRED)
    if not retired.update(status=VersionStatus.APPROVED, status_reason=text, decided_by=actor, decided_at=Now()):
        shown = target.get_status_display().lower()
        raise ChangeRefused("number", f"Version {number} was never in force: it is {shown}.", code="conflict")
    _make_current(module, target, f"Rolled back to version {number}.")
    before = {"version": current.number if current else None}
    after = {"version": number, "sha256": target.sha256} | ({"reason": text} if text else {})
    record("python_module.roll_back", module, actor=actor, before=before, after=after)
    return _fresh(target)


@configuration_write("module")
def retire_module(module: HelperModule, *, reason: str = "", actor: Membership) -> HelperModule:
    """Take the module out of use: no tool comes into force with it any more. Tools that are in force with it go on.

    Needs the right `catalogue` for every category. Raises ChangeRefused where nothing is in force. A roll-back puts a
    version in force again.
    """
    require(actor, Right.CATALOGUE)
    module = HelperModule.objects.select_related("current_version").get(pk=module.pk)
    current = module.current_version
    if current is None:
        raise ChangeRefused("module", f"{module} has no version in force.", code="conflict")
    text = reason_line(reason)
    HelperVersion.objects.filter(pk=current.pk).update(status=VersionStatus.RETIRED, status_reason=text)
    module.current_version = None
    module.save(update_fields=["current_version"])
    after = {"reason": text} if text else {}
    record("python_module.retire", module, actor=actor, before={"version": current.number}, after=after)
    return module


@configuration_write("module")
def delete_module(module: HelperModule, *, actor: Membership) -> None:
    """Remove a module that nothing uses, with its versions; its name is free again.

    Needs the right `catalogue` for every category. Raises ChangeRefused `in_use`, with the tools, while a version of a
    tool names it that is in force, waits, is a draft, or was in force and can come back.
    """
    require(actor, Right.CATALOGUE)
    module = HelperModule.objects.get(pk=module.pk)
    if why := why_not_delete(module):
        raise ChangeRefused("module", why, code="in_use")
    numbers = list(HelperVersion.objects.filter(module=module).order_by("number").values_list("number", "sha256"))
    before = {"description": module.description, "versions": [f"{number} {sha256}" for number, sha256 in numbers[-20:]]}
    record("python_module.delete", module, actor=actor, before=before)
    HelperModule.objects.filter(pk=module.pk).update(current_version=None)
    HelperModule.objects.get(pk=module.pk).delete()


def why_not_delete(module: HelperModule) -> str:
    """Return which tools keep it from being removed, as a sentence; empty for none. At most two queries."""
    uses = HelperUse.objects.filter(helper_version__module=module)
    for statuses, begin, end in (
        (_GOES_ON, "It is used by", "Give them a version without it first."),
        ((VersionStatus.RETIRED,), "Earlier versions use it, which can come back, of", "Take it out of use instead."),
    ):
        names = uses.filter(tool_version__status__in=statuses).order_by("tool_version__tool__name")
        found = list(names.values_list("tool_version__tool__name", flat=True).distinct()[: NAMED + 1])
        if found:
            more = " and others" if len(found) > NAMED else ""
            return f"{begin} {', '.join(found[:NAMED])}{more}. {end}"
    return ""


def _make_current(module: HelperModule, version: HelperVersion, reason: str | None = None) -> None:
    """Put an approved version in force, and retire the one that was."""
    if module.current_version_id is not None:
        changes = {"status": VersionStatus.RETIRED} | ({} if reason is None else {"status_reason": reason})
        HelperVersion.objects.filter(pk=module.current_version_id).update(**changes)
    HelperModule.objects.filter(pk=module.pk).update(current_version=version)


def _fresh(version: HelperVersion) -> HelperVersion:
    """The version as it is now, with its module. One query."""
    return HelperVersion.objects.select_related("module__current_version", "created_by__user", "decided_by__user").get(
        pk=version.pk
    )


def _check_waits(version: HelperVersion) -> None:
    if version.status != VersionStatus.PENDING:
        raise ChangeRefused("version", decided_already(version), code="conflict")
