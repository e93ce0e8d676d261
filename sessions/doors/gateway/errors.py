"""Errors as OpenAI's API has them: {"error": {"message", "type", "param", "code"}}."""

from __future__ import annotations

from typing import Any

from django.http import JsonResponse
from rest_framework.exceptions import APIException
from rest_framework.response import Response

from sessions.models import Turn, TurnStatus
from sessions.turns.fencing import RETRY_AFTER
from toolhub.tenants.rest.api import error_response

INVALID = "invalid_request_error"
#: Clients tell their users the message alone.
NO_TOKEN = "No usable API key: send a token of this service, which is neither revoked nor expired, as the key."
#: Kind of error of each status; others of 500 and more are the server's.
TYPES = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
}
#: Statuses of turns that failed, by their error_code. What is not here is a fault of the provider or of ours. What a
#: provider rejects, it rejects at the next try too: a client that tries again after a status of 500 or more must not.
STATUSES = {
    "tool_name_taken": 400,
    "tool_not_allowed": 403,
    "too_many_tools": 400,
    "context_length": 400,
    "content_filter": 400,
    "setting_refused": 400,
    "provider_rejected": 400,
    "tool_choice_not_sent": 400,
    "budget_exceeded": 429,
    "too_many_turns_at_once": 429,
    "no_price": 403,
    "member_removed": 401,
    "member_inactive": 401,
    "member_is_viewer": 403,
    "agent_disabled": 404,
    "agent_not_offered": 404,
    "provider_rate_limit": 429,
    "cancelled": 409,
    "deadline": 504,
    "provider_timeout": 504,
}
#: Names by which clients know some of these.
CODES = {
    "context_length": "context_length_exceeded",
    "budget_exceeded": "insufficient_quota",
    "not_authenticated": "invalid_api_key",
    "authentication_failed": "invalid_api_key",
}
#: Parameter at fault, for some of these.
PARAMS = {
    "tool_name_taken": "tools",
    "tool_not_allowed": "tools",
    "too_many_tools": "tools",
    "tool_choice_not_sent": "tool_choice",
    "context_length": "messages",
}


class Invalid(APIException):
    """A request that cannot be taken as it is; `param` is the field at fault, as `messages.2.content`."""

    status_code = 400

    def __init__(self, message: str, param: str | None = None, code: str | None = None, status: int = 400) -> None:
        super().__init__(message, code or "invalid_value")
        self.param = param
        self.error_code = code
        self.status_code = status


def error_body(status: int, message: str, code: str | None = None, param: str | None = None) -> dict[str, Any]:
    kind = TYPES.get(status) or (INVALID if status < 500 else "server_error")
    code = CODES.get(code or "", code)
    if code == "insufficient_quota":
        kind = code
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def openai_errors(exception: Exception, context: dict[str, Any]) -> Response | None:
    """Return REST framework's response to an exception of a view under /v1/, None for one it does not handle."""
    if isinstance(exception, Invalid):
        message = f"{exception.param}: {exception.detail}" if exception.param else str(exception.detail)
        body = error_body(exception.status_code, message, exception.error_code, exception.param)
        return Response(body, status=exception.status_code)
    response = error_response(exception, context)
    if response is None:
        return None
    error = response.data["error"]
    if response.status_code == 401:
        error["message"] = NO_TOKEN
    response.data = error_body(response.status_code, error["message"], error["code"], error["field"])
    return response


def of_turn(turn: Turn) -> tuple[int, dict[str, Any]]:
    """Status and body for a turn that ended without an answer."""
    code = turn.error_code or turn.status
    status = STATUSES.get(code, 409 if turn.status == TurnStatus.CANCELLED else 502)
    message = turn.error_message or f"The turn ended without an answer: {code}."
    return status, error_body(status, message, code, PARAMS.get(code))


def error_of_turn(turn: Turn) -> JsonResponse:
    """Return the error of a turn that ended without an answer as a response. With 429, and where the provider said so,
    it says after how many seconds another try is worth it."""
    status, body = of_turn(turn)
    seconds = turn.retry_after if turn.retry_after is not None else (RETRY_AFTER if status == 429 else None)
    headers = {"Retry-After": str(seconds)} if seconds is not None else {}
    return JsonResponse(body, status=status, headers=headers)
