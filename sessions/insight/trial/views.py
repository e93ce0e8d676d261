"""The catalogue's list, and what a tool's page shows of turns: its last calls, and a form to run it by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_GET, require_http_methods

from capabilities.agents.agents.queries import agent_or_404
from capabilities.catalogue.tools.bulk.kept import kept_form
from capabilities.catalogue.tools.forms import COLUMNS, CatalogueFilter
from capabilities.catalogue.tools.queries import catalogue_numbers, shown_tool_or_404, tools_page
from capabilities.catalogue.tools.search import by_tokens
from capabilities.catalogue.tools.views import mark_tool
from capabilities.choosing.pipeline.permissions import may_use_nothing
from sessions.doors.chats.queries import CALLS_COUNTED, by_last_call, calls_by_version, calls_of_tool
from sessions.insight.trial.forms import TrialForm
from sessions.insight.trial.writes import Trial, request_trial, trial_or_404, trial_run_or_404
from sessions.models import TrialRun
from sessions.usage.queries import sees_all
from sessions.usage.tool_uses import ToolUse, uses_of, week_of_tool
from toolhub.tenants.access import MemberRequest, member_or_404
from toolhub.tenants.models import Access, Right
from toolhub.tenants.pages import signed_in

#: Orders of the list by a number of the last seven days.
COUNTED: dict[str, Callable[[ToolUse], int]] = {"calls": lambda use: use.calls, "failures": lambda use: use.failed}


@require_GET
@signed_in
def tool_list(request: MemberRequest, org: str) -> HttpResponse:
    """The catalogue: by name, tokens, last use, calls or failures. An agent that is not there has no tools. Calls and
    failures are shown to who sees the usage of tools."""
    member = member_or_404(request)
    address = CatalogueFilter(request.GET)
    chosen = address.values()
    now = timezone.now()
    agent = agent_or_404(chosen["agent"], member) if chosen["agent"] else None
    order = {"tokens": by_tokens(), "used": by_last_call(member)}.get(chosen["sort"])
    count = COUNTED.get(chosen["sort"]) if sees_all(member) else None
    uses = uses_of(member, now) if count else {}
    page = tools_page(
        q=chosen["q"],
        category=chosen["category"],
        state=chosen["state"],
        kind=chosen["kind"],
        agent=agent,
        order=order,
        numbers={key: count(use) for key, use in uses.items()} if count else None,
        **address.place,
    )
    reach = member.reach(Right.CATALOGUE)
    if not count:
        uses = uses_of(member, now, [tool.pk for tool in page.rows])
    for tool in page.rows:
        mark_tool(tool, may_switch=reach.covers(tool.category.name))
        tool.use = uses.get(tool.pk, ToolUse())  # type: ignore[attr-defined]
    numbers = catalogue_numbers()
    context = {
        "numbers": numbers,
        **address.context(page),
        "categories": numbers.categories,
        "agent": agent,
        "states": address.fields["state"].choices,  # type: ignore[attr-defined]
        "kinds": address.fields["kind"].choices,  # type: ignore[attr-defined]
        "sorts": [
            (value, title)
            for value, title in address.fields["sort"].choices  # type: ignore[attr-defined]
            if value not in COUNTED or sees_all(member)
        ],
        "sorted_by": address.sorted_by,
        "sees_uses": sees_all(member),
        "columns": address.shown_columns,
        "all_columns": [each for each in COLUMNS.items() if sees_all(member) or each[0] not in ("use", "failures")],
        "is_filtered": any(chosen[name] for name in ("q", "category", "state", "kind", "agent")),
        "may_switch": bool(reach),
        "sent": kept_form(request) if reach else {},
        "may_set_approvals": member.has_right(Right.POLICIES),
        "may_use_nothing": may_use_nothing(member),
        "may_set_up": member.has_right(Right.CATALOGUE),
    }
    return render(request, "capabilities/catalogue/tool_list.html", context)


@require_GET
@signed_in
def tool_calls(request: MemberRequest, org: str, name: str) -> HttpResponse:
    """The tool's week for who sees the usage of tools, and the last calls that this member may see: own ones, or
    everybody's with the right `sessions`. Four queries of its own at most."""
    member = member_or_404(request)
    tool = shown_tool_or_404(name)
    week = week_of_tool(member, timezone.now(), tool.pk)
    context = {"tool": tool, "week": week, "calls": calls_of_tool(member, tool.name)}
    template = "sessions/insight/trial/_tool_calls.html" if request.htmx else "sessions/insight/trial/tool_calls.html"
    return render(request, template, context)


@require_GET
@signed_in
def tool_version_calls(request: MemberRequest, org: str, name: str) -> HttpResponse:
    """The last calls that this member may see, counted by the version that ran."""
    member = member_or_404(request)
    tool = shown_tool_or_404(name)
    context = {"tool": tool, "versions": calls_by_version(member, tool), "counted": CALLS_COUNTED}
    template = (
        "sessions/insight/trial/_version_calls.html" if request.htmx else "sessions/insight/trial/version_calls.html"
    )
    return render(request, template, context)


@require_http_methods(["GET", "POST"])
@signed_in
def tool_try(request: MemberRequest, org: str, name: str) -> HttpResponse:
    """The form; posted, it asks for a run by a worker, whose page or part follows the run."""
    member = member_or_404(request, at_least=Access.MEMBER)
    trial = trial_or_404(member, name)
    form = TrialForm(
        request.POST if request.method == "POST" else None, schema=_schema_of(trial), effect=trial.spec.effect
    )
    context = _context(trial, form)
    if form.is_valid():
        asked = request_trial(trial, form.arguments_text(), actor=member)
        if isinstance(asked, TrialRun):
            if not request.htmx:
                return redirect("tool_trial", org, name, asked.public_id)
            context["run"] = asked
        else:
            context["refusal"] = asked
    template = "sessions/insight/trial/_tool_try.html" if request.htmx else "sessions/insight/trial/tool_try.html"
    return render(request, template, context, status=422 if form.errors else 200)


@require_GET
@signed_in
def tool_trial(request: MemberRequest, org: str, name: str, trial_id: str) -> HttpResponse:
    """Show the state of a run by hand to the member who asked for it; anybody else finds no such page."""
    member = member_or_404(request, at_least=Access.MEMBER)
    run = trial_run_or_404(member, name, trial_id)
    if request.htmx:
        return render(request, "sessions/insight/trial/_tool_trial.html", {"tool": run.tool_version.tool, "run": run})
    trial = trial_or_404(member, name)
    form = TrialForm(schema=_schema_of(trial), effect=trial.spec.effect, given=json.loads(run.arguments))
    return render(request, "sessions/insight/trial/tool_try.html", _context(trial, form) | {"run": run})


def _schema_of(trial: Trial) -> dict[str, Any]:
    schema: dict[str, Any] = trial.spec.definition["function"]["parameters"]
    return schema


def _context(trial: Trial, form: TrialForm) -> dict[str, Any]:
    return {"tool": trial.tool, "spec": trial.spec, "form": form, "refused": trial.why_not}
