"""Limits on bodies and the client's address: the middleware by itself, and raw sockets against the real server."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.test_forms import server
from toolhub.embedded.supervisor import free_port, uvicorn
from toolhub.web import intake
from toolhub.web.intake import ClientAddress, LimitedBodies

HOST = b"Host: localhost\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"


class Application:
    """Remembers what reached it."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.clients: list[Any] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.clients.append(scope.get("client"))
        self.bodies.append((await receive()).get("body", b""))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})


async def ask(app: Any, headers: dict[str, str], *parts: bytes, pause: float = 0.0, end: bool = True) -> list[Any]:
    """Messages that the application sends to a request that comes in these parts; without an end, it stays silent."""
    waiting, sent = list(parts), []
    scope = {
        "type": "http",
        "path": "/api/v1/sessions/",
        "client": ("192.0.2.9", 5),
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }

    async def receive() -> Any:
        await asyncio.sleep(pause)
        if not waiting and not end:
            await asyncio.sleep(60)
        body = waiting.pop(0) if waiting else b""
        return {"type": "http.request", "body": body, "more_body": bool(waiting) or not end}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent


@pytest.mark.parametrize(
    ("forwarded", "proxies", "seen"),
    [
        ("203.0.113.7", 0, "192.0.2.9"),
        ("203.0.113.7", 1, "203.0.113.7"),
        ("10.9.9.9, 203.0.113.7", 1, "203.0.113.7"),  # the client said the first itself
        ("10.9.9.9, 203.0.113.7, 198.51.100.2", 2, "203.0.113.7"),
        ("203.0.113.7", 2, "192.0.2.9"),
        ("not an address", 1, "192.0.2.9"),
        ("", 1, "192.0.2.9"),
        ("2001:db8::1", 1, "2001:db8::1"),
    ],
)
def test_the_client_is_whom_the_outermost_proxy_of_ours_saw(forwarded: str, proxies: int, seen: str) -> None:
    app = Application()

    asyncio.run(ask(ClientAddress(app, proxies), {"x-forwarded-for": forwarded}, b""))

    assert app.clients[0][0] == seen


def test_a_body_within_the_limits_arrives_whole() -> None:
    app = Application()

    asyncio.run(ask(LimitedBodies(app), {"transfer-encoding": "chunked"}, b"one", b"two"))

    assert app.bodies == [b"onetwo"]


@pytest.mark.parametrize("headers", [{"content-length": "65537"}, {"transfer-encoding": "chunked"}])
def test_a_large_body_of_a_stranger_is_refused_before_anything_reads_it(headers: dict[str, str]) -> None:
    app = Application()

    start, body = asyncio.run(ask(LimitedBodies(app), headers, b"x" * 40_000, b"x" * 25_537))

    assert (start["status"], json.loads(body["body"])["error"]["code"]) == (413, "too_large")
    assert app.bodies == []


@pytest.mark.parametrize("inside", [{"authorization": "Bearer x"}, {"cookie": "a=b; sessionid=x"}])
def test_with_a_login_or_a_token_it_may_be_larger_and_not_without_end(inside: dict[str, str]) -> None:
    app = Application()
    chunked = {"transfer-encoding": "chunked"} | inside

    asyncio.run(ask(LimitedBodies(app), chunked, b"x" * 1_000_000))
    start, _ = asyncio.run(ask(LimitedBodies(app), chunked, *[b"x" * 1_000_000] * 6))

    assert [len(body) for body in app.bodies] == [1_000_000]
    assert start["status"] == 413


@pytest.mark.parametrize(
    ("limits", "parts", "pause"),
    [
        pytest.param({"BODY_SECONDS": 0.3}, 100, 0.05, id="one byte at a time"),
        pytest.param({"PART_SECONDS": 0.2}, 2, 1.0, id="a silence after the first"),
    ],
)
def test_a_slow_body_is_given_up_by_each_limit_alone(
    monkeypatch: pytest.MonkeyPatch, limits: dict[str, float], parts: int, pause: float
) -> None:
    """Each of these bodies would come to its end; the other limit is far away."""
    for name, seconds in ({"BODY_SECONDS": 60.0, "PART_SECONDS": 60.0} | limits).items():
        monkeypatch.setattr(intake, name, seconds)
    app = Application()

    sent = asyncio.run(ask(LimitedBodies(app), {"content-length": "100"}, *[b"x"] * parts, pause=pause))

    assert (sent[0]["status"], app.bodies) == (408, [])
    assert json.loads(sent[1]["body"])["error"]["code"] == "timeout"


def test_one_address_has_so_many_bodies_on_their_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "BODIES_AT_ONCE", 2)
    monkeypatch.setattr(intake, "PART_SECONDS", 0.2)
    limited = LimitedBodies(Application())

    async def three() -> list[int]:
        asked = [ask(limited, {"content-length": "9"}, b"x", end=False) for _ in range(3)]
        return [sent[0]["status"] for sent in await asyncio.gather(*asked)]

    assert sorted(asyncio.run(three())) == [408, 408, 429]
    assert limited.on_their_way == {}


# -- The real server --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    port = free_port()
    with server(tmp_path_factory.mktemp("intake"), port):
        yield port


def answer_to(port: int, request: bytes, seconds: float = 30.0) -> bytes:
    """What comes until the server closes the connection."""
    with closing(socket.create_connection(("127.0.0.1", port), timeout=seconds)) as connection:
        connection.sendall(request)
        received = b""
        while part := connection.recv(65536):
            received += part
    return received


def test_the_server_refuses_a_large_body_by_its_length_alone(port: int) -> None:
    for path in (b"/api/v1/sessions/", b"/accounts/login/"):
        answer = answer_to(port, b"POST " + path + b" HTTP/1.1\r\n" + HOST + b"Content-Length: 99999999\r\n\r\n")

        assert answer.startswith(b"HTTP/1.1 413 ")
        assert (b'"code": "too_large"' in answer) == path.startswith(b"/api/")


def test_the_server_ends_a_chunked_body_without_end(port: int) -> None:
    chunk = b"8000\r\n" + b"x" * 0x8000 + b"\r\n"

    answer = answer_to(port, b"POST /accounts/login/ HTTP/1.1\r\n" + HOST + CHUNKED + chunk * 3)

    assert answer.startswith(b"HTTP/1.1 413 ")


def test_the_server_hangs_up_on_a_half_sent_post_and_answers_others_meanwhile(port: int) -> None:
    started = time.monotonic()
    half = b"POST /api/v1/sessions/ HTTP/1.1\r\n" + HOST + b"Content-Length: 100\r\n\r\n{"
    with closing(socket.create_connection(("127.0.0.1", port), timeout=30)) as silent:
        silent.sendall(half)

        assert b" 200 " in answer_to(port, b"GET /healthz HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n")
        assert silent.recv(65536).startswith(b"HTTP/1.1 408 ")

    assert time.monotonic() - started < intake.PART_SECONDS + 10


def test_the_server_itself_believes_no_forwarded_address() -> None:
    """By default it would believe whoever asks from this machine, and one client were as many as it likes."""
    assert "--no-proxy-headers" in uvicorn("toolhub.asgi:application", "127.0.0.1", 8000)
