"""The pages of budgets: the list with live meters, one budget with its windows, the forms, and what binds a member."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from capabilities.common.pages import refused, show_refusal, status_of
from capabilities.common.refused import ChangeRefused
from sessions.budgets.amounts import amount_of, amount_shown
from sessions.budgets.forms import BudgetForm, BudgetsAddress, LimitForm, RulesForm, TopUpForm, of_budget
from sessions.budgets.least import warnings_of
from sessions.budgets.queries import (
    budget_or_404,
    budgets_binding,
    budgets_page,
    is_moving,
    lines_of,
    member_emails,
    period_or_404,
    periods_page,
)
from sessions.budgets.writes import (
    budget_content,
    create_budget,
    delete_budget,
    reset_period,
    set_spending_rules,
    switch_budget,
    top_up_period,
    update_budget,
)
from sessions.models import Budget, BudgetPeriod
from toolhub.tenants.access import MemberRequest, member_or_404
from toolhub.tenants.list_address import ListAddress
from toolhub.tenants.models import Membership, Right
from toolhub.tenants.pages import signed_in

#: Number of times that an open page asks for its meters by itself while no turn runs: for ten minutes.
POLLS = 120


@require_GET
@signed_in
def budget_list(request: MemberRequest, org: str) -> HttpResponse:
    """All budgets with their meters, which an open page asks for anew; without the right, one's own."""
    member = member_or_404(request)
    if not member.has_right(Right.BUDGETS):
        return budget_mine(request, org)
    address = BudgetsAddress(request.GET)
    context = address.context(budgets_page(member, **address.place))
    context |= _live(address.filters["live"]) | {"query": ""}
    return render(
        request, _part(request, "sessions/budgets/_budgets.html", "sessions/budgets/budget_list.html"), context
    )


def _part(request: MemberRequest, partial: str, page: str) -> str:
    return partial if request.htmx and "live" in request.GET else page


def _live(count: str) -> dict[str, Any]:
    """Return the count with which a page goes on asking, 0 to stop: for a while, and as long as turns run. One query in
    the end."""
    number = int(count or 0)
    return {"live": number + 1 if number < POLLS or is_moving() else 0}


@require_GET
@signed_in
def budget_mine(request: MemberRequest, org: str) -> HttpResponse:
    """The budgets that the member's own turns count on, and what is left of them."""
    member = member_or_404(request)
    address = BudgetsAddress(request.GET)
    context = {
        "bindings": budgets_binding(member),
        **_live(address.filters["live"]),
    }
    template = _part(request, "sessions/budgets/_mine.html", "sessions/budgets/budget_mine.html")
    return render(request, template, context)


@require_http_methods(["GET", "POST"])
@signed_in
def budget_create(request: MemberRequest, org: str) -> HttpResponse:
    actor = member_or_404(request, right=Right.BUDGETS)
    form = BudgetForm(request.POST or None, initial=request.GET.dict())
    if form.is_valid():
        try:
            budget = create_budget(form.content(), actor=actor)
        except ChangeRefused as error:
            show_refusal(form, error)
        else:
            messages.success(request, f"Saved: {budget}. It counts from the next model call on.")
            return redirect("budget_detail", org, budget.public_id)
    context = {"form": form, "emails": member_emails()}
    return render(request, "sessions/budgets/budget_form.html", context, status=status_of(form))


@require_GET
@signed_in
def budget_detail(request: MemberRequest, org: str, budget_id: UUID) -> HttpResponse:
    """One budget: what it counts, its meter, and its windows, the newest first."""
    member = member_or_404(request, right=Right.BUDGETS)
    return _detail(request, member, budget_or_404(member, budget_id), TopUpForm())


def _detail(
    request: MemberRequest,
    member: Membership,
    budget: Budget,
    form: TopUpForm,
    at_fault: BudgetPeriod | None = None,
) -> HttpResponse:
    """Show the budget. `at_fault`: the window whose form was refused."""
    address = ListAddress(request.GET)
    (line,) = lines_of([budget], member.organisation)
    page = periods_page(member, budget, **address.place)
    context = {
        **address.context(page),
        "has_running": any(each.is_running for each in page.rows),
        "budget": budget,
        "line": line,
        "warnings": warnings_of(budget, member.organisation.registry_version),
        "form": form,
        "at_fault": at_fault.pk if at_fault else None,
    }
    return render(request, "sessions/budgets/budget_detail.html", context, status=status_of(form))


@require_http_methods(["GET", "POST"])
@signed_in
def budget_update(request: MemberRequest, org: str, budget_id: UUID) -> HttpResponse:
    actor = member_or_404(request, right=Right.BUDGETS)
    budget = budget_or_404(actor, budget_id)
    form = LimitForm(request.POST or None, initial=of_budget(budget), measure=budget.measure)
    if form.is_valid():
        try:
            update_budget(budget, form.changed(budget_content(budget)), actor=actor)
        except ChangeRefused as error:
            show_refusal(form, error)
        else:
            messages.success(request, f"Saved: {budget}. Running windows have it at once.")
            return redirect("budget_detail", org, budget_id)
    context = {"form": form, "budget": budget}
    return render(request, "sessions/budgets/budget_update.html", context, status=status_of(form))


@require_POST
@signed_in
def budget_switch(request: MemberRequest, org: str, budget_id: UUID) -> HttpResponse:
    actor = member_or_404(request, right=Right.BUDGETS)
    is_on = request.POST.get("enabled") == "1"

    def act(budget: Budget) -> str:
        switch_budget(budget, is_on, actor=actor)
        return f"{budget} is on." if is_on else f"{budget} is off: it neither counts nor stops anything."

    return _acted(request, org, budget_or_404(actor, budget_id), act)


@require_POST
@signed_in
def budget_delete(request: MemberRequest, org: str, budget_id: UUID) -> HttpResponse:
    actor = member_or_404(request, right=Right.BUDGETS)

    def act(budget: Budget) -> str:
        delete_budget(budget, actor=actor)
        return f"Removed: {budget}."

    return _acted(request, org, budget_or_404(actor, budget_id), act)


def _acted(request: MemberRequest, org: str, budget: Budget, act: Callable[[Budget], str]) -> HttpResponse:
    try:
        done = act(budget)
    except ChangeRefused as error:
        return refused(request, error, "budget_detail", org, budget.public_id)
    messages.success(request, done)
    return redirect("budget_list", org)


@require_POST
@signed_in
def budget_reset(request: MemberRequest, org: str, budget_id: UUID, period_id: UUID) -> HttpResponse:
    """Set one running window back to nothing spent."""
    actor = member_or_404(request, right=Right.BUDGETS)
    budget = budget_or_404(actor, budget_id)
    try:
        reset_period(period_or_404(actor, budget, period_id), actor=actor)
    except ChangeRefused as error:
        return refused(request, error, "budget_detail", org, budget_id)
    messages.success(request, "Reset: nothing of this window is spent now.")
    return redirect("budget_detail", org, budget_id)


@require_POST
@signed_in
def budget_top_up(request: MemberRequest, org: str, budget_id: UUID, period_id: UUID) -> HttpResponse:
    """Add to one running window."""
    actor = member_or_404(request, right=Right.BUDGETS)
    budget = budget_or_404(actor, budget_id)
    period = period_or_404(actor, budget, period_id)
    form = TopUpForm(request.POST)
    if form.is_valid():
        try:
            amount = amount_of(form.cleaned_data["amount"], budget.measure, "amount")
            top_up_period(period, amount, actor=actor)
        except ChangeRefused as error:
            show_refusal(form, error)
        else:
            messages.success(request, f"Added {amount_shown(amount, budget.measure)} to this window.")
            return redirect("budget_detail", org, budget_id)
    return _detail(request, actor, budget, form, period)


@require_http_methods(["GET", "POST"])
@signed_in
def budget_rules(request: MemberRequest, org: str) -> HttpResponse:
    """The time zone in which windows begin, and what a model without a price counts."""
    actor = member_or_404(request, right=Right.BUDGETS)
    rules = actor.organisation
    initial = {"time_zone": rules.time_zone, "counts_unpriced_as_free": rules.counts_unpriced_as_free}
    form = RulesForm(request.POST or None, initial=initial)
    if form.is_valid():
        data = form.cleaned_data
        try:
            set_spending_rules(data["time_zone"], counts_unpriced_as_free=data["counts_unpriced_as_free"], actor=actor)
        except ChangeRefused as error:
            show_refusal(form, error)
        else:
            messages.success(request, f"Saved. Windows begin by the time zone {data['time_zone']}.")
            return redirect("budget_rules", org)
    return render(request, "sessions/budgets/budget_rules.html", {"form": form}, status=status_of(form))
