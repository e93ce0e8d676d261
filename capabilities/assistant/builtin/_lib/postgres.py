"""Reading a PostgreSQL database. Every statement runs in a transaction that cannot write and is always rolled back."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from capabilities.contract.context import ToolError
from capabilities.contract.tables import CELL_LIMIT, TABLE_LIMIT, Limits, Table, cell
from capabilities.running.egress import EgressError, resolve_checked
from toolhub.durations import duration

try:
    import psycopg
    from psycopg import sql as composed
except ImportError:  # an optional extra
    psycopg = None  # type: ignore[assignment]

SSL_MODES = frozenset({"disable", "prefer", "require", "verify-full"})
#: Type numbers of values of a few bytes: bool, int8, int2, int4, oid, float4, float8. All else is cut by the server, so
#: that one value of a gigabyte never gets here.
SMALL_TYPES = frozenset({16, 20, 21, 23, 26, 700, 701})

TABLES = (
    "SELECT CASE WHEN pg_table_is_visible(c.oid) THEN '' ELSE quote_ident(n.nspname) || '.' END || quote_ident(relname)"
    " AS name, CASE WHEN relkind IN ('v', 'm') THEN 'view' ELSE 'table' END AS type"
    " FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = relnamespace"
    " WHERE relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname NOT IN ('pg_catalog', 'information_schema')"
    " AND n.nspname NOT LIKE 'pg\\_%' AND has_table_privilege(c.oid, 'SELECT') ORDER BY 1"
)
COLUMNS = (
    "SELECT attname, format_type(atttypid, atttypmod), attnotnull, pg_get_expr(d.adbin, d.adrelid),"
    " COALESCE(attnum = ANY (i.indkey::int2[]), false)"
    " FROM pg_catalog.pg_attribute a"
    " LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = attrelid AND d.adnum = attnum"
    " LEFT JOIN pg_catalog.pg_index i ON i.indrelid = attrelid AND i.indisprimary"
    " WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
)
VIEW = "SELECT pg_get_viewdef(oid, true) FROM pg_catalog.pg_class WHERE oid = to_regclass(%s) AND relkind IN ('v', 'm')"


@dataclass(frozen=True)
class Target:
    """A database, as its address names it; nothing is left to the environment or to files of this machine."""

    host: str
    port: int
    database: str
    user: str
    password: str
    sslmode: str

    @classmethod
    def of(cls, url: str) -> Target:
        """Raises ToolError for whatever is more than host, port, database, user, password and sslmode."""
        try:
            parts = urlsplit(url)
            port, host = parts.port or 5432, parts.hostname or ""
            sslmode = _sslmode(parts)
        except ValueError as error:
            raise ToolError("The address of the database is not valid.") from error
        if not re.fullmatch(r"[A-Za-z0-9._:-]+", host) or not parts.path.strip("/"):
            raise ToolError("The address of the database must look like postgres://user:password@host:5432/name.")
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        return cls(host, port, unquote(parts.path[1:]), user, password, sslmode)


def _sslmode(parts: SplitResult) -> str:
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    sslmode = options.pop("sslmode", "prefer")
    if options or parts.fragment or sslmode not in SSL_MODES:
        modes = ", ".join(sorted(SSL_MODES))
        raise ToolError(f"The address of the database may have one option only, sslmode: {modes}.")
    return sslmode


def run(url: str, sql: str, parameters: Sequence[str], limits: Limits) -> Table:
    """The rows of one statement. Raises ToolError, with PostgreSQL's own sentence where the statement is at fault."""
    if psycopg is None:
        raise ToolError("PostgreSQL cannot be read here: the service was installed without its postgres extra.")
    target = Target.of(url)
    if "\0" in sql:
        raise ToolError("SQL holds no NUL character.")
    deadline = time.monotonic() + limits.seconds
    with _connected(target, limits) as connection, _hung_up_at(deadline, connection):
        try:
            _refuse_superuser(connection)
            return _read(connection, sql.strip().rstrip(";"), parameters, limits)
        except psycopg.errors.QueryCanceled as error:
            raise ToolError(_too_long(limits)) from error
        except psycopg.Error as error:
            if time.monotonic() >= deadline:
                raise ToolError(_too_long(limits)) from error
            raise ToolError(_error_text(error)) from error


@contextmanager
def _connected(target: Target, limits: Limits) -> Iterator[psycopg.Connection[Any]]:
    """Connect to a checked address; certificates are still checked against the name."""
    try:
        addresses = resolve_checked(target.host, target.port, timeout=limits.seconds)
    except EgressError as error:
        raise ToolError(f"The database: {error}") from error
    milliseconds = max(1, int(limits.seconds * 1000))
    try:
        connection = psycopg.connect(
            host=",".join([target.host] * len(addresses)),
            hostaddr=",".join(addresses),
            port=target.port,
            dbname=target.database,
            user=target.user,
            password=target.password,
            sslmode=target.sslmode,
            connect_timeout=max(2, int(limits.seconds)),
            options=f"-c default_transaction_read_only=on -c statement_timeout={milliseconds}",
            application_name="toolhub",
            **_files(target),
        )
    except psycopg.Error as error:
        raise ToolError(_unconnected(error, target)) from error
    try:
        connection.read_only = True
        yield connection
    finally:
        with suppress(psycopg.Error):
            connection.rollback()
        connection.close()


def _files(target: Target) -> dict[str, Any]:
    """Files of this machine that libpq would look into by itself: none, but for the well-known authorities."""
    none = {"passfile": "/dev/null", "sslcertmode": "disable", "gssencmode": "disable", "client_encoding": "utf8"}
    return none | ({"sslrootcert": "system"} if target.sslmode == "verify-full" else {})


@contextmanager
def _hung_up_at(deadline: float, connection: psycopg.Connection[Any]) -> Iterator[None]:
    """The server's own time limit is only as good as the server: at the deadline the line is cut."""
    line = socket.socket(fileno=socket.dup(connection.fileno()))

    def cut() -> None:
        with suppress(OSError):
            line.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(max(0.0, deadline - time.monotonic()) + 0.5, cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        line.close()


def _refuse_superuser(connection: psycopg.Connection[Any]) -> None:
    """Such an account reads files of the server and ends sessions of others, in any transaction."""
    if connection.execute("SELECT current_setting('is_superuser')").fetchone() != ("off",):
        raise ToolError("The database account is a superuser: an administrator must set up one that may only read.")


def _read(connection: psycopg.Connection[Any], sql: str, parameters: Sequence[str], limits: Limits) -> Table:
    """Through a cursor of the server: that takes one statement, and only one that reads."""
    given = parameters or None
    with connection.cursor(name="reader") as cursor:
        cursor.execute(sql, given)
        described = cursor.description or []
    columns = [column.name for column in described]
    if not columns:
        return Table([], [], more=False)
    width = max(20, min(CELL_LIMIT, 10 * TABLE_LIMIT // (len(columns) * (limits.rows + 1))))
    names = [f"c{number}" for number in range(len(columns))]
    shown = composed.SQL(", ").join(
        composed.Identifier(name)
        if column.type_code in SMALL_TYPES
        else composed.SQL("left({}::text, {})").format(composed.Identifier(name), width)
        for name, column in zip(names, described, strict=True)
    )
    cut = composed.SQL("SELECT {} FROM (\n{}\n) AS reader ({})").format(
        shown, composed.SQL(sql), composed.SQL(", ").join(map(composed.Identifier, names))
    )
    with connection.cursor(name="reader") as cursor:
        cursor.execute(cut, given)
        return limits.table(columns, (tuple(map(cell, row)) for row in cursor.fetchmany(limits.rows + 1)))


def _unconnected(error: psycopg.Error, target: Target) -> str:
    """Return a sentence on why the connection failed. The text of libpq has addresses in it: they stay unsaid."""
    text = str(error)
    if "authentication" in text or "no pg_hba.conf entry" in text or "role" in text:
        return f"The database at {target.host} refuses what it was set up with."
    if "does not exist" in text:
        return f"There is no database {target.database} at {target.host}."
    if "SSL" in text or "certificate" in text:
        return f"The database at {target.host} offers no encryption that sslmode={target.sslmode} accepts."
    return f"The database at {target.host} could not be reached."


def _too_long(limits: Limits) -> str:
    return f"The query took longer than {duration(limits.seconds)} and was stopped: ask for less."


def _error_text(error: psycopg.Error) -> str:
    message = (error.diag.message_primary or "the connection was lost")[:500].rstrip(".")
    if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
        return f"Only reading is allowed: {message}."
    if "multiple commands" in message:
        return "Only one statement at a time can be run."
    if isinstance(error, psycopg.errors.SyntaxError) and "DECLARE" not in message:
        return f"Only one SELECT, WITH, VALUES or TABLE can be run, and it must be valid: {message}."
    return f"The database refuses the query: {message}."
