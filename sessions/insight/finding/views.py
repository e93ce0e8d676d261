"""The page of what is found by a word, and the list below the box of the top bar."""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from sessions.insight.finding.queries import find
from toolhub.tenants.access import MemberRequest, member_or_404
from toolhub.tenants.pages import signed_in

MOST_CHARS = 100


@require_GET
@signed_in
def find_page(request: MemberRequest, org: str) -> HttpResponse:
    """Find pages and things by `?q=`. For htmx the list alone."""
    member = member_or_404(request)
    q = request.GET.get("q", "").replace("\0", "")[:MOST_CHARS].strip()
    name = "_found.html" if request.htmx else "find.html"
    return render(request, f"sessions/insight/finding/{name}", {"groups": find(member, q), "q": q})
