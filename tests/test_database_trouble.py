"""Trouble with the database is answered with 503 and Retry-After at every door, in its shape, without a traceback."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from django.conf import settings as used
from django.db import DatabaseError, IntegrityError, InterfaceError, InternalError, OperationalError, connection
from django.test import Client
from psycopg import errors
from psycopg_pool import PoolTimeout

from tests.cast import make_token
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.trouble import is_database_trouble


def of(error: Exception, driver: Exception | None) -> Exception:
    error.__cause__ = driver
    return error


def sqlite_error(code: int, words: str) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(words)
    error.sqlite_errorcode = code
    return error


TROUBLE = [
    of(OperationalError("couldn't get a connection after 10.00 sec"), PoolTimeout()),
    of(OperationalError("connection refused"), psycopg.OperationalError()),
    of(OperationalError("terminating connection"), errors.AdminShutdown()),
    of(OperationalError("canceling statement due to statement timeout"), errors.QueryCanceled()),
    of(OperationalError("could not extend file: No space left on device"), errors.DiskFull()),
    of(OperationalError("deadlock detected"), errors.DeadlockDetected()),
    of(InternalError("cannot execute UPDATE in a read-only transaction"), errors.ReadOnlySqlTransaction()),
    of(OperationalError("database is locked"), sqlite_error(sqlite3.SQLITE_BUSY, "database is locked")),
    of(OperationalError("database is locked"), sqlite3.OperationalError("database is locked")),
    of(OperationalError("database or disk is full"), sqlite_error(sqlite3.SQLITE_FULL, "full")),
    of(OperationalError("disk I/O error"), sqlite_error(sqlite3.SQLITE_IOERR, "disk I/O error")),
    of(OperationalError("unable to open database file"), sqlite_error(sqlite3.SQLITE_CANTOPEN, "unable")),
    InterfaceError("connection already closed"),
    of(RuntimeError("a page could not be made"), of(OperationalError("lost"), None)),
]
FAULTS = [
    of(OperationalError("no such table: x"), sqlite_error(sqlite3.SQLITE_ERROR, "no such table: x")),
    of(InternalError("current transaction is aborted"), errors.InFailedSqlTransaction()),
    IntegrityError("UNIQUE constraint failed"),
    DatabaseError("Save with update_fields did not affect any rows."),
    RuntimeError("boom"),
]


@pytest.mark.parametrize("error", TROUBLE, ids=str)
def test_transient_errors_count_as_database_trouble(error: Exception) -> None:
    assert is_database_trouble(error)


@pytest.mark.parametrize("error", FAULTS, ids=str)
def test_a_fault_of_ours_is_none(error: Exception) -> None:
    assert not is_database_trouble(error)


@pytest.fixture
def away() -> Iterator[Callable[[], Any]]:
    """From the call on, every statement fails."""
    entered: list[Any] = []

    def fails(execute: Any, sql: Any, params: Any, many: Any, context: Any) -> Any:
        raise of(OperationalError("connection refused"), psycopg.OperationalError())

    def begin() -> None:
        entered.append(connection.execute_wrapper(fails))
        entered[0].__enter__()

    yield begin
    for each in entered:
        each.__exit__(None, None, None)


@pytest.mark.django_db
@pytest.mark.parametrize(
    "path", ["/api/v1/sessions", "/api/v1/tools", "/v1/models", "/", "/accounts/login/", "/o/acme/"]
)
def test_each_door_answers_503_in_its_own_shape(
    path: str, alice: Membership, client: Client, away: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    client.raise_request_exception = False
    token = make_token(alice)
    if not path.startswith(("/api", "/v1")):
        client.force_login(alice.user)
    away()

    with caplog.at_level(logging.WARNING):
        response = client.get(path, headers={"authorization": f"Bearer {token}"})

    assert (response.status_code, response["Retry-After"]) == (503, "5")
    assert [record.exc_info for record in caplog.records if record.exc_info] == []
    assert "The database cannot be used" in caplog.text
    assert b"refused" not in response.content
    if path.startswith("/api/"):
        assert json.loads(response.content)["error"]["code"] == "database_unavailable"
    elif path.startswith("/v1/"):
        assert json.loads(response.content)["error"]["type"] == "server_error"
    else:
        assert b"<h1>" in response.content


@pytest.mark.django_db
def test_a_write_is_answered_so_too(alice: Membership, client: Client, away: Callable[[], Any]) -> None:
    client.raise_request_exception = False
    token = make_token(alice)
    away()
    ask = {"model": "starter", "messages": [{"role": "user", "content": "hello"}]}
    headers = {"authorization": f"Bearer {token}"}

    answers = [
        client.post("/api/v1/sessions", {"agent": "starter"}, content_type="application/json", headers=headers),
        client.post("/v1/chat/completions", ask, content_type="application/json", headers=headers),
    ]

    assert [(each.status_code, each["Retry-After"]) for each in answers] == [(503, "5")] * 2


@pytest.mark.skipif(not used.DATABASES["default"]["ENGINE"].endswith("sqlite3"), reason="SQLite's own words")
@pytest.mark.django_db
def test_a_statement_that_is_wrong_is_no_trouble() -> None:
    with pytest.raises(OperationalError) as raised, connection.cursor() as cursor:
        cursor.execute("SELECT * FROM no_such_table")

    assert not is_database_trouble(raised.value)
