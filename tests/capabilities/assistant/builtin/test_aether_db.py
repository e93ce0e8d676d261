from __future__ import annotations

import os
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from capabilities.assistant.builtin import aether_db
from capabilities.assistant.builtin._lib import postgres as _postgres
from capabilities.assistant.builtin._lib import sqlite as _sqlite
from capabilities.common import confined
from capabilities.contract.context import ToolContext, ToolError
from capabilities.running.registry import registry
from tests.capabilities.assistant.builtin.remote import call_with, refused
from tests.capabilities.common.test_confined import memory_of_children
from tests.postgres import running_postgres

SCHEMA = """
CREATE TABLE shop (id INTEGER PRIMARY KEY, name TEXT NOT NULL DEFAULT 'x', price NUMERIC(8, 2), photo {bytes});
CREATE VIEW cheap AS SELECT id, name FROM shop WHERE price < 5;
INSERT INTO shop (id, name, price) VALUES (1, 'apple', 1.5), (2, 'bread', 4), (3, 'cheese', 12.25);
"""
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"

Values = dict[str, str]


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    with running_postgres() as url:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(SCHEMA.format(bytes="BYTEA"))
            connection.execute("CREATE SCHEMA other; CREATE TABLE other.secret (a uuid, b jsonb, c timestamptz)")
            connection.execute("CREATE SEQUENCE counter; CREATE ROLE locked LOGIN; CREATE ROLE app LOGIN")
            for schema in ("public", "other"):
                connection.execute(
                    f"GRANT ALL ON SCHEMA {schema} TO app; GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO app"
                )
            connection.execute("GRANT ALL ON SEQUENCE counter TO app")
        yield as_user("app", url)


def as_user(name: str, url: str) -> str:
    parts = urlsplit(url)
    return f"postgres://{name}:pw@{parts.hostname}:{parts.port}/postgres"


@pytest.fixture
def sqlite(context: ToolContext) -> Values:
    path = context.workspace / "data" / "shop.sqlite3"
    path.parent.mkdir(parents=True)
    with sqlite3.connect(path) as connection:
        connection.executescript(SCHEMA.format(bytes="BLOB"))
    connection.close()
    return {"url": "sqlite:///data/shop.sqlite3"}


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def either(request: pytest.FixtureRequest) -> Values:
    """The same table in both kinds of database."""
    values = request.getfixturevalue(request.param)
    return values if isinstance(values, dict) else {"url": values}


@pytest.fixture
def query(context: ToolContext) -> Callable[..., Any]:
    return lambda values, sql: call_with(context, "ae_db_query", values, {"sql": sql})


@pytest.fixture
def refusal(context: ToolContext) -> Callable[..., str]:
    return lambda values, sql: refused(context, "ae_db_query", values, {"sql": sql})


def test_rows_come_with_their_columns(query: Callable[..., Any], either: Values) -> None:
    sql = "SELECT id, name AS name, 1 AS name FROM shop WHERE id < 3 ORDER BY id DESC;"

    assert query(either, sql) == {
        "columns": ["id", "name", "name"],
        "rows": [[2, "bread", 1], [1, "apple", 1]],
    }


def test_no_row_is_an_answer(query: Callable[..., Any], either: Values) -> None:
    assert query(either, "SELECT id FROM shop WHERE id > 5 -- none") == {"columns": ["id"], "rows": []}


def test_more_rows_than_the_limit_are_told(query: Callable[..., Any], either: Values) -> None:
    found = query(either | {"row_limit": "2"}, "SELECT id FROM shop ORDER BY id")

    assert found == {"columns": ["id"], "rows": [[1], [2]], "more": True}


def test_what_is_long_is_cut(query: Callable[..., Any], either: Values) -> None:
    name = "printf('%.*c', 100000, 'x')" if "sqlite" in either["url"] else "repeat('x', 20000000)"

    found = query(either | {"row_limit": "3"}, f"SELECT {name} FROM shop")

    assert {len(row[0]) for row in found["rows"]} == {2_000}


def test_columns_are_described(context: ToolContext, either: Values) -> None:
    columns = call_with(context, "ae_db_describe", either, {"table": "shop"})["columns"]

    assert [(column["name"], column.get("primary_key", False)) for column in columns] == [
        ("id", True),
        ("name", False),
        ("price", False),
        ("photo", False),
    ]
    assert (columns[1]["required"], columns[1]["default"][:3], "required" in columns[2]) == (True, "'x'", False)


def test_without_a_table_all_are_listed(context: ToolContext, either: Values) -> None:
    tables = call_with(context, "ae_db_describe", either, {})["tables"]

    assert [row for row in tables if row[0] != "other.secret"] == [["cheap", "view"], ["shop", "table"]]


def test_a_view_is_shown(context: ToolContext, either: Values) -> None:
    shown = call_with(context, "ae_db_show_view", either, {"view": "cheap"})

    assert shown["view"] == "cheap"
    assert "FROM shop" in " ".join(shown["sql"].split())


@pytest.mark.parametrize(("name", "argument"), [("ae_db_describe", "table"), ("ae_db_show_view", "view")])
def test_a_missing_table_is_answered_with_those_there_are(
    context: ToolContext, either: Values, name: str, argument: str
) -> None:
    told = refused(context, name, either, {argument: "x'; DROP TABLE shop --"})

    assert told.startswith(f"There is no {argument} x'; DROP TABLE shop --; there is cheap")


WRITES = [
    "INSERT INTO shop (id) VALUES (9)",
    "UPDATE shop SET name = 'x'",
    "DELETE FROM shop",
    "DROP TABLE shop",
    "CREATE TABLE t (a int)",
    "CREATE TEMP TABLE t (a int)",
    "BEGIN",
    "COMMIT",
    "VACUUM",
    "ANALYZE",
    "SELECT 1; SELECT 2",
    "SELECT 1; DELETE FROM shop",
    "SELECT 1) AS x; DELETE FROM shop; --",
    "COMMIT; DELETE FROM shop",
    " ",
    ";",
    "no sql",
    "SELECT no_column FROM shop",
    "SELECT 1 \0",
]


@pytest.mark.parametrize("sql", WRITES)
def test_nothing_but_one_reading_statement_runs(
    query: Callable[..., Any], refusal: Callable[..., str], either: Values, sql: str
) -> None:
    assert refusal(either, sql).endswith(".")

    assert query(either, "SELECT count(*), min(name) FROM shop")["rows"] == [[3, "apple"]]


def test_an_endless_query_is_stopped(refusal: Callable[..., str], either: Values) -> None:
    started = time.monotonic()

    sentence = refusal(either | {"timeout": "1"}, ENDLESS)

    assert "took longer than 1 s" in sentence
    assert time.monotonic() - started < 4


@pytest.mark.parametrize(("limit", "shown"), [("nonsense", 3), ("0", 1), ("-5", 1), ("nan", 3), ("1e9", 3)])
def test_a_limit_that_is_none_falls_back(query: Callable[..., Any], sqlite: Values, limit: str, shown: int) -> None:
    assert len(query(sqlite | {"row_limit": limit, "timeout": limit}, "SELECT id FROM shop")["rows"]) == shown


# -- SQLite ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sql",
    [
        "ATTACH DATABASE 'other.sqlite3' AS other",
        "VACUUM INTO 'copy.sqlite3'",
        "PRAGMA query_only = OFF",
        "PRAGMA writable_schema = ON",
        "PRAGMA journal_mode = WAL",
        "PRAGMA temp_store_directory = '/tmp'",
        "SELECT load_extension('evil')",
        "SELECT * FROM pragma_database_list",
        "SAVEPOINT a",
        "REPLACE INTO shop (id) VALUES (1)",
        "WITH x AS (SELECT 1) DELETE FROM shop",
        "REINDEX",
        "ALTER TABLE shop RENAME TO other",
        "CREATE VIRTUAL TABLE t USING fts5(a)",
        "SELECT zeroblob(900000000)",
    ],
)
def test_sqlite_reaches_for_nothing_else(context: ToolContext, sqlite: Values, sql: str) -> None:
    assert refused(context, "ae_db_query", sqlite, {"sql": sql}).endswith(".")

    assert [path.name for path in (context.workspace / "data").iterdir()] == ["shop.sqlite3"]


def test_sqlite_values_become_json(query: Callable[..., Any], sqlite: Values) -> None:
    found = query(sqlite, "SELECT NULL, 1.5, x'00ff', 9223372036854775807, 1e999, 'ü'")

    assert found["rows"] == [[None, 1.5, "2 bytes: 00ff", 2**63 - 1, "inf", "ü"]]


def test_a_database_that_is_written_to_is_read(query: Callable[..., Any], sqlite: Values, context: ToolContext) -> None:
    writer = sqlite3.connect(context.workspace / "data" / "shop.sqlite3")
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute("INSERT INTO shop (id) VALUES (4)")
    writer.commit()

    assert query(sqlite, "SELECT count(*) FROM shop")["rows"] == [[4]]
    writer.close()


def test_an_absolute_path_inside_the_workspace_is_taken(
    query: Callable[..., Any], sqlite: Values, context: ToolContext
) -> None:
    url = f"sqlite:///{context.workspace}/data/shop.sqlite3"

    assert query({"url": url}, "SELECT 1")["rows"] == [[1]]


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("sqlite:///{outside}", "The SQLite file must lie in the workspace."),
        ("sqlite:///{workspace}/../outside.sqlite3", "A path never leads out of the workspace: leave out the '..'."),
        ("sqlite:///../outside.sqlite3", "A path never leads out of the workspace: leave out the '..'."),
        ("sqlite:///%2e%2e/outside.sqlite3", "A path never leads out of the workspace: leave out the '..'."),
        ("sqlite:///link.sqlite3", "The database of the set-up is no file."),
        ("sqlite:///linked/outside.sqlite3", "linked/outside.sqlite3 leads through a link, or through something"),
        ("sqlite:///folder", "The database of the set-up is no file."),
        ("sqlite:///missing.sqlite3", "There is no missing.sqlite3 in the workspace."),
        ("sqlite:///text.txt", "The file of the set-up is no SQLite database."),
        ("sqlite:///text.txt?mode=rwc", "The address of a SQLite file must look like"),
        ("sqlite://host/text.txt", "The address of a SQLite file must look like"),
        ("sqlite://", "The address of a SQLite file must look like"),
        ("sqlite:///", "The database of the set-up is no file."),
        ("mysql://user:pw@host/name", "The SQL database must be set up with a postgres:// or sqlite:/// address."),
        ("", "The SQL database must be set up with a postgres:// or sqlite:/// address."),
    ],
)
def test_only_a_file_of_the_workspace_is_opened(
    context: ToolContext, refusal: Callable[..., str], tmp_path: Path, url: str, sentence: str
) -> None:
    outside = tmp_path / "outside.sqlite3"
    sqlite3.connect(outside).close()
    context.workspace.mkdir()
    (context.workspace / "link.sqlite3").symlink_to(outside)
    (context.workspace / "linked").symlink_to(tmp_path)
    (context.workspace / "folder").mkdir()
    (context.workspace / "text.txt").write_text("no database " * 100)

    assert refusal({"url": url.format(outside=outside, workspace=context.workspace)}, "SELECT 1").startswith(sentence)


def test_the_services_own_database_is_never_read(
    context: ToolContext, refusal: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own.sqlite3"
    sqlite3.connect(own).close()
    databases = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(own)}}
    monkeypatch.setattr(_sqlite, "settings", SimpleNamespace(DATABASES=databases))
    context.workspace.mkdir()
    os.link(own, context.workspace / "shop.sqlite3")

    assert "own database" in refusal({"url": "sqlite:///shop.sqlite3"}, "SELECT 1")


#: Each ran in this process once: beyond its time, as a single step never looks at the clock, or with all memory.
HOSTILE = [
    pytest.param("SELECT printf('%.*c', 1000000000, 'x')", id="a value of a gigabyte"),
    pytest.param("SELECT instr(zeroblob(900000), zeroblob(400000) || 'x')", id="a search in one step"),
    pytest.param(ENDLESS.replace("count(*)", "json_group_array(i)"), id="an endless list"),
    pytest.param(ENDLESS.replace("count(*)", "i") + " ORDER BY randomblob(900000) || i", id="a sort of all memory"),
    pytest.param(ENDLESS.replace("*", "DISTINCT zeroblob(900000) || i"), id="distinct values of all memory"),
    pytest.param(
        "WITH t0 AS (SELECT 1), "
        + ", ".join(f"t{n} AS (SELECT * FROM t{n - 1} UNION ALL SELECT * FROM t{n - 1})" for n in range(1, 40))
        + " SELECT count(*) FROM t39",
        id="tables that double",
    ),
    pytest.param("SELECT " + "(" * 9_000 + "1" + ")" * 9_000, id="deep brackets"),
    pytest.param("SELECT " + "1+" * 9_000 + "1", id="a deep sum"),
    pytest.param("SELECT zeroblob(900000000)", id="zeroes"),
]


@pytest.mark.parametrize("sql", HOSTILE)
def test_a_hostile_query_ends_its_child_and_nobody_else(
    query: Callable[..., Any], refusal: Callable[..., str], sqlite: Values, monkeypatch: pytest.MonkeyPatch, sql: str
) -> None:
    monkeypatch.setattr(_sqlite, "MARGIN", 1.0)
    started, before = time.monotonic(), memory_of_children()

    sentence = refusal(sqlite | {"timeout": "1"}, sql)

    assert sentence.endswith((": ask for less.", "parser stack overflow.", "maximum depth 1000).", "too big."))
    assert time.monotonic() - started < 6
    assert memory_of_children() < max(before, confined.MEMORY) + 50_000_000
    assert query(sqlite, "SELECT name FROM shop WHERE id = 1")["rows"] == [["apple"]]


def crafted(data: bytes) -> Iterator[bytes]:
    """Files that were a database once."""
    yield data[:150]
    yield data[:100] + b"\xff" * (len(data) - 100)
    yield data[:16] + b"\x02\x00" + data[18:]  # pages of 512 bytes, which are 4,096
    yield data[:28] + b"\xff\xff\xff\xff" + data[32:]  # more pages than there are
    yield data[:103] + b"\xff\xff" + data[105:]  # more cells in the schema than fit
    yield data[:4096] + b"\x05" + data[4097:]  # a table whose page points to others
    randomly = Random(1)
    for _ in range(12):
        broken = bytearray(data)
        for _ in range(60):
            broken[randomly.randrange(100, len(data))] = randomly.randrange(256)
        yield bytes(broken)


def test_a_crafted_file_ends_in_a_sentence_or_in_rows(
    context: ToolContext, query: Callable[..., Any], sqlite: Values
) -> None:
    shop = context.workspace / "data" / "shop.sqlite3"
    whole = shop.read_bytes()

    for data in crafted(whole):
        shop.write_bytes(data)
        for sql in ("SELECT * FROM shop ORDER BY name", "SELECT * FROM cheap, sqlite_master"):
            with suppress(ToolError):
                query(sqlite, sql)

    shop.write_bytes(whole)
    assert query(sqlite, "SELECT count(*) FROM shop")["rows"] == [[3]]


def test_a_library_that_crashes_takes_its_child_alone(
    refusal: Callable[..., str],
    query: Callable[..., Any],
    sqlite: Values,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    child = tmp_path / "child.py"
    child.write_text("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    with monkeypatch.context() as patch:
        patch.setattr(confined, "CHILD", child)
        sentence = refusal(sqlite, "SELECT 1")

    assert "too complex" in sentence
    assert query(sqlite, "SELECT 1")["rows"] == [[1]]


def test_sqlite_is_never_opened_by_this_process(
    query: Callable[..., Any], sqlite: Values, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite3, "connect", None)

    assert query(sqlite, "SELECT count(*) FROM shop")["rows"] == [[3]]


def test_a_slow_query_keeps_nobody_from_a_check(context: ToolContext, sqlite: Values, settings: Any) -> None:
    settings.TOOLHUB_CHILD_PROCESSES = settings.TOOLHUB_CHILD_PROCESSES_PER_ORGANISATION = 1
    answers: list[str] = []
    thread = threading.Thread(
        target=lambda: answers.append(refused(context, "ae_db_query", sqlite | {"timeout": "3"}, {"sql": ENDLESS}))
    )
    thread.start()
    time.sleep(0.3)

    checked = confined.run("syntax", {"language": "json", "text": "{}"}, context.organisation_id, wait=2.5)

    assert (checked, answers) == (None, [])
    thread.join()
    assert "was stopped" in answers[0]


def test_a_closed_database_with_a_write_ahead_log_is_read_and_nothing_is_left_beside_it(
    query: Callable[..., Any], sqlite: Values, context: ToolContext
) -> None:
    folder = context.workspace / "data"
    writer = sqlite3.connect(folder / "shop.sqlite3")
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute("INSERT INTO shop (id) VALUES (4)")
    writer.commit()
    writer.close()

    assert query(sqlite, "SELECT count(*) FROM shop")["rows"] == [[4]]
    assert [path.name for path in folder.iterdir()] == ["shop.sqlite3"]


@pytest.mark.parametrize("beside", ["-wal", "-shm", "-journal"])
def test_a_link_beside_the_file_is_not_followed(
    refusal: Callable[..., str], sqlite: Values, context: ToolContext, tmp_path: Path, beside: str
) -> None:
    (context.workspace / "data" / f"shop.sqlite3{beside}").symlink_to(tmp_path / "other")

    assert "is a link, which is not followed" in refusal(sqlite, "SELECT 1")


def test_a_file_that_was_swapped_after_the_look_is_not_read(
    refusal: Callable[..., str], sqlite: Values, context: ToolContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop, other = context.workspace / "data" / "shop.sqlite3", tmp_path / "other.sqlite3"
    other.write_bytes(shop.read_bytes())
    look = _sqlite._looked_at

    def looked_at_and_swapped(workspace: Path, path: str) -> os.stat_result:
        status = look(workspace, path)
        shop.rename(shop.with_name("moved"))
        shop.symlink_to(other)
        return status

    monkeypatch.setattr(_sqlite, "_looked_at", looked_at_and_swapped)

    assert "changed while it was opened" in refusal(sqlite, "SELECT name FROM shop")


# -- PostgreSQL ------------------------------------------------------------------------------------------------------


@pytest.mark.postgres
@pytest.mark.parametrize(
    "sql",
    [
        "WITH gone AS (DELETE FROM shop RETURNING id) SELECT * FROM gone",
        "SELECT nextval('counter')",
        "SELECT set_config('transaction_read_only', 'off', false)",
        "SELECT id INTO copy FROM shop",
        "SELECT id FROM shop FOR UPDATE",
        "SET default_transaction_read_only = off",
        "COPY shop TO PROGRAM 'cat'",
        "SELECT lo_create(0)",
        "DO $$ BEGIN DELETE FROM shop; END $$",
        "EXPLAIN ANALYZE DELETE FROM shop",
        "LISTEN x",
        "DECLARE c CURSOR FOR SELECT 1",
    ],
)
def test_postgres_changes_nothing(
    query: Callable[..., Any], refusal: Callable[..., str], postgres: str, sql: str
) -> None:
    assert refusal({"url": postgres}, sql).endswith(".")

    assert query({"url": postgres}, "SELECT count(*) FROM shop")["rows"] == [[3]]


@pytest.mark.postgres
def test_postgres_values_become_json(query: Callable[..., Any], postgres: str) -> None:
    sql = (
        "SELECT NULL, true, 1.50::numeric, 'NaN'::float8, '{\"a\": 1}'::jsonb, '2026-01-02'::date,"
        " '\\x00ff'::bytea, ARRAY[1, 2], '100%'::text, 9223372036854775807"
    )

    assert query({"url": postgres}, sql)["rows"] == [
        [None, True, "1.50", "nan", '{"a": 1}', "2026-01-02", "\\x00ff", "{1,2}", "100%", 2**63 - 1]
    ]


@pytest.mark.postgres
def test_postgres_lists_another_schema_by_its_full_name(context: ToolContext, postgres: str) -> None:
    tables = call_with(context, "ae_db_describe", {"url": postgres}, {})["tables"]
    described = call_with(context, "ae_db_describe", {"url": postgres}, {"table": "other.secret"})

    assert ["other.secret", "table"] in tables
    assert [column["type"] for column in described["columns"]] == ["uuid", "jsonb", "timestamp with time zone"]


@pytest.mark.postgres
def test_a_query_that_lifts_its_own_time_limit_is_stopped(refusal: Callable[..., str], postgres: str) -> None:
    sql = "SELECT set_config('statement_timeout', '0', true), pg_sleep(8)"

    assert refusal({"url": postgres, "timeout": "1"}, sql).startswith("The query took longer than 1 s")


@pytest.mark.postgres
def test_a_role_that_may_not_read_is_told(refusal: Callable[..., str], postgres: str) -> None:
    text = refusal({"url": as_user("locked", postgres)}, "TABLE shop")

    assert text.endswith("permission denied for table shop.")


@pytest.mark.postgres
def test_a_superuser_is_refused(refusal: Callable[..., str], postgres: str) -> None:
    assert "is a superuser" in refusal({"url": as_user("toolhub", postgres)}, "SELECT pg_read_file('/etc/passwd')")


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("/postgres", "/nowhere"), "There is no database nowhere at 127.0.0.1."),
        (("//app:", "//stranger:"), "The database at 127.0.0.1 refuses what it was set up with."),
    ],
)
def test_a_wrong_address_is_told_without_its_password(
    refusal: Callable[..., str], postgres: str, change: tuple[str, str], sentence: str
) -> None:
    assert refusal({"url": postgres.replace(*change)}, "SELECT 1") == sentence


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("postgres://u:pw@127.0.0.1:1/x", "The database at 127.0.0.1 could not be reached."),
        ("postgres://u:pw@10.0.0.1/x", "The database: 10.0.0.1 is a private address; an operator can allow it"),
        ("postgres://u:pw@%2Frun%2Fpostgresql/x", "The address of the database must look like"),
        ("postgres:///x", "The address of the database must look like"),
        ("postgres://u:pw@a,127.0.0.1/x", "The address of the database must look like"),
        ("postgres://u:pw@127.0.0.1/", "The address of the database must look like"),
        ("postgres://u:pw@127.0.0.1:x/x", "The address of the database is not valid."),
        ("postgres://u@127.0.0.1/x?hostaddr=10.0.0.1", "The address of the database may have one option only"),
        ("postgres://u@127.0.0.1/x?sslrootcert=/etc/passwd", "The address of the database may have one option only"),
        ("postgres://u@127.0.0.1/x?sslmode=allow", "The address of the database may have one option only"),
    ],
)
def test_an_address_is_checked_before_anything_is_sent(refusal: Callable[..., str], url: str, sentence: str) -> None:
    assert refusal({"url": url}, "SELECT 1").startswith(sentence)


def test_a_missing_postgres_extra_is_reported(refusal: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_postgres, "psycopg", None)

    assert "without its postgres extra" in refusal({"url": "postgres://u@127.0.0.1/x"}, "SELECT 1")


def test_a_stopped_turn_stops_the_query(context: ToolContext, sqlite: Values) -> None:
    stopped = replace(context)
    stopped.stopped.set()

    assert "was stopped" in refused(stopped, "ae_db_query", sqlite, {"sql": ENDLESS})


def test_every_tool_of_the_category_only_reads() -> None:
    tools = [tool for tool in registry.tools.values() if tool.category == aether_db.CATEGORY.name]

    assert {(tool.name, tool.effect, tool.on_crash) for tool in tools} == {
        ("ae_db_query", "read", "retry"),
        ("ae_db_describe", "read", "retry"),
        ("ae_db_show_view", "read", "retry"),
    }


def test_a_database_that_never_answers_ends_at_its_timeout(context: ToolContext, refusal: Callable[..., str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        started = time.monotonic()

        sentence = refusal({"url": f"postgres://u:pw@127.0.0.1:{port}/x", "timeout": "1"}, "SELECT 1")

    assert "127.0.0.1 could not be reached" in sentence
    assert time.monotonic() - started < 5
