"""The SQLite backend of the database, with a fair queue of writers.

SQLite has one writer at a time, and those who wait for it only look again and again: who comes last may be first.

Here the threads of a process queue for the right to write, first come, first served, and one of them at a time looks
whether another process is writing. A transaction takes its turn at its first statement, not when its block begins, so
that nobody waits while a first query is built; from then on it is BEGIN IMMEDIATE, and what it reads stays as it is
until its end. A single write outside of a transaction takes its turn as well.

A connection that is closed stays open, for the next thread that needs one.
"""

from __future__ import annotations

import atexit
import os
import sqlite3
import threading
import time
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from django.db.backends.sqlite3 import base

from toolhub.embedded.sqlite3.fair_lock import FairLock, Ticket
from toolhub.embedded.sqlite3.kept import KeptConnections, file_of

#: Milliseconds that SQLite itself waits for another process, and seconds between two of our own looks behind that.
BUSY_MS, LOOK_EVERY = 3, 0.001
WRITES = ("INSERT", "UPDATE", "DELETE", "REPLACE", "WITH", "CREATE", "DROP", "ALTER")

#: One lock for each database file. A forked process begins with its own: the holders live in the other.
_locks: dict[str, FairLock] = {}
_mutex = threading.Lock()
_kept = KeptConnections()
#: Those of the process that this one was forked from: they may be neither used nor closed here.
_parents: list[KeptConnections] = []
atexit.register(lambda: _kept.close())


def _lock_of(name: str) -> FairLock:
    with _mutex:
        return _locks.setdefault(name, FairLock())


def _begin_anew() -> None:
    global _mutex, _kept
    _mutex = threading.Lock()
    _locks.clear()
    _parents.append(_kept)
    _kept = KeptConnections()


os.register_at_fork(after_in_child=_begin_anew)


@lru_cache(maxsize=500)
def _with_question_marks(query: str) -> str:
    """A statement as SQLite takes it. Django searches the text of each execution."""
    converted: str = base.SQLiteCursorWrapper.convert_query(None, query)  # type: ignore[arg-type]
    return converted


class Cursor(base.SQLiteCursorWrapper):
    """Begins the transaction that is due, and waits for other processes."""

    wrapper: DatabaseWrapper

    def convert_query(self, query: str, *, param_names: list[str] | None = None) -> str:
        if param_names is None:
            return _with_question_marks(query)
        named: str = super().convert_query(query, param_names=param_names)
        return named

    def execute(self, query: str, params: Any = None) -> Any:
        """Run the statement; one that writes outside a transaction waits for its turn."""
        if self.wrapper.begins_with_next:
            self.wrapper.begin()
        if self.connection.in_transaction:
            return super().execute(query, params)
        if not query.lstrip("( ")[:7].upper().startswith(WRITES):
            return self._execute(query, params)
        ticket = self.wrapper.take_turn()
        try:
            return self._execute(query, params)
        finally:
            ticket.give_back()

    def executemany(self, query: str, param_list: Any) -> Any:
        if self.wrapper.begins_with_next:
            self.wrapper.begin()
        return super().executemany(query, param_list)

    def _execute(self, query: str, params: Any) -> Any:
        """Outside of a transaction a statement that was refused has changed nothing, so it can be tried again."""
        until = time.monotonic() + self.wrapper.patience
        while True:
            try:
                return super().execute(query, params)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                    raise
            time.sleep(LOOK_EVERY)


class DatabaseWrapper(base.DatabaseWrapper):
    """Holds the process's turn to write from a transaction's first statement to its end."""

    #: Seconds that a write waits for its turn, and then for other processes; the option `timeout`.
    patience = 5.0
    #: Whether a transaction was asked for and has not begun.
    begins_with_next = False
    _ticket: Ticket | None = None
    #: Key that connections must share to stand in for each other.
    _key: Hashable = None

    def get_connection_params(self) -> dict[str, Any]:
        params: dict[str, Any] = super().get_connection_params()
        self.patience = float(params.get("timeout", self.patience))
        return params

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        self._key = self._key_of(conn_params)
        kept = _kept.lend(self._key)
        if kept is not None:
            return kept
        connection = super().get_new_connection(conn_params)
        connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
        self._key = self._key_of(conn_params)  # a new database has its file by now
        return connection

    def _key_of(self, conn_params: dict[str, Any]) -> Hashable:
        commands: list[str] = self.init_commands  # type: ignore[attr-defined]
        return (file_of(str(conn_params["database"])), repr(conn_params), *commands)

    def create_cursor(self, name: str | None = None) -> Any:
        cursor = self.connection.cursor(factory=Cursor)
        cursor.wrapper = self
        return cursor

    def take_turn(self) -> Ticket:
        """Wait for this process's right to write. Raises OperationalError where that takes too long."""
        lock = _lock_of(str(self.settings_dict["NAME"]))
        if not lock.acquire(self.patience):
            raise sqlite3.OperationalError("database is locked")
        return Ticket(lock)

    @contextmanager
    def without_waiting(self) -> Iterator[None]:
        """Meanwhile a write fails at once where another has the right to write."""
        self.ensure_connection()
        usual, self.patience = self.patience, 0.0
        try:
            yield
        finally:
            self.patience = usual

    def _start_transaction_under_autocommit(self) -> None:
        self.begins_with_next = True

    def begin(self) -> None:
        """Begin the transaction that was asked for."""
        self.begins_with_next = False
        self._ticket = self.take_turn()
        try:
            super()._start_transaction_under_autocommit()  # type: ignore[misc]
        except BaseException:
            self._give_back()
            raise

    def _commit(self) -> None:
        self._end(super()._commit)  # type: ignore[misc]

    def _rollback(self) -> None:
        self._end(super()._rollback)  # type: ignore[misc]

    def _close(self) -> None:
        """Leave the connection to the next who needs one, if nothing went wrong with it and it is in no transaction."""
        is_busy = self.in_atomic_block or (self.connection is not None and self.connection.in_transaction)
        try:
            if self.connection is None or is_busy or self.errors_occurred:
                super()._close()  # type: ignore[misc]
            else:
                _kept.keep(self._key, self.connection)
        finally:
            self.begins_with_next = False
            self._give_back()

    def _end(self, end: Any) -> None:
        self.begins_with_next = False
        try:
            end()
        finally:
            if self.connection is None or not self.connection.in_transaction:
                self._give_back()

    def _give_back(self) -> None:
        ticket, self._ticket = self._ticket, None
        if ticket is not None:
            ticket.give_back()
