"""Common parts of every route of the REST API: the member it acts for, checked bodies, and one shape of error."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import Http404
from drf_spectacular.utils import inline_serializer
from rest_framework import serializers
from rest_framework.exceptions import APIException, ErrorDetail, ParseError, ValidationError
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import exception_handler

from toolhub.tenants.access import member_or_404
from toolhub.tenants.audit.denials import note_denial
from toolhub.tenants.models import EVERY_CATEGORY, Access, Membership, Right


def unknown(field: str, message: str) -> ValidationError:
    """The answer to naming a row in a body or query that is missing, or another organisation's: they look the same."""
    return ValidationError({field: ErrorDetail(message, code="unknown")})


def api_member(
    request: Request,
    *,
    at_least: Access = Access.VIEWER,
    right: Right | None = None,
    category: str | None = EVERY_CATEGORY,
) -> Membership:
    """The member that the token speaks for. The token's scope was asked before (`wire.TokenScope`)."""
    return member_or_404(request._request, at_least=at_least, right=right, category=category)


class ErrorBody(serializers.Serializer[Any]):
    code = serializers.CharField(help_text="For programs: `unknown`, `not_found`, `forbidden`, ...")
    message = serializers.CharField(help_text="For people.")
    field = serializers.CharField(allow_null=True, help_text="The field of the request that is at fault, if one is.")


class ErrorOut(serializers.Serializer[Any]):
    error = ErrorBody()


def paged(row: type[serializers.Serializer[Any]]) -> Any:
    """The description of a page of these rows."""
    return inline_serializer(
        f"{row.__name__.removesuffix('Out')}Page",
        {"results": row(many=True), "next": serializers.CharField(allow_null=True)},
    )


def checked(serializer: type[serializers.Serializer[Any]], request: Request) -> dict[str, Any]:
    """The request's body, if it fits; fields that the serializer does not know are refused, not ignored."""
    if not isinstance(request.data, dict):
        raise ParseError("The body must be a JSON object.")
    form = serializer(data=request.data)
    unknown = sorted(set(request.data) - set(form.fields))
    if unknown:
        raise ValidationError({unknown[0][:100]: ErrorDetail("There is no such field here.", code="unknown_field")})
    for name, field in form.fields.items():
        # The framework would make text of a number.
        if isinstance(field, serializers.CharField) and not isinstance(request.data.get(name, ""), str | None):
            raise ValidationError({name: ErrorDetail(str(field.error_messages["invalid"]), code="invalid")})
    form.is_valid(raise_exception=True)
    return dict(form.validated_data)


def error_response(exception: Exception, context: dict[str, Any]) -> Response | None:
    """Every error as {"error": {"code", "message", "field"}}; `field` is null where no single one is at fault."""
    if isinstance(exception, Http404):
        return _error(404, "not_found", "There is no such thing here.")
    if isinstance(exception, PermissionDenied):
        note_denial(context["request"]._request, str(exception))
        return _error(403, "forbidden", str(exception) or "You may not do this.")
    response = exception_handler(exception, context)
    if response is None or not isinstance(exception, APIException):
        return response
    field, detail = _first(exception.detail)
    if response.status_code == 403:
        note_denial(context["request"]._request, str(detail))
    code = str(getattr(detail, "code", None) or exception.default_code)
    headers = {
        name: value for name, value in response.headers.items() if name in ("WWW-Authenticate", "Retry-After", "Allow")
    }
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


class AnyAccept(BaseContentNegotiation):
    """A stream is an event stream, and an error JSON, whatever was asked for."""

    def select_parser(self, request: Request, parsers: Any) -> Any:
        return parsers[0]

    def select_renderer(self, request: Request, renderers: Any, format_suffix: str | None = None) -> Any:
        return renderers[0], renderers[0].media_type


#: Characters of an Idempotency-Key.
MAX_KEY = 255


def idempotency_key(request: Request) -> str:
    key = request.headers.get("Idempotency-Key", "")
    if len(key) > MAX_KEY or not (key.isascii() and (key.isprintable() or not key)):
        raise ValidationError({"Idempotency-Key": f"Use 1 to {MAX_KEY} printable ASCII characters."})
    return key
