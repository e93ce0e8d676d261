"""Reading a SQLite file of the workspace, in a child process. Which file it may be is decided here."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from django.conf import settings

from capabilities.assistant.builtin._lib.workspace import parts_of, status_of
from capabilities.common import confined
from capabilities.contract.context import ToolContext, ToolError
from capabilities.contract.tables import Limits, Table
from toolhub.durations import duration

#: Seconds that the child may take on top of its query, to begin and to answer.
MARGIN = 2.0

TABLES = (
    "SELECT name, type FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite~_%' ESCAPE '~'"
    " ORDER BY name"
)
COLUMNS = 'SELECT name, type, "notnull", dflt_value, pk FROM pragma_table_info(?)'
VIEW = "SELECT sql FROM sqlite_master WHERE type = 'view' AND name = ? COLLATE NOCASE"


def run(context: ToolContext, path: str, sql: str, parameters: Sequence[str], limits: Limits) -> Table:
    """The rows of one statement. Raises ToolError, with SQLite's own sentence where the statement is at fault."""
    status = _looked_at(context.workspace, path)
    arguments = {
        "path": str(context.workspace.resolve().joinpath(*parts_of(path))),
        "file": [status.st_dev, status.st_ino],
        "sql": sql,
        "parameters": list(parameters),
        "is_own": sql == COLUMNS,
        "rows": limits.rows,
        "seconds": limits.seconds,
    }
    try:
        found = confined.run(
            "sqlite",
            arguments,
            context.organisation_id,
            seconds=limits.seconds + MARGIN,
            wait=context.timeout * 0.95,
            stopped=context.stopped,
        )
    except confined.TookTooLong as error:
        longest = duration(limits.seconds)
        raise ToolError(f"The query took longer than {longest} and was stopped: ask for less.") from error
    except confined.TooComplex as error:
        raise ToolError("The query, or the file of the database, is too complex to read: ask for less.") from error
    if "refused" in found:
        raise ToolError(found["refused"])
    return Table(found["columns"], found["rows"], more=found["more"])


def _looked_at(workspace: Path, path: str) -> os.stat_result:
    """The regular file at the path; no link on the way is followed."""
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
