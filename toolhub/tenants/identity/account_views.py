"""The page of one's own account."""

from __future__ import annotations

from typing import Any, cast

from allauth.mfa.models import Authenticator
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from toolhub.tenants.access import memberships_of_user
from toolhub.tenants.identity.account import rename_user
from toolhub.tenants.models import User
from toolhub.tenants.pages import signed_in
from toolhub.tenants.people.forms import NameForm


@require_http_methods(["GET", "POST"])
@signed_in
def account(request: HttpRequest) -> HttpResponse:
    """Name, password, two-factor login, passkeys and tokens of whoever is signed in, in every organisation."""
    user = cast(User, request.user)
    names: dict[str, Any] = {"first_name": user.first_name, "last_name": user.last_name}
    form = NameForm(request.POST or None, initial=names)
    if form.is_valid():
        rename_user(user, form.cleaned_data["first_name"], form.cleaned_data["last_name"])
        messages.success(request, "Your name is saved.")
        return redirect("account")
    context = {"form": form, "own_memberships": memberships_of_user(user)} | login_factors(user)
    return render(request, "tenants/account.html", context, status=422 if form.errors else 200)


def login_factors(user: User) -> dict[str, Any]:
    """Return `has_totp`, whether the user signs in with an app's codes, and the number of `passkeys`. One query."""
    kinds = list(Authenticator.objects.filter(user=user).values_list("type", flat=True))
    return {
        "has_totp": Authenticator.Type.TOTP in kinds,
        "passkeys": kinds.count(Authenticator.Type.WEBAUTHN),
    }
