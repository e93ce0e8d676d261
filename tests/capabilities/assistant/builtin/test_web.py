from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from capabilities.common import confined
from capabilities.common.confined_jobs.page import readable
from capabilities.contract.context import ToolError
from capabilities.running.egress import answers as http
from tests.capabilities.assistant.builtin.conftest import Call

PAGE = """<!DOCTYPE html><html><head><title>The  Title</title><style>p {color: red}</style></head>
<body><script>alert("no")</script><h1>Head &amp; shoulders</h1><p>One <b>bold</b>
word.</p><ul><li>first</li><li><p>second</p></li></ul><svg><title>icon</title></svg>
<table><tr><td>a</td><td>b</td></tr></table>last</body></html>"""
TEXT = "Head & shoulders\nOne bold word.\n- first\nsecond\na b\nlast"


class Site(BaseHTTPRequestHandler):
    """Answers by path: status, headers, body. `/echo` shows the headers that were sent."""

    pages: ClassVar[dict[str, tuple[int, dict[str, str], bytes]]] = {
        "/page": (200, {"Content-Type": "text/html; charset=utf-8"}, PAGE.encode()),
        "/plain": (200, {"Content-Type": "text/plain; charset=latin-1"}, "Grüße".encode("latin-1")),
        "/moved": (302, {"Location": "/page"}, b""),
        "/json": (200, {"Content-Type": "application/json", "ETag": "v1", "Set-Cookie": "a=b"}, b'{"a": 1}'),
        "/image": (200, {"Content-Type": "image/png"}, b"\x89PNG\0"),
        "/long": (200, {"Content-Type": "text/plain"}, b"x" * 50_001),
        "/huge": (200, {"Content-Type": "text/html"}, b"<p>start</p>" + b" " * 2_100_000 + b"<p>end</p>"),
        "/hostile": (200, {"Content-Type": "text/html"}, b"start" + b"<svg>" * 100_000 + b"</p>" * 120_000),
    }

    def do_GET(self) -> None:
        status, headers, body = self.pages.get(self.path, (404, {"Content-Type": "text/html"}, b"<p>not here</p>"))
        if self.path == "/echo":
            status, headers, body = 200, {"Content-Type": "application/json"}, json.dumps(dict(self.headers)).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the tests' output is for the tests."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a cut body is no error here
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def site(address: str, settings: Any) -> str:
    settings.TOOLHUB_PRIVATE_HOSTS = ["tool:127.0.0.1"]
    return address


@pytest.mark.parametrize("path", ["/page", "/moved"])
def test_a_page_is_read_as_text(call: Call, site: str, path: str) -> None:
    assert call("web_read", url=site + path) == {"url": f"{site}/page", "title": "The Title", "text": TEXT}


def test_plain_text_is_read_in_its_encoding(call: Call, site: str) -> None:
    assert call("web_read", url=f"{site}/plain") == {"url": f"{site}/plain", "title": "", "text": "Grüße"}


def test_a_long_text_is_cut_and_says_so(call: Call, site: str) -> None:
    assert call("web_read", url=f"{site}/long") == {
        "url": f"{site}/long",
        "title": "",
        "text": "x" * 50_000,
        "truncated": True,
    }


def test_a_huge_page_is_cut_and_says_so(call: Call, site: str) -> None:
    assert call("web_read", url=f"{site}/huge") == {
        "url": f"{site}/huge",
        "title": "",
        "text": "start",
        "truncated": True,
    }


def test_a_page_that_holds_its_parser_is_left_in_time_and_the_next_one_is_read(
    call: Call, site: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    child = tmp_path / "child.py"
    child.write_text("import resource\nresource.setrlimit(resource.RLIMIT_CPU, (1, 2))\nwhile True: pass\n")
    with monkeypatch.context() as patch:
        patch.setattr(confined, "CHILD", child)
        patch.setattr(confined, "SECONDS", 0.5)
        with pytest.raises(ToolError, match=r"^The page is too complex to read\.$"):
            call("web_read", url=f"{site}/page")

    assert call("web_read", url=f"{site}/page")["text"] == TEXT


def test_of_a_page_made_to_be_slow_the_read_part_is_the_answer(
    call: Call, site: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "PARSE_SECONDS", 0.0)

    answer = call("web_read", url=f"{site}/hostile")

    assert (answer["text"], answer["truncated"]) == ("", True)


def test_a_page_that_crashes_its_parser_takes_the_child_alone(
    call: Call, site: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    child = tmp_path / "child.py"
    child.write_text("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    with monkeypatch.context() as patch:
        patch.setattr(confined, "CHILD", child)
        with pytest.raises(ToolError, match=r"^The page is too complex to read\.$"):
            call("web_read", url=f"{site}/page")

    assert call("web_read", url=f"{site}/page")["text"] == TEXT


def test_what_is_no_page_is_refused(call: Call, site: str) -> None:
    with pytest.raises(ToolError, match="/image is no page but image/png, which cannot be read as text"):
        call("web_read", url=f"{site}/image")


def test_a_missing_page_is_refused_with_its_status(call: Call, site: str) -> None:
    with pytest.raises(ToolError, match="/missing answered with status 404"):
        call("web_read", url=f"{site}/missing")


def test_an_address_is_fetched_as_it_is(call: Call, site: str) -> None:
    answer = call("http_fetch", url=f"{site}/json")

    assert set(answer.pop("headers")) == {"content-length", "date", "etag"}
    assert answer == {
        "url": f"{site}/json",
        "status": 200,
        "content_type": "application/json",
        "body": '{"a": 1}',
    }


def test_a_status_is_an_answer(call: Call, site: str) -> None:
    answer = call("http_fetch", url=f"{site}/missing")

    assert (answer["status"], answer["body"]) == (404, "<p>not here</p>")


def test_head_has_no_body(call: Call, site: str) -> None:
    answer = call("http_fetch", url=f"{site}/json", method="HEAD")

    assert (answer["status"], answer["headers"]["etag"], "body" in answer) == (200, "v1", False)


def test_a_binary_body_is_not_shown(call: Call, site: str) -> None:
    answer = call("http_fetch", url=f"{site}/image")

    assert (answer["body"], answer["note"]) == ("", "A binary body of 5 bytes is not shown.")


def test_headers_are_sent(call: Call, site: str) -> None:
    answer = call("http_fetch", url=f"{site}/echo", headers={"Accept": "application/json", "X-Version": "2"})

    sent = {name.lower(): value for name, value in json.loads(answer["body"]).items()}
    assert (sent["accept"], sent["x-version"]) == ("application/json", "2")


@pytest.mark.parametrize("name", ["Authorization", "cookie", "HOST", "Proxy-Authorization", "Content-Length"])
def test_headers_that_speak_for_somebody_are_refused(call: Call, site: str, name: str) -> None:
    with pytest.raises(ToolError, match=f"The header {name} cannot be set here: leave it out"):
        call("http_fetch", url=f"{site}/echo", headers={name: "x"})


@pytest.mark.parametrize("header", [{"X": "a\r\nCookie: b"}, {"X\r\n": "a"}, {"": "a"}, {"X": "é"}, {"Host ": "a"}])
def test_headers_that_are_none_are_refused(call: Call, site: str, header: dict[str, str]) -> None:
    with pytest.raises(ToolError, match="is no valid header"):
        call("http_fetch", url=f"{site}/echo", headers=header)


@pytest.mark.parametrize("name", ["web_read", "http_fetch"])
def test_a_private_address_is_refused_unless_the_operator_opened_it(
    call: Call, address: str, settings: Any, name: str
) -> None:
    settings.TOOLHUB_PRIVATE_HOSTS = []

    with pytest.raises(ToolError):
        call(name, url=f"{address}/page")


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://example.com/", "no address", "http://"])
def test_what_is_no_web_address_is_refused(call: Call, url: str) -> None:
    with pytest.raises(ToolError):
        call("web_read", url=url)


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("just text", "just text"),
        ("<p>a<p>b", "a\nb"),
        ("<noscript>on</noscript><template>x</template>off", "off"),
        ("<svg><g>x<body>seen", "seen"),
        ("<!-- no --><p>yes</p><!-- never closed", "yes"),
        ("a &lt;b&gt; &#8364;", "a <b> €"),
        ("<pre>if x:\n    y()\n</pre>", "if x:\n    y()"),
        ("", ""),
    ],
)
def test_broken_markup_still_reads(html: str, text: str) -> None:
    assert readable(html) == ("", text, True)


@pytest.mark.parametrize(
    "piece", ["<!--", "<svg></p>", "<", "<a ", "<a x='", "</a ", "<![CDATA[", "<script>", "&#", "<div>"]
)
def test_markup_made_to_be_slow_is_given_up_in_time(piece: str) -> None:
    started = time.monotonic()

    readable(piece * (1_000_000 // len(piece)), started + 0.5)

    assert time.monotonic() - started < 3
