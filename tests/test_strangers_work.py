"""Nobody who is not known yet makes the service work hard: bounds on statements and on calls, at every address."""

from __future__ import annotations

import re
import sys
from types import FrameType
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import NoReverseMatch, reverse

from tests.test_tenancy_routes import ADDRESSES, Address
from toolhub.tenants.models import Membership
from toolhub.web.api_document import _document

pytestmark = pytest.mark.django_db

#: Statements, and calls of functions, that one request of a stranger takes: a page with a form takes 17,000 calls, a
#: refusal 2,000, and the OpenAPI document over a million.
MOST_STATEMENTS = 6
MOST_CALLS = 40_000
#: Answers that refuse, or show what anybody may see; 503 is /readyz without a worker.
EXPECTED = {200, 302, 400, 401, 403, 404, 405, 422, 429, 503}
#: Made-up arguments, by their converter.
KINDS = {"int": "1", "uuid": "00000000-0000-0000-0000-000000000000", "slug": "acme"}
#: Sent along: nobody's token, and nobody's login.
HEADERS: dict[str, dict[str, str]] = {
    "nothing": {},
    "a wrong token": {"Authorization": "Bearer thub_" + "x" * 40},
    "a wrong login": {"Cookie": "sessionid=" + "x" * 32},
}


class Calls:
    """Counts the calls of Python functions and of built-in ones while it is entered: work, whatever the machine."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Calls:
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, argument: object) -> None:
        self.count += event in ("call", "c_call")


def path_of(address: Address) -> str:
    """With made-up arguments, as a stranger has them."""
    made_up: dict[str, Any] = dict.fromkeys(address.arguments, "made-up")
    for kwargs in (made_up, dict.fromkeys(address.arguments, 1), dict.fromkeys(address.arguments, uuid4())):
        mixed = {name: "acme" if name == "org" else value for name, value in kwargs.items()}
        try:
            return reverse(address.name, kwargs=mixed)
        except NoReverseMatch:
            continue
    return "/" + re.sub(r"<(?:(\w+):)?\w+>", lambda found: KINDS.get(found[1], "made-up"), address.pattern)


def asked(path: str, method: str, headers: dict[str, str]) -> tuple[int, int]:
    """Statements and calls of one request."""
    client = Client(raise_request_exception=False, headers=headers)
    with CaptureQueriesContext(connection) as queries, Calls() as calls:
        response = client.generic(method, path, b"" if method == "GET" else b"{}", content_type="application/json")
    assert response.status_code in EXPECTED, (path, response.status_code)
    return len(queries), calls.count


@pytest.mark.parametrize("sent", HEADERS)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_request_of_a_stranger_takes_little_work_at_any_address(bob: Membership, method: str, sent: str) -> None:
    dear = {}
    Client().get("/accounts/login/")  # templates are compiled once
    for address in ADDRESSES.values():
        path = path_of(address)
        statements, calls = asked(path, method, HEADERS[sent])
        if statements > MOST_STATEMENTS or calls > MOST_CALLS:
            dear[path] = (statements, calls)

    assert dear == {}


def test_the_openapi_document_is_what_the_bound_would_find(settings: Any) -> None:
    settings.TOOLHUB_OPEN_API_DOCS = True
    _document.cache_clear()

    _, calls = asked("/api/schema/", "GET", {})

    assert calls > MOST_CALLS
