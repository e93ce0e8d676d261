"""A part of an OpenAPI document is imported, with the real child process: by write, page and REST."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from capabilities.catalogue.imports import openapi
from capabilities.catalogue.imports.runs import run_import
from capabilities.catalogue.imports.writes.decide import accept_imported, import_rows
from capabilities.catalogue.imports.writes.start import start_import
from capabilities.common.refused import ChangeRefused
from capabilities.contract.openapi.part import Part
from capabilities.contract.openapi.reading import WHOLE
from capabilities.models import ImportSource, ToolImport
from tests.cast import make_category
from tests.rest import Rest
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db


def operation(tag: str) -> dict[str, Any]:
    return {"tags": [tag], "summary": f"Of {tag}", "responses": {"200": {"description": "Fine"}}}


DOCUMENT = json.dumps(
    {
        "openapi": "3.1.0",
        "info": {"title": "Shop", "version": "1"},
        "servers": [{"url": "https://shop.example.org"}],
        "paths": {
            "/pets": {"get": operation("pets"), "post": operation("pets")},
            "/orders": {"get": operation("orders")},
        },
    }
)


def read(alice: Membership, part: Part = WHOLE, document: str = DOCUMENT) -> ToolImport:
    found = start_import(ImportSource.OPENAPI, actor=alice, document=document, part=part)
    run_import(found.public_id)
    found.refresh_from_db()
    return found


def statuses(tool_import: ToolImport) -> dict[str, str]:
    return dict(import_rows(tool_import).order_by("position").values_list("original_name", "status"))


def test_a_part_is_proposed_alone_and_the_rest_is_not_gone(alice: Membership) -> None:
    pets = make_category(alice.organisation, "pets", is_core=False)
    first = read(alice, Part(tags=("pets",)))
    accept_imported(import_rows(first), pets, actor=alice)

    second = read(alice, Part(tags=("orders",)))
    whole = read(alice)
    smaller = read(alice, Part(path="/orders"), DOCUMENT.replace('"/pets"', '"/animals"'))

    assert statuses(first) == {"GET /pets": "accepted", "POST /pets": "accepted"}
    assert statuses(second) == {"GET /orders": "new"}
    assert set(statuses(whole).values()) == {"unchanged", "new"}
    assert statuses(smaller) == {"GET /orders": "new", "GET /pets": "gone", "POST /pets": "gone"}


def test_a_part_without_an_operation_says_what_there_is(alice: Membership) -> None:
    found = read(alice, Part(tags=("cats",)))

    assert found.status == "failed"
    for word in ("3 operations", "pets (2)", "orders (1)"):
        assert word in found.reason


@pytest.mark.parametrize(
    ("source", "part", "field"),
    [
        (ImportSource.DEFINITIONS, Part(path="/x"), "tags"),
        (ImportSource.OPENAPI, Part(tags=tuple(map(str, range(51)))), "tags"),
        (ImportSource.OPENAPI, Part(path="/" + "x" * 200), "path"),
        (ImportSource.OPENAPI, Part(text="x" * 201), "words"),
    ],
)
def test_what_cannot_be_a_part_is_refused_beside_its_field(
    alice: Membership, source: ImportSource, part: Part, field: str
) -> None:
    with pytest.raises(ChangeRefused) as refused:
        start_import(source, actor=alice, document=DOCUMENT, part=part)

    assert refused.value.field == field
    assert not ToolImport.objects.exists()


def test_two_parts_of_one_address_are_two_imports(alice: Membership) -> None:
    url = "https://shop.example.org/openapi.json"
    parts = (Part(tags=("pets",)), Part(tags=("orders",)), Part(tags=("pets",)))
    keys = [start_import(ImportSource.OPENAPI, actor=alice, url=url, part=part).pk for part in parts]

    assert (keys[0] == keys[2], len(set(keys))) == (True, 2)


def test_page_and_rest_take_a_part(alice: Membership, client: Client) -> None:
    client.force_login(alice.user)
    form = {"source": "openapi", "url": "https://shop.example.org/openapi.json"}
    client.post("/o/acme/imports/new/", form | {"tags": " pets , write,", "path": "/pets", "words": "all  of"})
    body = {"source": "openapi", "document": DOCUMENT, "tags": ["orders"], "words": "of"}
    reply = Rest(alice).post("imports", body)

    assert reply.json["part"] == {"tags": ["orders"], "text": "of"}
    with organisation_scope(alice.organisation):
        assert ToolImport.objects.get(url=form["url"]).part == {
            "tags": ["pets", "write"],
            "path": "/pets",
            "text": "all of",
        }
    assert Rest(alice).post("imports", body | {"tags": ["x" * 201]}).status == 400


def test_a_large_document_is_read_and_not_kept(alice: Membership, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openapi, "MAX_KEPT", 10)
    monkeypatch.setattr(openapi, "_fetched", lambda url: (DOCUMENT, url))

    found = start_import(ImportSource.OPENAPI, actor=alice, url="https://shop.example.org/openapi.json")
    run_import(found.public_id)

    found.refresh_from_db()
    assert (found.status, found.document, len(statuses(found))) == ("review", "", 3)
