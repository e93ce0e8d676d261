"""The OpenAPI document of the REST API and its page. It costs a second of CPU to make: that is done once in a process,
for somebody who is known, or for anybody where the operator says so."""

from __future__ import annotations

import hashlib
import threading
from functools import cache

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.views.decorators.http import condition, require_safe
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiJsonRenderer
from drf_spectacular.views import SpectacularSwaggerSplitView

from toolhub.tenants.middleware import token_of
from toolhub.tenants.pages import to_login

_making = threading.Lock()
_page = SpectacularSwaggerSplitView.as_view(url_name="api-schema")


@require_safe
def schema(request: HttpRequest) -> HttpResponseBase:
    """The document as JSON, or 304 for who has it already; 401 for strangers. A query or two."""
    if not may_read(request):
        error = {"code": "not_authenticated", "message": "Sign in, or send an API token.", "field": None}
        return JsonResponse({"error": error}, status=401, headers={"WWW-Authenticate": 'Bearer realm="toolhub"'})
    return _sent(request)


@require_safe
def docs(request: HttpRequest) -> HttpResponseBase:
    """The page that shows the document; strangers go to the login page. A query or two."""
    return _page(request) if may_read(request) else to_login(request)


def may_read(request: HttpRequest) -> bool:
    """Return whether the request is of somebody who is signed in or bears a usable token, or anybody may read."""
    return settings.TOOLHUB_OPEN_API_DOCS or request.user.is_authenticated or token_of(request) is not None


@condition(etag_func=lambda request: document()[1])
def _sent(request: HttpRequest) -> HttpResponse:
    return HttpResponse(document()[0], "application/json", headers={"Cache-Control": "private, no-cache"})


def document() -> tuple[bytes, str]:
    """The document and its ETag. Those who ask while it is made wait for the one that makes it."""
    with _making:
        return _document()


@cache
def _document() -> tuple[bytes, str]:
    made = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    text = OpenApiJsonRenderer().render(made)
    return text, f'"{hashlib.sha256(text).hexdigest()[:32]}"'
