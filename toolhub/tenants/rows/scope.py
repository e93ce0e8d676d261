"""Scope of the rows that may be touched right now. Knows nothing of requests, users or any table.

Every row of the domain belongs to one organisation, and every query for such rows is made inside a scope: of one
organisation (rows of others do not exist there), or of the system (sweeps, start-up, sign-in: code that looks for the
organisation itself). Outside both, a query raises. The scope travels with the context, so it reaches async code and
`sync_to_async` by itself; a new thread starts with none, unless it is run in a copy of the context.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from toolhub.tenants.models import Organisation

#: The scope that sees every organisation. Organisation keys start at 1.
SYSTEM: Final = 0

_scope: ContextVar[int | None] = ContextVar("toolhub_scope", default=None)


class ScopeError(RuntimeError):
    """A row was read or written without a scope, or from the scope of another organisation."""


@contextmanager
def organisation_scope(organisation: Organisation | int) -> Iterator[None]:
    """Reads and writes inside see this organisation's rows only."""
    key = organisation if isinstance(organisation, int) else organisation.pk
    token = _scope.set(key)
    try:
        yield
    finally:
        _scope.reset(token)


@contextmanager
def system_scope() -> Iterator[None]:
    """Reads and writes inside see every organisation's rows. For sign-in, sweeps and set-up, never for a request."""
    token = _scope.set(SYSTEM)
    try:
        yield
    finally:
        _scope.reset(token)


def current_scope() -> int:
    """The key of the organisation in scope, or SYSTEM. Raises ScopeError where there is none."""
    scope = _scope.get()
    if scope is None:
        raise ScopeError("No organisation is in scope: wrap this in organisation_scope(...) or system_scope().")
    return scope


def has_scope() -> bool:
    return _scope.get() is not None
