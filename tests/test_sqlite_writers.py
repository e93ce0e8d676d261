"""On SQLite the threads of a process write in the order in which they came, and nobody gets `database is locked`.

The database is a file of each test's own, with one table; the backend is the one of settings.py.
"""

from __future__ import annotations

import gc
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import IntegrityError, OperationalError, transaction
from django.db.utils import ConnectionHandler
from pytest_django import DjangoDbBlocker

from tests.processes import wait_for
from toolhub.embedded.sqlite3 import base
from toolhub.embedded.sqlite3.base import DatabaseWrapper

pytestmark = pytest.mark.skipif(
    settings.DATABASES["default"]["ENGINE"] != "toolhub.embedded.sqlite3", reason="PostgreSQL has no one writer"
)

#: Far above what anything here takes.
LIMIT = 60.0
INSERT = "INSERT INTO row (number) VALUES (%s)"


class Database:
    """Connections to one file, one for each thread."""

    def __init__(self, file: Path, **options: Any) -> None:
        engine = settings.DATABASES["default"] | {"NAME": str(file)}
        self.file = file
        self.handler = ConnectionHandler({"default": engine | {"OPTIONS": engine["OPTIONS"] | options}})

    @property
    def connection(self) -> DatabaseWrapper:
        found = self.handler["default"]
        assert isinstance(found, DatabaseWrapper)
        return found

    def execute(self, sql: str, params: Any = ()) -> list[Any]:
        with self.connection.cursor() as cursor:
            cursor.execute(sql, params)
            return list(cursor.fetchall())

    def begin(self) -> None:
        """What `atomic` does."""
        self.connection.set_autocommit(False, force_begin_transaction_with_broken_autocommit=True)
        self.connection.in_atomic_block = True

    def end(self, end: str) -> None:
        self.connection.in_atomic_block = False
        getattr(self.connection, end)()
        self.connection.set_autocommit(True)

    def in_thread(self, work: Callable[[], Any]) -> threading.Thread:
        def run() -> None:
            try:
                work()
            finally:
                self.connection.close()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    @property
    def is_free(self) -> bool:
        return not base._lock_of(str(self.file))._is_held


@pytest.fixture
def database(tmp_path: Path, django_db_blocker: DjangoDbBlocker) -> Iterator[Database]:
    found = Database(tmp_path / "rows.sqlite3")
    with django_db_blocker.unblock():
        found.execute("CREATE TABLE row (id INTEGER PRIMARY KEY, number INTEGER UNIQUE)")
        yield found
        found.connection.in_atomic_block = False
        found.connection.close()


def waiting(database: Database) -> int:
    return len(base._lock_of(str(database.file))._waiting)


def test_writers_are_served_in_the_order_in_which_they_came(database: Database) -> None:
    database.begin()
    database.execute(INSERT, [0])
    threads = []
    for number in range(1, 9):
        write = write_alone if number % 2 else write_in_transaction
        threads.append(database.in_thread(lambda write=write, number=number: write(database, number)))  # type: ignore[misc]
        wait_for(lambda: waiting(database) == number, LIMIT)  # noqa: B023
    database.end("commit")
    for thread in threads:
        thread.join(LIMIT)

    assert [number for (number,) in database.execute("SELECT number FROM row ORDER BY id")] == list(range(9))
    assert database.is_free


def write_alone(database: Database, number: int) -> None:
    database.execute(INSERT, [number])


def write_in_transaction(database: Database, number: int) -> None:
    database.begin()
    database.execute("SELECT count(*) FROM row")
    database.execute(INSERT, [number])
    database.end("commit")


def test_150_threads_and_another_process_write_and_nobody_is_refused(database: Database) -> None:
    """Each transaction holds the lock for a moment; in the middle of them a process that knows no queue writes, too."""
    other = subprocess.Popen([sys.executable, "-c", OTHER, str(database.file)])

    def work(number: int) -> None:
        for turn in range(4):
            database.begin()
            database.execute(INSERT, [number * 10 + turn])
            time.sleep(0.001)
            database.end("commit")
            database.execute("UPDATE row SET number = number WHERE number = %s", [number * 10 + turn])
        done.append(number)

    done: list[int] = []
    threads = [database.in_thread(lambda number=number: work(number)) for number in range(150)]  # type: ignore[misc]
    for thread in threads:
        thread.join(LIMIT * 4)

    assert other.wait(LIMIT * 2) == 0
    assert sorted(done) == list(range(150))
    assert database.execute("SELECT count(*) FROM row") == [(150 * 4 + 100,)]


OTHER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)
for number in range(100):
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO row (number) VALUES (?)", [-1 - number])
    connection.execute("COMMIT")
"""


def test_a_transaction_takes_its_turn_at_its_first_statement(database: Database) -> None:
    database.begin()
    assert database.is_free

    database.execute("SELECT 1")
    assert not database.is_free

    database.end("commit")
    assert database.is_free


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_transaction_without_a_statement_ends(database: Database, end: str) -> None:
    database.begin()
    database.end(end)

    database.execute(INSERT, [1])
    assert not database.connection.connection.in_transaction
    assert database.is_free


def test_a_write_that_fails_gives_the_turn_back(database: Database) -> None:
    database.execute(INSERT, [1])
    with pytest.raises(IntegrityError):
        database.execute(INSERT, [1])
    assert database.is_free

    database.begin()
    with pytest.raises(IntegrityError):
        database.execute(INSERT, [1])
    assert not database.is_free
    database.end("rollback")
    assert database.is_free


def test_a_connection_that_is_closed_gives_the_turn_back(database: Database) -> None:
    database.begin()
    database.execute(INSERT, [1])
    database.connection.close()

    assert database.is_free


def test_a_connection_that_nobody_holds_any_more_gives_the_turn_back(database: Database) -> None:
    def leave() -> None:
        own = Database(database.file)
        own.begin()
        own.execute(INSERT, [1])

    thread = threading.Thread(target=leave)
    thread.start()
    thread.join(LIMIT)
    gc.collect()  # Django's connections hold themselves in a circle

    database.execute(INSERT, [1])  # the other's was taken back
    assert database.is_free


def test_a_writer_that_waits_too_long_is_refused_and_blocks_nobody(database: Database) -> None:
    impatient = Database(database.file, timeout=0.05)
    database.begin()
    database.execute(INSERT, [1])
    refused: list[Exception] = []

    def write() -> None:
        for work in (write_alone, write_in_transaction):
            try:
                work(impatient, 2)
            except OperationalError as error:
                refused.append(error)
                impatient.connection.in_atomic_block = False
                impatient.connection.close()

    impatient.in_thread(write).join(LIMIT)
    database.end("commit")

    assert [str(error) for error in refused] == ["database is locked"] * 2
    assert database.is_free
    database.execute(INSERT, [2])


def test_another_process_that_holds_the_lock_is_waited_for(database: Database) -> None:
    other = sqlite3.connect(database.file, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    thread = database.in_thread(lambda: write_in_transaction(database, 1))
    wait_for(lambda: not database.is_free, LIMIT)
    time.sleep(0.2)  # longer than SQLite itself waits here
    assert thread.is_alive()

    other.execute("COMMIT")
    other.close()
    thread.join(LIMIT)
    assert database.execute("SELECT number FROM row") == [(1,)]


@pytest.mark.django_db(transaction=True)
def test_the_service_runs_on_it() -> None:
    with transaction.atomic():
        assert isinstance(transaction.get_connection(), DatabaseWrapper)


def test_a_statement_takes_its_values_by_place_or_by_name(database: Database) -> None:
    for number in (1, 2):
        assert database.execute("SELECT %s, '100%%'", [number]) == [(number, "100%")]
        assert database.execute("SELECT %(number)s, %(number)s", {"number": number}) == [(number, number)]
