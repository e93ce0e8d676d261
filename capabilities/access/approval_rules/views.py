"""The pages of approval rules: the list in its order, the form with a preview in words, and removing one."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from capabilities.access.approval_rules.forms import RuleForm
from capabilities.access.approval_rules.queries import rule_or_404, rules_page, tools_matched_by, would_ask
from capabilities.access.approval_rules.words import in_words
from capabilities.access.approval_rules.writes import RuleContent, create_rule, delete_rule, rule_content, update_rule
from capabilities.common.pages import refused, show_refusal, status_of
from capabilities.common.refused import ChangeRefused
from capabilities.models import ApprovalRule
from toolhub.tenants.access import MemberRequest, member_or_404
from toolhub.tenants.list_address import ListAddress
from toolhub.tenants.models import Membership, Right
from toolhub.tenants.pages import signed_in

#: Tools that a preview names.
NAMED = 20


@require_GET
@signed_in
def approval_rules(request: MemberRequest, org: str) -> HttpResponse:
    """The rules in the order in which they are asked."""
    member_or_404(request, right=Right.POLICIES)
    address = ListAddress(request.GET)
    page = rules_page(**address.place)
    for rule in page.rows:
        rule.words = in_words(rule_content(rule))  # type: ignore[attr-defined]
    return render(request, "capabilities/access/approval_rules/rule_list.html", address.context(page))


@require_http_methods(["GET", "POST"])
@signed_in
def approval_rule_create(request: MemberRequest, org: str) -> HttpResponse:
    actor = member_or_404(request, right=Right.POLICIES)
    return _rule_page(request, org, actor, None)


@require_http_methods(["GET", "POST"])
@signed_in
def approval_rule_edit(request: MemberRequest, org: str, rule_id: UUID) -> HttpResponse:
    actor = member_or_404(request, right=Right.POLICIES)
    return _rule_page(request, org, actor, rule_or_404(actor, rule_id))


def _rule_page(request: MemberRequest, org: str, actor: Membership, rule: ApprovalRule | None) -> HttpResponse:
    """The form; with `preview` what it would ask; else it is saved."""
    form = RuleForm(request.POST or None, initial=asdict(rule_content(rule)) if rule else None)
    preview: dict[str, Any] = {}
    if form.is_valid():
        content = form.content()
        if "preview" in request.POST:
            preview = _preview(content)
        else:
            try:
                saved = update_rule(rule, content, actor=actor) if rule else create_rule(content, actor=actor)
            except ChangeRefused as error:
                show_refusal(form, error)
            else:
                messages.success(request, f"Saved: {saved}. It counts from the next call on.")
                return redirect("approval_rules", org)
    context = {"form": form, "rule": rule, **preview}
    return render(request, "capabilities/access/approval_rules/rule_form.html", context, status=status_of(form))


def _preview(content: RuleContent) -> dict[str, Any]:
    names = tools_matched_by(would_ask(content))
    return {"words": in_words(content), "tools": names[:NAMED], "count": len(names), "more": len(names) - NAMED}


@require_POST
@signed_in
def approval_rule_delete(request: MemberRequest, org: str, rule_id: UUID) -> HttpResponse:
    actor = member_or_404(request, right=Right.POLICIES)
    rule = rule_or_404(actor, rule_id)
    try:
        delete_rule(rule, actor=actor)
    except ChangeRefused as error:
        return refused(request, error, "approval_rule_edit", org, rule_id)
    messages.success(request, f"Removed: {rule}.")
    return redirect("approval_rules", org)
