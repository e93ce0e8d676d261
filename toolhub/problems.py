"""The last answer to a request that no view answers: JSON in their shape under /api/ and /v1/, else a page."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views import defaults
from django.views.csrf import csrf_failure

from sessions.gateway.errors import error_body
from toolhub.tenants.audit.denials import note_denial

OPENAI = "/v1/"
API = ("/api/", OPENAI)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    if request.path_info.startswith(API):
        return _json(request, 400, "bad_request", "The request cannot be read.")
    return defaults.bad_request(request, exception)


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    note_denial(request, str(exception))
    if request.path_info.startswith(API):
        return _json(request, 403, "forbidden", "You may not do this.")
    return defaults.permission_denied(request, exception)


def form_expired(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Of a form whose token is an old one: its page can fetch another by itself, as the header says."""
    response = csrf_failure(request, reason)
    response.headers["X-Form-Expired"] = "1"
    return response


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    if request.path_info.startswith(API):
        return _json(request, 404, "not_found", "There is no such thing here.")
    return defaults.page_not_found(request, exception)


def server_error(request: HttpRequest) -> HttpResponse:
    if request.path_info.startswith(API):
        return _json(request, 500, "server_error", "Something went wrong here; it has been written down.")
    return defaults.server_error(request)


def _json(request: HttpRequest, status: int, code: str, message: str) -> JsonResponse:
    if request.path_info.startswith(OPENAI):
        return JsonResponse(error_body(status, message, code), status=status)
    return JsonResponse({"error": {"code": code, "message": message, "field": None}}, status=status)
