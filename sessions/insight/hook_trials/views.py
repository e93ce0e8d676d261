"""The pages of a dry run: the choice of a turn, and what the hooks would have done in it."""

from __future__ import annotations

from uuid import UUID

from django import forms
from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET, require_http_methods

from capabilities.agents.hooks.queries import hook_or_404
from capabilities.models import Hook
from sessions.insight.hook_trials.queries import dry_run, turn_to_try_or_404, turns_to_try
from toolhub.tenants.access import MemberRequest, member_or_404
from toolhub.tenants.list_address import ListAddress
from toolhub.tenants.models import Right
from toolhub.tenants.pages import signed_in
from toolhub.tenants.rows.public_ids import public_id_of


class TrialAddress(ListAddress):
    hook = forms.CharField(required=False, max_length=36)


@require_GET
@signed_in
def hook_trials(request: MemberRequest, org: str) -> HttpResponse:
    """Turns that the member may see: one's own, or the organisation's with the right `sessions`."""
    member = member_or_404(request, right=Right.HOOKS)
    address = TrialAddress(request.GET)
    hook = _hook(address.values()["hook"])
    context = {**address.context(turns_to_try(member, **address.place)), "hook": hook}
    return render(request, "sessions/insight/hook_trials/hook_trials.html", context)


@require_http_methods(["GET", "POST"])
@signed_in
def hook_trial(request: MemberRequest, org: str, turn_id: UUID) -> HttpResponse:
    """A POST calls the Python hooks too; without one they are left out. Neither changes anything."""
    member = member_or_404(request, right=Right.HOOKS)
    turn = turn_to_try_or_404(member, turn_id)
    hook = _hook(request.GET.get("hook", ""))
    context = {"turn": turn, "hook": hook, "trial": dry_run(turn, hook=hook, with_python=request.method == "POST")}
    return render(request, "sessions/insight/hook_trials/hook_trial.html", context)


def _hook(text: str) -> Hook | None:
    """The hook that an address names. Raises Http404 for one that is not there."""
    if not text:
        return None
    key = public_id_of(text)
    if key is None:
        raise Http404("No such hook.")
    return hook_or_404(key)
