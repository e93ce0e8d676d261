"""The doors that open without a login: a link to join, and a link to set a new password.

A link that does not work gets one answer, whatever the reason, and tries are counted by address.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import cast

from allauth.core.ratelimit import consume_or_429
from django.contrib import messages
from django.contrib.auth import login
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from toolhub.tenants.forms import NewcomerForm, ResetForm
from toolhub.tenants.invitations import (
    LinkDead,
    Newcomer,
    invitation_by_secret,
    join_as,
    join_as_newcomer,
    user_of_address,
)
from toolhub.tenants.models import Invitation, User
from toolhub.tenants.resets import reset_link_by_secret, reset_password

BACKEND = "allauth.account.auth_backends.AuthenticationBackend"


def door(view: Callable[[HttpRequest, str], HttpResponse]) -> Callable[[HttpRequest, str], HttpResponse]:
    """Counted, kept out of caches and of other sites' Referer, and one answer to every dead link."""

    @wraps(view)
    def guarded(request: HttpRequest, secret: str) -> HttpResponse:
        too_many = consume_or_429(request, action="link", limit_get=True)
        if too_many is not None:
            return cast(HttpResponse, too_many)
        try:
            response = view(request, secret)
        except LinkDead:
            response = render(request, "tenants/link_dead.html", status=404)
        response["Referrer-Policy"] = "no-referrer"
        return response

    return never_cache(guarded)


@sensitive_post_parameters("password")
@require_http_methods(["GET", "POST"])
@door
def join(request: HttpRequest, secret: str) -> HttpResponse:
    """Join with a new account, or with the one that is signed in; others are told to switch or to sign in."""
    invitation = invitation_by_secret(secret)
    user = request.user if isinstance(request.user, User) else None
    if user is not None:
        return _join_signed_in(request, invitation, user)
    if user_of_address(invitation.email) is not None:
        return render(request, "tenants/join_sign_in.html", {"invitation": invitation, "next": request.path})
    form = NewcomerForm(request.POST or None)
    if form.is_valid():
        data = form.cleaned_data
        try:
            newcomer = Newcomer(data["first_name"], data["last_name"], data["password"])
            member = join_as_newcomer(invitation, newcomer)
        except ValidationError as error:
            form.add_error("password", error)
        else:
            login(request, member.user, backend=BACKEND)
            return redirect("organisation_home", org=invitation.organisation.slug)
    context = {"invitation": invitation, "form": form}
    return render(request, "tenants/join.html", context, status=422 if form.errors else 200)


def _join_signed_in(request: HttpRequest, invitation: Invitation, user: User) -> HttpResponse:
    if user.email.lower() != invitation.email:
        return render(request, "tenants/join_switch.html", {"invitation": invitation, "next": request.path})
    if request.method == "POST":
        join_as(invitation, user)
        messages.success(request, f"You belong to {invitation.organisation} now.")
        return redirect("organisation_home", org=invitation.organisation.slug)
    return render(request, "tenants/join_confirm.html", {"invitation": invitation})


@sensitive_post_parameters("password")
@require_http_methods(["GET", "POST"])
@door
def reset(request: HttpRequest, secret: str) -> HttpResponse:
    """Set a new password; then one signs in with it, and with the second factor where there is one."""
    link = reset_link_by_secret(secret)
    form = ResetForm(request.POST or None)
    if form.is_valid():
        try:
            reset_password(link, form.cleaned_data["password"])
        except ValidationError as error:
            form.add_error("password", error)
        else:
            messages.success(request, "The new password is set. Sign in with it.")
            return redirect(reverse("account_login"))
    return render(request, "tenants/reset.html", {"link": link, "form": form}, status=422 if form.errors else 200)
