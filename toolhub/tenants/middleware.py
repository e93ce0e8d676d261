"""Puts each request into the scope of the organisation that its path or its token names."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable

from django.http import Http404, HttpRequest, HttpResponseBase

from toolhub.tenants.access import membership_of_user, note_token_use, token_by_secret
from toolhub.tenants.audit.writes import request_id
from toolhub.tenants.models import ApiToken, Membership, User
from toolhub.tenants.rows.scope import organisation_scope
from toolhub.tenants.times import shown_as

ORGANISATION_PATH = re.compile(r"^/o/(?P<slug>[a-z0-9][a-z0-9-]{0,62})/")
#: Where a token says who asks, and nothing else does: the REST API, and what speaks the protocols of others.
API_PREFIXES = ("/api/v1/", "/v1/", "/mcp/")
#: Longer secrets than this are not even hashed.
MAX_SECRET = 512


class TenancyMiddleware:
    """Sets `request.membership` (None for strangers) and, where there is one, runs the view in its scope; pages
    in its time zone too, while REST answers in UTC. A path with NUL, which PostgreSQL takes in no text, names
    nothing."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        request_id.set(uuid.uuid4().hex)
        if "\x00" in request.path_info:
            raise Http404
        membership = identify(request)
        if membership is None:
            return self.get_response(request)
        with organisation_scope(membership.organisation_id):
            if request.path_info.startswith(API_PREFIXES):
                return self.get_response(request)
            with shown_as(membership.organisation):
                return self.get_response(request)


def identify(request: HttpRequest) -> Membership | None:
    """Return the member that asks: by the token alone under API_PREFIXES, by the signed-in user under
    /o/<organisation>/, else None."""
    membership: Membership | None = None
    if request.path_info.startswith(API_PREFIXES):
        token = token_of(request)
        if token is not None:
            membership = token.membership
            note_token_use(token, request)
            request.api_token = token  # type: ignore[attr-defined]
    elif match := ORGANISATION_PATH.match(request.path_info):
        user = request.user
        if isinstance(user, User) and user.is_authenticated:
            membership = membership_of_user(user, match["slug"])
    request.membership = membership  # type: ignore[attr-defined]
    return membership


def token_of(request: HttpRequest) -> ApiToken | None:
    """The usable token that the request bears. One query."""
    return token_in(request.META.get("HTTP_AUTHORIZATION", ""))


def token_in(authorization: str) -> ApiToken | None:
    """Return the usable token that the value of a header Authorization bears. One query."""
    scheme, _, secret = authorization.partition(" ")
    secret = secret.strip()
    if scheme.lower() != "bearer" or not secret or len(secret) > MAX_SECRET:
        return None
    return token_by_secret(secret)
