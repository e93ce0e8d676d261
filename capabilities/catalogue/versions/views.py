"""The pages of versions: a tool's list, one version, what differs between two, and what waits for somebody."""

from __future__ import annotations

from collections.abc import Callable

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_POST

from capabilities.catalogue.python_tools.helper_modules.queries import WAITING_SHOWN, modules_waiting
from capabilities.catalogue.tools.queries import shown_tool_or_404
from capabilities.catalogue.tools.recipients.forms import RecipientsForm, recipient_choices, recipients_sent
from capabilities.catalogue.tools.recipients.pages import preview_page, saved_or_shown
from capabilities.catalogue.tools.recipients.writes import NOBODY, Recipients
from capabilities.catalogue.versions.forms import ReasonForm, VersionsAddress
from capabilities.catalogue.versions.queries import (
    difference_between,
    may_read_code,
    others_waiting,
    version_or_404,
    versions_page,
    waiting_page,
)
from capabilities.catalogue.versions.rules import check_changes_versions, may_decide, why_not_approve
from capabilities.catalogue.versions.writes import (
    decide_version,
    keep_tool_back,
    release_tool,
    retire,
    roll_back,
    withdraw_version,
)
from capabilities.common.pages import refused, show_refusal, status_of
from capabilities.common.previews import Preview
from capabilities.common.refused import ChangeRefused
from capabilities.common.visible import marked
from capabilities.contract.parameters import parameter_rows
from capabilities.models import ToolKind, ToolVersion, VersionStatus
from toolhub.tenants.access import MemberRequest, check_right, member_or_404
from toolhub.tenants.models import Membership, Right
from toolhub.tenants.pages import signed_in

STAYS_KEPT_BACK = "The tool stays kept back: no model gets it until somebody releases it."


@require_GET
@signed_in
def tool_versions(request: MemberRequest, org: str, name: str) -> HttpResponse:
    """List the versions of a tool, the newest first."""
    member = member_or_404(request)
    tool = shown_tool_or_404(name)
    address = VersionsAddress(request.GET)
    context = {"tool": tool, **address.context(versions_page(tool, **address.place))}
    may_change = member.has_right(Right.CATALOGUE, tool.category.name)
    context["may_retire"] = may_change and tool.kind != ToolKind.BUILTIN and tool.current_version is not None
    return render(request, "capabilities/catalogue/tool_versions.html", context)


@require_GET
@signed_in
def tool_version(request: MemberRequest, org: str, name: str, number: int) -> HttpResponse:
    """Show one version, beside what differs from the one in force."""
    member = member_or_404(request)
    return _version_page(request, member, version_or_404(name, number), ReasonForm())


def _version_page(
    request: MemberRequest,
    member: Membership,
    version: ToolVersion,
    form: ReasonForm,
    chosen: RecipientsForm | None = None,
) -> HttpResponse:
    tool, category = version.tool, version.tool.category.name
    reads_code = may_read_code(member, category)
    current = tool.current_version
    against = current if current is not None and current.pk != version.pk else None
    decides = may_decide(member, category)
    waits = version.status == VersionStatus.PENDING
    others = others_waiting(version) if waits else []
    context = {
        "tool": tool,
        "version": version,
        "parameters": parameter_rows(version.parameters),
        "difference": difference_between(against, version, with_code=reads_code) if against else None,
        "code": marked(str(version.implementation.get("code", ""))) if reads_code else "",
        "implementation": {key: value for key, value in version.implementation.items() if key != "code"},
        "reads_code": reads_code,
        "form": form,
        "may_decide": waits and decides,
        **(recipient_choices(member, chosen) if waits and decides else {}),
        "recipients_of": "it",
        "why_not": why_not_approve(member, tool, version) if waits and decides else "",
        "newer": [number for number in others if number > version.number],
        "is_older": against is not None and against.number > version.number,
        "may_withdraw": waits and _may_withdraw(member, version),
        "may_roll_back": version.status == VersionStatus.RETIRED and (decides or _may_change(member, version)),
    }
    return render(request, "capabilities/catalogue/tool_version.html", context, status=status_of(form))


@require_GET
@signed_in
def tool_version_difference(request: MemberRequest, org: str, name: str, first: int, second: int) -> HttpResponse:
    """Show the difference between any two versions of a tool."""
    member = member_or_404(request)
    one, other = version_or_404(name, first), version_or_404(name, second)
    reads_code = may_read_code(member, one.tool.category.name)
    difference = difference_between(one, other, with_code=reads_code)
    context = {"tool": one.tool, "difference": difference, "reads_code": reads_code}
    return render(request, "capabilities/catalogue/tool_version_difference.html", context)


@require_POST
@signed_in
def tool_version_decide(request: MemberRequest, org: str, name: str, number: int) -> HttpResponse:
    """Approve (`decision=approve`) or reject a version that waits."""
    member = member_or_404(request, right=Right.APPROVE_CODE, category=None)
    version = version_or_404(name, number)
    check_right(member, Right.APPROVE_CODE, version.tool.category.name)
    form = ReasonForm(request.POST)
    approve = request.POST.get("decision") == "approve"
    chosen, to = recipients_sent(request.POST)
    if approve and not chosen.is_valid():
        form.add_error(None, "Choose who gets it among those that are listed.")
    if form.is_valid():
        try:
            done = _decide(request, member, version, form.cleaned_data["reason"], to if approve else NOBODY)
        except ChangeRefused as error:
            show_refusal(form, error)
        else:
            if isinstance(done, Preview):
                back_url = reverse("tool_version", args=[org, name, number])
                return preview_page(request, done, title=f"Approve version {number} of {name}", back_url=back_url)
            messages.success(request, _decided(version_or_404(name, number)))
            return redirect("tool_detail", org, name) if approve else redirect("tool_version", org, name, number)
    return _version_page(request, member, version_or_404(name, number), form, chosen)


def _decide(
    request: MemberRequest, member: Membership, version: ToolVersion, reason: str, to: Recipients
) -> ToolVersion | Preview:
    """Decide; return first a Preview where somebody gets the tool with the approval, and feels it."""
    approve = request.POST.get("decision") == "approve"

    def write() -> ToolVersion:
        return decide_version(version, approve=approve, reason=reason, to=to, actor=member)

    if to.is_nobody:
        return write()
    found: ToolVersion | Preview = saved_or_shown(request, write, to, actor=member, state=[version.status])
    return found


def _decided(version: ToolVersion) -> str:
    if version.status == VersionStatus.REJECTED:
        return f"Version {version.number} of {version.tool} is rejected. Its author reads the reason."
    newer = [number for number in others_waiting(version) if number > version.number]
    rest = f" Version {newer[-1]} is newer, and goes on waiting." if newer else ""
    if version.tool.quarantine:
        return f"Version {version.number} of {version.tool} is in force.{rest} {STAYS_KEPT_BACK}"
    return f"Version {version.number} of {version.tool} is in force, from the next call on.{rest}"


@require_POST
@signed_in
def tool_version_withdraw(request: MemberRequest, org: str, name: str, number: int) -> HttpResponse:
    """Take a version that waits back to a draft."""

    def change(member: Membership, version: ToolVersion) -> str:
        withdraw_version(version, actor=member)
        return f"Version {number} is a draft: nobody decides on it."

    return _changed(request, org, name, number, change)


@require_POST
@signed_in
def tool_version_rollback(request: MemberRequest, org: str, name: str, number: int) -> HttpResponse:
    """Put an earlier version in force again."""

    def change(member: Membership, version: ToolVersion) -> str:
        roll_back(version.tool, number, reason=request.POST.get("reason", ""), actor=member)
        if version.tool.quarantine:
            return f"Version {number} of {name} is in force again. {STAYS_KEPT_BACK}"
        return f"Version {number} of {name} is in force again, from the next call on."

    return _changed(request, org, name, number, change)


def _changed(
    request: MemberRequest, org: str, name: str, number: int, change: Callable[[Membership, ToolVersion], str]
) -> HttpResponse:
    member = member_or_404(request)
    check_changes_versions(member)
    version = version_or_404(name, number)
    try:
        messages.success(request, change(member, version))
    except ChangeRefused as error:
        return refused(request, error, "tool_version", org, name, number)
    return redirect("tool_version", org, name, number)


@require_POST
@signed_in
def tool_retire(request: MemberRequest, org: str, name: str) -> HttpResponse:
    """Take the tool out of use."""
    member = member_or_404(request, right=Right.CATALOGUE, category=None)
    tool = shown_tool_or_404(name)
    try:
        retire(tool, reason=request.POST.get("reason", ""), actor=member)
    except ChangeRefused as error:
        return refused(request, error, "tool_versions", org, name)
    messages.success(request, f"{name} is out of use. A roll-back puts it in force again.")
    return redirect("tool_versions", org, name)


@require_POST
@signed_in
def tool_keep_back(request: MemberRequest, org: str, name: str) -> HttpResponse:
    """Keep the tool back until somebody with the right to approve decides."""
    member = member_or_404(request)
    check_changes_versions(member)
    tool = shown_tool_or_404(name)
    try:
        keep_tool_back(tool, request.POST.get("reason", ""), actor=member)
    except ChangeRefused as error:
        return refused(request, error, "tool_detail", org, name)
    messages.success(request, f"{name} is kept back, from the next call on, in running turns too.")
    return redirect("tool_detail", org, name)


@require_POST
@signed_in
def tool_release(request: MemberRequest, org: str, name: str) -> HttpResponse:
    """Use the version in force of a tool that is kept back again."""
    member = member_or_404(request, right=Right.APPROVE_CODE, category=None)
    tool = shown_tool_or_404(name)
    try:
        release_tool(tool, actor=member)
    except ChangeRefused as error:
        return refused(request, error, "tool_detail", org, name)
    messages.success(request, f"{name} is used again, from the next call on.")
    return redirect("tool_detail", org, name)


def _may_change(member: Membership, version: ToolVersion) -> bool:
    return member.has_right(Right.CATALOGUE, version.tool.category.name)


def _may_withdraw(member: Membership, version: ToolVersion) -> bool:
    author = version.created_by
    return (author is not None and author.user_id == member.user_id) or _may_change(member, version)


@require_GET
@signed_in
def approval_versions(request: MemberRequest, org: str) -> HttpResponse:
    """List the versions that wait for this member, the oldest first; a page of approvals."""
    member = member_or_404(request, right=Right.APPROVE_CODE, category=None)
    address = VersionsAddress(request.GET)
    page = waiting_page(member, **address.place)
    modules = modules_waiting(member)
    context = {
        **address.context(page),
        "modules": modules[:WAITING_SHOWN],
        "more_modules": len(modules) > WAITING_SHOWN,
        "may_switch_agents": member.has_right(Right.APPROVE_CODE),
    }
    return render(request, "capabilities/catalogue/approval_versions.html", context)
