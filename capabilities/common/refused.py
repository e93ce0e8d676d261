"""Refusal of a write: one exception with the field at fault, which forms and the API show each in their way."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet

from toolhub.tenants.models import slug_validator

#: The form of something new stands at this address.
RESERVED = frozenset({"new"})


class ChangeRefused(ValueError):
    """The change cannot be made; `field` is at fault, the message says what to do about it.

    `code` is for programs: `invalid`, `unknown` (it names a row that is not there), `taken` (a name in use), `in_use`
    (something else still needs it) or `conflict` (what is on record by now stands in the way).
    """

    def __init__(self, field: str, message: str, *, code: str = "invalid") -> None:
        super().__init__(message)
        self.field = field
        self.code = code


class ChangedMeanwhile(Exception):
    """Error: somebody has changed the stored state since the preview was made."""


def not_there(field: str, kind: str, name: object) -> ChangeRefused:
    """The answer to naming a row that is missing, or another organisation's: they look the same."""
    return ChangeRefused(field, f"There is no {kind} {str(name)[:100]}.", code="unknown")


def check_no_rule(field: str, rules: QuerySet[Any]) -> None:
    """Raise ChangeRefused while approval rules name the row: without it they would mean other calls. One query."""
    rule = rules.order_by("priority", "name").first()
    if rule is not None:
        raise ChangeRefused(field, f"The approval rule {rule} names it: change that rule first.", code="in_use")


def check_slug(slug: str) -> None:
    """Raise ChangeRefused for a short name that cannot stand in an address."""
    if not is_slug(slug):
        raise ChangeRefused("slug", "Use lower-case letters, digits and hyphens, at most 63 of them; not “new”.")


def is_slug(name: str) -> bool:
    """Return whether this can stand in an address as a short name."""
    return name not in RESERVED and bool(slug_validator.regex.match(name))  # type: ignore[union-attr]
