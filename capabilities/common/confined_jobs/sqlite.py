"""The rows of one statement on a SQLite file. What is run here can write, attach and load nothing, nor look elsewhere.

A crafted file can crash the library, and a single step of a query (a pattern, a sort) never looks at the clock.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import quote

from capabilities.contract.tables import Limits, cell
from toolhub.durations import duration

#: Steps of the machine between two looks at the clock.
STEPS = 5_000
#: Bytes that a query may hold, its sorting and grouping included.
HEAP = 200_000_000
#: Largest size of one value, and of one statement: no result is larger than its parts.
SQLITE_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: 1_000_000,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 100_000,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 500,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}
SETTINGS = (
    "query_only = ON",
    "trusted_schema = OFF",
    "cell_size_check = ON",
    "mmap_size = 0",  # a mapped file that shrinks under the reader is a crash
    "temp_store = MEMORY",
    f"hard_heap_limit = {HEAP}",
)
READING = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE})
#: Functions that reach beyond the database, in builds that have them.
OUTSIDE = frozenset({"load_extension", "readfile", "writefile", "edit", "fts3_tokenizer", "lsdir", "fsdir"})
#: Bytes 18 and 19 of a file whose changes stand in a second one until they are moved over.
WRITE_AHEAD = b"\2\2"

ONLY_READING = "Only reading is allowed: run one SELECT."
TOO_MUCH = "The query needs more memory than it may take: ask for less."


class Refused(Exception):
    """The message is one sentence for who asked."""


def run(
    path: str, file: list[int], sql: str, parameters: list[str], is_own: bool, rows: int, seconds: float
) -> dict[str, Any]:
    """Return `columns`, `rows` and `more`; or `refused` with a sentence, SQLite's own where the statement is at fault.

    `file` is device and inode of what must be opened. `is_own` marks a statement of this service, which may read the
    columns of a table; a member's may not.
    """
    try:
        with _opened(path, file) as connection:
            return _rows(connection, sql, parameters, is_own, rows, seconds)
    except Refused as error:
        return {"refused": str(error)}


def _rows(
    connection: sqlite3.Connection, sql: str, parameters: list[str], is_own: bool, rows: int, seconds: float
) -> dict[str, Any]:
    deadline = time.monotonic() + seconds
    connection.set_progress_handler(lambda: time.monotonic() > deadline, STEPS)
    if not is_own:  # a table of a pragma looks like a write to the authorizer
        connection.set_authorizer(_authorize)
    try:
        cursor = connection.execute(sql, parameters)
        if cursor.description is None:
            raise Refused(ONLY_READING)
        columns = [name for name, *_ in cursor.description]
        limits = Limits(rows=rows, seconds=seconds, stopped=lambda: False)
        table = limits.table(columns, (tuple(map(cell, row)) for row in cursor))
    except sqlite3.Warning as error:  # what Python 3.11 calls it; a ProgrammingError later on
        raise Refused("Only one statement at a time can be run.") from error
    except MemoryError as error:
        raise Refused(TOO_MUCH) from error
    except sqlite3.Error as error:
        raise Refused(_sentence(error, seconds)) from error
    return {"columns": table.columns, "rows": table.rows, "more": table.more}


@contextmanager
def _opened(path: str, file: list[int]) -> Iterator[sqlite3.Connection]:
    """A connection that only reads, to this very file: what stands at its path may have changed since."""
    for suffix in ("-wal", "-shm", "-journal"):
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(os.lstat(path + suffix).st_mode):
                raise Refused("A file beside the database of the set-up is a link, which is not followed.")
    connection = None
    try:
        connection = sqlite3.connect(_address(path), uri=True, timeout=1.0, isolation_level=None)
        for limit, most in SQLITE_LIMITS.items():
            connection.setlimit(limit, most)
        for setting in SETTINGS:
            connection.execute(f"PRAGMA {setting}").fetchone()
        connection.execute("PRAGMA schema_version").fetchone()
        if file not in _open_files():
            raise Refused("The file of the database changed while it was opened: try again.")
        yield connection
    except (sqlite3.OperationalError, OSError) as error:
        raise Refused("The database of the set-up cannot be opened, or is busy: try again.") from error
    except sqlite3.DatabaseError as error:
        raise Refused("The file of the set-up is no SQLite database.") from error


def _address(path: str) -> str:
    """Nothing can be made beside the file, which one with a write-ahead log asks for unless nobody has it open."""
    with open(path, "rb") as file:
        is_closed = file.read(20)[18:] == WRITE_AHEAD and not os.path.exists(f"{path}-wal")
    return f"file:{quote(path)}?mode=ro" + ("&immutable=1" if is_closed else "")


def _open_files() -> list[list[int]]:
    """Device and inode of each file that this process has open."""
    found = []
    for descriptor in range(64):
        with suppress(OSError):
            status = os.fstat(descriptor)
            found.append([status.st_dev, status.st_ino])
    return found


def _authorize(action: int, first: str | None, second: str | None, database: str | None, within: str | None) -> int:
    allowed = action in READING and (second or "").lower() not in OUTSIDE
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


def _sentence(error: sqlite3.Error, seconds: float) -> str:
    text = str(error)
    if text == "interrupted":
        return f"The query took longer than {duration(seconds)} and was stopped: ask for less."
    if text == "out of memory":
        return TOO_MUCH
    if "one statement" in text:
        return "Only one statement at a time can be run."
    if text in {"not authorized", "authorization denied"} or "readonly" in text or "prohibited" in text:
        return ONLY_READING
    return f"The database refuses the query: {text[:500].rstrip('.')}."
