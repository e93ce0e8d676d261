"""The form below the list of tools that sets the same for all that are ticked."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from capabilities.catalogue.tools.bulk.kept import FIELDS, keep_form
from capabilities.catalogue.tools.bulk.writes import ToolsChange, ToolsChanged, change_tools
from capabilities.common.pages import page_before
from capabilities.common.refused import ChangeRefused
from toolhub.tenants.access import MemberRequest, member_or_404
from toolhub.tenants.models import Right
from toolhub.tenants.pages import signed_in


@require_POST
@signed_in
def tools_change(request: MemberRequest, org: str) -> HttpResponse:
    """Change the ticked tools, all or none."""
    member = member_or_404(request, right=Right.CATALOGUE, category=None)
    names = sorted(set(request.POST.getlist("names")))
    effect, category, ask, in_untrusted = (request.POST.get(name, "")[:64] for name in FIELDS)
    change = ToolsChange(effect=effect, category=category, ask=ask, in_untrusted=in_untrusted)
    if not names:
        messages.warning(request, "Tick the tools first.")
        return redirect(page_before(request, member))
    try:
        done = change_tools(names, change, actor=member)
    except ChangeRefused as error:
        messages.error(request, f"{error} Nothing was changed.")
        keep_form(request)
    else:
        messages.success(request, changed_text(done, len(names)))
    return redirect(page_before(request, member))


def changed_text(done: ToolsChanged, total: int) -> str:
    """Return the outcome of the change, in a sentence or two."""
    text = f"Changed {len(done.changed):,} of {total:,} tool{'' if total == 1 else 's'}."
    if not done.waiting:
        return text
    waits = "version waits" if len(done.waiting) == 1 else "versions wait"
    return f"{text} {len(done.waiting):,} new {waits} for approval."
