"""The pages of one's own API tokens."""

from __future__ import annotations

from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from toolhub.tenants.access import MemberRequest, member_or_404
from toolhub.tenants.pages import signed_in
from toolhub.tenants.people.views import _revoke
from toolhub.tenants.people.writes import (
    MemberRefused,
)
from toolhub.tenants.tokens.forms import TokenForm
from toolhub.tenants.tokens.writes import issue_own_token, tokens_of


@require_http_methods(["GET", "POST"])
@signed_in
def token_list(request: MemberRequest, org: str) -> HttpResponse:
    """One's own tokens, and the form for another; a new one is shown this once."""
    member = member_or_404(request)
    form = TokenForm(request.POST or None)
    secret = ""
    if form.is_valid():
        data = form.cleaned_data
        try:
            _, secret = issue_own_token(member, data["name"], form.scope_list(), data["days"] or None)
        except MemberRefused as error:
            form.add_error(error.field if error.field in form.fields else None, str(error))
        else:
            form = TokenForm()
    context = {"form": form, "secret": secret, "tokens": tokens_of(member)}
    return render(request, "tenants/token_list.html", context, status=422 if form.errors else 200)


@require_POST
@signed_in
def token_revoke(request: MemberRequest, org: str, own_token: UUID) -> HttpResponse:
    """Revoke one's own token; htmx gets nothing back in its row's place."""
    member = member_or_404(request)
    _revoke(member, own_token, member)
    if request.htmx:
        return HttpResponse("")
    messages.success(request, "The token is revoked.")
    return redirect("token_list", org=org)
