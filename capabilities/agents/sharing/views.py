"""The pages of files that tools come from, and of toolkits as files."""

from __future__ import annotations

from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_POST

from capabilities.agents.sharing.exports import export_toolkit
from capabilities.agents.sharing.forms import FileFilter
from capabilities.agents.sharing.imported_toolkits import save_imported_toolkit
from capabilities.agents.sharing.queries import has_synced_files, synced_page, toolkit_named_or_404
from capabilities.catalogue.imports.queries import import_or_404
from capabilities.common.pages import refused
from capabilities.common.refused import ChangeRefused
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
    return render(request, "capabilities/agents/sharing/tool_file_list.html", context)


@require_POST
@signed_in
def toolkit_export(request: MemberRequest, org: str, name: str) -> HttpResponse:
    """The toolkit's file, to be saved."""
    member = member_or_404(request, right=Right.CATALOGUE, category=None)
    toolkit = toolkit_named_or_404(name)
    try:
        exported = export_toolkit(toolkit, actor=member)
    except ChangeRefused as error:
        return refused(request, error, "toolkit_detail", org, name)
    headers = {
        "Content-Disposition": f'attachment; filename="{exported.file_name}"',
        "X-Content-Type-Options": "nosniff",
    }
    return HttpResponse(exported.text + "\n", content_type="application/json; charset=utf-8", headers=headers)


@require_POST
@signed_in
def import_toolkit(request: MemberRequest, org: str, import_id: UUID) -> HttpResponse:
    """Make the toolkit of a file, or bring the one of its name up to it."""
    member = member_or_404(request, right=Right.TOOLKITS)
    tool_import = import_or_404(import_id)
    try:
        toolkit = save_imported_toolkit(tool_import, actor=member)
    except ChangeRefused as error:
        return refused(request, error, "import_detail", org, import_id)
    messages.success(request, f"{toolkit} is saved: sessions have it from their next selection of tools on.")
    return redirect("toolkit_detail", org, toolkit.name)
