"""The last answer to a request that no view answers: JSON in their shape under /api/ and /v1/, else a page."""

from __future__ import annotations

import logging
import sys
from typing import TypeVar

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template.loader import render_to_string
from django.views import defaults
from django.views.csrf import csrf_failure

from sessions.doors.gateway.errors import error_body
from toolhub.tenants.audit.denials import note_denial
from toolhub.tenants.rows.trouble import CODE, MESSAGE, RETRY_AFTER, is_database_trouble

logger = logging.getLogger(__name__)

OPENAI = "/v1/"
API = ("/api/", OPENAI)

Response = TypeVar("Response", bound=HttpResponse)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    if request.path_info.startswith(API):
        return _json(request.path_info, 400, "bad_request", "The request cannot be read.")
    return defaults.bad_request(request, exception)


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    note_denial(request, str(exception))
    if request.path_info.startswith(API):
        return _json(request.path_info, 403, "forbidden", "You may not do this.")
    return defaults.permission_denied(request, exception)


def form_expired(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Return the answer to a form whose token is an old one: its page can fetch another by itself, as the header
    says."""
    response = csrf_failure(request, reason)
    response.headers["X-Form-Expired"] = "1"
    return response


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    if request.path_info.startswith(API):
        return _json(request.path_info, 404, "not_found", "There is no such thing here.")
    return defaults.page_not_found(request, exception)


def server_error(request: HttpRequest) -> HttpResponse:
    """Django calls it while it handles the exception."""
    error = sys.exception()
    if error is not None and is_database_trouble(error):
        return unavailable(request.path_info, error)
    if request.path_info.startswith(API):
        return _json(request.path_info, 500, "server_error", "Something went wrong here; it has been written down.")
    return defaults.server_error(request)


def unavailable(path: str, error: BaseException) -> HttpResponse:
    """503 with Retry-After, for trouble with the database that passes: one line in the log, and no traceback."""
    logger.warning("The database cannot be used: %s (%s)", str(error).strip().partition("\n")[0], path)
    if path.startswith(API):
        response: HttpResponse = _json(path, 503, CODE, MESSAGE)
    else:
        response = HttpResponse(render_to_string("503.html"), status=503)
    response["Retry-After"], response["Cache-Control"] = str(RETRY_AFTER), "no-store"
    return unlogged(response)


def unlogged(response: Response) -> Response:
    """Return the response of a state that is in the log already, or in the answer: Django writes no line about it."""
    vars(response)["_has_been_logged"] = True
    return response


def _json(path: str, status: int, code: str, message: str) -> JsonResponse:
    if path.startswith(OPENAI):
        return JsonResponse(error_body(status, message, code), status=status)
    return JsonResponse({"error": {"code": code, "message": message, "field": None}}, status=status)
