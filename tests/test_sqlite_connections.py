"""On SQLite a connection that is closed stays open, and the next thread that needs one has it."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.conf import settings
from django.db import IntegrityError, OperationalError

from tests.test_sqlite_writers import INSERT, LIMIT, Database, database
from toolhub.embedded.sqlite3.kept import KEPT_AT_MOST

__all__ = ["database"]

pytestmark = pytest.mark.skipif(
    settings.DATABASES["default"]["ENGINE"] != "toolhub.embedded.sqlite3", reason="PostgreSQL has a pool"
)


def used_by(database: Database, work: Callable[[], Any] = lambda: None) -> sqlite3.Connection:
    """The connection that a thread of its own had, which did this and closed it."""
    found: list[sqlite3.Connection] = []

    def use() -> None:
        database.execute("SELECT 1")
        found.append(database.connection.connection)
        work()

    database.in_thread(use).join(LIMIT)
    return found[0]


def is_open(connection: sqlite3.Connection) -> bool:
    try:
        connection.execute("SELECT 1")
    except sqlite3.ProgrammingError:
        return False
    return True


def test_a_thread_has_the_connection_of_the_last_one(database: Database) -> None:
    first = used_by(database)

    assert used_by(database, lambda: database.execute(INSERT, [1])) is first
    assert used_by(database) is first
    assert database.connection.connection is not first


def test_threads_at_the_same_time_have_connections_of_their_own(database: Database) -> None:
    barrier = threading.Barrier(KEPT_AT_MOST + 2)
    found: list[sqlite3.Connection] = []

    def use() -> None:
        database.execute("SELECT 1")
        found.append(database.connection.connection)
        barrier.wait(LIMIT)

    threads = [database.in_thread(use) for _ in range(KEPT_AT_MOST + 2)]
    for thread in threads:
        thread.join(LIMIT)

    assert len({id(each) for each in found}) == KEPT_AT_MOST + 2
    assert sum(map(is_open, found)) == KEPT_AT_MOST


def test_a_connection_in_a_transaction_is_closed(database: Database) -> None:
    def leave() -> None:
        database.begin()
        database.execute(INSERT, [1])
        database.connection.in_atomic_block = False

    assert not is_open(used_by(database, leave))
    assert database.execute("SELECT * FROM row") == []


def test_a_connection_that_is_closed_in_an_atomic_block_is_closed(database: Database) -> None:
    assert not is_open(used_by(database, database.begin))


def test_a_connection_that_failed_is_closed_and_one_whose_row_did_not_fit_is_not(database: Database) -> None:
    database.execute(INSERT, [1])

    def fail(error: type[Exception], sql: str) -> None:
        with pytest.raises(error):
            database.execute(sql)

    assert not is_open(used_by(database, lambda: fail(OperationalError, "SELECT * FROM none")))
    assert is_open(used_by(database, lambda: fail(IntegrityError, INSERT.replace("%s", "1"))))


def test_a_file_that_was_replaced_is_opened_anew(database: Database) -> None:
    database.execute(INSERT, [1])
    first = used_by(database)
    database.connection.close()
    other = database.file.with_name("other.sqlite3")
    with sqlite3.connect(other) as made:
        made.execute("CREATE TABLE row (id INTEGER PRIMARY KEY, number INTEGER UNIQUE)")
    made.close()
    for each in ("-wal", "-shm"):
        database.file.with_name(f"{database.file.name}{each}").unlink()
    other.replace(database.file)

    assert used_by(database) is not first
    assert database.execute("SELECT * FROM row") == []


def test_other_settings_have_connections_of_their_own(database: Database) -> None:
    first = used_by(database)

    assert used_by(Database(database.file, timeout=7)) is not first
    assert used_by(Database(database.file, init_command="PRAGMA cache_size=-1000;")) is not first
    assert used_by(database) is first


FORKS = """
import os, sys
sys.path.insert(0, ".")
from django.conf import settings
engine = {"ENGINE": "toolhub.embedded.sqlite3", "NAME": sys.argv[1]}
engine["OPTIONS"] = {"init_command": "PRAGMA journal_mode=WAL"}
settings.configure(DATABASES={"default": engine})
import django
from django.db import connection
django.setup()
def used():
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO row (number) VALUES (%s)", [os.getpid()])
    found = connection.connection
    connection.close()
    return found
first = used()
child = os.fork()
if child == 0:
    os._exit(0 if used() is not first else 1)
assert os.waitpid(child, 0)[1] == 0
with connection.cursor() as cursor:
    assert connection.connection is first
    cursor.execute("SELECT count(*) FROM row")
    assert cursor.fetchone() == (2,)
"""


def test_a_forked_process_opens_its_own(database: Database) -> None:
    ran = subprocess.run([sys.executable, "-c", FORKS, str(database.file)], capture_output=True, check=False)

    assert (ran.returncode, ran.stderr) == (0, b"")
