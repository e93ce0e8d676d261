"""The pages of the audit."""

from __future__ import annotations

from django.http import HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from toolhub.tenants.access import MemberRequest, member_or_404
from toolhub.tenants.audit.files import csv_parts
from toolhub.tenants.audit.forms import AuditFilterForm
from toolhub.tenants.audit.queries import occurring, trail_page
from toolhub.tenants.audit.writes import check_chain
from toolhub.tenants.models import Right
from toolhub.tenants.pages import signed_in


@require_GET
@signed_in
def audit_list(request: MemberRequest, org: str) -> HttpResponse:
    """Show the changes and who made them, newest first; htmx gets the entries alone."""
    member = member_or_404(request, right=Right.AUDIT)
    form = AuditFilterForm(request.GET)
    page = trail_page(form.wanted(), member, **form.place)
    context = {
        **form.context(page),
        "of": next(iter(page.rows), None) if form.filters["target_id"] else None,
        "occurring": None if request.htmx else occurring(),
        "count": member.organisation.audit_count,
    }
    template = "tenants/_audit_entries.html" if request.htmx else "tenants/audit_list.html"
    return render(request, template, context)


@require_GET
@signed_in
def audit_csv(request: MemberRequest, org: str) -> StreamingHttpResponse:
    """The entries that the address asks for as a file, the newest first."""
    member = member_or_404(request, right=Right.AUDIT)
    parts = csv_parts(member.organisation, AuditFilterForm(request.GET).wanted())
    response = StreamingHttpResponse(parts, content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="audit-{org}.csv"'
    return response


@require_GET
@signed_in
def audit_check(request: MemberRequest, org: str) -> HttpResponse:
    """Read the whole chain, and say whether it is intact; htmx gets the line alone."""
    member = member_or_404(request, right=Right.AUDIT)
    broken = check_chain(member.organisation)
    member.organisation.refresh_from_db(fields=["audit_count", "audit_head"])
    context = {"broken": broken, "is_checked": True, "count": member.organisation.audit_count}
    template = "tenants/_audit_chain.html" if request.htmx else "tenants/audit_check.html"
    return render(request, template, context)
