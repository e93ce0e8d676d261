"""The pages of access for a time: a member asks and sees what became of it; whoever may decides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from capabilities.access.requests.forms import DecisionForm, RequestForm, RequestsAddress
from capabilities.access.requests.queries import request_or_404, requests_page, tools_to_suggest, waiting_for
from capabilities.access.requests.writes import ask_for_grant, grant_request, refuse_request, withdraw_request
from capabilities.common.pages import refused, show_refusal, status_of
from capabilities.common.refused import ChangeRefused
from capabilities.models import GrantRequest
from toolhub.tenants.access import MemberRequest, member_or_404
from toolhub.tenants.models import Access, Membership, Right
from toolhub.tenants.pages import signed_in
from toolhub.tenants.rows.keyset import PageBounds


@require_http_methods(["GET", "POST"])
@signed_in
def request_list(request: MemberRequest, org: str) -> HttpResponse:
    """One's own requests with a form to ask; above them, for who may decide, those that wait."""
    is_post = request.method == "POST"
    member = member_or_404(request, at_least=Access.MEMBER if is_post else Access.VIEWER)
    address = RequestsAddress(request.GET)
    form = RequestForm(request.POST if is_post else None, initial=address.filters)
    if form.is_valid():
        try:
            asked = ask_for_grant(form.content(), member=member)
        except ChangeRefused as error:
            show_refusal(form, error)
        else:
            messages.success(request, f"You asked for {asked.tool or asked.category}. It waits for an answer here.")
            return redirect("request_list", org)
    return _requests_page(request, member, form, place=address.place)


@require_POST
@signed_in
def request_withdraw(request: MemberRequest, org: str, own_request: UUID) -> HttpResponse:
    member = member_or_404(request)
    asked = request_or_404(member, own_request)
    try:
        withdraw_request(asked, member=member)
    except ChangeRefused as error:
        return refused(request, error, "request_list", org)
    messages.success(request, f"Withdrawn: you do not ask for {asked.tool or asked.category} any more.")
    return redirect("request_list", org)


@require_POST
@signed_in
def request_grant(request: MemberRequest, org: str, request_id: UUID) -> HttpResponse:
    def decide(asked: GrantRequest, word: dict[str, Any], actor: Membership) -> str:
        grant_request(asked, hours=word["hours"], answer=word["answer"], actor=actor)
        hours = f"{word['hours']:,} hour{'s' if word['hours'] != 1 else ''}"
        return f"Granted for {hours}: {asked.membership} may use {asked.tool or asked.category}."

    return _decide(request, org, request_id, decide)


@require_POST
@signed_in
def request_refuse(request: MemberRequest, org: str, request_id: UUID) -> HttpResponse:
    def decide(asked: GrantRequest, word: dict[str, Any], actor: Membership) -> str:
        refuse_request(asked, answer=word["answer"], actor=actor)
        return f"Refused: {asked.membership} does not get {asked.tool or asked.category}, and reads why."

    return _decide(request, org, request_id, decide)


def _decide(
    request: MemberRequest,
    org: str,
    request_id: UUID,
    decide: Callable[[GrantRequest, dict[str, Any], Membership], str],
) -> HttpResponse:
    """The word on one request, or the page again with what is wrong beside it."""
    actor = member_or_404(request, right=Right.ROLES, category=None)
    asked = request_or_404(actor, request_id)
    form = DecisionForm(request.POST, request=asked)
    if form.is_valid():
        try:
            messages.success(request, decide(asked, form.cleaned_data, actor))
        except ChangeRefused as error:
            if error.field == "hours":
                error.field = "until"
            if error.field not in form.fields:
                return refused(request, error, "request_list", org)
            show_refusal(form, error)
        else:
            return redirect("request_list", org)
    return _requests_page(request, actor, RequestForm(), deciding=(request_id, form))


def _requests_page(
    request: MemberRequest,
    member: Membership,
    form: RequestForm,
    *,
    place: PageBounds | None = None,
    deciding: tuple[UUID, DecisionForm] | None = None,
) -> HttpResponse:
    may_decide = bool(member.reach(Right.ROLES))
    waiting = waiting_for(member) if may_decide else None
    for each in waiting.requests if waiting else ():
        is_it = deciding is not None and deciding[0] == each.public_id
        each.form = deciding[1] if deciding and is_it else DecisionForm(request=each)  # type: ignore[attr-defined]
    may_ask = member.has_access(Access.MEMBER)
    context = {
        "page": requests_page(member, **(place or PageBounds(after="", before=""))),
        "waiting": waiting,
        "may_decide": may_decide,
        "may_ask": may_ask,
        "form": form,
        "tools": tools_to_suggest() if may_ask else (),
    }
    status = status_of(deciding[1] if deciding else form)
    return render(request, "capabilities/access/request_list.html", context, status=status)
