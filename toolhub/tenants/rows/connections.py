"""Database connections of threads beside Django's requests.

On PostgreSQL such a thread has one only while a statement or a transaction runs (`toolhub/postgresql`).
"""

from __future__ import annotations

from django.db import close_old_connections, connection


def give_back_connection() -> None:
    """As Django does behind a request: keep a connection of SQLite for a while. An open transaction, as a test's, keeps
    its own."""
    if not connection.in_atomic_block:
        close_old_connections()


def keep_own_connection() -> None:
    """From now on this thread never waits for a connection of the pool: it has one of its own until it closes it."""
    if connection.vendor == "postgresql":
        connection.keep_own()  # type: ignore[attr-defined]
