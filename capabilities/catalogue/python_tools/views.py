"""The editor of Python tools: check, try, save as a draft, submit for approval; and its saved tests."""

from __future__ import annotations

from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils.safestring import SafeString
from django.views.decorators.http import require_http_methods, require_POST

from capabilities.catalogue.python_tools.checks import Checked, check_content, run_tests
from capabilities.catalogue.python_tools.forms import PythonToolForm, ToolTestForm, initial_of
from capabilities.catalogue.python_tools.helper_modules.queries import numbers_in_force
from capabilities.catalogue.python_tools.queries import (
    category_named,
    newest_version,
    python_tool_or_404,
    test_or_404,
    tests_of,
)
from capabilities.catalogue.python_tools.writes import (
    SavedVersion,
    delete_test,
    let_agents_make_tools,
    note_outcomes,
    save_checked,
    save_test,
)
from capabilities.catalogue.tools.writes import definition_of
from capabilities.common.pages import refused, show_refusal, status_of
from capabilities.common.refused import ChangeRefused
from capabilities.common.visible import numbered_lines
from capabilities.models import Tool, VersionStatus
from toolhub.bounded_json import load_json
from toolhub.tenants.access import MemberRequest, check_right, member_or_404
from toolhub.tenants.models import Membership, Right
from toolhub.tenants.pages import signed_in


@require_http_methods(["GET", "POST"])
@signed_in
def tool_python_create(request: MemberRequest, org: str) -> HttpResponse:
    """Add a tool; `do` of the form sent: `check` saves nothing, `draft` and `submit` save a version."""
    member = member_or_404(request, right=Right.CATALOGUE, category=None)
    return _editor(request, member, None)


@require_http_methods(["GET", "POST"])
@signed_in
def tool_python_update(request: MemberRequest, org: str, name: str) -> HttpResponse:
    """Change a tool, as `tool_python_create`: its next version is saved. The form begins with the newest one."""
    member = member_or_404(request, right=Right.CATALOGUE, category=None)
    tool = python_tool_or_404(name)
    check_right(member, Right.CATALOGUE, tool.category.name)
    return _editor(request, member, tool)


def _editor(request: MemberRequest, member: Membership, tool: Tool | None) -> HttpResponse:
    if request.method != "POST":
        modules = numbers_in_force([request.GET["module"][:64]]) if "module" in request.GET else {}
        initial = initial_of(newest_version(tool) if tool else None, modules)
        return _page(request, PythonToolForm(initial=initial, tool=tool), tool, None)
    form = PythonToolForm(request.POST, tool=tool)
    checked = None
    if form.is_valid():
        try:
            checked = check_content(
                form.content(tool).definition(), form.cleaned_data["example"], member.organisation_id
            )
            wanted = request.POST.get("do", "check")
            if wanted == "submit" and checked.blocks:
                form.add_error("code", "It cannot be submitted with these problems. A draft can be saved.")
            elif wanted in ("draft", "submit"):
                category = tool.category if tool else category_named(form.cleaned_data["category"])
                saved = save_checked(tool, category, checked, submit=wanted == "submit", actor=member)
                return _saved(request, member, saved, checked.definition.name, submit=wanted == "submit")
        except ChangeRefused as error:
            show_refusal(form, ChangeRefused(error.field.removeprefix("implementation."), str(error)))
    return _page(request, form, tool, checked)


def _lines(checked: Checked) -> list[tuple[int, SafeString, bool]]:
    """The code with its numbers, and whether a problem is of that line; nothing where none is."""
    wrong = {each.line for each in checked.problems if each.line}
    return numbered_lines(str(checked.definition.implementation["code"]), wrong)


def _saved(request: MemberRequest, member: Membership, saved: SavedVersion, name: str, *, submit: bool) -> HttpResponse:
    version = saved.version
    if version.status == VersionStatus.PENDING:
        message = f"Version {version.number} of {name} waits for approval by somebody else."
    elif version.status == VersionStatus.APPROVED:
        message = f"Version {version.number} of {name} is in force."
    else:
        message = f"Version {version.number} of {name} is saved as a draft."
    if submit and saved.failed:
        messages.warning(request, f"{message} It cannot be submitted while tests fail: {', '.join(saved.failed[:5])}.")
    else:
        messages.success(request, message)
    return redirect("tool_python_update", member.organisation.slug, name)


def _page(
    request: MemberRequest,
    form: PythonToolForm,
    tool: Tool | None,
    checked: Checked | None,
    test_form: ToolTestForm | None = None,
) -> HttpResponse:
    wrong = status_of(form) if test_form is None else status_of(test_form)
    context = {
        "form": form,
        "tool": tool,
        "checked": checked,
        "lines": _lines(checked) if checked else [],
        "tests": tests_of(tool) if tool else [],
        "test_form": test_form or ToolTestForm(),
        "newest": newest_version(tool) if tool else None,
    }
    return render(request, "capabilities/catalogue/python_tool_form.html", context, status=wrong)


@require_POST
@signed_in
def tool_test_save(request: MemberRequest, org: str, name: str) -> HttpResponse:
    """Add a test, and run it against the newest version."""
    member = member_or_404(request, right=Right.CATALOGUE, category=None)
    tool = python_tool_or_404(name)
    check_right(member, Right.CATALOGUE, tool.category.name)
    form = ToolTestForm(request.POST)
    if form.is_valid():
        data = form.cleaned_data
        try:
            case = save_test(
                tool,
                data["name"],
                load_json(data["arguments"]),
                expected=data["expected"],
                expects_error=bool(data["expects_error"]),
                actor=member,
            )
        except ChangeRefused as error:
            show_refusal(form, error)
        else:
            version = newest_version(tool)
            if version is not None:
                outcomes = run_tests(definition_of(tool, version), [case], member.organisation_id)
                note_outcomes(outcomes, version)
            messages.success(request, f"The test {case.name} is saved.")
            return redirect("tool_python_update", org, name)
    return _page(request, PythonToolForm(initial=initial_of(newest_version(tool)), tool=tool), tool, None, form)


@require_POST
@signed_in
def tool_test_delete(request: MemberRequest, org: str, name: str, test_id: UUID) -> HttpResponse:
    member = member_or_404(request, right=Right.CATALOGUE, category=None)
    tool = python_tool_or_404(name)
    check_right(member, Right.CATALOGUE, tool.category.name)
    case = test_or_404(tool, test_id)
    title = case.name
    delete_test(case, actor=member)
    messages.success(request, f"The test {title} is deleted.")
    return redirect("tool_python_update", org, name)


@require_POST
@signed_in
def tool_agents_switch(request: MemberRequest, org: str) -> HttpResponse:
    """Set whether agents of the organisation may make tools (`allowed=1`)."""
    member = member_or_404(request, right=Right.APPROVE_CODE)
    allowed = request.POST.get("allowed") == "1"
    try:
        let_agents_make_tools(allowed, actor=member)
    except ChangeRefused as error:
        return refused(request, error, "approval_versions", org)
    message = (
        "Agents may make tools now. Each waits here for approval." if allowed else "Agents make no tools any more."
    )
    messages.success(request, message)
    return redirect("approval_versions", org)
