"""The OpenAPI document is whole and true: every route is in it, and answers to made-up requests fit it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from typing import Any

import jsonschema_rs
import pytest
import schemathesis
from django.conf import settings
from django.core.handlers.wsgi import WSGIHandler
from django.core.management import call_command
from django.core.signals import request_finished, request_started
from django.db import close_old_connections, transaction
from django.test import Client
from django.urls import Resolver404, resolve
from drf_spectacular.generators import SchemaGenerator
from hypothesis import HealthCheck, Phase, given, seed
from hypothesis import settings as effort
from schemathesis.checks import CHECKS
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import positive_data_acceptance, unsupported_method, use_after_free

from tests.cast import make_agent, make_role, make_session, make_token, make_tool, make_turn
from tests.rest import Rest
from tests.test_tenancy_routes import ADDRESSES
from toolhub.tenants.models import Membership
from toolhub.web.static_files import ServedFiles

pytestmark = pytest.mark.django_db


@pytest.fixture
def document(client: Client) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/api/schema/").json()
    return found


@pytest.fixture(autouse=True)
def open_docs(settings: Any) -> None:
    settings.TOOLHUB_OPEN_API_DOCS = True


def test_strangers_get_neither_the_document_nor_its_page(client: Client, settings: Any) -> None:
    settings.TOOLHUB_OPEN_API_DOCS = False

    document, page = client.get("/api/schema/"), client.get("/api/docs/")

    assert (document.status_code, document.json()["error"]["code"]) == (401, "not_authenticated")
    assert (page.status_code, page["Location"]) == (302, "/accounts/login/?next=/api/docs/")
    assert client.get("/api/schema/", headers={"Authorization": "Bearer thub_none"}).status_code == 401


def test_whoever_is_signed_in_or_has_a_token_reads_both(client: Client, bob: Membership, settings: Any) -> None:
    settings.TOOLHUB_OPEN_API_DOCS = False
    token = {"Authorization": f"Bearer {make_token(bob)}"}

    assert [client.get(path, headers=token).status_code for path in ("/api/schema/", "/api/docs/")] == [200, 200]
    client.force_login(bob.user)
    assert [client.get(path).status_code for path in ("/api/schema/", "/api/docs/")] == [200, 200]


def test_the_document_is_made_once_and_not_sent_to_who_has_it(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    first = client.get("/api/schema/")
    monkeypatch.setattr(SchemaGenerator, "get_schema", None)

    again = client.get("/api/schema/", headers={"If-None-Match": first["ETag"]})
    other = client.get("/api/schema/", headers={"If-None-Match": '"other"'})

    assert (first.status_code, first["Content-Type"]) == (200, "application/json")
    assert (again.status_code, again.content) == (304, b"")
    assert (other.status_code, other.content) == (200, first.content)


def test_the_document_is_openapi_3_1(document: dict[str, Any]) -> None:
    assert document["openapi"] == "3.1.1"
    assert (document["info"]["title"], document["info"]["version"]) == ("toolhub", "1")
    assert document["components"]["securitySchemes"] == {"token": {"type": "http", "scheme": "bearer"}}


def test_the_document_is_valid_and_made_without_a_warning() -> None:
    call_command("spectacular", "--validate", "--fail-on-warn", stdout=StringIO(), stderr=StringIO())


def test_every_schema_in_the_document_is_json_schema(document: dict[str, Any]) -> None:
    for schema in document["components"]["schemas"].values():
        jsonschema_rs.Draft202012Validator({**schema, "components": document["components"]})


def test_every_route_and_method_is_in_the_document(document: dict[str, Any]) -> None:
    """But those under /v1/, which are OpenAI's."""
    described = {(path, method) for path, item in document["paths"].items() for method in item}

    served = set()
    for address in ADDRESSES.values():
        if address.is_api and not address.pattern.startswith("v1/"):
            path = "/" + re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", address.pattern)
            served |= {(path, method) for method in methods_of(path)}

    assert described == served


def methods_of(path: str) -> set[str]:
    """What the route says it takes."""
    try:
        view: Any = resolve(re.sub(r"{\w+}", "00000000-0000-0000-0000-000000000000", path)).func
    except Resolver404:
        view = resolve(re.sub(r"{\w+}", "1", path)).func
    return {name for name in ("get", "post", "put", "patch", "delete") if hasattr(view.cls, name)}


def test_every_operation_is_named_described_and_guarded(document: dict[str, Any]) -> None:
    operations = [operation for item in document["paths"].values() for operation in item.values()]

    names = [operation["operationId"] for operation in operations]
    assert len(names) == len(set(names))
    assert [operation["operationId"] for operation in operations if not operation.get("summary")] == []
    assert {json.dumps(operation["security"]) for operation in operations} == {'[{"token": []}]'}


def test_every_body_is_json_and_every_error_of_one_shape(document: dict[str, Any]) -> None:
    operations = [operation for item in document["paths"].values() for operation in item.values()]

    bodies = {kind for each in operations for kind in each.get("requestBody", {"content": {}})["content"]}
    errors = {json.dumps(each["responses"]["default"]["content"]) for each in operations}

    assert bodies == {"application/json"}
    assert errors == {'{"application/json": {"schema": {"$ref": "#/components/schemas/ErrorOut"}}}'}


# -- The page ---------------------------------------------------------------------------------------------------------


#: Fields that name a row.
NAMES_A_ROW = re.compile(r"(^|_)id$|_by$|^(member|grant|session|turn|parent_turn|target_id)$")


def test_no_id_and_no_reference_is_a_number(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    named = [
        (f"{name}.{field}", said)
        for name, schema in schemas.items()
        for field, said in schema.get("properties", {}).items()
        if NAMES_A_ROW.search(field) and said.get("type") != "object"  # how many tools each role opens, by its name
    ]
    named += [
        (f"{path} {each['name']}", each["schema"])
        for path, item in document["paths"].items()
        for way in item.values()
        for each in way.get("parameters", ())
        if NAMES_A_ROW.search(each["name"])
    ]

    assert len(named) > 30
    assert [place for place, said in named if "integer" in json.dumps(said)] == []
    assert {said.get("format") for place, said in named if place.endswith(".id")} == {"uuid"}


def test_the_page_of_the_document_works_under_the_strict_csp(client: Client) -> None:
    response = client.get("/api/docs/")
    html = response.content.decode()

    assert response.status_code == 200
    assert "unsafe-inline" not in response.headers["Content-Security-Policy"]
    assert re.findall(r"<script(?![^>]*\bsrc=)[^>]*>", html) == []
    assert re.findall(r"\son\w+=", html) == []
    assert re.findall(r"<style", html) == []
    assert re.findall(r'(?:src|href)="(?:https?:)?//', html) == []


async def no_app(*_: Any) -> None:
    raise AssertionError("Only the table of files is asked.")


def test_the_scripts_of_the_page_are_served_from_here(client: Client) -> None:
    html = client.get("/api/docs/").content.decode()

    scripts = re.findall(r'<script[^>]*\bsrc="([^"]+)"', html)
    files = ServedFiles(no_app)

    assert scripts
    for script in scripts:
        is_file = files.file_of({"type": "http", "path": script}) is not None
        assert is_file or client.get(script).status_code == 200, script


# -- Made-up requests -------------------------------------------------------------------------------------------------

#: A stream never ends while its turn is open.
STREAMS = ("/api/v1/turns/{turn_id}/events",)
#: Left out: what the document cannot say (which rows are there, what a cursor looks like), and methods, which other
#: tests ask for.
LEFT_OUT = (use_after_free, unsupported_method, positive_data_acceptance)


@pytest.fixture
def one_connection() -> Iterator[None]:
    """Requests share the test's connection, as those of Django's own test client do."""
    signals = (request_started, request_finished)
    for signal in signals:
        signal.disconnect(close_old_connections)
    yield
    for signal in signals:
        signal.connect(close_old_connections)


@contextmanager
def undone() -> Iterator[None]:
    """What a request wrote is gone afterwards, so that each example begins in the same world."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def part_of(path: str) -> str:
    """What members keep is many operations: each part is short enough for one test."""
    if "/data/" not in path:
        return "the rest"
    return "rows of data" if path.endswith("}") else "lists of data"


@pytest.mark.timeout(180)
@pytest.mark.lasting
@pytest.mark.usefixtures("one_connection")
@pytest.mark.parametrize("part", ["lists of data", "rows of data", "the rest"])
def test_made_up_requests_are_answered_as_the_document_says(part: str, alice: Membership) -> None:
    """12 examples an operation, the same in every run; half of them break the document on purpose."""
    rest = Rest(alice)
    make_tool(alice.organisation, "calculator")
    make_role(alice.organisation, alice)
    make_turn(make_session(alice, make_agent(alice.organisation)))
    schema = schemathesis.openapi.from_wsgi("/api/schema/?format=json", WSGIHandler())
    checks = [check for check in CHECKS.get_all() if check not in LEFT_OUT]
    # Its client of WSGI unpacks nothing.
    headers = {"Authorization": rest.headers["Authorization"], "Accept-Encoding": "identity"}
    asked = 0

    for result in schema.get_all_operations():
        assert isinstance(result, Ok)
        operation = result.ok()
        if operation.path in STREAMS or part_of(operation.path) != part:
            continue

        @seed(1)
        @effort(
            max_examples=12,
            derandomize=True,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def examples(case: Any) -> None:
            nonlocal asked
            asked += 1
            with undone():
                case.call_and_validate(headers=headers, checks=checks)

        examples()

    assert asked > 100
    assert not settings.DEBUG
