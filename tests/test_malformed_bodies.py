"""Malformed requests: never a fault of the server, always the one shape of error, and nothing stored."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from sessions.models import ChatSession, Turn
from tests.cast import make_session, make_token, make_turn
from tests.rest import Reply, Rest
from toolhub.tenants.models import Membership
from toolhub.tenants.rest.wire import MAX_BODY, StrictJSONParser
from toolhub.tenants.rows.scope import system_scope

pytestmark = pytest.mark.django_db

#: Bodies of any route that takes JSON: name -> (bytes, status, code).
BODIES: dict[str, tuple[bytes, int, str]] = {
    "white space": (b" \n\t ", 400, "parse_error"),
    "half an object": (b'{"message": "x"', 400, "parse_error"),
    "half a text": (b'{"message": "x', 400, "parse_error"),
    "no quotes": (b"{message: x}", 400, "parse_error"),
    "single quotes": (b"{'message': 'x'}", 400, "parse_error"),
    "a comma too many": (b'{"message": "x",}', 400, "parse_error"),
    "a comment": (b'{"message": "x"} // hello', 400, "parse_error"),
    "two objects": (b'{"message": "x"}{"message": "y"}', 400, "parse_error"),
    "a list": (b'["message"]', 400, "parse_error"),
    "an empty list": (b"[]", 400, "parse_error"),
    "a text": (b'"message"', 400, "parse_error"),
    "a number": (b"1", 400, "parse_error"),
    "null": (b"null", 400, "parse_error"),
    "true": (b"true", 400, "parse_error"),
    "false": (b"false", 400, "parse_error"),
    "NaN": (b'{"message": NaN}', 400, "parse_error"),
    "Infinity": (b'{"message": Infinity}', 400, "parse_error"),
    "-Infinity": (b'{"message": -Infinity}', 400, "parse_error"),
    "1e400": (b'{"message": 1e400}', 400, "parse_error"),
    "-1e400": (b'{"message": -1e400}', 400, "parse_error"),
    "a number of 5,000 digits": (b'{"message": ' + b"9" * 5000 + b"}", 400, "parse_error"),
    "lists 1,000 deep": (b'{"message": ' + b"[" * 1000 + b"]" * 1000 + b"}", 400, "parse_error"),
    "objects 1,000 deep": (b'{"message": ' + b'{"a":' * 1000 + b"1" + b"}" * 1000 + b"}", 400, "parse_error"),
    "lists 100,000 deep": (b"[" * 100_000, 400, "parse_error"),
    "lists 65 deep": (b'{"message": ' + b"[" * 65 + b"]" * 65 + b"}", 400, "parse_error"),
    "the same name twice": (b'{"message": "x", "message": "y"}', 400, "parse_error"),
    "the same name twice, within": (b'{"message": {"a": 1, "a": 2}}', 400, "parse_error"),
    "a NUL escape": (b'{"message": "a\\u0000b"}', 400, "parse_error"),
    "a NUL byte": (b'{"message": "a\x00b"}', 400, "parse_error"),
    "a NUL in a name": (b'{"mess\\u0000age": "x"}', 400, "parse_error"),
    "a raw line feed": (b'{"message": "a\nb"}', 400, "parse_error"),
    "half a surrogate pair": (b'{"message": "a\\ud800b"}', 400, "parse_error"),
    "the other half": (b'{"message": "a\\udfffb"}', 400, "parse_error"),
    "a pair the wrong way round": (b'{"message": "\\ude00\\ud83d"}', 400, "parse_error"),
    "half a pair in a name": (b'{"\\ud800": "x"}', 400, "parse_error"),
    "a byte order mark": (b'\xef\xbb\xbf{"message": "x"}', 400, "parse_error"),
    "UTF-16": ('{"message": "x"}'.encode("utf-16"), 400, "parse_error"),
    "UTF-16 without a mark": ('{"message": "x"}'.encode("utf-16-le"), 400, "parse_error"),
    "UTF-32": ('{"message": "x"}'.encode("utf-32"), 400, "parse_error"),
    "Latin-1": ('{"message": "é"}'.encode("latin-1"), 400, "parse_error"),
    "invalid UTF-8": (b'{"message": "\xff\xfe"}', 400, "parse_error"),
    "overlong UTF-8": (b'{"message": "\xc0\x80"}', 400, "parse_error"),
    "surrogates in UTF-8": (b'{"message": "\xed\xa0\x80"}', 400, "parse_error"),
    "a bad escape": (b'{"message": "\\x41"}', 400, "parse_error"),
    "a bad unicode escape": (b'{"message": "\\u00g0"}', 400, "parse_error"),
    "a form": (b"message=x", 400, "parse_error"),
    "gzip": (b"\x1f\x8b\x08\x00", 400, "parse_error"),
    "one byte over a million": (b'{"message": "' + b"a" * (MAX_BODY - 14) + b'"}', 413, "too_large"),
    "330,000 lists": (b'{"message": [' + b"[]," * 329_000 + b"1]}", 400, "parse_error"),
    "160,000 names": (b"{" + b'"a":1,' * 160_000 + b'"b":1}', 400, "parse_error"),
    "three million bytes": (b'{"message": "' + b"a" * 3_000_000 + b'"}', 413, "too_large"),
    "one byte over four MiB": (b'{"message": "' + b"a" * (4 * 1024 * 1024 - 14) + b'"}', 413, "too_large"),
}
#: Bodies that a message with files may have: this one has a text that is too long.
TAKEN_WITH_FILES = ("one byte over a million", "three million bytes")

#: Bodies of POST turns that are JSON: name -> (body, code, field).
MESSAGES: dict[str, tuple[Any, str, str]] = {
    "no message": ({}, "required", "message"),
    "null": ({"message": None}, "null", "message"),
    "a number": ({"message": 1}, "invalid", "message"),
    "a large number": ({"message": 2**63 + 1}, "invalid", "message"),
    "a float": ({"message": 1.5}, "invalid", "message"),
    "true": ({"message": True}, "invalid", "message"),
    "a list": ({"message": ["x"]}, "invalid", "message"),
    "parts": ({"message": [{"type": "text", "text": "x"}]}, "invalid", "message"),
    "an object": ({"message": {"content": "x"}}, "invalid", "message"),
    "empty": ({"message": ""}, "blank", "message"),
    "blank": ({"message": " \n\t  "}, "blank", "message"),
    "100,001 characters": ({"message": "x" * 100_001}, "max_length", "message"),
    # S13: what a client must never decide
    "tools": ({"message": "x", "tools": [{"type": "function"}]}, "unknown_field", "tools"),
    "tool_ids": ({"message": "x", "tool_ids": [1]}, "unknown_field", "tool_ids"),
    "tool_servers": ({"message": "x", "tool_servers": []}, "unknown_field", "tool_servers"),
    "tool_choice": ({"message": "x", "tool_choice": "none"}, "unknown_field", "tool_choice"),
    "tool_calls": ({"message": "x", "tool_calls": []}, "unknown_field", "tool_calls"),
    "model": ({"message": "x", "model": "gpt"}, "unknown_field", "model"),
    "api_base": ({"message": "x", "api_base": "http://evil.test"}, "unknown_field", "api_base"),
    "messages": ({"message": "x", "messages": [{"role": "system"}]}, "unknown_field", "messages"),
    "role": ({"message": "x", "role": "system"}, "unknown_field", "role"),
    # S10: what is the server's own
    "status": ({"message": "x", "status": "done"}, "unknown_field", "status"),
    "epoch": ({"message": "x", "epoch": 9}, "unknown_field", "epoch"),
    "organisation": ({"message": "x", "organisation": 1}, "unknown_field", "organisation"),
    "session": ({"message": "x", "session": "y"}, "unknown_field", "session"),
    "idempotency_key": ({"message": "x", "idempotency_key": "y"}, "unknown_field", "idempotency_key"),
    "an empty name": ({"message": "x", "": 1}, "unknown_field", ""),
    "a long name": ({"message": "x", "y" * 5000: 1}, "unknown_field", "y" * 100),
}


@pytest.fixture
def rest(bob: Membership) -> Rest:
    return Rest(bob)


@pytest.fixture
def session(bob: Membership) -> ChatSession:
    return make_session(bob)


def stored() -> tuple[int, int]:
    with system_scope():
        return ChatSession.objects.count(), Turn.objects.count()


def paths(session: ChatSession) -> tuple[str, str]:
    return "sessions", f"sessions/{session.pk}/turns"


@pytest.mark.parametrize("name", BODIES)
def test_a_malformed_body_is_refused_and_nothing_is_stored(rest: Rest, session: ChatSession, name: str) -> None:
    body, status, code = BODIES[name]

    for path in paths(session):
        reply = rest.ask("POST", path, body)
        is_read = name in TAKEN_WITH_FILES and path.endswith("/turns")
        assert reply.error == ((400, "max_length", "message") if is_read else (status, code, None)), path
        assert len(reply.text) < 500

    assert stored() == (1, 0)


def test_a_body_of_nothing_lacks_its_first_field(rest: Rest, session: ChatSession) -> None:
    sessions, turns = paths(session)

    assert rest.ask("POST", sessions, b"").error == (400, "required", "agent")
    assert rest.ask("POST", turns, b"").error == (400, "required", "message")
    assert stored() == (1, 0)


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_that_does_not_fit_is_refused_with_its_field(rest: Rest, session: ChatSession, name: str) -> None:
    body, code, field = MESSAGES[name]

    reply = rest.post(f"sessions/{session.pk}/turns", body)

    assert reply.error == (400, code, field or None)
    assert stored() == (1, 0)


@pytest.mark.parametrize(
    "content_type",
    [
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "multipart/form-data",
        "text/plain",
        "text/json",
        "application/xml",
        "application/jsonp",
        "application/octet-stream",
        "",
        "garbage",
        "application/json/x",
        "*/*",
        "\xff",
    ],
)
def test_a_body_that_is_not_said_to_be_json_is_refused(rest: Rest, session: ChatSession, content_type: str) -> None:
    for path in paths(session):
        reply = rest.ask("POST", path, b'{"agent": "starter", "message": "x"}', content_type=content_type)
        assert reply.status in (400, 415)
        assert reply.error[0] == reply.status

    assert stored() == (1, 0)


@pytest.mark.parametrize("content_type", ["application/json", "application/json; charset=utf-8", "APPLICATION/JSON"])
def test_a_body_that_is_said_to_be_json_is_taken(rest: Rest, session: ChatSession, content_type: str) -> None:
    reply = rest.ask("POST", f"sessions/{session.pk}/turns", b'{"message": "x"}', content_type=content_type)

    assert reply.status == 202


@pytest.mark.parametrize("charset", ["utf-16", "latin-1", "nonsense", "utf-7", "\xff"])
def test_a_charset_changes_nothing_json_is_utf_8(rest: Rest, session: ChatSession, charset: str) -> None:
    content_type = f"application/json; charset={charset}"

    reply = rest.ask("POST", f"sessions/{session.pk}/turns", '{"message": "é"}'.encode(), content_type=content_type)

    assert reply.status in (202, 400, 415)
    if reply.status == 202:
        assert reply.json["message"] == "é"


@pytest.mark.parametrize("length", ["0", "5", "-1", "x", ""])
def test_a_wrong_content_length_is_no_fault_of_the_server(rest: Rest, session: ChatSession, length: str) -> None:
    response = rest.client.generic(
        "POST", f"/api/v1/sessions/{session.pk}/turns", b'{"message": "x"}', "application/json", CONTENT_LENGTH=length
    )

    assert response.status_code == 400
    assert stored() == (1, 0)


@pytest.mark.parametrize(
    "message",
    [
        "x" * 100_000,
        "🦓" * 80_000,
        "\u202e\u200b\ufeff",
        "<script>",
        "{{ 7*7 }}",
        "a\\u0000",
        "\x7f\x1b[31m",
        "é\u0301",
    ],
    ids=range(8),
)
def test_text_of_any_kind_is_kept_as_it_came(rest: Rest, session: ChatSession, message: str) -> None:
    reply = rest.post(f"sessions/{session.pk}/turns", {"message": message})

    assert (reply.status, reply.json["message"]) == (202, message)


def test_a_pair_of_surrogate_escapes_is_one_character(rest: Rest, session: ChatSession) -> None:
    reply = rest.ask("POST", f"sessions/{session.pk}/turns", b'{"message": "\\ud83e\\udd93"}')

    assert (reply.status, reply.json["message"]) == (202, "🦓")


def test_errors_tell_nothing_of_the_inside(rest: Rest, session: ChatSession) -> None:
    """S57: no stack, no SQL, no paths, no versions."""
    replies = [rest.ask("POST", path, body) for body, _, _ in BODIES.values() for path in paths(session)]
    replies += [rest.get(path) for path in ("nothing", "sessions/x", "tools/x", "/api/", "/api/v2/x")]

    told = "".join(reply.text for reply in replies)
    inside = ("Traceback", "SELECT", "django", "Django", ".py", "/usr", "sqlite", "psycopg")
    assert [word for word in inside if word in told] == []


# -- Methods and addresses (S11) --------------------------------------------------------------------------------------


def answers(rest: Rest, method: str, path: str, **headers: str) -> Reply:
    return rest.ask(method, path, headers=headers)


def test_head_is_get_without_a_body(rest: Rest, session: ChatSession) -> None:
    for path in ("sessions", f"sessions/{session.pk}", "tools", "registry"):
        reply = answers(rest, "HEAD", path)
        assert (reply.status, reply.text) == (200, "")


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "TRACE", "CONNECT", "PROPFIND", "GARBAGE", "get"])
def test_a_method_that_a_route_does_not_take_is_refused(rest: Rest, session: ChatSession, method: str) -> None:
    turn = make_turn(session)

    for path in ("sessions", f"sessions/{session.pk}", f"turns/{turn.pk}", f"turns/{turn.pk}/cancel", "tools"):
        if method in ("PATCH", "DELETE") and path == f"sessions/{session.pk}":
            continue
        reply = answers(rest, method, path)
        if method != "get":
            assert reply.error == (405, "method_not_allowed", None)
        assert reply.status < 500
    assert stored() == (1, 1)


@pytest.mark.parametrize("header", ["X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"])
def test_a_header_does_not_change_the_method(rest: Rest, session: ChatSession, header: str) -> None:
    turn = make_turn(session)

    assert rest.get(f"turns/{turn.pk}/cancel", headers={header: "POST"}).error == (405, "method_not_allowed", None)
    assert rest.ask("POST", f"sessions/{session.pk}", headers={header: "DELETE"}).status == 405
    assert rest.ask("POST", "sessions?_method=GET", b"{}").status == 400
    with system_scope():
        assert Turn.objects.get().status == "queued"


def test_options_changes_nothing_and_needs_a_token(rest: Rest, session: ChatSession) -> None:
    assert answers(Rest(None), "OPTIONS", "sessions").error == (401, "not_authenticated", None)
    assert answers(rest, "OPTIONS", "sessions").status in (200, 405)
    assert stored() == (1, 0)


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/sessions/",
        "/api/v1//sessions",
        "//api/v1/sessions",
        "/api//v1/sessions",
        "/API/v1/sessions",
        "/api/v1/Sessions",
        "/api/v1/sessions;x",
        "/api/v1/sessions%2F",
        "/api/v1/sessions%00",
        "/api/v1/sessions%0A",
        "/api/v1/./sessions",
        "/api/v1/x/../sessions",
        "/api/v1/%2e%2e/v1/sessions",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_an_address_is_what_it_says_and_nothing_else(rest: Rest, session: ChatSession, path: str, method: str) -> None:
    reply = rest.ask(method, path, json.dumps({"agent": session.agent.slug}).encode() if method == "POST" else b"")

    assert reply.status == 404
    assert stored() == (1, 0)


@pytest.mark.parametrize("accept", ["text/html", "application/xml", "image/png", "garbage", "*/*;q=0", ""])
def test_json_is_told_whatever_is_asked_for_or_refused_in_its_shape(rest: Rest, accept: str) -> None:
    reply = rest.get("sessions", headers={"Accept": accept})

    assert reply.status in (200, 406)
    if reply.status == 406:
        assert reply.error == (406, "not_acceptable", None)


def test_an_unknown_host_is_refused_in_the_shape_of_the_api(rest: Rest) -> None:
    response = rest.client.get("/api/v1/sessions", SERVER_NAME="evil.test")

    assert response.status_code == 400


def test_the_place_of_a_request_is_taken_before_its_body_is_parsed(
    bob: Membership, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.TOOLHUB_REQUESTS_PER_TOKEN = 0
    parsed: list[str] = []
    monkeypatch.setattr(StrictJSONParser, "parse", lambda *given, **more: parsed.append("parsed"))

    reply = Client(headers={"Authorization": f"Bearer {make_token(bob)}"}).post(
        "/v1/chat/completions", b"{}", content_type="application/json"
    )

    assert (reply.status_code, parsed) == (429, [])


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
def test_a_conversation_of_very_many_values_is_refused_and_its_place_given_back(
    bob: Membership, path: str, settings: Any
) -> None:
    settings.TOOLHUB_REQUESTS_PER_TOKEN = 1
    client = Client(headers={"Authorization": f"Bearer {make_token(bob)}"})
    body = b'{"model": "a", "x": [' + b"[]," * 600_000 + b"1]}"

    replies = [client.post(path, body, content_type="application/json") for _ in range(3)]

    assert [each.status_code for each in replies] == [400] * 3
    assert "values" in replies[0].json()["error"]["message"]
