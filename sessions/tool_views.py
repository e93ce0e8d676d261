"""What a tool's page shows of turns: its last calls, and a form to run it by hand."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET, require_http_methods

from capabilities.queries.catalogue import shown_tool_or_404
from sessions.queries import calls_of_tool
from sessions.trial_form import TrialForm
from sessions.trying import is_good, trial_or_404, try_tool
from toolhub.tenants.access import MemberRequest, member_or_404
from toolhub.tenants.models import Access
from toolhub.tenants.pages import signed_in


@require_GET
@signed_in
def tool_calls(request: MemberRequest, org: str, name: str) -> HttpResponse:
    """The last calls that this member may see: own ones, or everybody's with the right `sessions`."""
    member = member_or_404(request)
    tool = shown_tool_or_404(name)
    context = {"tool": tool, "calls": calls_of_tool(member, tool.name)}
    template = "sessions/_tool_calls.html" if request.htmx else "sessions/tool_calls.html"
    return render(request, template, context)


@require_http_methods(["GET", "POST"])
@signed_in
def tool_try(request: MemberRequest, org: str, name: str) -> HttpResponse:
    member = member_or_404(request, at_least=Access.MEMBER)
    trial = trial_or_404(member, name)
    schema = trial.spec.definition["function"]["parameters"]
    form = TrialForm(request.POST if request.method == "POST" else None, schema=schema, effect=trial.spec.effect)
    context: dict[str, Any] = {"tool": trial.tool, "spec": trial.spec, "form": form, "refused": trial.why_not}
    if form.is_valid():
        outcome = try_tool(trial, form.arguments_text(), actor=member)
        context |= {"outcome": outcome, "is_good": is_good(outcome)}
    template = "sessions/_tool_try.html" if request.htmx else "sessions/tool_try.html"
    return render(request, template, context, status=422 if form.errors else 200)
