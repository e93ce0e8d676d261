"""The doors that open without a login: a link to join, and a link to set a new password.

The secret stands in an address once: opening a link moves its digest into a signed cookie of this door and goes on at a
plain address, so that no form, Referer, log or reload repeats it. A link that does not work gets one answer, whatever
the reason, and tries are counted by address.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import cast

from allauth.core.ratelimit import consume_or_429
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import login
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_GET, require_http_methods

from toolhub.tenants.access import secret_digest
from toolhub.tenants.identity.account import sign_in_of
from toolhub.tenants.identity.resets import reset_link_by_digest, reset_password
from toolhub.tenants.models import Invitation, ResetLink, User
from toolhub.tenants.people.forms import NewcomerForm, ResetForm
from toolhub.tenants.people.invitations import (
    AddressTaken,
    LinkDead,
    Newcomer,
    invitation_by_digest,
    join_as,
    join_as_newcomer,
)

BACKEND = "allauth.account.auth_backends.AuthenticationBackend"
#: Cookie that holds the digest of the opened link, one for each door; and the seconds for which it is good.
COOKIE = "toolhub_link"
COOKIE_SECONDS = 3600
#: Field of each form that names the link which the form was shown for.
MARK = "link"
NOT_MADE = (
    "No account was made: there may be one for this address. If it is yours, sign in with it; if you cannot, ask the "
    "operator of this service to hand it back to you."
)

View = Callable[..., HttpResponse]


def one_answer_to_dead_links(view: View) -> View:
    """Kept out of caches; every link that does not work gets the same page."""

    @wraps(view)
    def guarded(request: HttpRequest, **kwargs: str) -> HttpResponse:
        try:
            return view(request, **kwargs)
        except LinkDead:
            response = render(request, "tenants/link_dead.html", status=404)
            response["Referrer-Policy"] = "no-referrer"  # the address of this page may hold the secret
            return response

    return never_cache(guarded)


# -- Opening a link ---------------------------------------------------------------------------------------------------


@require_GET
@one_answer_to_dead_links
def join_link(request: HttpRequest, secret: str) -> HttpResponse:
    return _opened(request, secret, "join", invitation_by_digest)


@require_GET
@one_answer_to_dead_links
def reset_link(request: HttpRequest, secret: str) -> HttpResponse:
    return _opened(request, secret, "reset", reset_link_by_digest)


def _opened(
    request: HttpRequest, secret: str, door: str, find: Callable[[str], Invitation | ResetLink]
) -> HttpResponse:
    """Redirect to the door's plain address, with the link in its cookie. Counted; raises LinkDead."""
    too_many = consume_or_429(request, action="link", limit_get=True)
    if too_many is not None:
        return cast(HttpResponse, too_many)
    digest = secret_digest(secret)
    find(digest)
    response = redirect(door)
    response.set_signed_cookie(
        COOKIE,
        digest,
        salt=door,
        max_age=COOKIE_SECONDS,
        path=reverse(door),
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Lax",
    )
    response["Referrer-Policy"] = "no-referrer"
    return response


def _opened_link(request: HttpRequest, door: str) -> str:
    """Digest of the link that this browser opened. Raises LinkDead."""
    digest = request.get_signed_cookie(COOKIE, default=None, salt=door, max_age=COOKIE_SECONDS)
    if digest is None:
        raise LinkDead
    return digest


def _is_for(request: HttpRequest, digest: str) -> bool:
    """Return whether the posted form was shown for this link; another may have been opened in another tab since."""
    if request.POST.get(MARK) == _mark(digest):
        return True
    messages.warning(request, "Another link was opened in this browser meanwhile. Please look again.")
    return False


def _mark(digest: str) -> str:
    return digest[:16]


def _done(request: HttpRequest, door: str, target: str, *args: str) -> HttpResponse:
    response = redirect(target, *args)
    response.delete_cookie(COOKIE, path=reverse(door))
    return response


# -- Joining ----------------------------------------------------------------------------------------------------------


@sensitive_post_parameters("password")
@require_http_methods(["GET", "POST"])
@one_answer_to_dead_links
def join(request: HttpRequest) -> HttpResponse:
    """Join with a new account, or with the one that is signed in; a user signed in as somebody else is asked to switch.

    Whoever is not signed in gets the same page, whether the address has an account or not: admins of any organisation
    can invite any address, and open the link themselves.
    """
    digest = _opened_link(request, "join")
    invitation = invitation_by_digest(digest)
    is_post = request.method == "POST" and _is_for(request, digest)
    context = {"invitation": invitation, "mark": _mark(digest)}
    user = request.user if isinstance(request.user, User) else None
    if user is not None:
        if user.email.lower() != invitation.email:
            return render(request, "tenants/join_switch.html", context)
        if not is_post:
            return render(request, "tenants/join_confirm.html", context | {"sign_in": sign_in_of(user)})
        join_as(invitation, user)
        messages.success(request, f"You belong to {invitation.organisation} now.")
        return _done(request, "join", "organisation_home", invitation.organisation.slug)
    form = NewcomerForm(request.POST if is_post else None)
    if form.is_valid():
        data = form.cleaned_data
        try:
            newcomer = Newcomer(data["first_name"], data["last_name"], data["password"])
            member = join_as_newcomer(invitation, newcomer)
        except ValidationError as error:
            form.add_error("password", error)
        except AddressTaken:
            form.add_error(None, NOT_MADE)
        else:
            login(request, member.user, backend=BACKEND)
            return _done(request, "join", "organisation_home", invitation.organisation.slug)
    return render(request, "tenants/join.html", context | {"form": form}, status=422 if form.errors else 200)


# -- A new password ---------------------------------------------------------------------------------------------------


@sensitive_post_parameters("password")
@require_http_methods(["GET", "POST"])
@one_answer_to_dead_links
def reset(request: HttpRequest) -> HttpResponse:
    """Set a new password; then one signs in with it, and with the second factor where there is one."""
    digest = _opened_link(request, "reset")
    link = reset_link_by_digest(digest)
    form = ResetForm(request.POST if request.method == "POST" and _is_for(request, digest) else None)
    if form.is_valid():
        try:
            reset_password(link, form.cleaned_data["password"])
        except ValidationError as error:
            form.add_error("password", error)
        else:
            messages.success(request, "The new password is set. Sign in with it.")
            return _done(request, "reset", "account_login")
    context = {"link": link, "mark": _mark(digest), "form": form}
    return render(request, "tenants/reset.html", context, status=422 if form.errors else 200)
