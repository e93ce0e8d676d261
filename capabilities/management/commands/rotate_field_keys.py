"""Encrypt every stored secret anew with the first of TOOLHUB_FIELD_KEYS, so that the older keys can be taken away."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cryptography.fernet import InvalidToken
from django.apps import apps
from django.core.management.base import BaseCommand
from django.db.models import F, Model, TextField
from django.db.models.expressions import RawSQL
from django.db.models.functions import Cast

from capabilities.common.secrets import EncryptedTextField, cipher
from toolhub.tenants.rows.scope import system_scope


class Command(BaseCommand):
    help = __doc__

    def handle(self, *args: Any, **options: Any) -> None:
        done = unreadable = 0
        with system_scope():
            for model, field in encrypted_fields():
                turned, lost = rotate(model, field)
                done, unreadable = done + turned, unreadable + lost
        self.stdout.write(f"{done} secrets are encrypted with the first key.")
        if unreadable:
            self.stderr.write(f"{unreadable} cannot be read with any key, and were left as they are.")


def encrypted_fields() -> Iterator[tuple[type[Model], str]]:
    """Every column of every table that holds encrypted text."""
    for model in apps.get_models():
        for field in model._meta.concrete_fields:
            if isinstance(field, EncryptedTextField):
                yield model, field.name


def rotate(model: type[Model], name: str) -> tuple[int, int]:
    """Return the number of values encrypted anew, and of those that no key reads. One that changed meanwhile is left
    alone."""
    rows = model._base_manager.annotate(stored_text=Cast(F(name), TextField())).filter(stored_text__gt="")
    done = unreadable = 0
    for key, stored in rows.values_list("pk", "stored_text").iterator(chunk_size=500):
        try:
            fresh = cipher().rotate(stored.encode()).decode()
        except InvalidToken:
            unreadable += 1
            continue
        done += rows.filter(pk=key, stored_text=stored).update(**{name: RawSQL("%s", [fresh])})
    return done, unreadable
