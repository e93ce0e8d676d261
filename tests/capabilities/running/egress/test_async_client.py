"""The asynchronous way out, driven with the real client: the same addresses refused, and limits on each exchange."""

from __future__ import annotations

import gzip
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import anyio
import httpcore2
import httpx2
import pytest
from pytest_django import Settings

from capabilities.running.egress import EgressFailed, EgressRefused, ExchangeLimits, guarded_async_client
from tests.capabilities.running.egress.servers import HOSTILE, Server, say, serve


@pytest.fixture(autouse=True)
def _nothing_listed(settings: Settings) -> None:
    settings.TOOLHUB_PRIVATE_HOSTS = []


USUAL = ExchangeLimits(seconds=5)
canary = pytest.fixture(serve, name="canary")


@pytest.fixture(name="server")
def allowed_server(settings: Settings) -> Iterator[Server]:
    for server in serve():
        settings.TOOLHUB_PRIVATE_HOSTS = [f"mcp:127.0.0.1:{server.port}"]
        yield server


def with_client(use: Callable[[httpx2.AsyncClient], Awaitable[Any]], limits: ExchangeLimits = USUAL) -> Any:
    async def run() -> Any:
        async with guarded_async_client(limits) as client:
            return await use(client)

    return anyio.run(run)


def get(url: str, limits: ExchangeLimits = USUAL) -> httpx2.Response:
    found: httpx2.Response = with_client(lambda client: client.get(url), limits)
    return found


@pytest.mark.parametrize("url", HOSTILE)
def test_s31_hostile_address_is_refused_and_the_canary_stays_silent(canary: Server, url: str) -> None:
    with pytest.raises((EgressRefused, httpx2.InvalidURL, httpx2.UnsupportedProtocol)):
        get(url.format(port=canary.port))

    assert canary.requests == []


def test_s32_a_name_is_looked_up_once_and_the_connection_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up, connected = [], []

    def getaddrinfo(host: str, port: int, *args: Any, **options: Any) -> list[Any]:
        looked_up.append(host)
        address = "93.184.216.34" if len(looked_up) == 1 else "127.0.0.1"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    async def connect_tcp(self: Any, host: str, *args: Any, **options: Any) -> httpcore2.AsyncNetworkStream:
        connected.append(host)
        raise httpcore2.ConnectError("nobody there")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(httpcore2.AnyIOBackend, "connect_tcp", connect_tcp)

    async def twice(client: httpx2.AsyncClient) -> None:
        with pytest.raises(httpx2.ConnectError):
            await client.get("http://rebind.example/")
        with pytest.raises(EgressRefused):
            await client.get("http://rebind.example/")

    with_client(twice)

    assert (looked_up, connected) == (["rebind.example"] * 2, ["93.184.216.34"])


def test_s32_one_private_address_among_public_ones_refuses_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, 80)) for each in ("93.184.216.34", "10.0.0.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **options: answers)

    with pytest.raises(EgressRefused):
        get("http://mixed.example/")


def test_look_up_that_hangs_ends_at_the_limit_and_holds_up_no_other(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = socket.getaddrinfo

    def getaddrinfo(host: str, *args: Any, **options: Any) -> Any:
        if host == "slow.example":
            time.sleep(1.5)
        return real(host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)

    async def both(client: httpx2.AsyncClient) -> list[str]:
        order: list[str] = []

        async def slow() -> None:
            with pytest.raises(httpx2.TimeoutException):
                await client.get("http://slow.example/")
            order.append("slow")

        async def quick() -> None:
            await client.get(f"{server.url}/")
            order.append("quick")

        async with anyio.create_task_group() as group:
            for _ in range(60):  # more than the threads that anyio has for everybody
                group.start_soon(slow)
            group.start_soon(quick)
        return order

    limits = ExchangeLimits(seconds=0.8, connect_seconds=0.6, connections=100)
    assert with_client(both, limits)[0] == "quick"


@pytest.mark.parametrize("status", [302, 307])
def test_s33_redirect_is_handed_back_and_not_followed(server: Server, canary: Server, status: int) -> None:
    server.redirect("/", f"{canary.url}/", status=status)

    assert get(f"{server.url}/").status_code == status
    assert canary.requests == []


def test_s36_unix_socket_and_proxy_of_the_environment_are_no_way_out(
    server: Server, canary: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, canary.url)

    assert get(f"{server.url}/").text == "hello"
    assert canary.requests == []


@pytest.mark.parametrize("port", [22, 8080, 6379])
def test_s36_public_hosts_are_reached_on_web_ports_only(port: int) -> None:
    with pytest.raises(EgressRefused, match="only 80 and 443"):
        get(f"http://93.184.216.34:{port}/")


def test_s35_body_over_the_cap_is_a_failure(server: Server) -> None:
    server.answers["/exact"] = say(b"x" * 1_000)
    server.answers["/more"] = say(b"x" * 1_001)
    limits = ExchangeLimits(seconds=5, max_bytes=1_000)

    assert len(get(f"{server.url}/exact", limits).content) == 1_000
    with pytest.raises(EgressFailed, match="larger than is taken"):
        get(f"{server.url}/more", limits)


def test_s35_gzip_bomb_is_stopped_before_it_has_gone_off(server: Server) -> None:
    bomb = gzip.compress(b"\0" * 50_000_000)
    server.answers["/"] = say(bomb, content_encoding="gzip")
    made = 0

    async def read(client: httpx2.AsyncClient) -> None:
        nonlocal made
        async with client.stream("GET", f"{server.url}/") as response:
            async for piece in response.aiter_bytes():
                made += len(piece)

    with pytest.raises(EgressFailed, match="larger than is taken"):
        with_client(read, ExchangeLimits(seconds=5, max_bytes=40_000_000))

    assert len(bomb) < 100_000
    assert made <= 2_000_000


def test_honest_compression_is_read_and_what_was_not_asked_for_is_not(server: Server) -> None:
    text = "a sentence that is said again. " * 5_000
    server.answers["/"] = say(gzip.compress(text.encode()), content_encoding="gzip", content_type="text/plain")
    server.answers["/br"] = say(b"whatever", content_encoding="br")

    assert get(f"{server.url}/").text == text
    with pytest.raises(EgressFailed):
        get(f"{server.url}/br")
    assert {headers["accept-encoding"] for _, _, headers, _ in server.requests} == {"gzip, deflate"}


def pieces(*each: tuple[bytes, float], content_type: str) -> Callable[[BaseHTTPRequestHandler], None]:
    """An answer without an end that is known, in pieces with a pause of seconds behind each."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("content-type", content_type)
        handler.send_header("connection", "close")
        handler.end_headers()
        for piece, pause in each:
            handler.wfile.write(piece)
            time.sleep(pause)
        handler.close_connection = True

    return answer


def test_s35_drip_of_bytes_ends_at_the_total_deadline(server: Server) -> None:
    server.answers["/"] = pieces(*[(b"x", 0.05)] * 60, content_type="text/plain")
    started = time.monotonic()

    with pytest.raises(httpx2.ReadTimeout, match=r"within 0\.4 s"):
        get(f"{server.url}/", ExchangeLimits(seconds=0.4))

    assert time.monotonic() - started < 2


def test_headers_that_do_not_come_end_at_the_deadline(server: Server) -> None:
    server.answers["/"] = lambda handler: time.sleep(1)

    with pytest.raises(httpx2.ReadTimeout):
        get(f"{server.url}/", ExchangeLimits(seconds=0.3))


def test_s35_huge_headers_are_a_failure(server: Server) -> None:
    server.answers["/"] = say(b"", x_long="x" * 60_000)
    long = "x" * 60_000
    server.answers["/more"] = say(b"", x_one=long, x_two=long, x_three=long, x_four=long)

    assert get(f"{server.url}/").status_code == 200
    with pytest.raises(httpx2.RemoteProtocolError):
        get(f"{server.url}/more")


def test_stream_of_events_outlasts_the_deadline_of_other_answers(server: Server) -> None:
    events = [(f"data: {number}\n\n".encode(), 0.1) for number in range(6)]
    server.answers["/"] = pieces(*events, content_type="text/event-stream")

    limits = ExchangeLimits(seconds=0.3, idle_seconds=2, stream_seconds=5)
    assert get(f"{server.url}/", limits).text.count("data:") == 6


def test_s35_stream_that_falls_silent_ends_at_the_idle_limit(server: Server) -> None:
    server.answers["/"] = pieces((b"data: 1\n\n", 1.5), content_type="text/event-stream")
    started = time.monotonic()

    with pytest.raises(httpx2.ReadTimeout):
        get(f"{server.url}/", ExchangeLimits(seconds=5, idle_seconds=0.3, stream_seconds=30))

    assert time.monotonic() - started < 1.4


def test_s35_stream_without_end_ends_at_the_total_limit_and_at_the_cap(server: Server) -> None:
    server.answers["/"] = pieces(*[(b"data: 1\n\n", 0.05)] * 60, content_type="text/event-stream")

    with pytest.raises(httpx2.ReadTimeout):
        get(f"{server.url}/", ExchangeLimits(seconds=5, idle_seconds=5, stream_seconds=0.4))
    with pytest.raises(EgressFailed):
        get(f"{server.url}/", ExchangeLimits(seconds=5, idle_seconds=5, stream_seconds=5, max_bytes=30))


def test_cookies_of_one_call_are_not_sent_with_the_next(server: Server) -> None:
    server.answers["/"] = say(b"", set_cookie="session=of-another-member; Path=/")

    async def twice(client: httpx2.AsyncClient) -> None:
        await client.get(f"{server.url}/")
        await client.get(f"{server.url}/")

    with_client(twice)

    assert [headers.get("cookie") for _, _, headers, _ in server.requests] == [None, None]


def test_connection_is_used_again_after_an_answer_that_was_cut(server: Server) -> None:
    server.answers["/more"] = say(b"x" * 5_000)

    async def thrice(client: httpx2.AsyncClient) -> list[str]:
        found = []
        for path in ("/", "/more", "/"):
            try:
                found.append((await client.get(f"{server.url}{path}")).text)
            except EgressFailed as error:
                found.append(str(error))
        return found

    before, cut, after = with_client(thrice, ExchangeLimits(seconds=5, max_bytes=1_000, connections=1))

    assert (before, after) == ("hello", "hello")
    assert "127.0.0.1 is larger" in cut
