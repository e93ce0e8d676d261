"""The editor of Python tools: check, try, save as a draft, submit for approval; and its saved tests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from capabilities.catalogue.python_tools.checks import (
    check_definition,
    complaint_about_arguments,
    problems_of,
    run_once,
    run_tests,
)
from capabilities.catalogue.python_tools.forms import PythonToolForm, ToolTestForm, initial_of
from capabilities.catalogue.python_tools.queries import newest_version, python_tool_or_404, test_or_404, tests_of
from capabilities.catalogue.python_tools.writes import (
    delete_test,
    let_agents_make_tools,
    note_outcomes,
    save_python_version,
    save_test,
)
from capabilities.catalogue.tools.writes import Definition, definition_of
from capabilities.common.pages import refused, show_refusal, status_of
from capabilities.common.refused import ChangeRefused, not_there
from capabilities.common.visible import marked
from capabilities.kinds.lines import filled_line
from capabilities.kinds.python import failure_text
from capabilities.models import Category, Tool, VersionStatus
from capabilities.sandbox import Problem
from toolhub.tenants.access import MemberRequest, check_right, member_or_404
from toolhub.tenants.models import Membership, Right
from toolhub.tenants.pages import signed_in


@dataclass(frozen=True)
class Checked:
    """What a check showed: problems by line, the code with its lines, the line for people, and one run."""

    problems: Sequence[Problem] = ()
    lines: Sequence[tuple[int, Any, bool]] = ()
    display: str = ""
    result: str = ""
    error: str = ""

    @property
    def blocks(self) -> bool:
        return any(each.blocks for each in self.problems)


@require_http_methods(["GET", "POST"])
@signed_in
def tool_python_create(request: MemberRequest, org: str) -> HttpResponse:
    """What `do` says of a form: `check` saves nothing, `draft` and `submit` save a version."""
    member = member_or_404(request, right=Right.CATALOGUE, category=None)
    return _editor(request, member, None)


@require_http_methods(["GET", "POST"])
@signed_in
def tool_python_update(request: MemberRequest, org: str, name: str) -> HttpResponse:
    """The same for the next version of a tool. The form begins with the newest one."""
    member = member_or_404(request, right=Right.CATALOGUE, category=None)
    tool = python_tool_or_404(name)
    check_right(member, Right.CATALOGUE, tool.category.name)
    return _editor(request, member, tool)


def _editor(request: MemberRequest, member: Membership, tool: Tool | None) -> HttpResponse:
    if request.method != "POST":
        initial = initial_of(newest_version(tool) if tool else None)
        return _page(request, PythonToolForm(initial=initial, tool=tool), tool, None)
    form = PythonToolForm(request.POST, tool=tool)
    checked = None
    if form.is_valid():
        definition = form.content(tool).definition()
        try:
            check_definition(definition)
            checked = _checked(definition, form.cleaned_data["example"], member)
            wanted = request.POST.get("do", "check")
            if wanted == "draft" or (wanted == "submit" and not checked.blocks):
                return _saved(request, member, tool, form, definition, submit=wanted == "submit")
            if wanted == "submit":
                form.add_error("code", "It cannot be submitted with these problems. A draft can be saved.")
        except ChangeRefused as error:
            show_refusal(form, ChangeRefused(error.field.removeprefix("implementation."), str(error)))
    return _page(request, form, tool, checked)


def _checked(definition: Definition, example: dict[str, Any] | None, member: Membership) -> Checked:
    problems = problems_of(definition, member.organisation_id)
    wrong = {each.line for each in problems if each.line}
    code = str(definition.implementation["code"])
    lines = [(number, marked(line), number in wrong) for number, line in enumerate(code.split("\n"), start=1)]
    shown = lines if wrong else []
    if example is None:
        return Checked(problems, shown)
    display = filled_line(definition.human_format, example) if definition.human_format else ""
    unfit = complaint_about_arguments(definition, example, member.organisation_id)
    if unfit or any(each.blocks for each in problems):
        return Checked(problems, shown, display, error=f"Not run: {unfit or 'the code has problems'}.")
    result = run_once(definition, example, member.organisation_id)
    if result.error is not None:
        return Checked(problems, shown, display, error=failure_text(result))
    return Checked(problems, shown, display, json.dumps(result.value, indent=2, ensure_ascii=False))


def _saved(
    request: MemberRequest,
    member: Membership,
    tool: Tool | None,
    form: PythonToolForm,
    definition: Definition,
    *,
    submit: bool,
) -> HttpResponse:
    """The tests run again with each save; a version with one that fails is kept as a draft."""
    outcomes = run_tests(definition, tests_of(tool) if tool else (), member.organisation_id)
    failed = [each.case.name for each in outcomes if not each.has_passed]
    category = tool.category if tool else _category(form.cleaned_data["category"])
    version = save_python_version(tool, category, definition, submit=submit and not failed, actor=member)
    note_outcomes(outcomes, version)
    name = definition.name
    if version.status == VersionStatus.PENDING:
        said = f"Version {version.number} of {name} waits for approval by somebody else."
    elif version.status == VersionStatus.APPROVED:
        said = f"Version {version.number} of {name} is in force."
    else:
        said = f"Version {version.number} of {name} is saved as a draft."
    if submit and failed:
        messages.warning(request, f"{said} It cannot be submitted while tests fail: {', '.join(failed[:5])}.")
    else:
        messages.success(request, said)
    return redirect("tool_python_update", member.organisation.slug, name)


def _category(name: str) -> Category:
    found = Category.objects.filter(name=name).first()
    if found is None:
        raise not_there("category", "category", name)
    return found


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
        said = form.cleaned_data
        try:
            case = save_test(
                tool,
                said["name"],
                json.loads(said["arguments"]),
                expected=said["expected"],
                expects_error=bool(said["expects_error"]),
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
    """Whether agents of the organisation may make tools (`allowed=1`)."""
    member = member_or_404(request, right=Right.APPROVE_CODE)
    allowed = request.POST.get("allowed") == "1"
    try:
        let_agents_make_tools(allowed, actor=member)
    except ChangeRefused as error:
        return refused(request, error, "approval_versions", org)
    said = "Agents may make tools now. Each waits here for approval." if allowed else "Agents make no tools any more."
    messages.success(request, said)
    return redirect("approval_versions", org)
