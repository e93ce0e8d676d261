"""The pages of HTTP tools: add one, and give one its next version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from capabilities.catalogue.http_tools.forms import (
    ArgumentRows,
    HttpToolForm,
    argument_rows,
    content_of_forms,
    initial_of,
    show_http_refusal,
    typed,
)
from capabilities.catalogue.http_tools.queries import (
    HttpPreview,
    http_tool_or_404,
    preview_of,
    stored_content,
    version_at_hand,
    waiting_version,
)
from capabilities.catalogue.http_tools.writes import create_http_tool, update_http_tool
from capabilities.catalogue.tools.recipients.forms import RecipientsForm, recipient_choices, recipients_sent
from capabilities.catalogue.tools.recipients.pages import preview_page, saved_or_shown
from capabilities.catalogue.tools.recipients.writes import Recipients
from capabilities.common.previews import Preview
from capabilities.common.refused import ChangeRefused
from capabilities.common.rights import require
from capabilities.models import Tool, VersionStatus
from toolhub.tenants.access import MemberRequest, member_or_404
from toolhub.tenants.models import Membership, Right
from toolhub.tenants.pages import signed_in

WAITS = "It waits for somebody with the right approve_code: until then it is neither sent nor called."


@require_http_methods(["GET", "POST"])
@signed_in
def http_tool_create(request: MemberRequest, org: str) -> HttpResponse:
    """Add a tool; `do` of the form sent: `preview`, `rows` for more empty rows, else the tool is saved."""
    member = member_or_404(request, right=Right.CATALOGUE, category=None)
    if request.method != "POST":
        form = HttpToolForm(initial={"method": "GET", "effect": "external", "category": request.GET.get("category")})
        return _page(request, form, argument_rows(), None)
    return _sent(request, member, None)


@require_http_methods(["GET", "POST"])
@signed_in
def http_tool_update(request: MemberRequest, org: str, name: str) -> HttpResponse:
    """Change a tool, as `http_tool_create`. The form begins with the version in force, else with the newest."""
    member = member_or_404(request, right=Right.CATALOGUE, category=None)
    tool = http_tool_or_404(name)
    require(member, Right.CATALOGUE, [tool.category.name])
    if request.method != "POST":
        content = stored_content(tool)
        initial, rows = initial_of(content) if content else ({}, [])
        return _page(request, HttpToolForm(tool=tool, initial=initial), argument_rows(initial=rows), tool)
    return _sent(request, member, tool)


def _sent(request: MemberRequest, member: Membership, tool: Tool | None) -> HttpResponse:
    wanted = request.POST.get("do", "save")
    if wanted == "rows":
        return _page(request, *typed(request.POST, tool), tool)
    form, rows = HttpToolForm(request.POST, tool=tool), argument_rows(request.POST)
    chosen, to = recipients_sent(request.POST)
    if tool is None and not chosen.is_valid():
        form.add_error(None, "Choose who gets it among those that are listed.")
    preview = None
    if form.is_valid() and rows.is_valid():
        try:
            content = content_of_forms(form, rows, tool, _stored_parameters(tool))
            if wanted == "preview":
                preview = preview_of(content, form.sample_given(), member=member, tool=tool)
            else:
                return _saved(request, member, tool, content, to)
        except ChangeRefused as error:
            show_http_refusal(form, rows, error)
    return _page(request, form, rows, tool, preview)


def _saved(request: MemberRequest, member: Membership, tool: Tool | None, content: Any, to: Recipients) -> HttpResponse:
    if tool is None:
        added = _added(request, member, content, to)
        if isinstance(added, Preview):
            back_url = reverse("tool_list", args=[member.organisation.slug])
            return preview_page(request, added, title=f"Add {content.definition.name}", back_url=back_url)
        tool = added
        message = f"{tool} is added." if tool.current_version else f"{tool} is added. {WAITS}"
    else:
        version = update_http_tool(tool, content, actor=member)
        if version.status == VersionStatus.APPROVED:
            message = f"{tool} has version {version.number}, in force from the next call on."
        else:
            message = f"Version {version.number} of {tool} is saved. {WAITS}"
    messages.success(request, message)
    return redirect("tool_detail", member.organisation.slug, tool.name)


def _added(request: MemberRequest, member: Membership, content: Any, to: Recipients) -> Tool | Preview:
    """Add the tool; return first a Preview where somebody gets the tool, and feels it."""

    def write() -> Tool:
        return create_http_tool(content, to=to, actor=member)

    if to.is_nobody:
        return write()
    found: Tool | Preview = saved_or_shown(request, write, to, actor=member)
    return found


def _stored_parameters(tool: Tool | None) -> Mapping[str, Any]:
    version = version_at_hand(tool) if tool else None
    parameters: Mapping[str, Any] = version.parameters if version else {}
    return parameters


def _chosen(request: MemberRequest) -> RecipientsForm | None:
    return RecipientsForm(request.POST) if request.method == "POST" else None


def _page(
    request: MemberRequest,
    form: HttpToolForm,
    rows: ArgumentRows,
    tool: Tool | None,
    preview: HttpPreview | None = None,
) -> HttpResponse:
    is_wrong = form.is_bound and (bool(form.errors) or rows.total_error_count() > 0)
    context = {
        "form": form,
        "rows": rows,
        "tool": tool,
        "preview": preview,
        "waiting": waiting_version(tool) if tool else None,
        **({} if tool else recipient_choices(request.membership, _chosen(request))),
        "recipients_of": "it",
        "rows_are_wrong": rows.is_bound and rows.total_error_count() > 0,
    }
    return render(request, "capabilities/catalogue/http_tool_form.html", context, status=422 if is_wrong else 200)
