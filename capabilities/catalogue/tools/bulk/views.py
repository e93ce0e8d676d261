"""The form below the list of tools that sets the same for all that are ticked."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST

from capabilities.catalogue.tools.bulk.kept import FIELDS, keep_form
from capabilities.catalogue.tools.bulk.previews import preview_of
from capabilities.catalogue.tools.bulk.undo import Undone, entries_of_request, undo_change
from capabilities.catalogue.tools.bulk.writes import ToolsChange, ToolsChanged, change_tools
from capabilities.common.pages import page_before
from capabilities.common.refused import ChangeRefused
from toolhub.tenants.access import MemberRequest, member_or_404
from toolhub.tenants.models import Membership, Right
from toolhub.tenants.pages import signed_in

#: Above what an entry of the audit can have as its number.
MAX_NUMBER = 2**63


@require_POST
@signed_in
def tools_change(request: MemberRequest, org: str) -> HttpResponse:
    """Change the ticked tools, all or none; with `preview` a page says what would change."""
    member = member_or_404(request, right=Right.CATALOGUE, category=None)
    names = sorted(set(request.POST.getlist("names")))
    effect, category, ask, in_untrusted = (request.POST.get(name, "")[:64] for name in FIELDS)
    change = ToolsChange(effect=effect, category=category, ask=ask, in_untrusted=in_untrusted)
    if not names:
        messages.warning(request, "Tick the tools first.")
        return redirect(page_before(request, member))
    try:
        if "preview" in request.POST:
            preview = preview_of(names, change, member=member)
            fields = [(name, request.POST.get(name, "")[:64]) for name in FIELDS]
            context = {"names": names, "fields": fields, "preview": preview, "back": page_before(request, member)}
            return render(request, "capabilities/catalogue/tools_change_preview.html", context)
        done = change_tools(names, change, actor=member)
    except ChangeRefused as error:
        messages.error(request, f"{error} Nothing was changed.")
        keep_form(request)
    else:
        messages.success(request, changed_text(done, len(names)), extra_tags=undo_address(member))
    return redirect(page_before(request, member))


@require_POST
@signed_in
def tools_undo(request: MemberRequest, org: str) -> HttpResponse:
    """Undo one's own change of many tools, for those that nobody changed since."""
    member = member_or_404(request, right=Right.CATALOGUE, category=None)
    numbers = [int(each) for each in request.GET.get("entries", "")[:100].split(",") if each.isdecimal()]
    try:
        done = undo_change([number for number in numbers if number < MAX_NUMBER], actor=member)
    except ChangeRefused as error:
        messages.error(request, f"{error} Nothing was changed.")
    else:
        messages.success(request, undone_text(done), extra_tags=undo_address(member) if done.restored else "")
    return redirect(page_before(request, member))


def undo_address(member: Membership) -> str:
    """Return where the button beside the outcome posts to; "" where the request changed nothing that goes back."""
    entries = entries_of_request(member)
    address = reverse("tools_undo", args=[member.organisation.slug])
    return f"{address}?entries={','.join(map(str, entries))}" if entries else ""


def undone_text(done: Undone) -> str:
    """Return the outcome of the undoing, in a sentence or two."""
    total = len(done.restored) + len(done.changed_since)
    text = f"Undone for {len(done.restored):,} of {total:,} tool{'' if total == 1 else 's'}."
    return f"{text} Changed since, and left alone: {', '.join(done.changed_since[:5])}." if done.changed_since else text


def changed_text(done: ToolsChanged, total: int) -> str:
    """Return the outcome of the change, in a sentence or two."""
    text = f"Changed {len(done.changed):,} of {total:,} tool{'' if total == 1 else 's'}."
    if not done.waiting:
        return text
    waits = "version waits" if len(done.waiting) == 1 else "versions wait"
    return f"{text} {len(done.waiting):,} new {waits} for approval."
