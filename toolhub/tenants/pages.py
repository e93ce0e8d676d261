"""Frame of every page: who is signed in, which organisation is open, and where the member can go."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.cache import patch_cache_control, patch_vary_headers
from django.utils.functional import SimpleLazyObject
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_GET
from django_htmx.http import HttpResponseClientRedirect

from toolhub import __version__
from toolhub.tenants.access import memberships_of_user
from toolhub.tenants.menu import menu_for
from toolhub.tenants.models import Membership, Right, User
from toolhub.tenants.saved_filters.queries import saved_filters

View = TypeVar("View", bound=Callable[..., Any])


def signed_in(view: View) -> View:
    """Send people without a login to the login page and back; keep what is shown out of every cache.

    An htmx request would swap the login page into the middle of ours, so its answer sends the browser there instead.
    """

    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not request.user.is_authenticated:
            return to_login(request)
        return _private(view(request, *args, **kwargs))

    return cast(View, guarded)


def to_login(request: HttpRequest) -> HttpResponseBase:
    """The login page, with the way back to the page that was being looked at."""
    response = redirect_to_login(_way_back(request))
    if getattr(request, "htmx", False):
        return HttpResponseClientRedirect(response.url)
    return response


def _way_back(request: HttpRequest) -> str:
    if request.method in ("GET", "HEAD") and not getattr(request, "htmx", False):
        return request.get_full_path()
    page = request.headers.get("HX-Current-URL") or request.headers.get("Referer") or ""
    if url_has_allowed_host_and_scheme(page, {request.get_host()}, require_https=request.is_secure()):
        return page
    return reverse("home")


def _private(response: HttpResponseBase) -> HttpResponseBase:
    patch_vary_headers(response, ["HX-Request"])
    if not response.has_header("Cache-Control"):
        patch_cache_control(response, private=True, no_store=True)
    return response


# -- The frame --------------------------------------------------------------------------------------------------------


def frame(request: HttpRequest) -> dict[str, Any]:
    """Context of every page. Nothing is read until a template asks: partials that show no frame pay nothing."""
    member = cast("Membership | None", getattr(request, "membership", None))
    return {
        "toolhub_version": __version__,  # `version` is a tool's on its own pages
        "member": member,
        "organisation": member.organisation if member else None,
        "menu": SimpleLazyObject(lambda: menu_for(member, request) if member else None),
        "reads_audit": SimpleLazyObject(lambda: member is not None and bool(member.reach(Right.AUDIT))),
        "saved_filters": SimpleLazyObject(lambda: saved_filters(member, request) if member else None),
        "memberships": SimpleLazyObject(lambda: _memberships(request)),
    }


def _memberships(request: HttpRequest) -> list[Membership]:
    user = getattr(request, "user", None)
    return memberships_of_user(user) if isinstance(user, User) and user.is_authenticated else []


# -- The front door ---------------------------------------------------------------------------------------------------


@require_GET
@signed_in
def home(request: HttpRequest) -> HttpResponse:
    """Straight into the only organisation; a choice where there are more; a word where there is none."""
    memberships = _memberships(request)
    if len(memberships) == 1:
        return redirect("organisation_home", org=memberships[0].organisation.slug)
    return render(request, "tenants/home.html", {"memberships": memberships})
