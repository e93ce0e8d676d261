"""Saving the filter of a list under a name, and removing it."""

from __future__ import annotations

from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_POST

from toolhub.tenants.access import MemberRequest, member_or_404
from toolhub.tenants.pages import signed_in
from toolhub.tenants.saved_filters.queries import own_filter_or_404
from toolhub.tenants.saved_filters.writes import FilterRefused, save_filter


@require_POST
@signed_in
def saved_filter_create(request: MemberRequest, org: str) -> HttpResponse:
    """Save a list's filter; back on the list, which shows it."""
    member = member_or_404(request)
    page, name, query = (request.POST.get(each, "") for each in ("page", "name", "query"))
    try:
        saved = save_filter(member, page, name, query)
    except FilterRefused as error:
        messages.error(request, str(error))
        return redirect("home")
    messages.success(request, f"Saved as {saved.name}: it stands above this list for you.")
    return redirect(f"{reverse(saved.page, args=[org])}?{saved.query}")


@require_POST
@signed_in
def saved_filter_delete(request: MemberRequest, org: str, own_filter: UUID) -> HttpResponse:
    """Remove one's own saved filter; back on its list."""
    found = own_filter_or_404(member_or_404(request), own_filter)
    found.delete()
    messages.success(request, f"Removed the saved filter {found.name}.")
    return redirect(found.page, org)
