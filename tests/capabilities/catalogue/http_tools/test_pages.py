"""The pages and the REST of HTTP tools."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from capabilities.catalogue.http_tools.forms import initial_of
from capabilities.catalogue.http_tools.queries import stored_content
from capabilities.models import Tool, ToolVersion
from tests.capabilities.catalogue.http_tools.rows import PARAMETERS, REQUEST, URL, make_credential, make_http_tool
from tests.cast import make_category
from tests.rest import Rest
from toolhub.tenants.models import AdminRight, Membership, Organisation, Right
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db
NEW, EDIT = "/o/acme/http-tools/new/", "/o/acme/http-tools/read_user/edit/"


@pytest.fixture
def as_alice(client: Client, alice: Membership) -> Client:
    client.force_login(alice.user)
    return client


def as_member(member: Membership, *rights: tuple[Right, str]) -> Client:
    with organisation_scope(member.organisation_id):
        for right, category in rights:
            AdminRight.objects.create(
                organisation_id=member.organisation_id, membership=member, right=right, category=category
            )
    client = Client()
    client.force_login(member.user)
    return client


def fields(*rows: dict[str, str], **changes: str) -> dict[str, str]:
    """A form as a browser sends it."""
    sent = {
        "name": "read_user",
        "category": "utility",
        "description": "Reads a user.",
        "method": "GET",
        "url": f"{URL}/users/{{id}}",
        "credential": "",
        "headers": "",
        "query": "",
        "media_type": "",
        "pointer": "",
        "kept": "",
        "human_format": "",
        "effect": "read",
        "on_crash": "never",
        "untrusted_output": "on",
        "in_untrusted": "allow",
        "timeout": "20",
        "max_result_chars": "40000",
        "sample": "",
        "arguments-TOTAL_FORMS": str(len(rows)),
        "arguments-INITIAL_FORMS": "0",
    }
    for number, row in enumerate(rows):
        for name, value in ({"type": "string", "place": "query"} | row).items():
            sent[f"arguments-{number}-{name}"] = value
    return sent | changes


ID = {"name": "id", "type": "integer", "place": "path", "is_required": "on", "description": "Whose."}
VERBOSE = {"name": "verbose", "type": "boolean"}
EMPTY = {"name": ""}


def sent_by(form: Any) -> dict[str, str]:
    """What a browser would send of a page that is shown, as it is."""
    found: dict[str, str] = {}
    for each in form:
        value = each.value()
        if value is True:
            found[each.html_name] = "on"
        elif value not in (None, False):
            found[each.html_name] = str(value)
    return found


def test_tx_38_a_tool_is_added_from_scratch(as_alice: Client, acme: Organisation) -> None:
    make_category(acme)
    answer = as_alice.post(NEW, fields(ID, VERBOSE, EMPTY))

    assert (answer.status_code, answer.headers["location"]) == (302, "/o/acme/tools/read_user/")
    with organisation_scope(acme):
        version = Tool.objects.get().current_version
        assert version is not None
        assert version.parameters == PARAMETERS
        assert version.implementation["url"] == REQUEST["url"]
        assert version.implementation["arguments"]["verbose"] == {"in": "query", "name": "verbose"}
        assert version.untrusted_output


def test_every_part_of_the_form_is_stored(as_alice: Client, alice: Membership) -> None:
    make_category(alice.organisation)
    make_credential(alice)
    rows = (
        ID,
        {"name": "tags", "type": "array", "sent_as": "tag", "style": "pipeDelimited", "explode": "no"},
        {"name": "state", "schema": '{"enum": ["open"]}', "place": "header", "sent_as": "X-State"},
        {"name": "payload", "type": "object", "place": "whole"},
    )
    more = {
        "method": "POST",
        "credential": "api",
        "headers": "Accept-Language: en\nX-Time: 10:30",
        "query": "version=2\nsum=a=b",
        "media_type": "application/vnd.api+json",
        "pointer": "/data",
        "kept": "id\nowner.name",
        "human_format": "Reading {id}",
        "on_crash": "retry_with_key",
    }
    assert as_alice.post(NEW, fields(*rows, **more)).status_code == 302

    with organisation_scope(alice.organisation_id):
        tool = Tool.objects.get()
        version = ToolVersion.objects.get()
        assert tool.credential is not None
        assert version.implementation == {
            "method": "POST",
            "url": f"{URL}/users/{{id}}",
            "arguments": {
                "id": {"in": "path", "name": "id"},
                "tags": {"in": "query", "name": "tag", "style": "pipeDelimited", "explode": False},
                "state": {"in": "header", "name": "X-State"},
                "payload": {"in": "body", "name": "payload"},
            },
            "headers": {"Accept-Language": "en", "X-Time": "10:30"},
            "query": {"version": "2", "sum": "a=b"},
            "body": {"media_type": "application/vnd.api+json", "argument": "payload"},
            "response": {"pointer": "/data", "fields": ["id", "owner.name"], "text": False},
        }
        assert version.parameters["properties"]["tags"] == {"type": "array", "items": {"type": "string"}}
        assert version.parameters["properties"]["state"] == {"type": "string", "enum": ["open"]}
        assert (version.human_format, version.on_crash) == ("Reading {id}", "retry_with_key")


def test_what_an_edit_shows_sent_back_changes_nothing(as_alice: Client, alice: Membership) -> None:
    """Of a schema with more in it than the rows show."""
    properties: dict[str, Any] = {
        "id": {"type": "integer", "minimum": 1, "description": "Whose."},
        "any": {},
        "of": {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "Either."},
        "ref": {"$ref": "#/$defs/point"},
        "list": {"type": "array"},
        "texts": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
        "numbers": {"type": "array", "items": {"type": "number"}},
        "inner": {"type": "object", "properties": {"a": {"type": "string", "default": "Grüße"}}},
        "types": {"type": ["string", "null"]},
        "body": {"type": "object"},
    }
    parameters = {
        "type": "object",
        "properties": properties,
        "required": ["id"],
        "$defs": {"point": {"type": "array"}},
        "title": "T",
    }
    places: dict[str, Any] = {name: {"in": "query"} for name in properties}
    places |= {
        "id": {"in": "path"},
        "body": {"in": "body"},
        "list": {"in": "header", "name": "X-List", "explode": True},
    }
    request = {
        "method": "POST",
        "url": f"{URL}/{{id}}",
        "arguments": places,
        "headers": {"X-A": "b: c"},
        "query": {"a b": "1"},
        "body": {"argument": "body"},
        "response": {"text": True},
    }
    make_http_tool(alice, parameters=parameters, implementation=request, untrusted_output=False)

    context = as_alice.get(EDIT).context
    sent = sent_by(context["form"]) | {
        name: value for row in context["rows"] for name, value in sent_by(row).items()
    } | {"arguments-TOTAL_FORMS": str(len(context["rows"].forms)), "arguments-INITIAL_FORMS": "0"}  # fmt: skip
    answer = as_alice.post(EDIT, sent)

    assert answer.status_code == 302
    with organisation_scope(alice.organisation_id):
        assert [each.number for each in ToolVersion.objects.all()] == [1]


def test_a_change_is_the_next_version(as_alice: Client, alice: Membership) -> None:
    make_http_tool(alice)
    as_alice.post(EDIT, fields(ID, VERBOSE, url=f"{URL}/people/{{id}}"))

    with organisation_scope(alice.organisation_id):
        tool = Tool.objects.get()
        assert tool.current_version is not None
        assert (tool.current_version.number, tool.current_version.implementation["url"]) == (2, f"{URL}/people/{{id}}")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"url": "https://{id}.example.org/"}, "url"),
        ({"url": "https://10.0.0.1/{id}"}, "url"),
        ({"url": f"{URL}/{{id}}/{{other}}"}, "url"),
        ({"method": "TRACE"}, "method"),
        ({"headers": "Host: x"}, "headers"),
        ({"headers": "no colon"}, "headers"),
        ({"headers": "A: 1\nA: 2"}, "headers"),
        ({"query": "=1"}, "query"),
        ({"media_type": "no type"}, "media_type"),
        ({"pointer": "data"}, "pointer"),
        ({"pointer": "/a", "as_text": "on"}, "as_text"),
        ({"description": " "}, "description"),
        ({"timeout": "0"}, "timeout"),
        ({"credential": "theirs"}, "credential"),
        ({"category": "theirs"}, "category"),
        ({"name": "no good"}, "name"),
        ({"sample": "[1]"}, "sample"),
    ],
)
def test_an_error_stands_beside_its_field_and_nothing_is_lost(
    as_alice: Client, acme: Organisation, charlie: Membership, changes: dict[str, str], field: str
) -> None:
    make_category(acme)
    make_credential(charlie, "theirs")

    answer = as_alice.post(NEW, fields(ID, VERBOSE, **changes))

    assert answer.status_code == 422
    assert list(answer.context["form"].errors) == [field]
    assert "Whose." in answer.content.decode()
    with organisation_scope(acme):
        assert not Tool.objects.exists()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"name": "id"}, "There is an argument id already."),
        ({"name": "x", "place": "header", "sent_as": "Authorization"}, "The header Authorization is not set here"),
        ({"name": "x", "style": "matrix"}, "the style is one of"),
        ({"name": "x", "place": "path"}, "The address has no {x} for it."),
        ({"name": "", "description": "Lost."}, "Give the argument a name"),
    ],
)
def test_an_error_of_an_argument_stands_in_its_row(
    as_alice: Client, acme: Organisation, row: dict[str, str], message: str
) -> None:
    make_category(acme)

    answer = as_alice.post(NEW, fields(ID, VERBOSE, row))

    assert answer.status_code == 422
    if not (places := {number: each.errors for number, each in enumerate(answer.context["rows"]) if each.errors}):
        places = {2: answer.context["form"].errors}
    assert list(places) == [2]
    assert message in str(places[2])


def test_a_preview_saves_nothing_and_shows_the_request(as_alice: Client, alice: Membership) -> None:
    make_category(alice.organisation)
    make_credential(alice)

    sample = {"sample": '{"id": 7, "verbose": false}', "credential": "api", "do": "preview"}
    answer = as_alice.post(NEW, fields(ID, VERBOSE, **sample))

    text = answer.content.decode()
    assert answer.status_code == 200
    assert f"GET {URL}/users/7?verbose=false" in text
    assert "authorization: Bearer ••••" in text
    assert "in force from the next call on" in text
    assert "s3cret" not in text
    with organisation_scope(alice.organisation_id):
        assert not Tool.objects.exists()


def test_more_rows_come_without_losing_what_was_typed(as_alice: Client, acme: Organisation) -> None:
    make_category(acme)

    answer = as_alice.post(NEW, fields(ID, EMPTY, VERBOSE, do="rows", description="Typed.", untrusted_output=""))

    assert answer.status_code == 200
    rows = [each["name"].value() for each in answer.context["rows"]]
    assert rows == ["id", "verbose", None, None, None]
    assert answer.context["rows"].forms[0]["is_required"].value() is True
    assert "Typed." in answer.content.decode()


def test_pages_are_for_who_has_the_right_and_for_the_own_organisation(
    alice: Membership, bob: Membership, charlie: Membership
) -> None:
    make_http_tool(alice)
    make_category(alice.organisation, "other")

    as_charlie, plain = as_member(charlie), as_member(bob)
    assert [as_charlie.get(each).status_code for each in (NEW, EDIT)] == [404, 404]
    assert as_charlie.get(EDIT.replace("acme", "globex")).status_code == 404
    assert [plain.get(each).status_code for each in (NEW, EDIT)] == [403, 403]
    assert plain.post(NEW, fields(ID, VERBOSE)).status_code == 403

    limited = as_member(bob, (Right.CATALOGUE, "other"))
    assert [limited.get(each).status_code for each in (NEW, EDIT)] == [200, 403]
    assert limited.post(NEW, fields(ID, VERBOSE)).status_code == 403
    assert limited.post(EDIT, fields(ID, VERBOSE)).status_code == 403


def test_bobs_change_waits_and_the_page_says_so(alice: Membership, bob: Membership) -> None:
    make_http_tool(alice)
    client = as_member(bob, (Right.CATALOGUE, ""))

    answer = client.post(EDIT, fields(ID, VERBOSE, timeout="30"), follow=True)

    assert "2 of read_user is saved. It waits" in answer.content.decode()
    assert "Version 2 waits for approval." in client.get(EDIT).content.decode()
    with organisation_scope(alice.organisation_id):
        version = Tool.objects.get().current_version
        assert version is not None
        assert version.number == 1


def test_a_tool_of_another_kind_has_no_such_page(as_alice: Client, alice: Membership) -> None:
    tool = make_http_tool(alice)
    with organisation_scope(alice.organisation_id):
        Tool.objects.filter(pk=tool.pk).update(kind="python")

    assert as_alice.get(EDIT).status_code == 404


# -- REST --------------------------------------------------------------------------------------------------------------

CONTENT: dict[str, Any] = {
    "description": "Reads a user.",
    "parameters": PARAMETERS,
    "implementation": REQUEST,
    "effect": "read",
}
BODY = CONTENT | {"name": "read_user", "category": "utility"}


def test_tools_are_added_read_and_changed_over_rest(alice: Membership) -> None:
    make_category(alice.organisation)
    make_credential(alice)
    rest = Rest(alice)

    made = rest.post("http-tools", BODY)
    changed = rest.put("http-tools/read_user", CONTENT | {"credential": "api", "timeout": 30})
    read = rest.get("http-tools/read_user")

    assert (made.status, made.json["version"], made.json["credential"]) == (201, 1, "")
    assert (changed.status, changed.json["version"], changed.json["credential"]) == (200, 2, "api")
    assert read.json == changed.json
    assert read.json["implementation"]["response"] == {"pointer": "", "fields": [], "text": False}
    assert read.json["untrusted_output"] is True


def test_a_preview_over_rest_saves_nothing(alice: Membership) -> None:
    make_category(alice.organisation)

    found = Rest(alice).post("http-tool-preview", BODY | {"sample": {"id": 7}})

    assert (found.status, found.json["status"], found.json["problem"]) == (200, "approved", "")
    assert found.json["request"].startswith(f"GET {URL}/users/7\n")
    assert json.loads(found.json["wire"])["function"]["name"] == "read_user"
    with organisation_scope(alice.organisation_id):
        assert not Tool.objects.exists()


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("implementation.url", {"implementation": REQUEST | {"url": "/users/{id}"}}),
        ("implementation.arguments.verbose", {"implementation": REQUEST | {"arguments": {"id": {"in": "path"}}}}),
        ("implementation", {"implementation": "GET /"}),
        ("parameters", {"parameters": "none"}),
        ("category", {"category": "none"}),
        ("credential", {"credential": "none"}),
        ("sample", {"sample": [1]}),
    ],
)
def test_refusals_over_rest_name_the_field(alice: Membership, field: str, changes: dict[str, Any]) -> None:
    make_category(alice.organisation)

    assert Rest(alice).post("http-tool-preview", BODY | changes).error[2] == field


def test_rest_is_for_who_has_the_right(alice: Membership, bob: Membership, charlie: Membership) -> None:
    make_http_tool(alice)
    for member, status in ((bob, 403), (charlie, 404)):
        rest = Rest(member)
        assert rest.get("http-tools/read_user").status == status
        assert rest.put("http-tools/read_user", CONTENT).status == status
    assert Rest(bob).post("http-tools", BODY).status == 403
    assert Rest(bob).post("http-tool-preview", BODY).status == 403


def test_the_fields_of_a_page_are_those_that_are_stored(alice: Membership) -> None:
    tool = make_http_tool(alice)
    with organisation_scope(alice.organisation_id):
        content = stored_content(tool)
        assert content is not None
        initial, rows = initial_of(content)

    assert (initial["method"], initial["url"]) == ("GET", REQUEST["url"])
    assert [(row["name"], row["type"], row["place"], row["is_required"]) for row in rows] == [
        ("id", "integer", "path", True),
        ("verbose", "boolean", "query", False),
    ]
