"""Text that is encrypted at rest: a model field, and the mask that pages and the API show instead."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings
from django.db import models

from capabilities.contract.masking import MASK


class SecretUnreadable(Exception):
    """A stored secret cannot be read with any of TOOLHUB_FIELD_KEYS: enter it again, or restore the key."""


@lru_cache(maxsize=4)
def _cipher(keys: tuple[str, ...]) -> MultiFernet:
    return MultiFernet([Fernet(key) for key in keys])


def cipher() -> MultiFernet:
    """Encrypts with the first of TOOLHUB_FIELD_KEYS, decrypts with any of them."""
    return _cipher(tuple(settings.TOOLHUB_FIELD_KEYS))


class EncryptedTextField(models.TextField):  # type: ignore[type-arg]
    """Text in Python, Fernet in the database. It cannot be searched."""

    def get_prep_value(self, value: Any) -> Any:
        text = super().get_prep_value(value)
        return cipher().encrypt(text.encode()).decode() if text else text

    def from_db_value(self, value: str | None, expression: Any, connection: Any) -> str | None:
        return decrypted(value) if value else value


def decrypted(stored: str) -> str:
    """Decrypt a stored value, read from the database as it stands there. Raises SecretUnreadable."""
    try:
        return cipher().decrypt(stored.encode()).decode() if stored else ""
    except InvalidToken as error:
        raise SecretUnreadable(str(SecretUnreadable.__doc__)) from error


def masked_stored(stored: str) -> str:
    """The mask of a stored value; of one that cannot be read any more, only that there is one."""
    try:
        return masked(decrypted(stored))
    except SecretUnreadable:
        return masked("?")


def masked(secret: str) -> str:
    """Return the text that may be shown for a secret: of a long one, its last 4 characters."""
    if not secret:
        return ""
    return MASK + (secret[-4:] if len(secret) >= 12 else "")
