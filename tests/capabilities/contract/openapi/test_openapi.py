"""Operations of OpenAPI documents as tools: what goes where, and why some are none."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capabilities.contract.http_request import build_request
from capabilities.contract.http_tool import read_implementation
from capabilities.contract.openapi import read_openapi
from capabilities.contract.openapi.part import Part
from capabilities.contract.openapi.reading import DocumentIsNone
from capabilities.contract.schemas import check_schema, complaints

BASE = "https://api.example.org/v1"


def document(paths: dict[str, Any], version: str = "3.1.0", **fields: Any) -> dict[str, Any]:
    return {
        "openapi": version,
        "info": {"title": "T", "version": "1"},
        "servers": [{"url": BASE}],
        "paths": paths,
    } | fields


def one(operation: dict[str, Any], path: str = "/pets", method: str = "get", **fields: Any) -> dict[str, Any]:
    """The only operation of a document."""
    (found,) = read_openapi(document({path: {method: operation}}, **fields))["found"]
    return dict(found)


def parameter(name: str, place: str = "query", **fields: Any) -> dict[str, Any]:
    return {"name": name, "in": place, "schema": {"type": "string"}} | fields


def body(schema: Any, kind: str = "application/json", **fields: Any) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {kind: {"schema": schema}}} | fields}


def said(found: dict[str, Any]) -> list[str]:
    return [each["code"] for each in found["warnings"]]


def sent(found: dict[str, Any], **arguments: Any) -> Any:
    """The request of a call with these arguments, which fit the schema."""
    assert found["refused"] == ""
    check_schema(found["parameters"])
    assert complaints(json.dumps(found["parameters"]), arguments) == []
    written = found["implementation"] | {"url": BASE + found["implementation"]["url"]}
    return build_request(read_implementation(written), arguments)


# -- Parameters -------------------------------------------------------------------------------------------------------


def test_parameters_of_path_and_operation_come_together() -> None:
    item = {
        "parameters": [parameter("id", "path", required=True), parameter("a"), parameter("b")],
        "get": {
            "operationId": "getPet",
            "parameters": [
                parameter("b", schema={"type": "integer"}),
                parameter("X-A", "header"),
                parameter("c", "cookie"),
            ],
        },
    }
    (found,) = read_openapi(document({"/pets/{id}": item}))["found"]

    request = sent(found, id="a b", a="1", b=2, c="d", **{"X-A": "e"})

    assert found["name"] == "getPet"
    assert request.url == f"{BASE}/pets/a%20b?a=1&b=2"
    assert (request.headers["x-a"], request.headers["cookie"]) == ("e", "c=d")
    assert found["parameters"]["required"] == ["id"]


@pytest.mark.parametrize(
    ("fields", "value", "query"),
    [
        ({"schema": {"type": "array", "items": {"type": "string"}}}, ["x", "y"], "a=x&a=y"),
        ({"schema": {"type": "array", "items": {"type": "string"}}, "explode": False}, ["x", "y"], "a=x%2Cy"),
        ({"schema": {"type": "array"}, "style": "pipeDelimited"}, ["x", "y"], "a=x%7Cy"),
        ({"schema": {"type": "object"}, "style": "deepObject"}, {"x": 1}, "a%5Bx%5D=1"),
        (
            {"schema": None, "content": {"application/json": {"schema": {"type": "object"}}}},
            {"x": 1},
            "a=%7B%22x%22%3A1%7D",
        ),
        ({"type": "integer", "schema": None}, 3, "a=3"),
    ],
)
def test_styles_are_kept(fields: dict[str, Any], value: Any, query: str) -> None:
    written = {name: each for name, each in (parameter("a") | fields).items() if each is not None}

    assert sent(one({"parameters": [written]}), a=value).url == f"{BASE}/pets?{query}"


def test_a_place_in_the_path_that_nobody_declares_is_an_argument() -> None:
    found = one({}, "/anything/{anything}")

    assert sent(found, anything="x").url == f"{BASE}/anything/x"
    assert found["name"] == "get /anything/{anything}"


def test_headers_of_authorisation_are_no_arguments() -> None:
    found = one({"parameters": [parameter("Authorization", "header", required=True), parameter("Accept", "header")]})

    assert (found["parameters"]["properties"], found["refused"]) == ({}, "")


def test_an_authorization_header_is_left_to_a_credential_and_the_review_shows_it() -> None:
    assert said(one({"parameters": [parameter("Authorization", "header")]})) == ["left_out"]


@pytest.mark.parametrize("method", ["get", "head"])
def test_a_body_that_is_not_sent_is_told_only_where_one_was_left_out(method: str) -> None:
    optional = {"requestBody": {"content": {"application/json": {"schema": {"type": "object"}}}}}
    empty: dict[str, Any] = {"requestBody": {"content": {"application/json": {}}}}

    (warning,) = one(optional, method=method)["warnings"]

    assert (warning["code"], f"a {method.upper()} request" in warning["text"]) == ("left_out", True)
    assert said(one(empty, method=method)) == said(one({"requestBody": {"content": {}}}, method=method)) == []
    assert said(one({}, method=method)) == []
    assert said(one(optional, method="post")) == []


@pytest.mark.parametrize("place", ["query", "header", "cookie"])
@pytest.mark.parametrize(
    ("security", "is_argument"),
    [
        ({}, False),
        ({"security": [{"k": []}]}, False),
        ({"security": [{}, {"k": []}]}, False),
        ({"security": []}, True),
        ({"security": [{}]}, True),
    ],
)
def test_a_secret_among_the_parameters_is_no_argument_unless_nothing_signs_the_operation(
    place: str, security: dict[str, Any], is_argument: bool
) -> None:
    schemes = {"k": {"type": "apiKey", "in": place, "name": "Key"}}
    operation = {"parameters": [parameter("key", place, required=True)]} | security

    found = one(operation, components={"securitySchemes": schemes})

    assert list(found["parameters"]["properties"]) == (["key"] if is_argument else [])
    assert found["annotations"].get("security", []) == ([] if is_argument else ["k"])


def test_a_header_that_no_tool_sets_is_left_out_or_refused() -> None:
    assert said(one({"parameters": [parameter("Host", "header")]})) == ["left_out"]
    assert "needs the header Host" in one({"parameters": [parameter("Host", "header", required=True)]})["refused"]


def test_the_same_name_in_two_places_is_two_arguments_and_said() -> None:
    schema = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
    operation = {"parameters": [parameter("id"), parameter("id", "path", required=True)], **body(schema)}
    found = one(operation, "/pets/{id}", "post")

    request = sent(found, id="p", query_id="q", body_id=3)

    assert (request.url, request.content) == (f"{BASE}/pets/p?id=q", b'{"id":3}')
    for words in ("id of the query is query_id", "id of the body is body_id"):
        assert words in found["warnings"][0]["text"]


def test_names_that_providers_do_not_take_are_written_otherwise() -> None:
    found = one({"parameters": [parameter("filter[name]")]})

    assert sent(found, filter_name="x").url == f"{BASE}/pets?filter%5Bname%5D=x"


def test_a_query_in_the_path_is_a_fixed_one() -> None:
    assert sent(one({}, "/pets?action=list")).url == f"{BASE}/pets?action=list"


# -- Bodies -----------------------------------------------------------------------------------------------------------

PET: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name"],
}


def test_properties_of_a_json_body_are_arguments() -> None:
    found = one(body(PET), method="post")

    request = sent(found, name="Rex", age=3)

    assert found["parameters"]["required"] == ["name"]
    assert json.loads(request.content) == {"name": "Rex", "age": 3}
    assert request.headers["content-type"] == "application/json"


def test_of_a_body_that_may_be_left_out_nothing_is_required() -> None:
    assert "required" not in one(body(PET, required=False), method="post")["parameters"]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "array", "items": PET}, [{"name": "Rex"}]),
        ({"oneOf": [PET, {"type": "string"}]}, "x"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, {"x": 1}),
        ({}, 5),
    ],
)
def test_any_other_json_body_is_one_argument(schema: Any, value: Any) -> None:
    request = sent(one(body(schema), method="post"), body=value)

    assert json.loads(request.content) == value


def test_a_form_a_text_and_files_are_sent_as_such() -> None:
    form = one(body(PET, "application/x-www-form-urlencoded"), method="post")
    text = one(body({"type": "string"}, "text/plain"), method="post")
    upload = {
        "type": "object",
        "properties": {"file": {"type": "string", "format": "binary"}, "meta": {"type": "object"}},
    }
    multipart = one(body(upload, "multipart/form-data"), method="post")
    raw = one(body({"type": "string", "format": "binary"}, "application/octet-stream"), method="put")

    assert sent(form, name="a b", age=1).content == b"name=a%20b&age=1"
    assert sent(text, body="Grüße").content == "Grüße".encode()
    content = sent(
        multipart, file={"name": "a.txt", "text": "hello", "media_type": "text/plain"}, meta={"a": 1}
    ).content
    assert b'filename="a.txt"' in content
    assert b'{"a":1}' in content
    assert sent(raw, body={"base64": "AAE="}).content == b"\x00\x01"


def test_of_several_types_of_body_one_is_taken_and_said() -> None:
    content = {
        kind: {"schema": PET}
        for kind in ("application/xml", "multipart/form-data", "application/vnd.a+json", "application/json")
    }
    found = one({"requestBody": {"content": content}}, method="post")

    assert sent(found, name="x").headers["content-type"] == "application/json"
    assert said(found) == ["media_type"]


@pytest.mark.parametrize(
    ("operation", "method", "reason"),
    [
        (
            body({"$ref": "https://evil.example/pet.json"}),
            "post",
            "refers to https://evil.example/pet.json, outside of",
        ),
        (body({"$ref": "other.yaml#/Pet"}), "post", "outside of the document"),
        (body({"$ref": "#/components/schemas/Missing"}), "post", "which is not in the document"),
        ({"requestBody": {"$ref": "#/components/requestBodies/round"}}, "post", "circle"),
        (body({"type": "object"}, "multipart/form-data"), "post", "names no fields"),
        (body({}, "image/*"), "post", "says nothing of what is sent"),
        (body(PET), "get", "no GET request has"),
        ({"parameters": [parameter("a", "querystring", required=True)]}, "get", "goes into querystring"),
        ({}, "trace", "TRACE requests are not made"),
        ({}, "options", "OPTIONS requests are not made"),
    ],
)
def test_an_operation_that_cannot_become_a_tool_says_why(operation: dict[str, Any], method: str, reason: str) -> None:
    components = {"requestBodies": {"round": {"$ref": "#/components/requestBodies/round"}}}

    assert reason in one(operation, method=method, components=components)["refused"]


# -- Schemas ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "written", "read"),
    [
        ("3.0.3", {"type": "string", "nullable": True}, {"type": ["string", "null"]}),
        (
            "3.0.3",
            {"type": "string", "nullable": True, "enum": ["a"]},
            {"type": ["string", "null"], "enum": ["a", None]},
        ),
        ("3.0.3", {"allOf": [{"$ref": "#/components/schemas/A"}], "nullable": True}, {"type": ["integer", "null"]}),
        ("3.0.3", {"$ref": "#/components/schemas/A", "description": "not read in 3.0"}, {"type": "integer"}),
        (
            "3.1.0",
            {"$ref": "#/components/schemas/A", "description": "read"},
            {"type": "integer", "description": "read"},
        ),
        (
            "3.0.3",
            {"type": "number", "minimum": 1, "exclusiveMinimum": True},
            {"type": "number", "minimum": 1, "exclusiveMinimum": 1},
        ),
        ("3.0.3", {"type": "number", "maximum": 1, "exclusiveMaximum": False}, {"type": "number", "maximum": 1}),
        ("3.1.0", {"type": "number", "exclusiveMinimum": 1}, {"type": "number", "exclusiveMinimum": 1}),
        ("3.1.0", {"type": ["string", "null"]}, {"type": ["string", "null"]}),
        ("3.0.3", {"type": "int"}, {"type": "integer"}),
        ("3.0.3", {"type": "nonsense", "title": "T", "example": 1, "xml": {}}, {}),
        ("3.0.3", {"type": "string", "pattern": "[", "maxLength": -1, "format": 3}, {"type": "string"}),
        (
            "3.0.3",
            {"type": "array", "items": [{"type": "string"}]},
            {"type": "array", "prefixItems": [{"type": "string"}]},
        ),
        (
            "3.1.0",
            {"allOf": [PET, {"properties": {"x": {"type": "null"}}}]},
            {"type": "object", "properties": {**PET["properties"], "x": {"type": "null"}}, "required": ["name"]},
        ),
        ("3.1.0", {"anyOf": [{"type": "string"}]}, {"type": "string"}),
        ("3.1.0", True, {}),
        ("3.1.0", False, {"not": {}}),
    ],
)
def test_schemas_are_those_of_2020_12(version: str, written: Any, read: Any) -> None:
    components = {"schemas": {"A": {"type": "integer"}}}
    found = one({"parameters": [parameter("a", schema=written)]}, version=version, components=components)

    assert found["parameters"]["properties"]["a"] == read
    check_schema(found["parameters"])


def test_read_only_properties_are_no_arguments() -> None:
    schema = {
        "type": "object",
        "properties": {
            "id": {"type": "integer", "readOnly": True},
            "at": {"$ref": "#/components/schemas/At"},
            "name": {"type": "string"},
        },
        "required": ["id", "name"],
    }
    found = one(body(schema), method="post", components={"schemas": {"At": {"type": "string", "readOnly": True}}})

    assert list(found["parameters"]["properties"]) == ["name"]
    assert found["parameters"]["required"] == ["name"]


def test_a_schema_in_itself_ends_and_is_said() -> None:
    node = {
        "type": "object",
        "description": "A node.",
        "properties": {"child": {"$ref": "#/components/schemas/Node"}, "name": {"type": "string"}},
    }
    found = one(body({"$ref": "#/components/schemas/Node"}), method="post", components={"schemas": {"Node": node}})

    assert found["parameters"]["properties"]["child"] == {"type": "object", "description": "A node."}
    assert said(found) == ["left_out"]
    assert json.loads(sent(found, child={"child": {"name": "x"}}).content) == {"child": {"child": {"name": "x"}}}


def test_schemas_that_branch_without_end_are_cut() -> None:
    schemas = {
        f"A{n}": {"type": "object", "properties": {key: {"$ref": f"#/components/schemas/A{n + 1}"} for key in "abcd"}}
        for n in range(40)
    }
    found = one(body({"$ref": "#/components/schemas/A0"}), method="post", components={"schemas": schemas | {"A40": {}}})

    assert found["refused"] == ""
    assert len(json.dumps(found["parameters"])) < 200_000
    assert "left_out" in said(found)


# -- The document -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("root", "reason"),
    [
        ([], "no OpenAPI document"),
        ({"a": 1}, "no OpenAPI document"),
        ({"swagger": "2.0"}, "convert it to OpenAPI 3"),
        ({"openapi": "2.9.0"}, "versions 3.0 and 3.1"),
        ({"openapi": "3.1.0", "info": {}}, "no paths"),
    ],
)
def test_what_is_no_such_document_says_so(root: Any, reason: str) -> None:
    with pytest.raises(DocumentIsNone, match=reason):
        read_openapi(root)


def test_of_a_document_without_end_so_many_operations_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capabilities.contract.openapi.reading.MAX_OPERATIONS", 3)

    read = read_openapi(document({f"/p{number}": {"get": {}} for number in range(5)}))

    assert (len(read["found"]), read["summary"]["beyond"]) == (3, 2)


@pytest.mark.parametrize(
    ("servers", "url", "addresses"),
    [
        (
            [
                {
                    "url": "https://{region}.example.org/{v}/",
                    "variables": {"region": {"default": "eu"}, "v": {"enum": ["v2"], "default": "v1"}},
                }
            ],
            "",
            ["https://eu.example.org/v1"],
        ),
        ([{"url": "/api"}], "https://docs.example.org/spec/openapi.json", ["https://docs.example.org/api"]),
        (None, "https://docs.example.org/spec/openapi.json", ["https://docs.example.org"]),
        ([{"url": "/api"}, {"url": "https://b.example.org"}], "", ["https://b.example.org"]),
        (
            [
                {"url": "file:///etc"},
                {"url": "ftp://files.example.org/"},
                {"url": "https://{x}.example.org"},
                {"url": 3},
                "x",
            ],
            "",
            [],
        ),
    ],
)
def test_addresses_of_a_document(servers: Any, url: str, addresses: list[str]) -> None:
    read = read_openapi(document({"/a": {"get": {}}}, servers=servers), url)

    assert [each["url"] for each in read["summary"]["servers"]] == addresses
    assert read["base_url"] == (addresses or [""])[0]


def test_an_operation_with_a_server_of_its_own_goes_there_and_says_so() -> None:
    found = one({"servers": [{"url": "https://upload.example.org"}]}, method="post")

    assert found["implementation"]["url"] == "https://upload.example.org/pets"
    assert said(found) == ["other_server"]


def test_what_a_call_needs_to_be_signed_is_said_and_no_argument() -> None:
    schemes = {
        "key": {"type": "apiKey", "in": "header", "name": "X-Key"},
        "token": {"type": "http", "scheme": "Bearer"},
        "odd": {"type": "apiKey", "in": "cookie", "name": "c"},
    }
    operation = {"security": [{"odd": []}, {"key": []}], "parameters": [parameter("x-key", "header", required=True)]}
    read = read_openapi(
        document(
            {"/a": {"get": operation, "put": {"security": []}, "post": {}, "patch": {"security": [{"key": []}, {}]}}},
            components={"securitySchemes": schemes},
            security=[{"token": []}],
        )
    )
    get, put, post, patch = read["found"]

    assert [each["annotations"].get("security") for each in (get, put, post, patch)] == [["key"], None, ["token"], None]
    assert get["parameters"]["properties"] == {}
    kinds = [(each["name"], each["kind"], each["parameter"]) for each in read["summary"]["credentials"]]
    assert kinds == [("key", "header", "X-Key"), ("token", "bearer", "")]


@pytest.mark.parametrize(
    ("summary", "description", "told"),
    [
        ("Get Assets", "Get assets.", "Get assets."),
        ("Get assets.", "Get assets of a page.", "Get assets of a page."),
        ("Get Asset", "Reads one.", "Get Asset\n\nReads one."),
        ("Get Asset", "", "Get Asset"),
        ("", "Reads one.", "Reads one."),
    ],
)
def test_a_summary_that_the_description_repeats_is_told_once(summary: str, description: str, told: str) -> None:
    assert one({"summary": summary, "description": description})["description"] == told


def test_deprecated_ones_are_marked_and_long_text_is_cut_at_its_end() -> None:
    found = one({"deprecated": True, "summary": "Lists.", "description": "It lists. " * 1_000, "tags": ["Pets"]})

    assert said(found) == ["deprecated", "left_out"]
    assert len(found["description"]) <= 4_000
    assert found["description"].endswith("It lists. …")
    assert found["group"] == "Pets"


def test_a_path_behind_a_reference_is_read_and_one_elsewhere_refused() -> None:
    paths = {"/a": {"$ref": "#/components/pathItems/A"}, "/b": {"$ref": "https://evil.example/b.json"}}
    first, second = read_openapi(document(paths, components={"pathItems": {"A": {"get": {"summary": "A."}}}}))["found"]

    assert (first["description"], first["refused"]) == ("A.", "")
    assert "outside of the document" in second["refused"]


# -- Anything ---------------------------------------------------------------------------------------------------------

junk = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.sampled_from(["", "string", "object", "#/a", "#/components/schemas/A", "query", "path"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "properties",
                    "items",
                    "$ref",
                    "allOf",
                    "anyOf",
                    "in",
                    "name",
                    "schema",
                    "content",
                    "required",
                    "enum",
                    "nullable",
                    "a",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=300)
@given(junk, junk, junk, junk, st.sampled_from(["3.0.0", "3.1.0"]))
def test_any_document_is_read_without_a_crash(
    schema: Any, parameters: Any, request: Any, rest: Any, version: str
) -> None:
    operation = {"parameters": parameters, "requestBody": request, "security": rest, "servers": rest, "tags": rest}
    root = document(
        {"/a/{b}": {"post": operation, "parameters": rest}, "/b": {"put": body(schema)}, "/c": rest},
        version,
        components={"schemas": {"A": schema}, "securitySchemes": rest},
    )

    for found in read_openapi(root)["found"]:
        if not found["refused"]:
            check_schema(found["parameters"])
            json.dumps(found)


def test_arguments_in_other_alphabets_have_names_of_their_own_and_go_out_under_the_real_ones() -> None:
    names = ("größe", "groesse", "名前", "¿?", "¡!")
    found = one({"parameters": [parameter(name, schema={"type": "string"}) for name in names]})

    arguments = found["implementation"]["arguments"]
    assert [each["name"] for each in arguments.values()] == list(names)
    assert len(arguments) == len(names)
    assert all(re.fullmatch(r"[a-zA-Z0-9_.-]{1,64}", each) for each in arguments)
    assert next(iter(arguments)) == "groesse"
    assert "name_written" in [each["code"] for each in found["warnings"]]


# -- A part of a document ---------------------------------------------------------------------------------------------

SEVERAL = document(
    {
        "/repos": {"get": {"tags": ["repos"], "summary": "List repositories"}, "post": {"tags": ["repos", "write"]}},
        "/repos/{id}/issues": {"get": {"tags": ["issues"], "operationId": "listIssues"}},
        "/users": {"get": {"description": "Everybody, also of closed issues"}},
    }
)


@pytest.mark.parametrize(
    ("part", "found"),
    [
        (Part(), ["GET /repos", "POST /repos", "GET /repos/{id}/issues", "GET /users"]),
        (Part(tags=("issues", "write")), ["POST /repos", "GET /repos/{id}/issues"]),
        (Part(tags=("Issues",)), []),
        (Part(path="/repos/"), ["GET /repos/{id}/issues"]),
        (Part(path="/*/issues"), ["GET /repos/{id}/issues"]),
        (Part(path="/repos*"), ["GET /repos", "POST /repos", "GET /repos/{id}/issues"]),
        (Part(text="ISSUES"), ["GET /repos/{id}/issues", "GET /users"]),
        (Part(text="closed issues"), ["GET /users"]),
        (Part(text="post"), ["POST /repos"]),
        (Part(tags=("repos",), text="list"), ["GET /repos"]),
    ],
)
def test_a_part_has_the_operations_of_its_tags_path_and_words(part: Part, found: list[str]) -> None:
    read = read_openapi(SEVERAL, part=part)

    assert [each["original_name"] for each in read["found"]] == found
    if not part.is_whole:
        assert (read["summary"]["operations"], read["summary"]["tags"]["repos"]) == (4, 2)
        assert read["summary"]["part"] == part.as_json()
    assert Part.of(part.as_json()) == part


def test_what_is_outside_of_the_part_is_named() -> None:
    read = read_openapi(SEVERAL, part=Part(path="/repos"))

    assert (read["beside"], read_openapi(SEVERAL)["beside"]) == (["GET /users"], [])


@pytest.mark.parametrize("said", [{}, {"tags": "repos"}, {"tags": [1, None]}, {"path": 7, "text": []}])
def test_a_part_that_is_malformed_means_any(said: dict[str, Any]) -> None:
    assert Part.of(said).is_whole


def test_what_is_beyond_the_limit_is_counted_with_the_tags_to_choose_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capabilities.contract.openapi.reading.MAX_OPERATIONS", 1)

    read = read_openapi(SEVERAL)
    summary = read["summary"]

    assert len(read["beside"]) == 3
    assert (summary["beyond"], summary["operations"], summary["tags"]) == (3, 4, {"repos": 2, "write": 1, "issues": 1})
