"""The pages of toolkits: the list, one with its tools and who uses it, and the form."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from capabilities.agents.toolkits.forms import ToolkitForm, ToolRow
from capabilities.agents.toolkits.previews import impact_of_toolkit
from capabilities.agents.toolkits.queries import (
    agent_to_try,
    agents_without,
    category_picker,
    knobs_of,
    toolkit_or_404,
    toolkit_page_or_404,
    toolkits_by_name,
)
from capabilities.agents.toolkits.writes import (
    ToolkitContent,
    create_toolkit,
    delete_toolkit,
    toolkit_stamp,
    update_toolkit,
)
from capabilities.catalogue.tools.queries import tool_picker
from capabilities.common.pages import preview_status, refused, show_refusal, shown_preview, status_of
from capabilities.common.picker import Picker, search_in
from capabilities.common.previews import Preview, save_as_shown
from capabilities.common.refused import ChangeRefused
from capabilities.models import Tool, Toolkit
from capabilities.running.registry import registry
from capabilities.running.services.writes import set_up_title
from toolhub.tenants.access import MemberRequest, member_or_404
from toolhub.tenants.models import Access, Right
from toolhub.tenants.pages import signed_in


@require_GET
@signed_in
def toolkit_list(request: MemberRequest, org: str) -> HttpResponse:
    member = member_or_404(request)
    context = {"toolkits": toolkits_by_name(member), "may_change": member.has_right(Right.TOOLKITS)}
    return render(request, "capabilities/agents/toolkits/toolkit_list.html", context)


@require_GET
@signed_in
def toolkit_detail(request: MemberRequest, org: str, name: str) -> HttpResponse:
    """Show the tools of a toolkit, which of them work, and which agents may load it."""
    member = member_or_404(request)
    page = toolkit_page_or_404(name, member)
    for line in page.lines:
        _mark(line.tool)
    context = {
        "toolkit": page.toolkit,
        "lines": page.lines,
        "categories": page.categories,
        "waiting": sum(line.tool.state != "ready" for line in page.lines),  # type: ignore[attr-defined]
        "may_change": member.has_right(Right.TOOLKITS),
        "agents_without": agents_without(page.toolkit, member) if member.has_right(Right.AGENTS) else (),
        "to_try": agent_to_try(page.toolkit) if member.has_access(Access.MEMBER) else None,
        "can_connect": any(each.agent.is_enabled for each in page.toolkit.agent_toolkits.all()),
        "may_export": bool(member.reach(Right.CATALOGUE)),
        "may_publish": member.has_right(Right.CATALOGUE) and member.has_right(Right.APPROVE_CODE),
    }
    return render(request, "capabilities/agents/toolkits/toolkit_detail.html", context)


def _mark(tool: Tool) -> None:
    """`state`: off, off_here (the operator has not switched on what it needs), needs_set_up or ready."""
    spec = registry.services.get(tool.service)
    state = "ready"
    if not tool.is_enabled:
        state = "off"
    elif spec is not None and not spec.is_available:
        state = "off_here"
    elif not tool.is_ready:  # type: ignore[attr-defined]
        state = "needs_set_up"
    tool.state, tool.needs = state, set_up_title(tool.service)  # type: ignore[attr-defined]


@require_http_methods(["GET", "POST"])
@signed_in
def toolkit_create(request: MemberRequest, org: str) -> HttpResponse:
    """Add a toolkit. No agent may load it yet, so it is saved at once."""
    member = member_or_404(request, right=Right.TOOLKITS)
    form = ToolkitForm(request.POST if request.method == "POST" else None)
    if "find" not in request.POST and form.is_valid():
        try:
            saved = create_toolkit(form.content(), actor=member)
        except ChangeRefused as error:
            show_refusal(form, error)
        else:
            return toolkit_saved(request, org, saved)
    return toolkit_page(request, form, None, {})


@require_http_methods(["GET", "POST"])
@signed_in
def toolkit_update(request: MemberRequest, org: str, name: str) -> HttpResponse:
    """Change a toolkit's content, after a preview. One that no agent may load is saved at once: nobody feels it."""
    member = member_or_404(request, right=Right.TOOLKITS)
    toolkit = toolkit_or_404(name, member)
    form = ToolkitForm(request.POST if request.method == "POST" else None, toolkit=toolkit)
    if "find" in request.POST or not form.is_valid():
        return toolkit_page(request, form, toolkit, {})
    content = form.content()
    try:
        answer = save_as_shown(
            request,
            _content_as_json(content),
            stamp=lambda: toolkit_stamp(toolkit),
            impact_of=lambda: impact_of_toolkit(toolkit, content, actor=member),
            save=lambda stamp: update_toolkit(toolkit_or_404(name, member), content, actor=member, stamp=stamp),
        )
    except ChangeRefused as error:
        show_refusal(form, error)
        return toolkit_page(request, form, toolkit, {})
    if isinstance(answer, Preview):
        return toolkit_page(request, form, toolkit, shown_preview(answer), status=preview_status(request, answer))
    return toolkit_saved(request, org, answer)


def _content_as_json(content: ToolkitContent) -> list[Any]:
    """Return the tools and categories of a toolkit's content, as JSON values."""
    lines = [[line.tool, line.timeout, line.max_result_chars, dict(line.knobs)] for line in content.tools]
    return [lines, sorted(content.categories)]


def toolkit_saved(request: MemberRequest, org: str, toolkit: Toolkit) -> HttpResponse:
    messages.success(request, f"{toolkit} is saved: sessions have it from their next selection of tools on.")
    return redirect("toolkit_detail", org, toolkit.name)


def toolkit_page(
    request: MemberRequest,
    form: ToolkitForm,
    toolkit: Toolkit | None,
    more: dict[str, Any],
    *,
    status: int | None = None,
) -> HttpResponse:
    """The form as it was filled in. `find` in the body only looks for tools, and shows what was found beside."""
    org, is_search = request.membership.organisation.slug, "find" in request.POST
    if is_search:
        form.errors.clear()
    context = {
        "form": form,
        "toolkit": toolkit,
        "kind": "toolkit",
        "thing": str(toolkit or ""),
        "add": "Add a toolkit",
        "list_title": "Toolkits",
        "back": reverse("toolkit_detail", args=[org, toolkit.name]) if toolkit else reverse("toolkit_list", args=[org]),
        "tools": with_own_values(
            tool_picker(
                form.rows(),
                ToolRow.fields,
                search_in(request.POST, "tools"),
                row="capabilities/agents/toolkits/_toolkit_tool.html",
            )
        ),
        "categories": category_picker(form.chosen_categories, search_in(request.POST, "categories")),
        "is_search": is_search,
        **more,
    }
    return render(request, "capabilities/agents/toolkits/toolkit_form.html", context, status=status or status_of(form))


def with_own_values(picker: Picker) -> Picker:
    """Return the picker with each shown tool's own timeout and result limit beside the toolkit's. One query."""
    knobs = knobs_of([row.name for row in picker.ticked if row.name.isprintable()])
    rows = [
        replace(row, own_timeout=knobs[row.name][0], own_chars=knobs[row.name][1]) if row.name in knobs else row
        for row in picker.ticked
    ]
    return replace(picker, ticked=rows)


@require_POST
@signed_in
def toolkit_delete(request: MemberRequest, org: str, name: str) -> HttpResponse:
    member = member_or_404(request, right=Right.TOOLKITS)
    toolkit = toolkit_or_404(name, member)
    try:
        delete_toolkit(toolkit, actor=member)
    except ChangeRefused as error:
        return refused(request, error, "toolkit_detail", org, name)
    messages.success(request, f"{toolkit} is removed.")
    return redirect("toolkit_list", org)
