"""The pages of the catalogue: the list, one tool, and who may use it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_POST

from capabilities.access.members.queries import members_who_may_use
from capabilities.access.requests.queries import waiting_request
from capabilities.catalogue.categories.queries import categories
from capabilities.catalogue.categories.writes import move_tool
from capabilities.catalogue.python_tools.helper_modules.queries import modules_of
from capabilities.catalogue.tools.forms import InstructionsForm, ReaderFilter
from capabilities.catalogue.tools.queries import shown_tool_or_404, tool_page_or_404, toolkits_with
from capabilities.catalogue.tools.recipients.queries import holders_of
from capabilities.catalogue.tools.recipients.writes import NO_AGENT
from capabilities.catalogue.tools.writes import set_instructions
from capabilities.catalogue.versions.queries import may_read_code, with_state
from capabilities.catalogue.versions.rules import may_decide, why_not_approve, why_not_release
from capabilities.choosing.pipeline.permissions import permission_for
from capabilities.common.pages import refused, show_refusal, status_of
from capabilities.common.refused import ChangeRefused
from capabilities.common.visible import marked
from capabilities.contract.parameters import parameter_rows
from capabilities.language_models.providers.refused_tools import refusal_or_404, shown_refusals, try_again
from capabilities.models import Tool, VersionStatus
from capabilities.running.registry import registry
from capabilities.running.services.writes import service_title
from toolhub.tenants.access import MemberRequest, member_or_404
from toolhub.tenants.models import Access, Membership, Right
from toolhub.tenants.pages import signed_in


def mark_tool(tool: Tool, *, may_switch: bool) -> None:
    """Set on the tool what its row shows beside the row's own columns."""
    spec = registry.services.get(tool.service)
    tool.may_switch = may_switch  # type: ignore[attr-defined]
    tool.is_off_here = spec is not None and not spec.is_available  # type: ignore[attr-defined]


@require_GET
@signed_in
def tool_detail(request: MemberRequest, org: str, name: str) -> HttpResponse:
    return _tool_page(request, member_or_404(request), name)


def _tool_page(
    request: MemberRequest, member: Membership, name: str, instructions: InstructionsForm | None = None
) -> HttpResponse:
    """Show the page of a tool, with the form of instructions as it was sent where that was wrong. Twelve queries of its
    own at most, four more for one that is kept back."""
    page = tool_page_or_404(name)
    version = page.tool.current_version
    mark_tool(page.tool, may_switch=member.has_right(Right.CATALOGUE, page.tool.category.name))
    form = instructions or InstructionsForm(initial={"instructions": version.instructions if version else ""})
    permission = permission_for(member, page.tool) if member.has_access(Access.MEMBER) else None
    reads_code = may_read_code(member, page.tool.category.name)
    is_closed = permission is not None and not permission.allowed
    context = {
        "tool": page.tool,
        "version": version,
        "versions": [with_state(each) for each in page.versions],
        "waiting": next((each for each in page.versions if each.status == VersionStatus.PENDING), None),
        "reads_code": reads_code,
        "code": marked(str(version.implementation.get("code", ""))) if version and reads_code else "",
        "implementation": {name: value for name, value in version.implementation.items() if name != "code"}
        if version
        else {},
        "holders": holders_of([page.tool], member),
        "no_agent": NO_AGENT,
        "give_url": reverse("tool_give", args=[request.membership.organisation.slug, page.tool.name]),
        "may_give": member.has_right(Right.AGENTS) or member.has_right(Right.TOOLKITS),
        "may_chat": member.has_access(Access.MEMBER),
        "toolkits": toolkits_with(page.tool),
        "service": service_title(page.tool.service),
        "signed_with": page.tool.credential or (page.tool.server.credential if page.tool.server else None),
        "modules": modules_of(version),
        "parameters": parameter_rows(version.parameters) if version else [],
        "may_set_up": member.has_right(Right.CATALOGUE),
        "sees_members": member.has_right(Right.ROLES, page.tool.category.name),
        "sees_servers": bool(member.reach(Right.CATALOGUE)),
        "sees_runtime": member.has_right(Right.POLICIES),
        "may_try": member.has_access(Access.MEMBER) and version is not None,
        "categories": categories() if member.has_right(Right.CATALOGUE) else [],
        "form": form,
        "permission": permission,
        "asked": waiting_request(member, page.tool) if is_closed else None,
        "refusals": shown_refusals(page.tool.refusals.all()) if version else [],
        **_about_keeping_back(member, page.tool),
    }
    return render(request, "capabilities/catalogue/tool_detail.html", context, status=status_of(form))


def _about_keeping_back(member: Membership, tool: Tool) -> dict[str, Any]:
    """Return whether the member may keep the tool back, or release it, and why not. Four queries at most, and none for
    one that is not kept back."""
    category = tool.category.name
    may_release = bool(tool.quarantine) and may_decide(member, category)
    why_not = ""
    if may_release and tool.current_version is not None:
        why_not = why_not_release(tool) or why_not_approve(member, tool, tool.current_version)
    return {
        "may_keep_back": member.has_right(Right.CATALOGUE, category) or member.has_right(Right.APPROVE_CODE, category),
        "may_release": may_release,
        "why_not_release": why_not,
    }


@require_POST
@signed_in
def tool_instruct(request: MemberRequest, org: str, name: str) -> HttpResponse:
    """Save the instructions that the model reads beside the tool: its next version."""
    member = member_or_404(request, right=Right.CATALOGUE, category=None)
    tool = shown_tool_or_404(name)
    form = InstructionsForm(request.POST)
    if form.is_valid():
        try:
            version = set_instructions(tool, form.cleaned_data["instructions"], actor=member)
        except ChangeRefused as error:
            show_refusal(form, error)
        else:
            messages.success(request, f"{tool} has its instructions, as of version {version.number}.")
            return redirect("tool_detail", org, name)
    return _tool_page(request, member, name, form)


@require_POST
@signed_in
def tool_try_again(request: MemberRequest, org: str, name: str, refusal_id: UUID) -> HttpResponse:
    """Send the tool to a model again whose provider refused it."""
    member = member_or_404(request, right=Right.CATALOGUE, category=None)
    refusal = refusal_or_404(name, refusal_id)
    model = str(refusal.model)
    try_again(refusal, actor=member)
    messages.success(request, f"{name} is sent to {model} again, with the next call.")
    return redirect("tool_detail", org, name)


@require_GET
@signed_in
def tool_members(request: MemberRequest, org: str, name: str) -> HttpResponse:
    """Show who may use the tool, and why; a part of its page, or a page of its own."""
    member = member_or_404(request, right=Right.ROLES, category=None)
    tool = shown_tool_or_404(name)
    if not member.has_right(Right.ROLES, tool.category.name):
        raise PermissionDenied("This needs the admin right roles.")
    address = ReaderFilter(request.GET)
    page = members_who_may_use(tool, **address.values())
    template = (
        "capabilities/catalogue/_tool_members.html" if request.htmx else "capabilities/catalogue/tool_members.html"
    )
    return render(request, template, {"tool": tool, **address.context(page)})


@require_POST
@signed_in
def tool_move(request: MemberRequest, org: str, name: str) -> HttpResponse:
    member = member_or_404(request, right=Right.CATALOGUE, category=None)
    tool = shown_tool_or_404(name)
    try:
        move_tool(tool, request.POST.get("category", ""), actor=member)
    except ChangeRefused as error:
        return refused(request, error, "tool_detail", org, name)
    messages.success(request, f"{tool} is in {tool.category} now: its rules and grants count.")
    return redirect("tool_detail", org, name)
