"""On PostgreSQL a thread holds a connection of the pool while it uses it, and not while it waits."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.db import OperationalError, ProgrammingError, transaction
from django.db import connection as django_connection

from toolhub.tenants.models import Organisation
from toolhub.tenants.rows.connections import keep_own_connection

#: With what only this backend has.
connection: Any = django_connection

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(settings.DATABASES["default"]["ENGINE"] != "toolhub.postgresql", reason="SQLite has no pool"),
]


@pytest.fixture
def pool() -> Iterator[Any]:
    """A pool of one connection, for whoever needs one."""
    connection.close()
    connection.close_pool()
    options = connection.settings_dict["OPTIONS"]
    usual, options["pool"] = options["pool"], options["pool"] | {"max_size": 1, "timeout": 2}
    list(Organisation.objects.all())
    yield connection.pool
    connection.close()
    connection.close_pool()
    options["pool"] = usual


def is_lent(pool: Any) -> bool:
    return int(pool.get_stats()["pool_available"]) == 0


def in_another_thread(work: Any) -> Any:
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(work())
        finally:
            connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(20)
    return found[0] if found else None


def test_a_statement_gives_its_connection_back(pool: Any) -> None:
    rows = Organisation.objects.order_by("pk")
    list(rows)
    rows.first()
    rows.count()
    Organisation.objects.filter(pk=0).update(name="x")
    Organisation.objects.filter(pk=0).delete()
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        assert is_lent(pool)
        cursor.execute("SELECT 2")
        assert cursor.fetchone() == (2,)

    assert not is_lent(pool)
    assert pool.get_stats()["pool_size"] == 1


def test_a_statement_that_fails_gives_its_connection_back(pool: Any) -> None:
    with pytest.raises(Exception, match="no_such_table"), connection.cursor() as cursor:
        cursor.execute("SELECT * FROM no_such_table")

    assert not is_lent(pool)


def test_a_transaction_keeps_its_connection_to_its_end(pool: Any) -> None:
    with transaction.atomic():
        assert Organisation.objects.count() == 0
        with transaction.atomic():
            Organisation.objects.create(name="Acme", slug="acme")
        assert is_lent(pool)

    assert not is_lent(pool)
    with suppress(ZeroDivisionError), transaction.atomic():
        Organisation.objects.update(name="Other")
        raise ZeroDivisionError
    assert not is_lent(pool)
    assert Organisation.objects.get().name == "Acme"


def test_functions_after_a_commit_hold_no_connection(pool: Any) -> None:
    seen: list[Any] = []

    def behind() -> None:
        seen.append(is_lent(pool))
        seen.append(Organisation.objects.count())  # and may use one
        seen.append(is_lent(pool))

    with transaction.atomic():
        Organisation.objects.create(name="Acme", slug="acme")
        transaction.on_commit(behind)
        transaction.on_commit(behind)

    assert seen == [False, 1, False] * 2


def test_a_thread_that_waits_for_another_leaves_it_the_only_connection(pool: Any) -> None:
    Organisation.objects.count()

    assert in_another_thread(Organisation.objects.count) == 0


def test_a_thread_without_a_connection_in_time_is_refused_and_holds_none(pool: Any) -> None:
    with transaction.atomic():
        Organisation.objects.count()

        def refused() -> bool:
            with pytest.raises(OperationalError, match="couldn't get a connection"):
                Organisation.objects.count()
            return True

        assert in_another_thread(refused)
    assert Organisation.objects.count() == 0


def test_a_connection_of_its_own_is_none_of_the_pool(pool: Any) -> None:
    def work() -> tuple[int, bool]:
        keep_own_connection()
        with connection.cursor() as cursor:
            cursor.execute("SHOW timezone")
            assert cursor.fetchone() == ("UTC",)
        mine = connection.connection
        with transaction.atomic():
            counted = Organisation.objects.count()
        return counted, connection.connection is mine

    with transaction.atomic():  # the pool's only one is taken
        Organisation.objects.create(name="Acme", slug="acme")

        assert in_another_thread(work) == (0, True)


def test_a_connection_that_broke_while_it_lay_there_is_replaced(pool: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        (pid,) = cursor.fetchone()
    used = next(iter(pool._pool))
    used.used_at -= 60
    told = {name: connection.settings_dict[name] or None for name in ("HOST", "PORT", "USER", "PASSWORD")}
    other = psycopg.connect(
        host=told["HOST"], port=told["PORT"], user=told["USER"], password=told["PASSWORD"], dbname="postgres"
    )
    with other, other.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", [pid])
    other.close()

    assert Organisation.objects.count() == 0


def test_a_connection_that_was_closed_in_a_transaction_comes_back_clean(pool: Any) -> None:
    with suppress(ProgrammingError), transaction.atomic():
        Organisation.objects.create(name="Acme", slug="acme")
        connection.close()
        Organisation.objects.count()

    assert Organisation.objects.count() == 0
    assert not is_lent(pool)


def test_a_cursor_that_nobody_closes_costs_no_connection_for_good(pool: Any) -> None:
    cursor = connection.cursor()
    cursor.execute("SELECT 1")
    del cursor
    Organisation.objects.count()

    assert not is_lent(pool)


def test_no_setting_keeps_a_cursor_open_on_the_server() -> None:
    assert connection.settings_dict["DISABLE_SERVER_SIDE_CURSORS"] is True
    assert [each.pk for each in Organisation.objects.iterator()] == []
