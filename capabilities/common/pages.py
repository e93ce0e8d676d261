"""Shared parts of pages: a refusal beside the field that is at fault, and the way back."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.http import url_has_allowed_host_and_scheme

from capabilities.common.previews import Preview
from capabilities.common.refused import ChangeRefused
from toolhub.tenants.access import MemberRequest
from toolhub.tenants.models import Membership


def show_refusal(form: forms.BaseForm, error: ChangeRefused) -> None:
    """Put the refusal beside its field; over the form, where the form has none of that name."""
    name = error.field.removeprefix("values.")
    form.add_error(name if name in form.fields else None, str(error))


def ask_secrets_again(form: forms.BaseForm) -> None:
    """Say beside each secret that was typed into a form with errors that it is not in the page that is shown again."""
    if not form.is_bound or not form.errors:
        return
    for name, field in form.fields.items():
        if isinstance(field.widget, forms.PasswordInput) and form.data.get(form.add_prefix(name)):
            form.add_error(name, "Type it again: a page never shows what was typed here.")


def status_of(form: forms.BaseForm) -> int:
    return 422 if form.errors else 200


def refused(request: MemberRequest, error: ChangeRefused, view: str, *args: object) -> HttpResponse:
    """Back to a page, with the refusal as its message."""
    messages.error(request, str(error))
    return redirect(view, *args)


def page_before(request: MemberRequest, member: Membership, fallback: str = "tools/") -> str:
    """Return the page that the form was on, or which a preview of it names as `back`, if it is ours; else one of the
    organisation's."""
    for page in (request.POST.get("back", ""), request.headers.get("Referer", "")):
        if url_has_allowed_host_and_scheme(page, {request.get_host()}, require_https=request.is_secure()):
            return page
    return f"/o/{member.organisation.slug}/{fallback}"


MOVED = "It was changed in the meantime: nothing is saved yet. This is what your changes would do now."


def shown_preview(preview: Preview) -> dict[str, Any]:
    """Return the values for the template that shows a change before it is saved."""
    return {"impact": preview.impact, "stamp": preview.stamp, "moved": MOVED if preview.has_moved else ""}


def preview_status(request: HttpRequest, preview: Preview) -> int:
    """The status of the page with it. htmx shows no page that comes with a 409."""
    return 409 if preview.has_moved and not getattr(request, "htmx", False) else 200
