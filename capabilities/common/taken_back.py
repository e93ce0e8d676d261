"""A change that is tried and undone: what a preview reads in between is what saving would make."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from django.db import transaction

_is_tried: ContextVar[bool] = ContextVar("_is_tried", default=False)


@contextmanager
def taken_back() -> Iterator[None]:
    """Undo at the end whatever is written inside: rows, audit, registry version; no `on_commit` of it runs.

    It holds the write lock of SQLite until then: write, read what is needed, and leave.
    """
    token = _is_tried.set(True)
    try:
        with transaction.atomic():
            yield
            transaction.set_rollback(True)
    finally:
        _is_tried.reset(token)


def is_tried() -> bool:
    """Return whether changes made now will be undone: nothing that is read now may be remembered, or sent anywhere."""
    return _is_tried.get()
