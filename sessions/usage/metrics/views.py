"""`/metrics`, for a Prometheus server that has the operator's token. It belongs to no organisation."""

from __future__ import annotations

import logging
from secrets import compare_digest

from django.conf import settings
from django.db import Error
from django.http import HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from sessions.usage.metrics.families import Figures

logger = logging.getLogger(__name__)
TEXT = "text/plain; charset=utf-8"


@require_safe
@never_cache
def metrics(request: HttpRequest) -> HttpResponse:
    """404 where the operator has set no token, 401 for who does not have it, 503 while the database is away."""
    if not settings.TOOLHUB_METRICS_TOKEN:
        return HttpResponse("There is no such thing here.\n", TEXT, 404)
    if not has_token(request):
        headers = {"WWW-Authenticate": "Bearer"}
        return HttpResponse("Send TOOLHUB_METRICS_TOKEN as a bearer token.\n", TEXT, 401, headers=headers)
    try:
        return HttpResponse(text_of_now(), CONTENT_TYPE_PLAIN_0_0_4)
    except Error as error:
        logger.warning("The figures could not be read: %s", error)
        return HttpResponse("The database cannot be read.\n", TEXT, 503, headers={"Retry-After": "5"})


def has_token(request: HttpRequest) -> bool:
    """Return whether the request bears the operator's token; it takes as long for a wrong one."""
    scheme, _, secret = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")
    is_same = compare_digest(secret.strip().encode(), settings.TOOLHUB_METRICS_TOKEN.encode())
    return is_same and scheme.lower() == "bearer"


def text_of_now() -> bytes:
    """All figures in Prometheus' text form. The queries of `Figures`."""
    registry = CollectorRegistry()
    registry.register(Figures(by_organisation=settings.TOOLHUB_METRICS_ORGANISATIONS))
    return generate_latest(registry)
