from __future__ import annotations

import json
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import OperationalError, connection
from django.http import JsonResponse
from django.test import AsyncClient, Client, RequestFactory

from toolhub.web import health


@pytest.fixture(autouse=True)
def nothing_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_migrated", set())
    monkeypatch.setattr(health, "has_living_worker", lambda: True)  # tests/sessions/worker/test_signs.py


def answer(response: JsonResponse) -> tuple[int, dict[str, str]]:
    return response.status_code, json.loads(response.content)


def test_a_process_that_answers_is_alive(rf: RequestFactory) -> None:
    assert answer(health.healthz(rf.get("/healthz"))) == (200, {"status": "ok"})


@pytest.mark.django_db
def test_a_migrated_database_is_ready(rf: RequestFactory, settings: Any) -> None:
    settings.REDIS_URL = ""

    assert answer(health.readyz(rf.get("/readyz"))) == (
        200,
        {"status": "ready", "database": "ok", "broker": "none", "workers": "ok"},
    )


@pytest.mark.django_db
def test_a_broker_that_is_away_is_told_and_no_obstacle(rf: RequestFactory, settings: Any) -> None:
    settings.REDIS_URL = "unix:///nowhere/valkey.sock?db=0"

    status, body = answer(health.readyz(rf.get("/readyz")))

    assert (status, body["broker"]) == (200, "unreachable")


@pytest.mark.django_db
def test_a_missing_migration_is_not_ready(rf: RequestFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "is_migrated", lambda: False)

    response = health.readyz(rf.get("/readyz"))

    assert (response.status_code, json.loads(response.content)["database"]) == (503, "not_migrated")
    assert response["Retry-After"] == "2"


@pytest.mark.django_db
def test_a_service_that_is_not_ready_yet_fills_no_log(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(health, "is_migrated", lambda: False)

    assert client.get("/readyz").status_code == 503
    assert caplog.records == []


@pytest.mark.django_db
def test_a_database_that_is_away_is_not_ready(rf: RequestFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    def away() -> None:
        raise OperationalError("password of toolhub refused")

    monkeypatch.setattr(connection, "cursor", away)

    response = health.readyz(rf.get("/readyz"))

    assert (response.status_code, json.loads(response.content)["database"]) == (503, "unreachable")
    assert b"password" not in response.content


@pytest.mark.django_db
def test_migrations_are_looked_at_once(rf: RequestFactory, django_assert_num_queries: Any) -> None:
    health.readyz(rf.get("/readyz"))

    with django_assert_num_queries(1):
        health.readyz(rf.get("/readyz"))


def test_only_reading_is_allowed(rf: RequestFactory) -> None:
    assert health.healthz(rf.post("/healthz")).status_code == 405
    assert health.readyz(rf.post("/readyz")).status_code == 405


@pytest.mark.django_db
def test_a_load_balancer_may_call_the_server_by_its_address(client: Client) -> None:
    assert client.get("/readyz", headers={"host": "10.1.2.3:8000"}).status_code == 200
    assert client.get("/", headers={"host": "10.1.2.3:8000"}).status_code == 400


@pytest.mark.django_db(transaction=True)
def test_health_is_answered_by_the_asgi_door_too(async_client: AsyncClient) -> None:
    async def statuses() -> list[int]:
        host = {"host": "10.1.2.3:8000"}
        return [(await async_client.get(path, headers=host)).status_code for path in ("/healthz", "/readyz", "/")]

    assert async_to_sync(statuses)() == [200, 200, 400]
