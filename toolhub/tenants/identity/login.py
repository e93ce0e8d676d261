"""Sign-in through allauth, without sign-up: accounts are made by administrators. Second factors are kept encrypted."""

from __future__ import annotations

from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from allauth.core.internal.ratelimit import truncate_ip
from allauth.mfa.adapter import DefaultMFAAdapter
from cryptography.fernet import Fernet, MultiFernet
from django.conf import settings
from django.http import HttpRequest
from django.urls import reverse


class AccountAdapter(DefaultAccountAdapter):  # type: ignore[misc]
    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return False

    def _get_login_attempts_cache_key(self, request: HttpRequest, **credentials: Any) -> str:
        """Wrong passwords count for the account and the address together: nobody locks somebody else out."""
        account = super()._get_login_attempts_cache_key(request, **credentials)
        return f"{account}:{truncate_ip(self.get_client_ip(request))}"

    def get_password_change_redirect_url(self, request: HttpRequest) -> str:
        return reverse("account_login")


class MFAAdapter(DefaultMFAAdapter):  # type: ignore[misc]
    """The keys of authenticator apps and recovery codes are secrets: encrypted with the first of the field keys."""

    def encrypt(self, text: str) -> str:
        return _fernet().encrypt(text.encode()).decode()

    def decrypt(self, encrypted_text: str) -> str:
        return _fernet().decrypt(encrypted_text.encode()).decode()


def _fernet() -> MultiFernet:
    return MultiFernet([Fernet(key) for key in settings.TOOLHUB_FIELD_KEYS])
