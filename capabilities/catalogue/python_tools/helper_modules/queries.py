"""Helper modules, as pages and the API show them: lists, versions, who uses which, and what differs between two."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, IntegerField, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.http import Http404

from capabilities.catalogue.versions.queries import Lines, modules_waiting_for, shown_lines, with_state
from capabilities.common import confined
from capabilities.contract.context import ToolError
from capabilities.contract.versions import DiffLine
from capabilities.models import HelperModule, HelperUse, HelperVersion, Tool, ToolVersion, VersionStatus
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.keyset import PAGE, Keyset, Page

#: Versions and uses that a module's own page shows.
SHOWN = 10
#: Modules that the page of approvals shows.
WAITING_SHOWN = 50
#: Versions of a tool that count as using a module now: those in force, and those that wait.
USING = (VersionStatus.APPROVED, VersionStatus.PENDING)
STATE_FILTERS = {"in_force": "In force", "waiting": "Waiting for approval", "out": "Not in force"}
#: Columns of a tool's version that no list of uses reads.
_LONG = ("wire", "parameters", "description", "implementation", "instructions")


def shown_modules() -> QuerySet[HelperModule]:
    """Return the modules with the version in force, and with `waiting_number` (the newest version that waits, or None)
    and `tool_count` (tools with a version in force or waiting that imports it)."""
    waiting = HelperVersion.objects.filter(module=OuterRef("pk"), status=VersionStatus.PENDING).order_by("-number")
    uses = HelperUse.objects.filter(helper_version__module=OuterRef("pk"), tool_version__status__in=USING).order_by()
    counted = uses.values("helper_version__module").annotate(count=Count("tool_version__tool", distinct=True))
    return (
        HelperModule.objects.select_related("current_version")
        .defer("current_version__code")
        .annotate(
            waiting_number=Subquery(waiting.values("number")[:1]),
            tool_count=Coalesce(Subquery(counted.values("count"), output_field=IntegerField()), 0),
        )
    )


def filtered_modules(*, q: str = "", state: str = "") -> QuerySet[HelperModule]:
    """Return the modules with these words in name or description, in this state of STATE_FILTERS."""
    modules = shown_modules()
    if q:
        modules = modules.filter(Q(name__icontains=q) | Q(description__icontains=q))
    if state == "waiting":
        waiting = HelperVersion.objects.filter(status=VersionStatus.PENDING)
        return modules.filter(pk__in=waiting.values("module"))
    return modules.filter(current_version__isnull=state == "out") if state in STATE_FILTERS else modules


def modules_page(*, q: str = "", state: str = "", after: str = "", before: str = "") -> Page[HelperModule]:
    """Return one page of modules by name. One query."""
    return Keyset(filtered_modules(q=q, state=state), ("name",)).page(after, before)


@dataclass(frozen=True)
class ModuleNumbers:
    """Number of modules in all, and of those with a version that waits."""

    modules: int
    waiting: int


def module_numbers() -> ModuleNumbers:
    """Count the modules, and those with a version that waits. Two queries."""
    waiting = HelperVersion.objects.filter(status=VersionStatus.PENDING)
    counted = waiting.aggregate(count=Count("module", distinct=True))["count"]
    return ModuleNumbers(HelperModule.objects.count(), counted)


def module_or_404(name: str) -> HelperModule:
    """Return the module of this name as `shown_modules` does, with the code in force. Raises Http404. One query."""
    module = shown_modules().defer(None).filter(name=name).first()
    if module is None:
        raise Http404("No such module.")
    return module


def versions_of(module: HelperModule) -> QuerySet[HelperVersion]:
    """Return the module's versions without their code, with who wrote them and decided."""
    rows = HelperVersion.objects.filter(module=module).select_related("created_by__user", "decided_by__user")
    return rows.defer("code")


def versions_page(module: HelperModule, *, after: str = "", before: str = "", limit: int = PAGE) -> Page[HelperVersion]:
    """Return one page of versions, the newest first. One query."""
    return Keyset(versions_of(module), ("-number",)).page(after, before, limit=limit).of(with_state)


def version_or_404(name: str, number: int) -> HelperVersion:
    """Return one version whole, with its module. Raises Http404. One query."""
    rows = HelperVersion.objects.select_related("module__current_version", "created_by__user", "decided_by__user")
    version = rows.filter(module__name=name, number=number).first()
    if version is None:
        raise Http404("No such version.")
    return with_state(version)


def newest_version(module: HelperModule) -> HelperVersion | None:
    """Return the version that an edit begins with: the newest one that was not rejected. One query."""
    rows = HelperVersion.objects.filter(module=module).exclude(status=VersionStatus.REJECTED)
    return rows.order_by("-number").first()


def newer_waiting(version: HelperVersion) -> list[int]:
    """Return the numbers of newer versions that wait. One query."""
    rows = HelperVersion.objects.filter(module_id=version.module_id, status=VersionStatus.PENDING)
    return sorted(rows.filter(number__gt=version.number).values_list("number", flat=True)[:50])


# -- Who uses which ----------------------------------------------------------------------------------------------------


def uses_of(module: HelperModule) -> QuerySet[HelperUse]:
    """Return the versions of tools, in force or waiting, that import a version of it."""
    rows = HelperUse.objects.filter(helper_version__module=module, tool_version__status__in=USING)
    return rows.select_related("tool_version__tool__category", "helper_version").defer(
        "helper_version__code", *(f"tool_version__{name}" for name in _LONG)
    )


def uses_page(module: HelperModule, *, after: str = "", before: str = "", limit: int = PAGE) -> Page[HelperUse]:
    """Return one page of uses, by the tool's name. One query."""
    order = ("tool_version__tool__name", "tool_version__number")
    return Keyset(uses_of(module), order).page(after, before, limit=limit).of(_with_tool_state)


def _with_tool_state(use: HelperUse) -> HelperUse:
    with_state(use.tool_version)
    return use


def modules_of(version: ToolVersion | None) -> Sequence[HelperVersion]:
    """Return the versions of modules that this version of a tool imports, each with its module and the one in force
    there. One query, none for a version that imports none."""
    if version is None or not version.implementation.get("helpers"):
        return ()
    rows = HelperVersion.objects.filter(uses__tool_version=version).select_related("module__current_version")
    return list(rows.defer("code", "module__current_version__code").order_by("module__name"))


def numbers_in_force(names: Collection[str]) -> dict[str, int]:
    """Return the number in force by the name of each of these modules that has one. One query, none for no names."""
    if not names:
        return {}
    rows = HelperModule.objects.filter(name__in=list(names), current_version__isnull=False)
    return dict(rows.values_list("name", "current_version__number"))


def tools_behind(module: HelperModule) -> int:
    """Count the tools in force with another version of it than the one in force. One query, none where none is."""
    if module.current_version_id is None:
        return 0
    uses = HelperUse.objects.filter(helper_version__module=module).exclude(helper_version=module.current_version_id)
    return Tool.objects.filter(current_version__in=uses.values("tool_version")).count()


# -- What waits, and what differs --------------------------------------------------------------------------------------


def modules_waiting(member: Membership) -> list[HelperVersion]:
    """Return the oldest versions of modules that wait for this member, up to one more than WAITING_SHOWN. One query,
    one more for a delegated right."""
    rows = modules_waiting_for(member).select_related("module__current_version", "created_by__user")
    return list(rows.defer("code", "module__current_version__code").order_by("pk")[: WAITING_SHOWN + 1])


@dataclass(frozen=True)
class ModuleDifference:
    """Difference between two versions of a module, line by line; as the template of versions shows it."""

    first: HelperVersion
    second: HelperVersion
    lines: Sequence[Lines] = ()
    error: str = ""
    as_json: Sequence[dict[str, Any]] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.lines or self.error)


def difference_between(first: HelperVersion, second: HelperVersion) -> ModuleDifference:
    """Return the lines that differ, compared in a limited child process. No query."""
    if first.code == second.code:
        return ModuleDifference(first, second)
    asked = {"words": {}, "schema": ({}, {}), "lines": {"Code": (first.code, second.code)}}
    try:
        found = confined.run("versions", asked, first.organisation_id)["lines"]["Code"]
    except ToolError as error:
        return ModuleDifference(first, second, error=str(error))
    return ModuleDifference(first, second, [shown_lines("Code", [DiffLine(**each) for each in found])], as_json=found)
