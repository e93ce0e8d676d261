"""The pages of helper modules: the list, one module, its form, its versions, and who uses which."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from capabilities.catalogue.python_tools.helper_modules.checks import CheckedModule, check_module
from capabilities.catalogue.python_tools.helper_modules.forms import ModuleForm, ModulesAddress, initial_of
from capabilities.catalogue.python_tools.helper_modules.queries import (
    SHOWN,
    STATE_FILTERS,
    difference_between,
    module_numbers,
    module_or_404,
    modules_page,
    newer_waiting,
    newest_version,
    tools_behind,
    uses_page,
    version_or_404,
    versions_page,
)
from capabilities.catalogue.python_tools.helper_modules.writes import (
    create_module,
    decide_module,
    delete_module,
    retire_module,
    roll_back_module,
    update_module,
    why_not_delete,
)
from capabilities.catalogue.versions.forms import ReasonForm
from capabilities.catalogue.versions.rules import check_changes_versions, may_decide, why_own
from capabilities.common.pages import refused, show_refusal, status_of
from capabilities.common.refused import ChangeRefused
from capabilities.common.visible import marked, numbered_lines
from capabilities.models import HelperModule, HelperVersion, VersionStatus
from toolhub.tenants.access import MemberRequest, member_or_404
from toolhub.tenants.list_address import ListAddress
from toolhub.tenants.models import EVERY_CATEGORY, Membership, Right
from toolhub.tenants.pages import signed_in

FOLDER = "capabilities/catalogue/python_tools/helper_modules"


def _reader(request: MemberRequest) -> Membership:
    """Return the member who sees modules: one that writes or approves code, if only for one category."""
    member = member_or_404(request)
    check_changes_versions(member)
    return member


@require_GET
@signed_in
def module_list(request: MemberRequest, org: str) -> HttpResponse:
    """List the modules by name."""
    member = _reader(request)
    address = ModulesAddress(request.GET)
    filters = address.filters
    context = {
        **address.context(modules_page(q=filters["q"], state=filters["state"], **address.place)),
        "numbers": module_numbers(),
        "states": STATE_FILTERS,
        "may_save": member.has_right(Right.CATALOGUE),
    }
    return render(request, f"{FOLDER}/module_list.html", context)


@require_http_methods(["GET", "POST"])
@signed_in
def module_create(request: MemberRequest, org: str) -> HttpResponse:
    """Add a module; `do=check` of the form sent saves nothing, `submit` saves a version that waits."""
    return _editor(request, member_or_404(request, right=Right.CATALOGUE), None)


@require_http_methods(["GET", "POST"])
@signed_in
def module_update(request: MemberRequest, org: str, name: str) -> HttpResponse:
    """Change a module, as `module_create`: a form sent saves its next version. The form begins with the newest one."""
    member = member_or_404(request, right=Right.CATALOGUE)
    return _editor(request, member, module_or_404(name))


def _editor(request: MemberRequest, member: Membership, module: HelperModule | None) -> HttpResponse:
    newest = newest_version(module) if module else None
    if request.method != "POST":
        return _form_page(request, ModuleForm(initial=initial_of(module, newest), module=module), module, newest)
    form, checked = ModuleForm(request.POST, module=module), None
    if form.is_valid():
        data = form.cleaned_data
        try:
            checked = check_module(module.name if module else data["name"], data["code"], member.organisation_id)
            is_submitted = request.POST.get("do", "check") == "submit"
            if is_submitted and checked.refusal:
                form.add_error("code", "It cannot be saved with these problems: no runtime can load it.")
            elif is_submitted:
                if module is None:
                    version = create_module(data["name"], data["description"], checked, actor=member)
                else:
                    version = update_module(module, checked, description=data["description"], actor=member)
                messages.success(request, _saved(version))
                return redirect("module_detail", member.organisation.slug, version.module.name)
        except ChangeRefused as error:
            show_refusal(form, error)
    return _form_page(request, form, module, newest, checked)


def _saved(version: HelperVersion) -> str:
    module, number = version.module, version.number
    if version.status == VersionStatus.PENDING:
        return f"Version {number} of {module} waits for approval by somebody else."
    return f"{module} is saved. Its code is that of version {number}."


def _form_page(
    request: MemberRequest,
    form: ModuleForm,
    module: HelperModule | None,
    newest: HelperVersion | None,
    checked: CheckedModule | None = None,
) -> HttpResponse:
    context: dict[str, Any] = {"form": form, "module": module, "newest": newest, "checked": checked}
    if checked is not None:
        wrong = {each.line for found in checked.problems.values() for each in found if each.line}
        context["lines"] = numbered_lines(checked.code, wrong)
    return render(request, f"{FOLDER}/module_form.html", context, status=status_of(form))


@require_GET
@signed_in
def module_detail(request: MemberRequest, org: str, name: str) -> HttpResponse:
    """Show one module: its code in force, who uses which version, its versions."""
    member = _reader(request)
    module = module_or_404(name)
    may_save = member.has_right(Right.CATALOGUE)
    context = {
        "module": module,
        "code": marked(module.current_version.code) if module.current_version else "",
        "uses": uses_page(module, limit=SHOWN),
        "behind": tools_behind(module),
        "versions": versions_page(module, limit=SHOWN),
        "may_save": may_save,
        "why_not_delete": why_not_delete(module) if may_save else "",
    }
    return render(request, f"{FOLDER}/module_detail.html", context)


@require_GET
@signed_in
def module_versions(request: MemberRequest, org: str, name: str) -> HttpResponse:
    """List the versions of a module, the newest first."""
    _reader(request)
    module = module_or_404(name)
    address = ListAddress(request.GET)
    context = {"module": module, **address.context(versions_page(module, **address.place))}
    return render(request, f"{FOLDER}/module_versions.html", context)


@require_GET
@signed_in
def module_uses(request: MemberRequest, org: str, name: str) -> HttpResponse:
    """List the tools that import a module, and which version of it."""
    _reader(request)
    module = module_or_404(name)
    address = ListAddress(request.GET)
    context = {"module": module, **address.context(uses_page(module, **address.place))}
    return render(request, f"{FOLDER}/module_uses.html", context)


@require_GET
@signed_in
def module_version(request: MemberRequest, org: str, name: str, number: int) -> HttpResponse:
    """Show one version, beside what differs from the one in force."""
    member = _reader(request)
    return _version_page(request, member, version_or_404(name, number), ReasonForm())


def _version_page(
    request: MemberRequest, member: Membership, version: HelperVersion, form: ReasonForm, status: int = 200
) -> HttpResponse:
    module = version.module
    current = module.current_version
    against = current if current is not None and current.pk != version.pk else None
    decides = may_decide(member, EVERY_CATEGORY)
    waits = version.status == VersionStatus.PENDING
    context = {
        "module": module,
        "version": version,
        "code": marked(version.code),
        "difference": difference_between(against, version) if against else None,
        "form": form,
        "may_decide": waits and decides,
        "why_not": why_own(member, version.created_by) if waits and decides else "",
        "newer": newer_waiting(version) if waits else [],
        "is_older": against is not None and against.number > version.number,
        "may_roll_back": version.status == VersionStatus.RETIRED and decides,
        "behind": module_or_404(module.name).tool_count if waits else 0,  # type: ignore[attr-defined]
    }
    return render(request, f"{FOLDER}/module_version.html", context, status=status)


@require_GET
@signed_in
def module_version_difference(request: MemberRequest, org: str, name: str, first: int, second: int) -> HttpResponse:
    """Show the difference between any two versions of a module."""
    _reader(request)
    one, other = version_or_404(name, first), version_or_404(name, second)
    context = {"module": one.module, "difference": difference_between(one, other)}
    return render(request, f"{FOLDER}/module_version_difference.html", context)


@require_POST
@signed_in
def module_version_decide(request: MemberRequest, org: str, name: str, number: int) -> HttpResponse:
    """Approve (`decision=approve`) or reject a version that waits."""
    member = member_or_404(request, right=Right.APPROVE_CODE)
    version = version_or_404(name, number)
    form = ReasonForm(request.POST)
    approve = request.POST.get("decision") == "approve"
    if form.is_valid():
        try:
            decide_module(version, approve=approve, reason=form.cleaned_data["reason"], actor=member)
        except ChangeRefused as error:
            show_refusal(form, error)
        else:
            messages.success(
                request,
                f"Version {number} of {name} is in force. Tools keep the version that they were approved with."
                if approve
                else f"Version {number} of {name} is rejected. Its author reads the reason.",
            )
            return redirect("module_version", org, name, number)
    return _version_page(request, member, version_or_404(name, number), form, status_of(form))


@require_POST
@signed_in
def module_version_rollback(request: MemberRequest, org: str, name: str, number: int) -> HttpResponse:
    """Put an earlier version in force again."""
    member = member_or_404(request, right=Right.APPROVE_CODE)
    module = version_or_404(name, number).module

    def change() -> str:
        roll_back_module(module, number, reason=request.POST.get("reason", ""), actor=member)
        return f"Version {number} of {name} is in force again. Tools keep the version that they were approved with."

    return _changed(request, change, "module_version", org, name, number)


@require_POST
@signed_in
def module_retire(request: MemberRequest, org: str, name: str) -> HttpResponse:
    """Take the module out of use."""
    member = member_or_404(request, right=Right.CATALOGUE)
    module = module_or_404(name)

    def change() -> str:
        retire_module(module, reason=request.POST.get("reason", ""), actor=member)
        return f"{name} is out of use. Tools that are in force with it go on."

    return _changed(request, change, "module_detail", org, name)


@require_POST
@signed_in
def module_delete(request: MemberRequest, org: str, name: str) -> HttpResponse:
    """Remove a module that nothing uses."""
    member = member_or_404(request, right=Right.CATALOGUE)
    module = module_or_404(name)
    try:
        delete_module(module, actor=member)
    except ChangeRefused as error:
        return refused(request, error, "module_detail", org, name)
    messages.success(request, f"{name} is removed.")
    return redirect("module_list", org)


def _changed(request: MemberRequest, change: Callable[[], str], view: str, *args: object) -> HttpResponse:
    try:
        messages.success(request, change())
    except ChangeRefused as error:
        return refused(request, error, view, *args)
    return redirect(view, *args)
