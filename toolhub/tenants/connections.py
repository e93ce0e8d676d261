"""What a thread beside Django's requests does with its connection to the database."""

from __future__ import annotations

from django.db import close_old_connections, connection


def give_back_connection() -> None:
    """As Django does behind a request: give a connection of PostgreSQL back to its pool, keep one of SQLite a while.
    An open transaction, as a test's, keeps its own.
    """
    if not connection.in_atomic_block:
        close_old_connections()
