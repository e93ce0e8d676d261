"""Counts what this process asks the database for, in a file that others read while it runs.

Statements are counted as the driver gets them, with the BEGIN that SQLite is sent. A commit is a transaction that was
begun, or a write outside of one. A read outside of one is counted apart: a database server calls it a transaction too,
and has nothing to write down at its end.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

#: Statements; commits; those of them that wrote; and reads outside of a transaction.
LAYOUT = struct.Struct("4Q")
#: Threads of a worker that do what no turn asked for.
HOUSEKEEPING = frozenset({"hold", "sweep"})
WRITES = ("INSERT", "UPDATE", "DELETE")


class Tally:
    """Four counters in a file."""

    def __init__(self, file: Path) -> None:
        with file.open("w+b") as opened:
            opened.truncate(LAYOUT.size)
            self._memory = mmap.mmap(opened.fileno(), LAYOUT.size)
        self._counts = [0, 0, 0, 0]
        self._lock = threading.Lock()

    def add(self, statements: int = 0, commits: int = 0, writes: int = 0, reads: int = 0) -> None:
        if threading.current_thread().name in HOUSEKEEPING:
            return
        with self._lock:
            counted = zip(self._counts, (statements, commits, writes, reads), strict=True)
            self._counts = [before + more for before, more in counted]
            LAYOUT.pack_into(self._memory, 0, *self._counts)


class Watch:
    """What the connections of this process do, counted."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        #: Connections whose transaction has written.
        self._written: set[int] = set()

    def statement(self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
        connection = context["connection"]
        is_write = sql.startswith(WRITES)
        if sql.startswith("BEGIN"):
            self._written.discard(id(connection))
            self.tally.add(statements=1)
        elif connection.in_atomic_block:
            self.tally.add(statements=1)
            if is_write:
                self._written.add(id(connection))
        elif is_write:
            self.tally.add(statements=1, commits=1, writes=1)
        else:
            self.tally.add(statements=1, reads=1)
        return execute(sql, params, many, context)

    def commit(self, connection: object) -> None:
        self.tally.add(commits=1, writes=int(id(connection) in self._written))
        self._written.discard(id(connection))


def count_into(folder: str) -> None:
    """Count from now on, in a file of this process in the folder."""
    watch = Watch(Tally(Path(folder) / str(os.getpid())))
    wrapper: Any = BaseDatabaseWrapper
    commit = wrapper._commit

    def counted_commit(connection: BaseDatabaseWrapper) -> None:
        watch.commit(connection)
        commit(connection)

    def follow(connection: BaseDatabaseWrapper, **_: object) -> None:
        if watch.statement not in connection.execute_wrappers:
            connection.execute_wrappers.append(watch.statement)

    wrapper._commit = counted_commit
    connection_created.connect(follow, weak=False)


def read(folder: Path, pids: list[int]) -> tuple[int, int, int, int]:
    """Statements, commits, commits that wrote, and reads outside of a transaction, of these processes together."""
    found = [LAYOUT.unpack((folder / str(pid)).read_bytes()) for pid in pids]
    statements, commits, writes, reads = (sum(column) for column in zip(*found, strict=True))
    return statements, commits, writes, reads
