"""The PostgreSQL backend of the database: a thread borrows a connection of the pool for a statement or a transaction.

Django lends a thread a connection until somebody closes it. A thread that waits meanwhile, for a lock, another thread,
a process, a model or a tool, keeps it from those that it waits for, and a small pool stands still. Here a connection
goes back by itself: when the last cursor outside of a transaction is closed, and when a transaction has ended, before
what is to be done behind its commit. So whoever waits outside of a transaction holds none.

A thread may keep a connection of its own beside the pool, for work that must not wait for others' (`keep_own`).
"""

from __future__ import annotations

import time
from typing import Any

import psycopg
from django.db.backends.postgresql import base

#: Seconds that a connection may lie in the pool unused before it is asked whether it still works.
TRUSTED_SECONDS = 1.0


class Cursor(base.Cursor):
    """Tells its wrapper when it is closed."""

    wrapper: DatabaseWrapper | None = None

    def close(self) -> None:
        wrapper, self.wrapper = self.wrapper, None
        super().close()  # type: ignore[misc]
        if wrapper is not None:
            wrapper.open_cursors -= 1
            wrapper.give_back()

    def __del__(self) -> None:
        wrapper, self.wrapper = self.wrapper, None
        if wrapper is not None:  # never closed: the next one that is gives the connection back
            wrapper.open_cursors -= 1


class DatabaseWrapper(base.DatabaseWrapper):
    """Lends a thread a connection for as long as it uses it, or keeps one for it."""

    #: Cursors of the connection that are not closed.
    open_cursors = 0
    _keeps_own = False
    _is_connecting = False
    #: Whether Django has read all that it needs from a first connection.
    _was_connected = False

    def keep_own(self) -> None:
        """Give this thread a connection of its own, which is not one of the pool's, until it is closed."""
        self.close()
        self._keeps_own = True

    @property
    def _lends(self) -> bool:
        return not self._keeps_own and self.pool is not None

    def get_connection_params(self) -> dict[str, Any]:
        params: dict[str, Any] = super().get_connection_params()
        params["cursor_factory"] = Cursor
        return params

    def connect(self) -> None:
        """Connect as Django does; from the second time on set only what may have changed."""
        if self._was_connected and self._lends:
            self.in_atomic_block = self.needs_rollback = self.closed_in_transaction = self.errors_occurred = False
            self.savepoint_ids, self.atomic_blocks, self.run_on_commit = [], [], []
            self.open_cursors, self.autocommit = 0, True
            self.connection = self._borrow()
            return
        self._is_connecting, self.open_cursors = True, 0
        try:
            super().connect()
            self._was_connected = True
        finally:
            self._is_connecting = False

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        if not self._keeps_own:
            return self._borrow() if self.pool is not None else super().get_new_connection(conn_params)
        self.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        connection = psycopg.connect(**conn_params, autocommit=True)
        self._configure_connection(connection)  # type: ignore[attr-defined]
        return connection

    def _borrow(self) -> Any:
        """A connection of the pool that works. Raises PoolTimeout, an OperationalError."""
        pool: Any = self.pool
        pool.open()
        self.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        while True:
            connection = pool.getconn()
            try:
                if time.monotonic() - getattr(connection, "used_at", 0.0) > TRUSTED_SECONDS:
                    pool.check_connection(connection)
                if not connection.autocommit:  # it was closed in the middle of a transaction
                    connection.autocommit = True
            except psycopg.OperationalError:
                pool.putconn(connection)  # which throws it away, and opens another
            except BaseException:
                pool.putconn(connection)
                raise
            else:
                return connection

    def create_cursor(self, name: str | None = None) -> Any:
        cursor = super().create_cursor(name)
        if isinstance(cursor, Cursor):
            cursor.wrapper = self
            self.open_cursors += 1
        return cursor

    def give_back(self) -> None:
        """Give the connection back to its pool, unless it is still used, or this thread's own."""
        if self.connection is None or self._is_connecting or self.open_cursors > 0 or not self._lends:
            return
        if self.autocommit and not self.in_atomic_block:
            connection, self.connection = self.connection, None
            connection.used_at = time.monotonic()
            connection._pool.putconn(connection)

    def set_autocommit(self, *args: Any, **kwargs: Any) -> None:
        super().set_autocommit(*args, **kwargs)
        self.give_back()

    def run_and_clear_commit_hooks(self) -> None:
        self.give_back()
        super().run_and_clear_commit_hooks()

    def _close(self) -> None:
        if self._keeps_own and self.connection is not None:
            with self.wrap_database_errors:
                self.connection.close()
            return
        super()._close()  # type: ignore[misc]
