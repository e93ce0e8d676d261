"""The page of files that tools come from."""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from capabilities.sharing.forms import FileFilter
from capabilities.sharing.queries import has_synced_files, synced_page
from toolhub.tenants.access import MemberRequest, member_or_404
from toolhub.tenants.models import Right
from toolhub.tenants.pages import signed_in


@require_GET
@signed_in
def tool_file_list(request: MemberRequest, org: str) -> HttpResponse:
    """Each file with its tool, or with what is wrong with it."""
    member_or_404(request, right=Right.CATALOGUE, category=None)
    address = FileFilter(request.GET)
    page = synced_page(**address.values())
    context = {**address.context(page), "states": address.fields["state"].choices}  # type: ignore[attr-defined]
    context["is_empty"] = not page.rows and not (context["is_filtered"] and has_synced_files())
    return render(request, "capabilities/sharing/tool_file_list.html", context)
