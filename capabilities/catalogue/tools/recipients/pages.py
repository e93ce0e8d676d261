"""The page that gives tools to agents, or puts them into a toolkit; and the preview of any write that does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import redirect, render

from capabilities.catalogue.tools.recipients.forms import RecipientsForm, recipient_choices
from capabilities.catalogue.tools.recipients.writes import Recipients, give_tools, impact_of_giving, sentence_of
from capabilities.common.pages import preview_status, show_refusal, shown_preview, status_of
from capabilities.common.previews import Preview, save_as_shown
from capabilities.common.refused import ChangeRefused
from capabilities.common.registry_version import registry_version
from toolhub.tenants.access import MemberRequest
from toolhub.tenants.models import Membership, Right

#: Own fields of a page that shows a change, which it does not send again.
_OWN_FIELDS = ("csrfmiddlewaretoken", "stamp", "preview")


def saved_or_shown(
    request: MemberRequest,
    write: Callable[[], Any],
    to: Recipients,
    *,
    actor: Membership,
    state: Sequence[str] = (),
) -> Any:
    """Return the result of `write`, which gives tools to these: at once where nobody feels it, or where it was shown;
    its Preview elsewhere. `state` stamps what it starts from, beside the configuration. Raises what `write` raises."""
    content = {name: values for name, values in request.POST.lists() if name not in _OWN_FIELDS}
    return save_as_shown(
        request,
        content,
        stamp=lambda: "-".join((str(registry_version(actor.organisation_id)), *state)),
        impact_of=lambda: impact_of_giving(write, to, actor=actor),
        save=lambda _: write(),
    )


def preview_page(request: MemberRequest, preview: Preview, *, title: str, back_url: str) -> HttpResponse:
    """Show a change before it is saved, on a page of its own: what was sent is sent again from there."""
    context = {
        "title": title,
        "back": back_url,
        "sent": [(name, value) for name, values in request.POST.lists() if name not in _OWN_FIELDS for value in values],
        **shown_preview(preview),
    }
    status = preview_status(request, preview)
    return render(request, "capabilities/catalogue/recipients_preview.html", context, status=status)


def require_giver(member: Membership) -> None:
    """Raise PermissionDenied for who may change neither agents nor toolkits."""
    if not (member.has_right(Right.AGENTS) or member.has_right(Right.TOOLKITS)):
        raise PermissionDenied("This needs the admin right agents or toolkits.")


def giving_page(request: MemberRequest, member: Membership, names: Sequence[str], *, back_url: str) -> HttpResponse:
    """Show the form, and its outcome: the change is shown where somebody feels it, and saved from there. The caller has
    asked `require_giver`."""
    form = RecipientsForm(request.POST if request.method == "POST" else None)
    if form.is_bound and form.is_valid():
        to = form.recipients()
        try:
            if to.is_nobody:
                raise ChangeRefused("agents", "Choose an agent or a toolkit.")
            done = saved_or_shown(request, lambda: give_tools(names, to, actor=member), to, actor=member)
        except ChangeRefused as error:
            show_refusal(form, error)
        else:
            if isinstance(done, Preview):
                return preview_page(request, done, title=_title(names), back_url=back_url)
            messages.success(request, sentence_of(to, names))
            return redirect(back_url)
    context = {
        "title": _title(names),
        "names": names,
        "back": back_url,
        "must_choose": True,
        "recipients_of": "it" if len(names) == 1 else "them",
        **recipient_choices(member, form),
    }
    return render(request, "capabilities/catalogue/recipients_form.html", context, status=status_of(form))


def _title(names: Sequence[str]) -> str:
    return f"Add {names[0]}" if len(names) == 1 else f"Add {len(names):,} tools"
