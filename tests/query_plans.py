"""Reads how the database goes about a statement, on SQLite and on PostgreSQL."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.db import connection
from django.db.backends.signals import connection_created

Params = Sequence[Any] | None


@dataclass(frozen=True)
class Statement:
    """A statement as it was run, and what ran it."""

    sql: str
    params: Any
    source: str


@dataclass(frozen=True)
class Access:
    """How one table of a statement is read."""

    table: str
    #: Empty for a scan of the table itself.
    index: str
    #: Columns that the index is searched by; empty for a scan of all of it.
    columns: tuple[str, ...]
    #: Whether rows come in the order that is asked for, and only as many as are asked for.
    is_limited: bool
    #: Rows that are read, as the database guesses; SQLite does not.
    rows: float = math.inf


class Collector:
    """Keeps each statement that any thread runs, once for each text of it."""

    def __init__(self) -> None:
        self.statements: dict[str, Statement] = {}
        self.source = ""

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if not many and sql.lstrip("( ").split(" ", 1)[0] in ("SELECT", "UPDATE", "DELETE", "INSERT", "WITH"):
            self.statements.setdefault(sql, Statement(sql, params, self.source))
        return execute(sql, params, many, context)

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """While it lasts, on every connection of the process."""

        def begin(connection: Any, **_: Any) -> None:
            if self not in connection.execute_wrappers:
                connection.execute_wrappers.append(self)

        connection_created.connect(begin)
        begin(connection)
        try:
            yield
        finally:
            connection_created.disconnect(begin)
            connection.execute_wrappers.remove(self)


def accesses(statement: Statement) -> list[Access]:
    """How the statement reads each of its tables, by the database's own account."""
    return _on_postgresql(statement) if connection.vendor == "postgresql" else _on_sqlite(statement)


# -- SQLite -----------------------------------------------------------------------------------------------------------

LINE = re.compile(
    r"(?P<how>SCAN|SEARCH) (?P<name>\S+)"
    r"(?: USING (?:AUTOMATIC )?(?:PARTIAL )?(?:COVERING )?(?:INDEX (?P<index>\S+)|(?P<key>(?:INTEGER )?PRIMARY KEY)))?"
    r"(?: \((?P<terms>.*)\))?"
)
ALIAS = re.compile(r'"(\w+)" (?:AS )?"?([A-Z]+\d+)"?\b')


def _on_sqlite(statement: Statement) -> list[Access]:
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {statement.sql}", statement.params)
        lines = [row[3] for row in cursor.fetchall()]
        cursor.execute("SELECT name, tbl_name FROM sqlite_master WHERE type = 'index'")
        tables = dict(cursor.fetchall())
    matches = [match for line in lines if (match := LINE.match(line)) and line != "SCAN CONSTANT ROW"]
    by_index = {tables.get(match["index"]) for match in matches}
    # Subqueries beside each other have the same alias: what is read by an index elsewhere in the plan is not meant.
    names: dict[str, str] = {}
    for table, alias in ALIAS.findall(statement.sql):
        if alias not in names or names[alias] in by_index:
            names[alias] = table
    is_sorted = any("TEMP B-TREE FOR ORDER" in line for line in lines)
    is_limited = statement.sql.startswith("SELECT MAX(") or (" LIMIT " in statement.sql and not is_sorted)
    found = []
    for match in matches:
        if match["name"].startswith("("):
            continue
        columns = tuple(re.findall(r"(\w+)[<>=]", match["terms"] or ""))
        index = match["index"] or match["key"] or ""
        table = tables.get(index) or names.get(match["name"]) or str(match["name"])
        found.append(Access(table, index, columns, is_limited))
    return found


# -- PostgreSQL -------------------------------------------------------------------------------------------------------


def _on_postgresql(statement: Statement) -> list[Access]:
    with connection.cursor() as cursor:
        # A merge reads an index only as far as its other side goes, and is told as if it read all of it.
        cursor.execute("SET enable_mergejoin = off")
        cursor.execute(f"EXPLAIN (FORMAT JSON) {statement.sql}", statement.params)
        (plan,) = cursor.fetchone()
        cursor.execute("RESET enable_mergejoin")
        cursor.execute("SELECT relname, reltuples FROM pg_class")
        sizes = dict(cursor.fetchall())
    plan = json.loads(plan) if isinstance(plan, str) else plan
    return list(_nodes(plan[0]["Plan"], sizes))


def _nodes(
    node: dict[str, Any], sizes: dict[str, float], table: str = "", is_limited: bool = False
) -> Iterator[Access]:
    kind = node["Node Type"]
    table = node.get("Relation Name", table)
    if kind == "Limit":
        is_limited = True
    elif kind in ("Sort", "Aggregate", "Hash", "Bitmap Heap Scan", "Materialize"):
        is_limited = False
    if kind == "Seq Scan":
        yield Access(table, "", (), is_limited, sizes[table])
    elif kind in ("Index Scan", "Index Only Scan", "Bitmap Index Scan"):
        columns = re.findall(r"\(*(\w+)\)?(?:::\w+)? (?:[<>=]+|= ANY|IS)", node.get("Index Cond", ""))
        rows = node["Plan Rows"] if columns else sizes[node["Index Name"]]
        yield Access(table, node["Index Name"], tuple(columns), is_limited, rows)
    for child in node.get("Plans", ()):
        yield from _nodes(child, sizes, table, is_limited)


def rows_read(statement: Statement) -> float:
    """Rows that PostgreSQL reads from tables and indexes to run the statement. It is run."""
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement.sql}", statement.params)
        (plan,) = cursor.fetchone()
    plan = json.loads(plan) if isinstance(plan, str) else plan
    return _rows_below(plan[0]["Plan"])


def _rows_below(node: dict[str, Any]) -> float:
    below = sum(map(_rows_below, node.get("Plans", ())))
    removed = node.get("Rows Removed by Filter", 0)
    own: float = (node["Actual Rows"] + removed) * node["Actual Loops"] if "Scan" in node["Node Type"] else 0
    return below + own
