"""Tools that are one HTTP request, against servers on loopback: httpbin, and one that does what a test wants."""

from __future__ import annotations

import gzip
import logging
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest
from django.utils import timezone
from httpbin import app as httpbin  # type: ignore[import-untyped]
from pytest_django import Settings

from capabilities.common.refused import ChangeRefused
from capabilities.contract.context import Credential, ToolContext, ToolError
from capabilities.contract.envelope import Envelope
from capabilities.contract.results import ToolResult
from capabilities.contract.spec import ToolSpec
from capabilities.models import ToolKind, ToolVersion
from capabilities.running.kinds import CHECKS, RUNNERS, http
from capabilities.running.kinds.checks import Content
from tests.capabilities.running.egress.servers import HOSTILE, Server, say, serve

SECRET = "s3cret-of-acme"


class Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def bin_url() -> Iterator[str]:
    """The address of an httpbin."""
    with make_server("127.0.0.1", 0, httpbin, handler_class=Quiet) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def _loopback(settings: Settings) -> None:
    settings.TOOLHUB_PRIVATE_HOSTS = ["tool:127.0.0.1"]


server = pytest.fixture(serve, name="server")
canary = pytest.fixture(serve, name="canary")


def call(
    implementation: dict[str, Any],
    credential: Credential = Credential(),  # noqa: B008 -- frozen
    *,
    on_crash: str = "never",
    timeout: float = 10.0,
    max_redirects: int = 3,
    effect: str = "external",
    **arguments: Any,
) -> Any:
    envelope = Envelope(on_crash, timeout, 40_000, max_redirects=max_redirects)
    spec = ToolSpec(1, 1, "t", "http", "web", 1, True, "{}", "", 1, effect, envelope)
    context = ToolContext(
        1, 1, "", Path("/"), timezone.now, timeout, idempotency_key="turn-1-step-2", envelope=envelope
    )
    version = ToolVersion(implementation={"method": "GET", **implementation})
    return RUNNERS[ToolKind.HTTP](
        spec=spec, version=version, credential=credential, context=context, arguments=arguments
    )


def arguments(place: str, *names: str, **more: Any) -> dict[str, Any]:
    return {name: {"in": place, **more} for name in names}


# -- Where arguments go, as httpbin sees it ----------------------------------------------------------------------------


def test_an_argument_of_the_path_arrives_in_its_part(bin_url: str) -> None:
    tool = {"url": f"{bin_url}/base64/{{text}}", "arguments": arguments("path", "text")}

    assert call(tool, text="R3LDvMOfZQ==") == "Grüße"


def test_arguments_of_the_query_arrive(bin_url: str) -> None:
    tool = {"url": f"{bin_url}/get", "arguments": arguments("query", "q", "tag"), "query": {"v": "2"}}

    assert call(tool, q="a b&c", tag=["x", "y"])["args"] == {"q": "a b&c", "tag": ["x", "y"], "v": "2"}


def test_arguments_of_headers_arrive(bin_url: str) -> None:
    tool = {
        "url": f"{bin_url}/headers",
        "arguments": arguments("header", "word", name="X-Word"),
        "headers": {"X-F": "1"},
    }

    seen = call(tool, word="tea")["headers"]
    assert (seen["X-Word"], seen["X-F"]) == ("tea", "1")


def test_arguments_of_cookies_arrive(bin_url: str) -> None:
    tool = {"url": f"{bin_url}/cookies", "arguments": arguments("cookie", "lang", "n")}

    assert call(tool, lang="de", n=3) == {"cookies": {"lang": "de", "n": "3"}}


def test_arguments_of_a_body_arrive(bin_url: str) -> None:
    tool = {"method": "PATCH", "url": f"{bin_url}/patch", "arguments": arguments("body", "a", "b")}

    assert call(tool, a={"x": [1, None]}, b="Grüße")["json"] == {"a": {"x": [1, None]}, "b": "Grüße"}


def test_one_argument_that_is_the_body_arrives(bin_url: str) -> None:
    tool = {
        "method": "PUT",
        "url": f"{bin_url}/put",
        "arguments": arguments("body", "text"),
        "body": {"media_type": "text/plain", "argument": "text"},
    }
    assert call(tool, text="one & two")["data"] == "one & two"


def test_a_form_arrives(bin_url: str) -> None:
    tool = {"method": "POST", "url": f"{bin_url}/post", "arguments": arguments("form", "name", "tags")}

    assert call(tool, name="Ada & Co", tags=["x", "y"])["form"] == {"name": "Ada & Co", "tags": ["x", "y"]}


def test_a_file_arrives(bin_url: str) -> None:
    tool = {
        "method": "POST",
        "url": f"{bin_url}/post",
        "arguments": {**arguments("form", "name"), **arguments("file", "doc")},
    }
    seen = call(tool, name="Ada", doc={"name": "a.csv", "text": "1,2", "media_type": "text/csv"})

    assert (seen["form"], seen["files"]) == ({"name": "Ada"}, {"doc": "1,2"})


def test_a_key_goes_along_only_where_a_crashed_call_is_sent_again_under_it(server: Server) -> None:
    tool = {"method": "POST", "url": f"{server.url}/"}
    for on_crash in ("never", "retry", "retry_with_key"):
        call(tool, on_crash=on_crash)

    assert [each[2].get("idempotency-key") for each in server.requests] == [None, None, "turn-1-step-2"]


# -- What comes back ---------------------------------------------------------------------------------------------------


def test_the_answer_is_mapped(bin_url: str) -> None:
    tool = {"url": f"{bin_url}/json", "response": {"pointer": "/slideshow/slides", "fields": ["title"]}}

    assert call(tool) == [{"title": "Wake up to WonderWidgets!"}, {"title": "Overview"}]


def test_a_pointer_to_nothing_tells_what_is_there(bin_url: str) -> None:
    with pytest.raises(ToolError, match=r"has nothing at /slides\. It has: slideshow\."):
        call({"url": f"{bin_url}/json", "response": {"pointer": "/slides"}})


def test_a_page_is_read_as_text_and_as_it_is_where_that_is_wanted(bin_url: str) -> None:
    read = call({"url": f"{bin_url}/html"})
    raw = call({"url": f"{bin_url}/html", "response": {"text": True}})

    assert read.startswith("Herman Melville - Moby-Dick")
    assert "<h1>" in raw


def test_json_that_a_tool_wants_and_does_not_get_is_said(bin_url: str) -> None:
    with pytest.raises(ToolError, match="answered with text/html instead of JSON"):
        call({"url": f"{bin_url}/html", "response": {"pointer": "/a"}})


@pytest.mark.parametrize(("path", "kind"), [("image/png", "image/png"), ("image/jpeg", "image/jpeg")])
def test_what_is_no_text_is_a_file_with_a_line(bin_url: str, path: str, kind: str) -> None:
    found = call({"url": f"{bin_url}/{path}"})

    assert isinstance(found, ToolResult)
    (file,) = found.files
    assert (file.media_type, len(file.content) > 1_000) == (kind, True)
    assert file.name in found.text
    assert f"{len(file.content):,} bytes" in found.text


def test_the_name_of_a_file_is_plain(server: Server) -> None:
    disposition = 'attachment; filename="../../etc/pass wd\u00fc.bin"'.encode().decode("latin-1")
    server.answers["/x"] = say(b"\0\1", content_type="application/octet-stream", content_disposition=disposition)

    assert call({"url": f"{server.url}/x"}).files[0].name == "etc_pass_wd_.bin"


@pytest.mark.parametrize("path", ["gzip", "deflate"])
def test_compressed_answers_are_read(bin_url: str, path: str) -> None:
    assert call({"url": f"{bin_url}/{path}"})["method"] == "GET"


def test_an_answer_without_a_body_tells_its_status(server: Server) -> None:
    server.answers["/"] = say(b"", status=201, location="/things/1")

    found = call({"method": "POST", "url": f"{server.url}/"})
    assert (found["status"], found["headers"]["location"]) == (201, "/things/1")


def test_json_that_is_none_or_nested_beyond_reason_is_text(server: Server) -> None:
    for body in (b"{no json", b"[" * 100_000, b'{"a": ' + b"9" * 6_000 + b"}"):
        server.answers["/"] = say(body, content_type="application/json")
        assert call({"url": f"{server.url}/"}) == body.decode()


@pytest.mark.parametrize("status", [400, 404, 418, 500, 503])
def test_a_status_of_400_and_more_is_an_error(bin_url: str, status: int) -> None:
    with pytest.raises(ToolError, match=rf"127\.0\.0\.1 answered with status {status} ") as raised:
        call({"url": f"{bin_url}/status/{status}"})

    assert not raised.value.nothing_came


def test_an_error_tells_the_beginning_of_what_the_far_side_says_in_one_line(server: Server) -> None:
    body = "{'error': 'no\u202e such\n\n\x1b[31mthing\u200b', 'more': '" + "x" * 5_000
    server.answers["/"] = say(body.encode(), status=429, content_type="application/json", retry_after="30")

    with pytest.raises(ToolError) as raised:
        call({"url": f"{server.url}/"})

    text = str(raised.value)
    assert text.startswith("127.0.0.1 answered with status 429 ")
    assert "wait: 30 s." in text
    assert len(text) < 500
    assert "{'error': 'no such [31mthing ', 'more'" in text


def test_a_page_of_an_error_is_told_as_text(server: Server) -> None:
    page = b"<html><head><title>Bad gateway</title><script>alert(1)</script></head><body><p>Try later</p></body></html>"
    server.answers["/"] = say(page, status=502, content_type="text/html")

    with pytest.raises(ToolError, match=r"It says: Bad gateway Try later$"):
        call({"url": f"{server.url}/"})


# -- S31 to S36 --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", HOSTILE)
def test_s31_a_hostile_address_is_not_asked(canary: Server, settings: Settings, url: str) -> None:
    settings.TOOLHUB_PRIVATE_HOSTS = []
    with pytest.raises(ToolError):
        call({"url": url.format(port=canary.port)})

    assert canary.requests == []


@pytest.mark.parametrize("url", HOSTILE)
def test_s31_a_hostile_address_is_not_saved_or_refused_at_the_call(
    canary: Server, settings: Settings, url: str
) -> None:
    """Names are looked up at each call, and not when a tool is saved."""
    settings.TOOLHUB_PRIVATE_HOSTS = []
    definition = ToolVersion(
        implementation={"method": "GET", "url": url.format(port=canary.port)},
        parameters={"type": "object", "properties": {}},
    )
    names = ("localhost", "127.1", "0x7f", "0177", "017700000001", "2130706433", "http://0:")
    is_saved = True
    try:
        CHECKS[ToolKind.HTTP](definition)
    except ChangeRefused:
        is_saved = False

    assert not is_saved or any(name in url.lower() for name in names)
    assert canary.requests == []


def test_s34_the_host_stays_whatever_the_value(server: Server, canary: Server) -> None:
    tool = {"url": f"{server.url}/x/{{v}}", "arguments": {**arguments("path", "v"), **arguments("query", "q")}}
    for value in (f"//127.0.0.1:{canary.port}/", f"@127.0.0.1:{canary.port}/", f"?x#{canary.url}"):
        call(tool, v=value, q=f"{value}\r\nHost: evil")

    assert canary.requests == []
    assert {path.count("/") for _, path, _, _ in server.requests} == {2}
    assert {headers["host"] for _, _, headers, _ in server.requests} == {f"127.0.0.1:{server.port}"}


def test_redirects_are_followed_so_many_times(bin_url: str, server: Server) -> None:
    assert call({"url": f"{bin_url}/redirect/2"})["url"] == f"{bin_url}/get"
    with pytest.raises(ToolError, match="redirects"):
        call({"url": f"{bin_url}/redirect/9"})


def test_a_tool_that_follows_no_redirect_refuses_one(server: Server) -> None:
    server.redirect("/", f"{server.url}/there")

    with pytest.raises(ToolError, match="redirects elsewhere, and this request is not sent on"):
        call({"url": f"{server.url}/"}, max_redirects=0)

    assert [path for _, path, _, _ in server.requests] == ["/"]


def test_words_that_a_redirect_chose_count_as_text_from_outside(server: Server) -> None:
    """Where a far side redirected, the sentence of the failure may name what it chose."""
    server.redirect("/", "http://ignore-all-rules.invalid/")

    with pytest.raises(ToolError) as redirected:
        call({"url": f"{server.url}/"})
    with pytest.raises(ToolError) as unreachable:
        call({"url": "http://nowhere.invalid/"})

    assert (redirected.value.nothing_came, unreachable.value.nothing_came) == (False, True)


@pytest.mark.parametrize(
    "location", ["file:///etc/passwd", "http://169.254.169.254/", "http://localhost:{port}/", "//0/"]
)
def test_s33_a_redirect_into_private_space_is_refused(
    server: Server, canary: Server, settings: Settings, location: str
) -> None:
    settings.TOOLHUB_PRIVATE_HOSTS = [f"tool:127.0.0.1:{server.port}"]
    server.redirect("/", location.format(port=canary.port))

    with pytest.raises(ToolError):
        call({"url": f"{server.url}/"})
    assert canary.requests == []


def test_s35_a_gzip_bomb_costs_no_more_than_the_cap(server: Server) -> None:
    server.answers["/"] = say(gzip.compress(b"0" * 60_000_000), content_encoding="gzip", content_type="text/plain")

    found = call({"url": f"{server.url}/"})

    assert len(found) < http.MAX_BYTES + 100
    assert found.endswith("the rest is left out.)")


def test_s35_json_of_very_many_parts_is_not_taken_apart(server: Server) -> None:
    body = b"[" + b"{}," * 160_000 + b"{}]"
    server.answers["/"] = say(body, content_type="application/json")

    assert call({"url": f"{server.url}/"}) == body.decode()
    with pytest.raises(ToolError, match="more than 100,000 values: ask for less"):
        call({"url": f"{server.url}/", "response": {"pointer": "/0"}})
    server.answers["/"] = say(b"[" + b"1," * 90_000 + b"1]", content_type="application/json")
    assert call({"url": f"{server.url}/"}) == [1] * 90_001


def test_s35_a_file_over_the_cap_is_not_taken(server: Server) -> None:
    server.answers["/"] = say(b"\0" * (http.MAX_BYTES + 1), content_type="application/zip")

    with pytest.raises(ToolError, match="which is not taken"):
        call({"url": f"{server.url}/"})


def test_s35_a_drip_of_bytes_ends_in_the_tools_time(server: Server) -> None:
    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        for _ in range(100):
            handler.wfile.write(b"x")
            time.sleep(0.05)

    server.answers["/"] = drip
    started = time.monotonic()

    with pytest.raises(ToolError, match="did not finish"):
        call({"url": f"{server.url}/"}, timeout=0.6)
    assert time.monotonic() - started < 3


@pytest.mark.parametrize(
    ("method", "effect", "is_unknown"),
    [("GET", "external", False), ("HEAD", "external", False), ("POST", "external", True), ("POST", "read", False)],
)
def test_what_was_sent_and_not_answered_may_have_been_done(
    server: Server, method: str, effect: str, is_unknown: bool
) -> None:
    server.answers["/"] = lambda handler: time.sleep(1)

    with pytest.raises(ToolError) as told:
        call({"url": f"{server.url}/", "method": method}, timeout=0.4, effect=effect)

    assert ("may have been done" in str(told.value)) is is_unknown


@pytest.mark.parametrize(
    ("status", "method", "effect", "is_unknown"),
    [
        *((status, "POST", "external", False) for status in (400, 401, 404, 409, 422, 425, 429, 501)),
        *((status, "POST", "external", True) for status in (408, 499, 500, 502, 503, 504)),
        (500, "GET", "external", False),
        (500, "POST", "read", False),
    ],
)
def test_a_status_says_whether_it_may_have_been_done(
    server: Server, status: int, method: str, effect: str, is_unknown: bool
) -> None:
    server.answers["/"] = lambda handler: handler.send_error(status, "Odd")

    with pytest.raises(ToolError, match=str(status)) as told:
        call({"url": f"{server.url}/", "method": method}, effect=effect)

    assert ("may have been done" in str(told.value)) is is_unknown


@pytest.mark.parametrize(
    ("credential", "status", "is_missing"),
    [
        (Credential(), 401, True),
        (Credential(), 403, False),
        (Credential(headers={"Authorization": "Bearer x"}), 401, False),
    ],
)
def test_a_credential_is_missed_only_where_none_is_set(
    server: Server, credential: Credential, status: int, is_missing: bool
) -> None:
    server.answers["/"] = lambda handler: handler.send_error(status)

    with pytest.raises(ToolError) as told:
        call({"url": f"{server.url}/"}, credential)

    assert ("No credential is set" in str(told.value)) is is_missing


def test_what_never_arrived_was_not_done(server: Server) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]

        with pytest.raises(ToolError) as told:
            call({"url": f"http://127.0.0.1:{port}/", "method": "POST"})

    assert "may have been done" not in str(told.value)


def test_cookies_that_one_call_is_given_are_not_sent_with_the_next(bin_url: str) -> None:
    assert call({"url": f"{bin_url}/cookies/set?a=1"}) == {"cookies": {}}
    assert call({"url": f"{bin_url}/cookies"}) == {"cookies": {}}


# -- S37: credentials --------------------------------------------------------------------------------------------------


def credential(*origins: str, **more: Any) -> Credential:
    more = more or {"headers": {"Authorization": f"Bearer {SECRET}"}}
    return Credential(origins=origins, secrets=(SECRET,), **more)


def test_the_credential_goes_to_its_origins_and_nowhere_else(server: Server, canary: Server) -> None:
    call({"url": f"{server.url}/"}, credential(server.url))
    call({"url": f"{canary.url}/"}, credential(server.url))

    assert server.requests[0][2]["authorization"] == f"Bearer {SECRET}"
    assert "authorization" not in canary.requests[0][2]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("more", [{}, {"query": {"key": SECRET}}, {"headers": {"X-Api-Key": SECRET}}])
def test_s33_the_credential_is_dropped_on_a_redirect_to_another_origin(
    server: Server, canary: Server, status: int, more: dict[str, Any]
) -> None:
    server.redirect("/" if "query" not in more else f"/?key={SECRET}", f"{canary.url}/", status=status)

    call({"method": "POST", "url": f"{server.url}/"}, credential(server.url, **more))

    assert SECRET in str(server.requests)
    (landed,) = canary.requests
    assert SECRET not in str(landed)


def test_the_credential_stays_on_a_redirect_within_its_origin(server: Server) -> None:
    server.redirect("/", "/next")

    call({"url": f"{server.url}/"}, credential(server.url))

    assert [each[2]["authorization"] for each in server.requests] == [f"Bearer {SECRET}"] * 2


def test_s37_what_a_model_writes_under_the_credentials_name_is_replaced(server: Server) -> None:
    tool = {
        "url": f"{server.url}/",
        "arguments": {
            "Authorization": {"in": "header", "name": "authorization"},
            "X-Key": {"in": "header", "name": "X-KEY"},
            "key": {"in": "query"},
            "more": {"in": "query"},
        },
    }
    written: dict[str, Any] = {
        "Authorization": "Bearer mine",
        "X-Key": "mine",
        "key": "mine",
        "more": {"other": "mine"},
    }
    both = credential(server.url, headers={"x-key": SECRET}, query={"key": SECRET, "other": SECRET})

    call(tool, both, **written)

    (_, path, headers, _) = server.requests[0]
    assert path == f"/?key={SECRET}&other={SECRET}"
    assert headers["x-key"] == SECRET
    assert "mine" not in str(server.requests)


def test_s37_a_secret_that_an_error_sends_back_is_masked_before_it_is_cut(server: Server) -> None:
    server.answers["/"] = say(b"x" * 295 + f" {SECRET}".encode(), status=400, content_type="text/plain")

    with pytest.raises(ToolError) as raised:
        call({"url": f"{server.url}/"}, credential(server.url))
    assert SECRET[:3] not in str(raised.value)


def test_s37_no_log_holds_a_secret_whatever_its_level(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        call({"url": f"{server.url}/"}, credential(server.url, headers={"X-Api-Key": SECRET}))

    assert server.requests[0][2]["x-api-key"] == SECRET
    assert SECRET not in caplog.text


def test_a_credential_whose_header_would_change_where_the_request_goes_is_refused(server: Server) -> None:
    with pytest.raises(ToolError, match="The header Host cannot be set"):
        call({"url": f"{server.url}/"}, credential(server.url, headers={"Host": "internal"}))
    assert server.requests == []


# -- What may be saved -------------------------------------------------------------------------------------------------


def check(implementation: dict[str, Any]) -> None:
    content: Content = ToolVersion(implementation=implementation, parameters={"type": "object", "properties": {}})
    CHECKS[ToolKind.HTTP](content)


def test_what_can_run_is_taken() -> None:
    check({"method": "get", "url": "https://api.example.org/x"})


@pytest.mark.parametrize(
    ("field", "implementation"),
    [
        ("implementation.method", {"url": "https://api.example.org/"}),
        ("implementation.url", {"method": "GET", "url": "https://user@api.example.org/"}),
        ("implementation.url", {"method": "GET", "url": "https://api.example.org:22/{x}"}),
        ("implementation.url", {"method": "GET", "url": "https://93.184.216.34:22/"}),
        ("implementation.url", {"method": "GET", "url": "https://10.0.0.1/"}),
        ("implementation.url", {"method": "GET", "url": "https://api example.org/"}),
        ("implementation.url", {"method": "GET", "url": "https:///x"}),
        ("implementation.headers.Host", {"method": "GET", "url": "https://a.example/", "headers": {"Host": "b"}}),
    ],
)
def test_what_cannot_run_is_refused_at_its_field(field: str, implementation: dict[str, Any]) -> None:
    with pytest.raises(ChangeRefused) as refused:
        check(implementation)
    assert refused.value.field == field
