"""The pages of hooks: the list, the choice of what a new one does, and the form."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from capabilities.agents.hooks.forms import HookFilter, HookForm, model_names
from capabilities.agents.hooks.installed import installed_hooks
from capabilities.agents.hooks.queries import hook_numbers, hook_or_404, hooks_page, names_for, shown_hook
from capabilities.agents.hooks.writes import create_hook, delete_hook, update_hook
from capabilities.common.pages import show_refusal, status_of
from capabilities.common.refused import ChangeRefused
from capabilities.contract.hooks import ACTIONS, PHASE_TITLES, Action, Phase
from capabilities.models import Hook
from toolhub.tenants.access import MemberRequest, member_or_404
from toolhub.tenants.models import Right
from toolhub.tenants.pages import signed_in


@require_GET
@signed_in
def hook_list(request: MemberRequest, org: str) -> HttpResponse:
    """Show the hooks in the order in which they run. Four queries at most beside the frame's."""
    member_or_404(request, right=Right.HOOKS)
    address = HookFilter(request.GET)
    page = hooks_page(**address.values())
    names = names_for(page.rows)
    context = {
        **address.context(page.of(lambda hook: shown_hook(hook, names))),
        "numbers": hook_numbers(),
        "phases": [(str(each), PHASE_TITLES[each]) for each in Phase],
    }
    return render(request, "capabilities/agents/hooks/hook_list.html", context)


@require_http_methods(["GET", "POST"])
@signed_in
def hook_create(request: MemberRequest, org: str) -> HttpResponse:
    """Show the form of a new hook; without an `action` in the address or the form, the choice of one."""
    member = member_or_404(request, right=Right.HOOKS)
    given = request.POST if "action" in request.POST else request.GET
    chosen = _chosen(given.get("phase", ""), given.get("action", ""))
    if chosen is None:
        context = {"phases": _choices(), "has_python": bool(installed_hooks())}
        return render(request, "capabilities/agents/hooks/hook_choose.html", context)
    form = HookForm(request.POST or None, *chosen)
    if form.is_valid():
        try:
            hook = create_hook(form.content(), actor=member)
        except ChangeRefused as error:
            show_hook_refusal(form, error)
        else:
            messages.success(request, f"{hook} is saved: it runs from the next call on.")
            return redirect("hook_list", org)
    return _form_page(request, form, None)


@require_http_methods(["GET", "POST"])
@signed_in
def hook_update(request: MemberRequest, org: str, hook_id: UUID) -> HttpResponse:
    """Its phase and action stay; for others there is a new hook."""
    member = member_or_404(request, right=Right.HOOKS)
    hook = hook_or_404(hook_id)
    chosen = _chosen(hook.phase, hook.action)
    if chosen is None:
        return _form_page(request, None, hook)
    form = HookForm(request.POST or None, *chosen, hook=hook)
    if form.is_valid():
        try:
            update_hook(hook, form.content(), actor=member)
        except ChangeRefused as error:
            show_hook_refusal(form, error)
        else:
            messages.success(request, f"{hook} is saved: it runs this way from the next call on.")
            return redirect("hook_list", org)
    return _form_page(request, form, hook)


@require_POST
@signed_in
def hook_delete(request: MemberRequest, org: str, hook_id: UUID) -> HttpResponse:
    member = member_or_404(request, right=Right.HOOKS)
    hook = hook_or_404(hook_id)
    delete_hook(hook, actor=member)
    messages.success(request, f"{hook} is removed.")
    return redirect("hook_list", org)


def show_hook_refusal(form: HookForm, error: ChangeRefused) -> None:
    """Conditions are fields by their own name."""
    if error.field.startswith("when."):
        error.field = error.field.removeprefix("when.")
    show_refusal(form, error)


def _chosen(phase: str, action: str) -> tuple[Phase, str] | None:
    """Return the phase and action that an address names, None for unknown ones; the phase may be left out where the
    action has but one."""
    known = ACTIONS.get(action)
    if known is None:
        return None
    if not phase and len(known.phases) == 1:
        return known.phases[0], action
    return (Phase(phase), action) if phase in known.phases else None


def _choices() -> list[tuple[Phase, str, list[Action]]]:
    return [
        (phase, PHASE_TITLES[phase], [each for each in ACTIONS.values() if phase in each.phases]) for phase in Phase
    ]


def _form_page(request: MemberRequest, form: HookForm | None, hook: Hook | None) -> HttpResponse:
    context: dict[str, Any] = {"form": form, "hook": hook, "models": model_names()}
    if form is not None:
        context |= {"phase_title": PHASE_TITLES[form.phase], "action": form.action}
    if hook is not None:
        context["shown"] = shown_hook(hook, names_for([hook]))
    status = status_of(form) if form is not None else 200
    return render(request, "capabilities/agents/hooks/hook_form.html", context, status=status)
