"""The pages of keywords: the table with a message to try, and the turns in which routing was wrong."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods

from capabilities.catalogue.categories.queries import category_or_404
from capabilities.catalogue.categories.writes import update_category
from capabilities.common.pages import show_refusal, status_of
from capabilities.common.refused import ChangeRefused
from capabilities.models import Agent
from sessions.insight.explain.why import Subject, subject_of
from sessions.insight.keywords.forms import FindingFilter, KeywordFilter, KeywordsForm, TryForm
from sessions.insight.keywords.queries import (
    LATEST,
    Tried,
    findings_page,
    keyword_numbers,
    keyword_page,
    keyword_row,
    try_message,
)
from toolhub.tenants.access import MemberRequest, check_right, member_or_404
from toolhub.tenants.models import Membership, Right
from toolhub.tenants.pages import signed_in
from toolhub.tenants.rows.keyset import PAGE


@require_GET
@signed_in
def keyword_list(request: MemberRequest, org: str) -> HttpResponse:
    """List the keywords, for those who keep the catalogue. A message is tried for oneself; with the right `roles` for
    any member."""
    member = member_or_404(request, right=Right.CATALOGUE, category=None)
    form = TryForm(request.GET, auto_id="try-%s")
    tried = _tried(form, member) if form.is_valid() and form.cleaned_data["message"].strip() else None
    agents = Agent.objects.seen_by(member).order_by("-is_enabled", "pk")
    context: dict[str, Any] = {
        "form": form,
        "tried": tried,
        "agents": list(agents.only("organisation_id", "slug", "name")),
        "sees_all": member.has_right(Right.ROLES),
        "modes": form.fields["mode"].choices,  # type: ignore[attr-defined]
    }
    if request.htmx and request.htmx.target == "tried":
        return render(request, "sessions/insight/keywords/_tried.html", context, status=status_of(form))
    address = KeywordFilter(request.GET)
    page = keyword_page(member.reach(Right.CATALOGUE), q=address.filters["q"], **address.place)
    context |= {
        **address.context(page),
        "numbers": keyword_numbers(),
        "rows_of_a_page": PAGE,
        "findings": findings_page(member, limit=LATEST),
    }
    return render(request, "sessions/insight/keywords/keyword_list.html", context, status=status_of(form))


@require_http_methods(["GET", "POST"])
@signed_in
def keyword_update(request: MemberRequest, org: str, name: str) -> HttpResponse:
    """One row of the table as a form; a page of its own where there is no script."""
    member = member_or_404(request, right=Right.CATALOGUE, category=None)
    category = category_or_404(name)
    check_right(member, Right.CATALOGUE, category.name)
    form = KeywordsForm(request.POST or None, initial={"keywords": "\n".join(category.keywords)}, auto_id=f"{name}-%s")
    if form.is_valid():
        try:
            update_category(category, form.content(category), actor=member)
        except ChangeRefused as error:
            show_refusal(form, error)
            category.refresh_from_db()
        else:
            if request.htmx:
                row = keyword_row(category, member.reach(Right.CATALOGUE))
                return render(request, "sessions/insight/keywords/_keyword_row.html", {"row": row, "is_saved": True})
            messages.success(request, f"The keywords of {category} are saved.")
            return redirect(f"{reverse('keyword_list', args=[org])}#keywords-{name}")
    if request.htmx and request.GET.get("row"):
        row = keyword_row(category, member.reach(Right.CATALOGUE))
        return render(request, "sessions/insight/keywords/_keyword_row.html", {"row": row})
    template = (
        "sessions/insight/keywords/_keyword_form.html"
        if request.htmx
        else "sessions/insight/keywords/keyword_form.html"
    )
    return render(request, template, {"form": form, "category": category}, status=status_of(form))


@require_GET
@signed_in
def keyword_findings(request: MemberRequest, org: str) -> HttpResponse:
    """Turns in which a needed tool was left out, or a keyword sent tools of which none was called."""
    member = member_or_404(request, right=Right.CATALOGUE, category=None)
    address = FindingFilter(request.GET)
    page = findings_page(member, kind=address.filters["kind"], **address.place)
    context = {**address.context(page), "kinds": address.fields["kind"].choices}  # type: ignore[attr-defined]
    return render(request, "sessions/insight/keywords/keyword_findings.html", context)


def _tried(form: TryForm, reader: Membership) -> Tried | None:
    """Try the message; None, with the reason in the form, for what is not there. PermissionDenied goes on."""
    wanted = form.cleaned_data
    try:
        subject: Subject = subject_of(
            reader, member=wanted["member"] or None, agent=wanted["agent"], session=wanted["session"]
        )
    except ChangeRefused as error:
        show_refusal(form, error)
        return None
    return try_message(subject, wanted["message"], wanted["mode"])
