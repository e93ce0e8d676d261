"""Database connections of threads beside Django's requests.

On PostgreSQL such a thread has one only while a statement or a transaction runs (`toolhub/postgresql`).
"""

from __future__ import annotations

from django.db import close_old_connections, connection


def give_back_connection() -> None:
    """Give the connection back as Django does behind a request: keep one of SQLite for a while. An open transaction, as
    a test's, keeps its own."""
    if not connection.in_atomic_block:
        close_old_connections()


def keep_own_connection() -> None:
    """Give this thread a connection of its own until it closes it, so that it never waits for one of the pool."""
    if connection.vendor == "postgresql":
        connection.keep_own()  # type: ignore[attr-defined]
