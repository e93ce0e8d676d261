"""The last answer to a request that no view answers: JSON under /api/ and /v1/, a page elsewhere."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views import defaults

from toolhub.tenants.audit.denials import note_denial

API = ("/api/", "/v1/")


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    if request.path_info.startswith(API):
        return _json(400, "bad_request", "The request cannot be read.")
    return defaults.bad_request(request, exception)


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    note_denial(request, str(exception))
    if request.path_info.startswith(API):
        return _json(403, "forbidden", "You may not do this.")
    return defaults.permission_denied(request, exception)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    if request.path_info.startswith(API):
        return _json(404, "not_found", "There is no such thing here.")
    return defaults.page_not_found(request, exception)


def server_error(request: HttpRequest) -> HttpResponse:
    if request.path_info.startswith(API):
        return _json(500, "server_error", "Something went wrong here; it has been written down.")
    return defaults.server_error(request)


def _json(status: int, code: str, message: str) -> JsonResponse:
    """In the shape of both: `type` and `param` are for clients of OpenAI's API."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    error = {"code": code, "message": message, "field": None, "type": kind, "param": None}
    return JsonResponse({"error": error}, status=status)
