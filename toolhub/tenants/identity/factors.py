"""The addresses of password, second factors and passkeys: allauth's views, for their own user, with our methods.

allauth looks them up by these names.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, cast

from allauth.account import views as account
from allauth.mfa.base import views as base
from allauth.mfa.models import Authenticator
from allauth.mfa.recovery_codes import views as recovery_codes
from allauth.mfa.totp import views as totp
from allauth.mfa.webauthn import views as webauthn
from django.http import Http404, HttpRequest, HttpResponseBase
from django.urls import path
from django.views.decorators.http import require_http_methods

from toolhub.tenants.models import User
from toolhub.tenants.pages import signed_in
from toolhub.tenants.rows.cursors import opened_place

View = Callable[..., HttpResponseBase]


def own(view: View) -> View:
    """Guard a view for whoever is signed in, and keep it out of caches."""
    return require_http_methods(["GET", "HEAD", "POST"])(signed_in(view))


def own_key(view: View) -> View:
    """Guard a view of one own key, found by its sealed number; somebody else's looks like a missing one, before
    anything is asked for. The view raises Http404 then."""

    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, pk: str, **kwargs: Any) -> HttpResponseBase:
        keys = Authenticator.objects.filter(type=Authenticator.Type.WEBAUTHN, user=cast(User, request.user))
        number = opened_place(pk, int)
        if number is None or not keys.filter(pk=number).exists():
            raise Http404("No such key.")
        return view(request, *args, pk=number, **kwargs)

    return own(guarded)


urlpatterns = [
    path("password/", own(account.password_change), name="account_change_password"),
    path("reauthenticate/", own(account.reauthenticate), name="account_reauthenticate"),
    path("2fa/", own(base.index), name="mfa_index"),
    path("2fa/authenticate/", base.authenticate, name="mfa_authenticate"),
    path("2fa/reauthenticate/", own(base.reauthenticate), name="mfa_reauthenticate"),
    path("2fa/totp/activate/", own(totp.activate_totp), name="mfa_activate_totp"),
    path("2fa/totp/deactivate/", own(totp.deactivate_totp), name="mfa_deactivate_totp"),
    path("2fa/recovery-codes/", own(recovery_codes.view_recovery_codes), name="mfa_view_recovery_codes"),
    path(
        "2fa/recovery-codes/generate/", own(recovery_codes.generate_recovery_codes), name="mfa_generate_recovery_codes"
    ),
    path(
        "2fa/recovery-codes/download/", own(recovery_codes.download_recovery_codes), name="mfa_download_recovery_codes"
    ),
    path("2fa/passkeys/", own(webauthn.list_webauthn), name="mfa_list_webauthn"),
    path("2fa/passkeys/add/", own(webauthn.add_webauthn), name="mfa_add_webauthn"),
    path("2fa/passkeys/login/", webauthn.login_webauthn, name="mfa_login_webauthn"),
    path("2fa/passkeys/reauthenticate/", own(webauthn.reauthenticate_webauthn), name="mfa_reauthenticate_webauthn"),
    path("2fa/passkeys/<str:pk>/remove/", own_key(webauthn.remove_webauthn), name="mfa_remove_webauthn"),
    path("2fa/passkeys/<str:pk>/edit/", own_key(webauthn.edit_webauthn), name="mfa_edit_webauthn"),
]
