"""Authentication and parsing of requests of the REST API: bearer tokens, and strict JSON.

Imports no views: REST framework loads this while it is still loading them itself.
"""

from __future__ import annotations

import json
from typing import Any, cast

from django.core.exceptions import PermissionDenied
from rest_framework import status
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import APIException, ErrorDetail, ParseError, UnsupportedMediaType, ValidationError
from rest_framework.parsers import BaseParser
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from toolhub.bounded_json import JsonRefused, load_json
from toolhub.tenants.models import ApiToken, Scope, User

#: The query parameter of writes that can show what they would do.
DRY_RUN = "dry_run"
#: Objects and arrays inside each other, in a request's body.
MAX_DEPTH = 64
#: Bytes of a request's body.
MAX_BODY = 1_000_000


class TokenAuthentication(BaseAuthentication):
    """Bearer tokens. The middleware has looked the token up; a request without a usable one is nobody's."""

    def authenticate(self, request: Request) -> tuple[User, ApiToken] | None:
        token = cast("ApiToken | None", getattr(request._request, "api_token", None))
        return (token.membership.user, token) if token else None

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="toolhub"'


class TokenScope(BasePermission):
    """The one place where a token's scopes count: reading asks for the view's `read_scope`, any other method for its
    `write_scope`; these are `read` and `manage` unless the view says otherwise."""

    def has_permission(self, request: Request, view: Any) -> bool:
        """Return True where the token's scopes cover the request. Raises PermissionDenied for a token that lacks
        one."""
        token = request.auth
        if not isinstance(token, ApiToken):
            return True  # nobody's: IsAuthenticated has the word
        wanted = scope_wanted(request.method or "GET", view)
        if wanted not in token.scopes:
            raise PermissionDenied(f"This token lacks the scope {wanted.value}.")
        _check_dry_run(request, view)
        return True


def _check_dry_run(request: Request, view: Any) -> None:
    """Refuse a dry run of a write that has none: nothing must be done then. Raises ValidationError."""
    method = request.method or "GET"
    handler = getattr(view, method.lower(), None)
    if DRY_RUN in request.query_params and method not in SAFE_METHODS and not getattr(handler, "has_dry_run", False):
        raise ValidationError({DRY_RUN: ErrorDetail("There is no dry run of this: nothing was changed.", "invalid")})


def scope_wanted(method: str, view: Any) -> Scope:
    if method in SAFE_METHODS:
        return getattr(view, "read_scope", Scope.READ)
    return getattr(view, "write_scope", Scope.MANAGE)


class Refused(APIException):
    """A request that is well-formed and cannot be done now; `code` tells programs why."""

    status_code: int = status.HTTP_409_CONFLICT

    def __init__(
        self, code: str, message: str, *, status_code: int = status.HTTP_409_CONFLICT, wait: int | None = None
    ) -> None:
        """`wait`: seconds after which to try again, for the header Retry-After."""
        super().__init__(message, code)
        self.status_code = status_code
        self.wait = wait


class StrictJSONParser(BaseParser):
    """JSON as the RFC has it: UTF-8, no NaN, no repeated names, bounded depth, and text that any database can hold."""

    media_type = "application/json"
    max_body = MAX_BODY

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        """Return the JSON of the body. Raises ParseError for what is no plain UTF-8 or no strict JSON; Refused for one
        that is too large; UnsupportedMediaType without a type."""
        if media_type is None or "*" in media_type:  # a range of types says nothing of this body
            raise UnsupportedMediaType(str(media_type))
        body: bytes = stream.read(self.max_body + 1)
        if len(body) > self.max_body:
            raise Refused("too_large", f"The body is over {self.max_body:,} bytes.", status_code=413)
        if body and json.detect_encoding(body) != "utf-8":
            raise ParseError("The body must be plain UTF-8, without a byte order mark.")
        try:
            value = load_json(body, most_bytes=self.max_body, most_depth=MAX_DEPTH, unique_names=True)
        except JsonRefused as error:
            raise ParseError(f"The body {error}.") from None
        if b"\\u" in body:  # else no text in it can be half a character, or NUL
            _check_text(value)
        return value


class LongJSONParser(StrictJSONParser):
    """A conversation, or a message with files, may be as long as any body that the web server takes
    (`toolhub/web/intake.py`)."""

    max_body = 4 * 1024 * 1024


def _check_text(value: Any) -> None:
    if isinstance(value, str):
        if "\x00" in value:
            raise ParseError("Text must not hold the NUL character.")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ParseError("Text must not hold half of a surrogate pair.") from None
    elif isinstance(value, dict):
        for name, item in value.items():
            _check_text(name)
            _check_text(item)
    elif isinstance(value, list):
        for item in value:
            _check_text(item)
