"""SQL on a database that the organisation configured: PostgreSQL, or a SQLite file of its workspace. Only reading."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import unquote, urlsplit

from pydantic import Field

from capabilities.assistant.builtin._lib import postgres as _postgres
from capabilities.assistant.builtin._lib import sqlite as _sqlite
from capabilities.assistant.builtin._lib.remote import names
from capabilities.contract.context import ToolContext, ToolError
from capabilities.contract.tables import Limits, Table
from capabilities.running.registry import CategorySpec, ServiceField, ServiceSpec, tool

CATEGORY = CategorySpec(
    name="aether_db",
    title="Database",
    description="Read a configured SQL database.",
    keywords=("database", "query", "run query", "sql", "select", "db", "table", "schema", "maria"),
)
SQL_DATABASE = ServiceSpec(
    name="sql_database",
    title="SQL database",
    description="A database that tools may read and never change. Use an account that may only read.",
    fields=(
        ServiceField(
            "url",
            "Address",
            "postgres://user:password@host:5432/name?sslmode=require, or sqlite:///folder/file.sqlite3 for a file of "
            "the workspace.",
            is_secret=True,
        ),
        ServiceField("row_limit", "Rows of one answer", "1 to 1000.", default="200", binds_secrets=False),
        ServiceField("timeout", "Seconds of one query", "1 to 60.", default="10", binds_secrets=False),
    ),
    test=lambda context: ae_db_query(context, "SELECT 1"),
)
SERVICES = (SQL_DATABASE,)
POSTGRES, SQLITE = ("postgres", "postgresql"), "sqlite"

TableName = Annotated[str, Field(max_length=200)]


@tool(category="aether_db", effect="read", service="sql_database", timeout=70.0, human_format="Querying: {sql}")
def ae_db_query(
    context: ToolContext, sql: Annotated[str, Field(min_length=1, max_length=20_000, description="One SELECT.")]
) -> dict[str, Any]:
    """Run one read-only SQL query. See tables and columns with ae_db_describe first."""
    found = _run(context, sql)
    return {"columns": found.columns, "rows": found.rows} | ({"more": True} if found.more else {})


@tool(category="aether_db", effect="read", service="sql_database", timeout=70.0, human_format="Describing {table}")
def ae_db_describe(
    context: ToolContext, table: Annotated[TableName, Field(description="None: list all tables and views.")] = ""
) -> dict[str, Any]:
    """The columns of a table or view of the database; without one, all tables."""
    if not table.strip():
        listed = _run(context, _dialect(context).TABLES)
        return {"tables": listed.rows} | ({"more": True} if listed.more else {})
    found = _run(context, _dialect(context).COLUMNS, [table.strip()])
    if not found.rows:
        raise ToolError(_no_such(context, "table", table))
    return {"table": table.strip(), "columns": [_column(*row) for row in found.rows]}


@tool(category="aether_db", effect="read", service="sql_database", timeout=70.0, human_format="Showing view {view}")
def ae_db_show_view(context: ToolContext, view: TableName) -> dict[str, Any]:
    """The SQL that defines a view of the database."""
    found = _run(context, _dialect(context).VIEW, [view.strip()])
    if not found.rows:
        raise ToolError(_no_such(context, "view", view))
    return {"view": view.strip(), "sql": found.rows[0][0]}


def _column(name: str, kind: str, required: Any, default: Any, key: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"name": name, "type": kind}
    if required:
        row["required"] = True
    if default is not None:
        row["default"] = default
    if key:
        row["primary_key"] = True
    return row


def _no_such(context: ToolContext, kind: str, name: str) -> str:
    listed = [row[0] for row in _run(context, _dialect(context).TABLES).rows if kind == "table" or row[1] == kind]
    return f"There is no {kind} {name.strip()[:100]}; there is {names(listed)}." if listed else f"There is no {kind}."


def _run(context: ToolContext, sql: str, parameters: Sequence[str] = ()) -> Table:
    limits = Limits(
        rows=int(_number(context, "row_limit", 1000)),
        seconds=min(_number(context, "timeout", 60), context.timeout * 0.9),
        stopped=context.stopped.is_set,
    )
    url = context.service.get("url", "").strip()
    if _dialect(context) is _sqlite:
        return _sqlite.run(context, _path(context.workspace, url), sql, parameters, limits)
    return _postgres.run(url, sql, parameters, limits)


def _dialect(context: ToolContext) -> Any:
    """The module that reads this kind of database."""
    scheme = context.service.get("url", "").strip().partition(":")[0].lower()
    if scheme == SQLITE:
        return _sqlite
    if scheme in POSTGRES:
        return _postgres
    raise ToolError("The SQL database must be set up with a postgres:// or sqlite:/// address.")


def _path(workspace: Path, url: str) -> str:
    """The file's path inside the workspace. An absolute one must lie there."""
    parts = urlsplit(url)
    if parts.netloc or parts.query or parts.fragment or not parts.path.startswith("/"):
        raise ToolError("The address of a SQLite file must look like sqlite:///folder/file.sqlite3.")
    path = unquote(parts.path[1:])
    for root in (str(workspace), str(workspace.resolve())):
        if path.startswith(f"{root}/"):
            return path.removeprefix(f"{root}/")
    if path.startswith("/"):
        raise ToolError("The SQLite file must lie in the workspace.")
    return path


def _number(context: ToolContext, name: str, most: float) -> float:
    """A number of the set-up, within 1 and `most`; its default where it is none."""
    default = next(field.default for field in SQL_DATABASE.fields if field.name == name)
    try:
        value = float(context.service.get(name, default))
    except ValueError:
        value = float(default)
    return max(1.0, min(value, most)) if value == value else float(default)
