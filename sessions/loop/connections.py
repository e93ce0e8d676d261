"""What a thread does with its connection to the database before it waits."""

from __future__ import annotations

from django.db import connection


def release_connection() -> None:
    """Before waiting for the world: a thread that waits holds no connection to a database server.

    SQLite is a file: a connection costs nothing to keep and a little to open.
    """
    if connection.vendor != "sqlite" and not connection.in_atomic_block:
        connection.close()
