"""The page of an organisation's settings."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from toolhub.tenants.access import MemberRequest, member_or_404
from toolhub.tenants.models import Right
from toolhub.tenants.organisation.forms import OrganisationForm
from toolhub.tenants.organisation.writes import OrganisationContent, update_organisation
from toolhub.tenants.pages import signed_in
from toolhub.tenants.people.writes import Forbidden

SWITCHED = {
    True: "The personal assistant is on: its tools, agents and pages are here.",
    False: "The personal assistant is off. What members keep with it stays, and is back when it is on again.",
}


@dataclass(frozen=True)
class Elsewhere:
    """Something that is set for the whole organisation on a page of its own."""

    title: str
    what: str
    view: str
    right: Right


ELSEWHERE = (
    Elsewhere("New members", "Their access and roles are chosen with each invitation.", "member_invite", Right.MEMBERS),
    Elsewhere(
        "Clients and tokens",
        "A program may do what its token and the member it belongs to may.",
        "token_list",
        Right.MEMBERS,
    ),
    Elsewhere(
        "Tools made by agents",
        "Whether agents may make tools; each waits for approval.",
        "approval_versions",
        Right.APPROVE_CODE,
    ),
    Elsewhere("Calls", "Limits, and which calls a person is asked first.", "runtime_list", Right.POLICIES),
    Elsewhere("Budgets", "What models without a price count.", "budget_rules", Right.BUDGETS),
)


@require_http_methods(["GET", "POST"])
@signed_in
def organisation_settings(request: MemberRequest, org: str) -> HttpResponse:
    member = member_or_404(request, right=Right.MEMBERS)
    current = OrganisationContent.of(member.organisation)
    form = OrganisationForm(request.POST if request.method == "POST" else None, initial=asdict(current))
    if form.is_valid():
        content = form.content()
        try:
            update_organisation(content, actor=member)
        except Forbidden as error:
            form.add_error(None, str(error))
        else:
            is_switched = content.has_assistant != current.has_assistant
            messages.success(request, SWITCHED[content.has_assistant] if is_switched else "Saved.")
            return redirect("organisation_settings", org)
    elsewhere = [each for each in ELSEWHERE if member.reach(each.right)]
    context = {"form": form, "has_assistant": current.has_assistant, "elsewhere": elsewhere}
    return render(request, "tenants/organisation_settings.html", context, status=422 if form.errors else 200)
