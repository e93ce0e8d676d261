"""Requests of HTTP tools: how arguments become one, what cannot leave its place, and what cannot be saved."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capabilities.contract.context import ToolError
from capabilities.contract.http_request import build_request
from capabilities.contract.http_tool import (
    HttpRequest,
    HttpResponse,
    ImplementationRefused,
    NotInAnswer,
    check_http,
    mapped,
    read_implementation,
)

BASE = "https://api.example.org"


def request(value: dict[str, Any], **arguments: Any) -> HttpRequest:
    return build_request(read_implementation({"method": "GET", "url": BASE, **value}), arguments)


def one(place: str, value: Any, *, url: str = BASE, method: str = "GET", **more: Any) -> HttpRequest:
    """The request of one argument `v`, sent as `color`."""
    argument = {"in": place, "name": "color", **more}
    return request({"url": url, "method": method, "arguments": {"v": argument}}, v=value)


ARRAY, OBJECT = ["blue", "black", "brown"], {"R": 100, "G": 200, "B": 150}


# The table of the OpenAPI specification (3.1, "Style Examples").
@pytest.mark.parametrize(
    ("style", "explode", "value", "written"),
    [
        ("simple", False, "blue", "blue"),
        ("simple", False, ARRAY, "blue,black,brown"),
        ("simple", False, OBJECT, "R,100,G,200,B,150"),
        ("simple", True, ARRAY, "blue,black,brown"),
        ("simple", True, OBJECT, "R=100,G=200,B=150"),
        ("label", False, "blue", ".blue"),
        ("label", False, ARRAY, ".blue,black,brown"),
        ("label", True, ARRAY, ".blue.black.brown"),
        ("label", True, OBJECT, ".R=100.G=200.B=150"),
        ("matrix", False, "blue", ";color=blue"),
        ("matrix", False, ARRAY, ";color=blue,black,brown"),
        ("matrix", False, OBJECT, ";color=R,100,G,200,B,150"),
        ("matrix", True, ARRAY, ";color=blue;color=black;color=brown"),
        ("matrix", True, OBJECT, ";R=100;G=200;B=150"),
    ],
)
def test_path_styles_are_written_as_the_specification_says(style: str, explode: bool, value: Any, written: str) -> None:
    found = one("path", value, url=f"{BASE}/x/{{color}}/y", style=style, explode=explode)

    assert found.url == f"{BASE}/x/{written}/y"


@pytest.mark.parametrize(
    ("style", "explode", "value", "written"),
    [
        ("form", True, "blue", "color=blue"),
        ("form", True, "", "color="),
        ("form", True, ARRAY, "color=blue&color=black&color=brown"),
        ("form", True, OBJECT, "R=100&G=200&B=150"),
        ("form", False, ARRAY, "color=blue%2Cblack%2Cbrown"),
        ("form", False, OBJECT, "color=R%2C100%2CG%2C200%2CB%2C150"),
        ("spaceDelimited", False, ARRAY, "color=blue%20black%20brown"),
        ("spaceDelimited", False, OBJECT, "color=R%20100%20G%20200%20B%20150"),
        ("pipeDelimited", False, ARRAY, "color=blue%7Cblack%7Cbrown"),
        ("deepObject", True, OBJECT, "color%5BR%5D=100&color%5BG%5D=200&color%5BB%5D=150"),
        ("deepObject", True, {"a": {"b": [1, 2]}}, "color%5Ba%5D%5Bb%5D%5B0%5D=1&color%5Ba%5D%5Bb%5D%5B1%5D=2"),
        ("json", None, OBJECT, "color=%7B%22R%22%3A100%2C%22G%22%3A200%2C%22B%22%3A150%7D"),
        ("", None, ARRAY, "color=blue&color=black&color=brown"),
        ("", None, True, "color=true"),
        ("", None, 1.5, "color=1.5"),
        ("", None, "a b&c=d#?é", "color=a%20b%26c%3Dd%23%3F%C3%A9"),
    ],
)
def test_query_styles_are_written_as_the_specification_says(
    style: str, explode: bool | None, value: Any, written: str
) -> None:
    assert one("query", value, style=style, explode=explode).url == f"{BASE}/?{written}"


@pytest.mark.parametrize(
    ("explode", "value", "written"),
    [
        (False, "blue", "blue"),
        (False, ARRAY, "blue,black,brown"),
        (False, OBJECT, "R,100,G,200,B,150"),
        (True, OBJECT, "R=100,G=200,B=150"),
    ],
)
def test_headers_are_written_as_the_specification_says(explode: bool, value: Any, written: str) -> None:
    assert one("header", value, explode=explode).headers["color"] == written


def test_cookies_are_one_header_with_encoded_values() -> None:
    arguments = {"a": {"in": "cookie"}, "b": {"in": "cookie", "name": "bee"}}

    assert request({"arguments": arguments}, a="x; admin=1", b=ARRAY).headers["cookie"] == (
        "a=x%3B%20admin%3D1; bee=blue%2Cblack%2Cbrown"
    )


def test_arguments_of_a_body_become_one_json_object() -> None:
    arguments = {"title": {"in": "body"}, "count": {"in": "body", "name": "n"}, "left_out": {"in": "body"}}

    found = request({"method": "POST", "arguments": arguments}, title="Grüße", count=None)

    assert found.headers["content-type"] == "application/json"
    assert json.loads(found.content or b"") == {"title": "Grüße", "n": None}


@pytest.mark.parametrize(
    ("media_type", "value", "content"),
    [
        ("application/json", [1, {"a": "b"}], b'[1,{"a":"b"}]'),
        ("application/vnd.api+json", "text", b'"text"'),
        ("text/plain", "line\r\nline", b"line\r\nline"),
        ("application/xml", "<a/>", b"<a/>"),
        ("text/plain", {"a": 1}, b'{"a":1}'),
    ],
)
def test_one_argument_may_be_the_whole_body(media_type: str, value: Any, content: bytes) -> None:
    body = {"media_type": media_type, "argument": "payload"}
    found = request({"method": "PUT", "arguments": {"payload": {"in": "body"}}, "body": body}, payload=value)

    assert (found.content, found.headers["content-type"]) == (content, media_type)


def test_a_body_that_is_left_out_is_not_sent() -> None:
    body = {"argument": "payload"}
    found = request({"method": "POST", "arguments": {"payload": {"in": "body"}}, "body": body})

    assert found.content is None
    assert "content-type" not in found.headers


def test_a_form_is_urlencoded() -> None:
    arguments = {"name": {"in": "form"}, "tags": {"in": "form", "name": "tag"}}
    found = request({"method": "POST", "arguments": arguments}, name="a&b=c", tags=["x", "y"])

    assert found.headers["content-type"] == "application/x-www-form-urlencoded"
    assert found.content == b"name=a%26b%3Dc&tag=x&tag=y"


def test_a_form_with_a_file_is_multipart_and_names_cannot_break_out_of_it() -> None:
    arguments = {"name": {"in": "form"}, "doc": {"in": "file"}, "raw": {"in": "file", "style": "base64"}}
    file = {"name": 'a"\r\nX: y.csv', "text": "1,2", "media_type": "text/csv"}

    found = request({"method": "POST", "arguments": arguments}, name="tea", doc=file, raw="AAEC")

    content = found.content or b""
    assert found.headers["content-type"].startswith("multipart/form-data; boundary=")
    assert b'name="name"\r\n\r\ntea\r\n' in content
    assert b"\r\nX: y" not in content
    assert b"Content-Type: text/csv\r\n\r\n1,2\r\n" in content
    assert b"\x00\x01\x02" in content


@pytest.mark.parametrize("value", [{"name": "x"}, {"base64": "not base64!"}, {"text": "a", "media_type": "x\r\ny"}, 5])
def test_what_is_no_file_is_said(value: Any) -> None:
    with pytest.raises(ToolError, match="Not sent: doc"):
        request({"method": "POST", "arguments": {"doc": {"in": "file", "style": "base64"}}}, doc=value)


def test_fixed_values_go_with_every_call() -> None:
    found = request(
        {"headers": {"X-Version": "2"}, "query": {"format": "json"}, "arguments": {"q": {"in": "query"}}}, q=1
    )

    assert (found.url, found.headers["x-version"]) == (f"{BASE}/?format=json&q=1", "2")


# -- S34: what stays in its place --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    ["../../admin", "..", ".", "a/../b", "..\\..\\admin", "%2e%2e/x", "%2e%2e%2fx", "%252e%252e", "..;/admin", "a\r\nb",
     "a\x00b", "%0d%0aSet-Cookie: x", ""],
)  # fmt: skip
def test_s34_a_value_that_would_climb_out_of_the_path_is_not_sent(value: str) -> None:
    with pytest.raises(ToolError, match="Not sent: v"):
        one("path", value, url=f"{BASE}/users/{{color}}/posts")


@pytest.mark.parametrize(
    "value", ["//evil.example/", "?admin=1", "#", "@evil.example", "a/b", ":80", "x&y=1", "é \u202e"]
)
def test_s34_a_value_of_the_path_is_one_encoded_part(value: str) -> None:
    found = one("path", value, url=f"{BASE}/users/{{color}}/posts").url
    parts = urlsplit(found)

    assert (parts.scheme, parts.netloc, parts.query, parts.fragment) == ("https", "api.example.org", "", "")
    assert [unquote(part) for part in parts.path.split("/")] == ["", "users", value, "posts"]


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("{a}{b}", {"a": ".", "b": "."}),
        ("{a}{b}", {"a": "%2", "b": "e"}),
        ("{a}{b}/x", {"a": "%252", "b": "e%2e"}),
        (".{a}", {"a": "/x"}),
        ("..{a}", {"a": "%2fx"}),
        ("{a}..", {"a": "x/"}),
    ],
)
def test_s34_values_that_make_dots_with_what_is_beside_them_are_not_sent(path: str, values: dict[str, str]) -> None:
    arguments = {name: {"in": "path"} for name in values}
    with pytest.raises(ToolError, match="Not sent"):
        request({"url": f"{BASE}/x/{path}", "arguments": arguments}, **values)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_s34_no_text_leaves_its_place(value: str) -> None:
    arguments = {"a": {"in": "path"}, "b": {"in": "query"}}
    try:
        found = request({"url": f"{BASE}/x/{{a}}", "arguments": arguments}, a=value, b=value)
    except ToolError:
        return
    parts = urlsplit(found.url)
    assert parts.netloc == "api.example.org"
    assert parts.path.count("/") == 2
    assert parse_qsl(parts.query, keep_blank_values=True) == [("b", value)]


@pytest.mark.parametrize("value", ["a\r\nX-Admin: 1", "a\nb", "日本", "\x00"])
def test_s34_a_header_takes_one_plain_line(value: str) -> None:
    with pytest.raises(ToolError, match="one line of plain characters"):
        one("header", value)


def test_keys_that_a_model_chooses_cannot_override_other_values_of_the_query() -> None:
    value = {"query": {"tenant": "acme"}, "arguments": {"filter": {"in": "query"}, "page": {"in": "query"}}}

    for key in ("tenant", "page"):
        with pytest.raises(ToolError, match="set elsewhere"):
            request(value, filter={key: "globex"})
    assert request(value, filter={"color": "blue"}).url == f"{BASE}/?tenant=acme&color=blue"


FILTER = {"color": "blue"}


@pytest.mark.parametrize("media_type", ["application/x-www-form-urlencoded", "multipart/form-data"])
@pytest.mark.parametrize("key", ["role", "ROLE", " role", "role[]", "role[0]", "role.x", "avatar"])
def test_keys_that_a_model_chooses_cannot_override_other_fields_of_a_form(media_type: str, key: str) -> None:
    arguments = {"filter": {"in": "form"}, "role": {"in": "form"}}
    if media_type.startswith("multipart"):
        arguments["avatar"] = {"in": "file"}
    elif key == "avatar":
        return
    value = {"method": "POST", "body": {"media_type": media_type}, "arguments": arguments}

    for others in ({}, {"role": "user"}):
        with pytest.raises(ToolError, match="set elsewhere"):
            request(value, filter={key: "admin"}, **others)
    assert b"blue" in (request(value, filter=FILTER).content or b"")


@pytest.mark.parametrize("place", ["query", "form"])
def test_two_objects_cannot_set_the_same_key(place: str) -> None:
    value = {"method": "POST", "arguments": {"a": {"in": place}, "b": {"in": place}}}

    with pytest.raises(ToolError, match="set elsewhere"):
        request(value, a={"x": 1}, b={"x": 2})


@pytest.mark.parametrize("place", ["query", "form"])
def test_arguments_that_share_a_root_by_their_author_are_sent(place: str) -> None:
    arguments = {
        "size": {"in": place, "name": "page[size]"},
        "number": {"in": place, "name": "page[number]"},
        "page": {"in": place, "style": "deepObject"},
    }
    value = {"method": "POST", "arguments": arguments}
    found = request(value, size=1, number=2, page={"after": "x"})

    written = unquote(found.url + (found.content or b"").decode())
    assert all(each in written for each in ("page[size]=1", "page[number]=2", "page[after]=x"))
    with pytest.raises(ToolError, match="set elsewhere"):
        request(value, size=1, page={"size": 100})


@pytest.mark.parametrize("place", ["header", "cookie"])
def test_keys_of_an_object_stay_in_its_own_header_or_cookie(place: str) -> None:
    arguments = {"filter": {"in": place, "explode": True}, "role": {"in": place}}
    found = request({"arguments": arguments}, filter={"role": "admin"}, role="user")

    if place == "header":
        assert (found.headers["filter"], found.headers["role"]) == ("role=admin", "user")
    else:
        assert found.headers["cookie"] == "filter=role%2Cadmin; role=user"


def test_keys_of_an_object_cannot_name_another_part_of_a_path() -> None:
    value = {
        "url": f"{BASE}/{{a}}/{{role}}",
        "arguments": {
            "a": {"in": "path", "style": "matrix", "explode": True},
            "role": {"in": "path", "style": "matrix"},
        },
    }

    with pytest.raises(ToolError, match="another part"):
        request(value, a={"role": "admin"}, role="user")
    assert request(value, a=FILTER, role="user").url == f"{BASE}/;color=blue/;role=user"


def test_a_json_part_of_a_multipart_form_says_its_type() -> None:
    arguments = {"meta": {"in": "form", "style": "json"}, "name": {"in": "form"}}
    value = {"method": "POST", "body": {"media_type": "multipart/form-data"}, "arguments": arguments}

    content = request(value, meta={"a": 1}, name="tea").content or b""

    assert b'name="meta"\r\nContent-Type: application/json\r\n\r\n{"a":1}' in content
    assert b'name="name"\r\n\r\ntea' in content


def test_an_argument_that_the_tool_does_not_have_is_not_sent() -> None:
    with pytest.raises(ToolError, match="no such argument"):
        request({"arguments": {}}, Authorization="Bearer mine")


@pytest.mark.parametrize("name", ["Authorization", "cookie", "HOST", "Proxy-Authorization", "Content-Length"])
def test_s37_a_stored_argument_of_such_a_name_is_left_out_all_the_same(name: str) -> None:
    found = request({"arguments": {"v": {"in": "header", "name": name}}}, v="mine")

    assert name.lower() not in found.headers


# -- What may be saved -------------------------------------------------------------------------------------------------

GOOD: dict[str, Any] = {
    "method": "POST",
    "url": f"{BASE}/users/{{id}}",
    "arguments": {"id": {"in": "path"}, "q": {"in": "query", "style": "form"}, "text": {"in": "body"}},
    "headers": {"X-Version": "2"},
    "query": {"format": "json"},
    "body": {"media_type": "application/json"},
    "response": {"pointer": "/data/0", "fields": ["id"]},
}
SCHEMA = {"type": "object", "properties": {"id": {}, "q": {}, "text": {}}, "required": ["id"]}


def check(schema: dict[str, Any] | None = None, **changes: Any) -> None:
    check_http(read_implementation({**GOOD, **changes}), schema or SCHEMA)


def test_what_fits_is_taken_and_reads_back_as_it_was() -> None:
    check()
    found = read_implementation(GOOD)

    assert read_implementation(found.as_json()) == found
    assert found.as_json()["arguments"]["q"] == {"in": "query", "name": "q", "style": "form"}


ARGUMENTS = GOOD["arguments"]


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("method", {"method": "TRACE"}),
        ("method", {"method": "GET"}),
        ("url", {"url": "ftp://api.example.org/{id}"}),
        ("url", {"url": "/users/{id}"}),
        ("url", {"url": "https://{id}.example.org/"}),
        ("url", {"url": "https://api.example.org:{id}/"}),
        ("url", {"url": f"{BASE}/users/{{id}}?x=1"}),
        ("url", {"url": f"{BASE}/users/{{id}}#x"}),
        ("url", {"url": f"{BASE}/users/{{id"}),
        ("url", {"url": f"{BASE}/users/{{}}"}),
        ("url", {"url": f"{BASE}/users/{{id}}/{{other}}"}),
        ("url", {"url": f"{BASE}/a/../{{id}}"}),
        ("arguments.id", {"url": f"{BASE}/users/"}),
        ("arguments.id", {"schema": {**SCHEMA, "required": []}}),
        ("arguments.extra", {"schema": {**SCHEMA, "properties": {**SCHEMA["properties"], "extra": {}}}}),  # type: ignore[dict-item]
        ("arguments.extra", {"arguments": {**ARGUMENTS, "extra": {"in": "query"}}}),
        ("arguments.q", {"arguments": {**ARGUMENTS, "q": {"in": "somewhere"}}}),
        ("arguments.q", {"arguments": {**ARGUMENTS, "q": {"in": "query", "style": "matrix"}}}),
        ("arguments.q", {"arguments": {**ARGUMENTS, "q": {"in": "query", "explode": "yes"}}}),
        ("arguments.q", {"arguments": {**ARGUMENTS, "q": {"in": "query", "from": "x"}}}),
        ("arguments.q", {"arguments": {**ARGUMENTS, "q": {"in": "query", "name": "format"}}}),
        ("arguments.q", {"arguments": {**ARGUMENTS, "q": {"in": "header", "name": "x-version"}}}),
        ("arguments.q", {"arguments": {**ARGUMENTS, "q": {"in": "header", "name": "Authorization"}}}),
        ("arguments.q", {"arguments": {**ARGUMENTS, "q": {"in": "header", "name": "Proxy-Anything"}}}),
        ("arguments.q", {"arguments": {**ARGUMENTS, "q": {"in": "header", "name": "no good"}}}),
        ("arguments.q", {"arguments": {**ARGUMENTS, "q": {"in": "cookie", "name": "a;b"}}}),
        ("headers.Cookie", {"headers": {"Cookie": "a=b"}}),
        ("headers.Host", {"headers": {"Host": "other"}}),
        ("headers.X", {"headers": {"X": "a\r\nb: c"}}),
        ("headers.X", {"headers": {"X": 5}}),
        ("query.", {"query": {"": "x"}}),
        ("arguments", {"arguments": {**ARGUMENTS, "q": {"in": "form"}}}),
        ("body.argument", {"body": {"argument": "q"}}),
        ("body.argument", {"arguments": {**ARGUMENTS, "q": {"in": "body"}}, "body": {"argument": "text"}}),
        ("body.media_type", {"body": {"media_type": "text/plain"}}),
        ("body.media_type", {"body": {"media_type": "a b"}}),
        ("body.media_type", {"body": {"media_type": "multipart/form-data", "argument": "text"}}),
        ("body", {"body": {"encoding": "x"}}),
        ("response.pointer", {"response": {"pointer": "data"}}),
        ("response.pointer", {"response": {"pointer": "/a~2"}}),
        ("response.text", {"response": {"pointer": "/a", "text": True}}),
        ("response.fields", {"response": {"fields": "id"}}),
        ("implementation", {"script": "x"}),
    ],
)
def test_what_does_not_fit_is_refused_at_its_field(field: str, changes: dict[str, Any]) -> None:
    with pytest.raises(ImplementationRefused) as refused:
        check(**changes)

    assert refused.value.field == field
    assert str(refused.value).endswith(".")


# -- The answer --------------------------------------------------------------------------------------------------------

ANSWER = {"data": [{"id": 1, "owner": {"name": "Ada", "x": 2}, "a.b": 3}, 7], "a/b": {"~": "t"}}


@pytest.mark.parametrize(
    ("response", "found"),
    [
        (HttpResponse(), ANSWER),
        (HttpResponse("/data/0/owner/name"), "Ada"),
        (HttpResponse("/a~1b/~0"), "t"),
        (HttpResponse("/data", ("id", "owner.name", "a.b", "gone")), [{"id": 1, "owner.name": "Ada", "a.b": 3}, 7]),
        (HttpResponse("", ("a/b",)), {"a/b": {"~": "t"}}),
    ],
)
def test_the_model_reads_the_part_that_was_asked_for(response: HttpResponse, found: Any) -> None:
    assert mapped(ANSWER, response) == found


@pytest.mark.parametrize("pointer", ["/none", "/data/2", "/data/-1", "/data/01", "/data/x", "/data/0/id/x"])
def test_a_pointer_to_nothing_is_said(pointer: str) -> None:
    with pytest.raises(NotInAnswer):
        mapped(ANSWER, HttpResponse(pointer))
