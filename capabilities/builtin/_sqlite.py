"""Reading a SQLite file of the workspace. Nothing that is run here can write, attach, load or look elsewhere."""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from django.conf import settings

from capabilities.builtin._tables import Limits, Table, cell
from capabilities.builtin._workspace import parts_of, status_of
from capabilities.contract.context import ToolError

#: Steps of the machine between two looks at the clock.
STEPS = 5_000
#: What one value may weigh, and one statement: no result is larger than its parts.
SQLITE_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: 1_000_000,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 100_000,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 500,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}
READING = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE})
#: Functions that reach beyond the database, in builds that have them.
OUTSIDE = frozenset({"load_extension", "readfile", "writefile", "edit", "fts3_tokenizer", "lsdir", "fsdir"})

ONLY_READING = "Only reading is allowed: run one SELECT."

TABLES = (
    "SELECT name, type FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite~_%' ESCAPE '~'"
    " ORDER BY name"
)
COLUMNS = 'SELECT name, type, "notnull", dflt_value, pk FROM pragma_table_info(?)'
VIEW = "SELECT sql FROM sqlite_master WHERE type = 'view' AND name = ? COLLATE NOCASE"


def run(workspace: Path, path: str, sql: str, parameters: Sequence[str], limits: Limits) -> Table:
    """The rows of one statement. Raises ToolError, with SQLite's own sentence where the statement is at fault."""
    with _opened(workspace, path) as connection:
        deadline = time.monotonic() + limits.seconds
        connection.set_progress_handler(lambda: limits.stopped() or time.monotonic() > deadline, STEPS)
        if sql != COLUMNS:  # our own, and a table of a pragma looks like a write to the authorizer
            connection.set_authorizer(_authorize)
        try:
            cursor = connection.execute(sql, parameters)
            if cursor.description is None:
                raise ToolError(ONLY_READING)
            columns = [name for name, *_ in cursor.description]
            return limits.table(columns, (tuple(map(cell, row)) for row in cursor))
        except sqlite3.Warning as error:  # what Python 3.11 calls it; a ProgrammingError later on
            raise ToolError("Only one statement at a time can be run.") from error
        except sqlite3.Error as error:
            raise ToolError(_told(error, limits)) from error


@contextmanager
def _opened(workspace: Path, path: str) -> Iterator[sqlite3.Connection]:
    """A connection that only reads, to a regular file of the workspace.

    The file is looked at before and after it was opened, and no link on its way is followed.
    """
    parts = parts_of(path)
    before = _looked_at(workspace, path)
    address = f"file:{quote(str(workspace.resolve().joinpath(*parts)))}?mode=ro"
    connection = sqlite3.connect(address, uri=True, timeout=1.0, isolation_level=None, check_same_thread=False)
    try:
        for limit, most in SQLITE_LIMITS.items():
            connection.setlimit(limit, most)
        connection.execute("PRAGMA query_only = ON")
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA cell_size_check = ON")
        connection.execute("PRAGMA schema_version").fetchone()
        if not os.path.samestat(before, _looked_at(workspace, path)):
            raise ToolError("The file of the database changed while it was opened: try again.")
        yield connection
    except sqlite3.OperationalError as error:
        raise ToolError("The database of the set-up cannot be opened, or is busy: try again.") from error
    except sqlite3.DatabaseError as error:
        raise ToolError("The file of the set-up is no SQLite database.") from error
    finally:
        connection.close()


def _looked_at(workspace: Path, path: str) -> os.stat_result:
    status = status_of(workspace, path)
    if not stat.S_ISREG(status.st_mode):
        raise ToolError("The database of the set-up is no file.")
    own = settings.DATABASES["default"]
    if (
        own["ENGINE"].endswith("sqlite3")
        and os.path.exists(own["NAME"])
        and os.path.samestat(status, os.stat(own["NAME"]))
    ):
        raise ToolError("This service's own database cannot be read.")
    return status


def _authorize(action: int, first: str | None, second: str | None, database: str | None, within: str | None) -> int:
    allowed = action in READING and (second or "").lower() not in OUTSIDE
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


def _told(error: sqlite3.Error, limits: Limits) -> str:
    text = str(error)
    if text == "interrupted":
        return f"The query took longer than {limits.seconds:g} s and was stopped: ask for less."
    if "one statement" in text:
        return "Only one statement at a time can be run."
    if text in {"not authorized", "authorization denied"} or "readonly" in text or "prohibited" in text:
        return ONLY_READING
    return f"The database refuses the query: {text[:500].rstrip('.')}."
