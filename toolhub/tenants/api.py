"""What every route of the REST API shares: the token, strict JSON in, and one shape of error out."""

from __future__ import annotations

import codecs
import json
from typing import Any, cast

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest
from rest_framework import status
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import APIException, ErrorDetail, ParseError, Throttled, ValidationError
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import exception_handler

from toolhub.tenants.access import member_or_404
from toolhub.tenants.models import Access, ApiToken, Membership, User

#: Objects and arrays inside each other, in a request's body.
MAX_DEPTH = 64


class TokenAuthentication(BaseAuthentication):
    """Bearer tokens. The middleware has looked the token up; a request without a usable one is nobody's."""

    def authenticate(self, request: Request) -> tuple[User, ApiToken] | None:
        token = cast("ApiToken | None", getattr(request._request, "api_token", None))
        return (token.membership.user, token) if token else None

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="toolhub"'


class Refused(APIException):
    """A request that is well-formed and cannot be done now; `code` tells programs why."""

    status_code = status.HTTP_409_CONFLICT

    def __init__(self, code: str, message: str, *, status_code: int = status.HTTP_409_CONFLICT) -> None:
        super().__init__(message, code)
        self.status_code = status_code


def unknown(field: str, message: str) -> ValidationError:
    """The answer to naming a row in a body or query that is missing, or another organisation's: they look the same."""
    return ValidationError({field: ErrorDetail(message, code="unknown")})


def api_member(request: Request, *, at_least: Access = Access.VIEWER) -> Membership:
    """The member that the token speaks for."""
    return member_or_404(cast(HttpRequest, request._request), at_least=at_least)


class StrictJSONParser(BaseParser):
    """JSON as the RFC has it: UTF-8, no NaN, no repeated names, bounded depth, and text that any database can hold."""

    media_type = "application/json"

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        body: bytes = stream.read()
        if body.startswith((codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise ParseError("The body must be plain UTF-8, without a byte order mark.")
        try:
            value = json.loads(
                body.decode("utf-8"), parse_constant=_no_constant, object_pairs_hook=_unique_names, parse_float=_finite
            )
        except RecursionError:
            raise ParseError(f"The body is nested more than {MAX_DEPTH} deep.") from None
        except ValueError as error:
            raise ParseError(f"The body is not valid JSON: {error}") from None
        _check_text(value, MAX_DEPTH)
        return value


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError("a number is too large")
    return value


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice in one object")
    return found


def _check_text(value: Any, depth: int) -> None:
    if depth == 0:
        raise ParseError(f"The body is nested more than {MAX_DEPTH} deep.")
    if isinstance(value, str):
        if "\x00" in value:
            raise ParseError("Text must not hold the NUL character.")
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise ParseError("Text must not hold half of a surrogate pair.")
    elif isinstance(value, dict):
        for name, item in value.items():
            _check_text(name, depth - 1)
            _check_text(item, depth - 1)
    elif isinstance(value, list):
        for item in value:
            _check_text(item, depth - 1)


def error_response(exception: Exception, context: dict[str, Any]) -> Response | None:
    """Every error as {"error": {"code", "message", "field"}}; `field` is null where no single one is at fault."""
    if isinstance(exception, Http404):
        return _error(404, "not_found", "There is no such thing here.")
    if isinstance(exception, PermissionDenied):
        return _error(403, "forbidden", str(exception) or "You may not do this.")
    response = exception_handler(exception, context)
    if response is None or not isinstance(exception, APIException):
        return response
    field, detail = _first(exception.detail)
    code = str(getattr(detail, "code", None) or exception.default_code)
    headers = {
        name: value for name, value in response.headers.items() if name in ("WWW-Authenticate", "Retry-After", "Allow")
    }
    if isinstance(exception, Throttled) and exception.wait:
        headers["Retry-After"] = str(int(exception.wait) + 1)
    return _error(response.status_code, code, str(detail), field, headers)


def _first(detail: Any, field: str | None = None) -> tuple[str | None, Any]:
    """The first complaint in DRF's nested structure, with the field that it is about."""
    if isinstance(detail, dict):
        name, inner = next(iter(detail.items()))
        name = None if name in ("non_field_errors", "detail") else str(name)
        return _first(inner, f"{field}.{name}" if field and name else name or field)
    if isinstance(detail, list):
        return _first(detail[0], field) if detail else (field, "Invalid.")
    return field, detail


def _error(
    status_code: int, code: str, message: str, field: str | None = None, headers: dict[str, str] | None = None
) -> Response:
    return Response(
        {"error": {"code": code, "message": message, "field": field}}, status=status_code, headers=headers or {}
    )
