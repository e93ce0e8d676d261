"""Trouble with the database that passes: every door answers it with 503 and Retry-After, and without a traceback."""

from __future__ import annotations

from django.db import InterfaceError, InternalError, OperationalError

#: Seconds after which a request is worth another try, and the answer that people and programs get meanwhile.
RETRY_AFTER = 5
CODE = "database_unavailable"
MESSAGE = "The database cannot be used at the moment. Try again in a few seconds."
#: Errors that lead to the one at hand, which are looked at too.
CHAIN = 10
#: SQLite's code for a statement that is wrong, and PostgreSQL's state of a server that only reads, behind a failover.
WRONG_STATEMENT, READ_ONLY = 1, "25006"


def is_database_trouble(error: BaseException | None) -> bool:
    """Return whether the error, or one that led to it, says that the database is away, busy, full or locked: no
    connection in time, one that was refused or lost, a statement that took too long, a lock that others hold."""
    for _ in range(CHAIN):
        if error is None:
            return False
        if isinstance(error, InterfaceError) or _is_operational(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def _is_operational(error: BaseException) -> bool:
    driver = error.__cause__
    if isinstance(error, InternalError):
        return getattr(driver, "sqlstate", "") == READ_ONLY
    if not isinstance(error, OperationalError):
        return False
    return getattr(driver, "sqlite_errorcode", 0) & 0xFF != WRONG_STATEMENT
