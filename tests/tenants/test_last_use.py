"""When a token was last used is written down where nobody waits for it."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from tests.rest import Rest
from toolhub.tenants.models import ApiToken, Membership
from toolhub.tenants.rows.scope import system_scope

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "sqlite", reason="PostgreSQL locks rows, not the database"),
]


@pytest.fixture
def rest(alice: Membership) -> Rest:
    """Whose token was used before, an hour ago."""
    found = Rest(alice)
    found.get("members")  # a process's first request is slow: it imports what all requests need
    with system_scope():
        ApiToken.objects.update(last_used_at=timezone.now() - timedelta(hours=1))
    return found


@pytest.fixture
def locked(rest: Rest) -> Iterator[None]:
    """Somebody else holds SQLite's write lock."""
    other = sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    yield
    other.execute("ROLLBACK")
    other.close()


def last_used() -> float:
    with system_scope():
        moment = ApiToken.objects.values_list("last_used_at", flat=True).get()
    assert moment is not None
    return (timezone.now() - moment).total_seconds()


def test_a_read_is_answered_at_once_while_somebody_writes(rest: Rest, locked: None) -> None:
    started = time.monotonic()

    reply = rest.get("members")

    assert reply.status == 200
    assert time.monotonic() - started < 15  # a write waits 60
    assert last_used() > 3_000
    assert connection.patience == 60  # type: ignore[attr-defined]


def test_the_use_is_written_down_where_nobody_writes(rest: Rest) -> None:
    assert rest.get("members").status == 200

    assert last_used() < 60
