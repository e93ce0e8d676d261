"""Is it alive, is it ready? For load balancers and supervisors: no login, no details, no rows read."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import redis
from django.conf import settings
from django.db import Error, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, JsonResponse
from django.urls import resolve
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from sessions.worker.signs import has_living_worker
from toolhub.web.problems import unlogged

logger = logging.getLogger(__name__)
#: Paths that load balancers and Prometheus call, at each web server by itself.
BY_ANY_NAME = ("/healthz", "/readyz", "/metrics")
#: Seconds to wait for the broker before calling it unreachable.
BROKER_SECONDS = 0.5
#: Databases that were seen with every migration applied. They stay so while this process lives.
_migrated: set[str] = set()


@require_safe
@never_cache
def healthz(request: HttpRequest) -> JsonResponse:
    """The process answers; it says nothing of anything else."""
    return JsonResponse({"status": "ok"})


@require_safe
@never_cache
def readyz(request: HttpRequest) -> JsonResponse:
    """Return 503 until turns can be accepted and run: the database answers, and a worker gets on with its work. The
    database is the queue, so a broker that is away is reported, and no obstacle."""
    database, workers = database_state(), workers_state()
    ready = (database, workers) == ("ok", "ok")
    body = {"status": "ready" if ready else "unavailable", "database": database, "broker": broker_state()}
    body["workers"] = workers
    return JsonResponse(body) if ready else unlogged(JsonResponse(body, status=503, headers={"Retry-After": "2"}))


def answer_by_any_name(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Middleware, the outermost: machines call a server by its address, which is not among ALLOWED_HOSTS."""

    def answer(request: HttpRequest) -> Any:
        view = resolve(request.path_info).func if request.path_info in BY_ANY_NAME else get_response
        return view(request)

    return answer


def database_state() -> str:
    """`ok`, `unreachable` or `not_migrated`."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        name = str(connection.settings_dict["NAME"])
        if name not in _migrated:
            if not is_migrated():
                return "not_migrated"
            _migrated.add(name)
    except Error as error:
        logger.warning("The database cannot be reached: %s", error)
        return "unreachable"
    return "ok"


def workers_state() -> str:
    """`ok`, `none` where no worker gave a sign of life lately, or `unknown` without a database."""
    try:
        return "ok" if has_living_worker() else "none"
    except Error:
        return "unknown"


def is_migrated() -> bool:
    executor = MigrationExecutor(connection)
    return not executor.migration_plan(executor.loader.graph.leaf_nodes())


def broker_state() -> str:
    """`ok`, `unreachable`, or `none` where no Redis or Valkey is configured."""
    if not settings.REDIS_URL:
        return "none"
    client = redis.Redis.from_url(
        settings.REDIS_URL, socket_timeout=BROKER_SECONDS, socket_connect_timeout=BROKER_SECONDS
    )
    try:
        client.ping()
    except redis.RedisError:
        return "unreachable"
    finally:
        client.close()
    return "ok"
