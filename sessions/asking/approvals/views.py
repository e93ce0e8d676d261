"""The pages of what turns ask people: the queue, one approval, the answers, and what is remembered of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_POST

from capabilities.common.pages import page_before
from capabilities.common.refused import ChangeRefused
from sessions.asking.approvals.cards import Card, by_tool, card_for, grouped, waiting_cards
from sessions.asking.approvals.forms import APPROVE, AnswerForm, ApprovalsAddress, BulkForm, first_error
from sessions.asking.approvals.input_forms import content_typed
from sessions.asking.approvals.queries import (
    answerable_of,
    approval_or_404,
    approvals_named,
    consent_or_404,
    consents_page,
    history_page,
    waiting_page,
)
from sessions.asking.approvals.writes import (
    ContentRefused,
    answer,
    approve,
    approve_with_consent,
    deny,
    respond,
    revoke_consent,
)
from sessions.models import Approval, ApprovalKind
from sessions.turns.asked import ACCEPT
from sessions.turns.fencing import Conflict
from toolhub.tenants.access import MemberRequest, member_or_404
from toolhub.tenants.list_address import ListAddress
from toolhub.tenants.models import Access, Membership, Right
from toolhub.tenants.pages import signed_in


@require_GET
@signed_in
def approval_list(request: MemberRequest, org: str) -> HttpResponse:
    """List what waits for this member, the oldest first; behind it, in pages, all that he or she may see of the
    rest."""
    member = member_or_404(request)
    address = ApprovalsAddress(request.GET)
    waiting = waiting_page(member)
    cards = waiting_cards(member, waiting.rows)
    context = {
        **address.context(history_page(member, **address.filters, **address.place)),
        "groups": grouped(cards),
        "tools": by_tool(cards),
        "waiting": len(waiting.rows),
        "has_more": bool(waiting.after),
        "statuses": ApprovalsAddress.base_fields["status"].choices,  # type: ignore[attr-defined]
    }
    return render(request, "sessions/asking/approvals/approval_list.html", context)


@require_GET
@signed_in
def approval_detail(request: MemberRequest, org: str, approval_id: UUID) -> HttpResponse:
    """One approval: what its address leads to."""
    member = member_or_404(request)
    return _card(request, card_for(member, approval_or_404(member, approval_id)))


def _card(request: MemberRequest, card: Card, *, error: str = "", status: int = 200) -> HttpResponse:
    context = {"card": card, "error": error, "typed": request.POST}
    partial, page = "sessions/asking/approvals/_card.html", "sessions/asking/approvals/approval_detail.html"
    return render(request, partial if request.htmx else page, context, status=status)


@require_POST
@signed_in
def approval_approve(request: MemberRequest, org: str, approval_id: UUID) -> HttpResponse:
    """Let the call run: once, with `remember=session` in this session, with `remember=hours` for so many."""

    def act(approval: Approval, form: AnswerForm, member: Membership) -> str:
        note, remember = form.cleaned_data["note"], request.POST.get("remember", "")
        if not remember:
            approve(approval, actor=member, note=note, only_once=True)
            return f"Approved: {approval.tool} runs once, with exactly these arguments."
        until = form.until() if remember == "hours" else None
        approve_with_consent(approval, actor=member, until=until, note=note)
        return "Approved, and remembered. You can revoke it under “Remembered”."

    return _answer(request, org, approval_id, act)


@require_POST
@signed_in
def approval_deny(request: MemberRequest, org: str, approval_id: UUID) -> HttpResponse:
    def act(approval: Approval, form: AnswerForm, member: Membership) -> str:
        deny(approval, actor=member, proposal=form.cleaned_data["proposal"], note=form.cleaned_data["note"])
        return f"Denied: {approval.tool} does not run. The agent reads that, and goes on."

    return _answer(request, org, approval_id, act)


@require_POST
@signed_in
def approval_respond(request: MemberRequest, org: str, approval_id: UUID) -> HttpResponse:
    def act(approval: Approval, form: AnswerForm, member: Membership) -> str:
        respond(approval, actor=member, response=form.response_text(), note=form.cleaned_data["note"])
        return "Answered. The agent reads it, and goes on."

    return _answer(request, org, approval_id, act)


@require_POST
@signed_in
def approval_answer(request: MemberRequest, org: str, approval_id: UUID) -> HttpResponse:
    """Answer a form or a link: accept, decline or cancel."""

    def act(approval: Approval, form: AnswerForm, member: Membership) -> str:
        action = request.POST.get("action", "")
        content = content_typed(approval.form, request.POST) if approval.kind == ApprovalKind.INPUT else None
        answer(approval, actor=member, action=action, content=content)
        return "Sent. The call goes on." if action == ACCEPT else "Declined. The agent reads that, and goes on."

    return _answer(request, org, approval_id, act)


def _answer(
    request: MemberRequest, org: str, approval_id: UUID, act: Callable[[Approval, AnswerForm, Membership], str]
) -> HttpResponse:
    """The answer, or the card again with what stands in its way and with what was typed."""
    member = member_or_404(request)
    approval = approval_or_404(member, approval_id)
    form = AnswerForm(request.POST)
    if not form.is_valid():
        return _card(request, card_for(member, approval), error=first_error(form), status=422)
    try:
        done = act(approval, form, member)
    except ContentRefused as error:
        card = replace(card_for(member, approval), typed=request.POST, errors=error.errors)
        return _card(request, card, status=422)
    except ChangeRefused as error:
        return _card(request, card_for(member, approval), error=str(error), status=422)
    except Conflict as error:
        if request.htmx:
            return _card(request, card_for(member, approval_or_404(member, approval_id)), error=str(error))
        messages.error(request, str(error))
    else:
        if request.htmx:
            context = {"card": card_for(member, approval_or_404(member, approval_id))}
            return render(request, "sessions/asking/approvals/_card_answered.html", context)
        messages.success(request, done)
    return redirect(page_before(request, member, "approvals/"))


# -- Several calls of one tool ----------------------------------------------------------------------------------------


@require_POST
@signed_in
def approval_bulk(request: MemberRequest, org: str) -> HttpResponse:
    """Show the ticked calls of one tool before they are answered; with `confirmed` answer each of them by itself."""
    member = member_or_404(request, at_least=Access.MEMBER)
    form = BulkForm(request.POST)
    if not form.is_valid():
        messages.error(request, first_error(form))
        return redirect("approval_list", org)
    named = approvals_named(member, form.cleaned_data["approval"])
    if len({each.tool_id for each in named}) > 1:
        messages.error(request, "Tick calls of one tool.")
        return redirect("approval_list", org)
    do = form.cleaned_data["do"]
    if "confirmed" in request.POST:
        _answer_each(request, member, named, do)
        return redirect("approval_list", org)
    cards = [card for card in waiting_cards(member, answerable_of(member, named)) if card.is_before_call]
    if not cards:
        messages.error(request, "None of these calls waits any more.")
        return redirect("approval_list", org)
    context = {"cards": cards, "tool": cards[0].approval.tool, "do": do, "gone": len(named) - len(cards)}
    return render(request, "sessions/asking/approvals/approval_bulk.html", context)


def _answer_each(request: MemberRequest, member: Membership, named: list[Approval], do: str) -> None:
    """Approve or deny each in a transaction of its own, and say what became of them."""
    refused: list[str] = []
    for approval in named:
        try:
            if do == APPROVE:
                approve(approval, actor=member, only_once=True)
            else:
                deny(approval, actor=member)
        except (ChangeRefused, Conflict, PermissionDenied) as error:
            refused.append(str(error))
    done, tool = len(named) - len(refused), named[0].tool
    calls = f"{done} call{'' if done == 1 else 's'} of {tool}"
    if done:
        messages.success(
            request, f"Approved: {calls}, each runs once." if do == APPROVE else f"Denied: {calls}. None of them runs."
        )
    for reason in dict.fromkeys(refused):
        messages.error(request, f"Not answered: {reason}")


# -- What is remembered ------------------------------------------------------------------------------------------------


@require_GET
@signed_in
def approval_consents(request: MemberRequest, org: str) -> HttpResponse:
    """List what the member allowed for longer than one call; with the right `approvals`, what everybody did."""
    member = member_or_404(request)
    address = ListAddress(request.GET)
    context = {
        **address.context(consents_page(member, **address.place)),
        "sees_others": bool(member.reach(Right.APPROVALS)),
    }
    return render(request, "sessions/asking/approvals/consent_list.html", context)


@require_POST
@signed_in
def approval_consent_revoke(request: MemberRequest, org: str, consent_id: UUID) -> HttpResponse:
    member = member_or_404(request)
    consent = consent_or_404(member, consent_id)
    revoke_consent(consent, actor=member)
    messages.success(request, f"Revoked: {consent.tool} asks again from now on.")
    return redirect("approval_consents", org)
