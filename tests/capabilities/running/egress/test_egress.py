"""The way out, driven with the real client: at servers on loopback, and at a canary that must stay silent."""

from __future__ import annotations

import gzip
import ipaddress
import socket
import threading
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler
from typing import Any

import httpcore2
import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest_django import Settings

from capabilities.running import egress
from capabilities.running.egress import EgressFailed, EgressRefused, Fetched, fetch, fetching, guarded_client, is_public
from capabilities.running.egress.decoding import decoder
from tests.capabilities.running.egress.servers import HOSTILE, Server, say, serve


@pytest.fixture(autouse=True)
def _nothing_listed(settings: Settings) -> None:
    settings.TOOLHUB_PRIVATE_HOSTS = []


canary = pytest.fixture(serve, name="canary")


@pytest.fixture(name="server")
def allowed_server(settings: Settings) -> Iterator[Server]:
    """A server that the operator listed: as an address, and as `localhost`."""
    for server in serve():
        settings.TOOLHUB_PRIVATE_HOSTS = [
            f"{purpose}:{host}:{server.port}" for purpose in ("tool", "provider") for host in ("127.0.0.1", "localhost")
        ]
        yield server


@pytest.mark.parametrize("url", HOSTILE)
def test_hostile_address_is_refused_and_the_canary_stays_silent(canary: Server, url: str) -> None:
    with pytest.raises(EgressRefused) as refused:
        fetch("GET", url.format(port=canary.port), timeout=5)

    assert canary.requests == []
    assert str(refused.value).endswith(".")


@pytest.mark.parametrize("url", [url for url in HOSTILE if url.startswith("http://") and "{port}" in url])
def test_client_for_providers_refuses_the_same_addresses(canary: Server, url: str) -> None:
    with guarded_client(timeout=5) as client, pytest.raises((EgressRefused, httpx2.InvalidURL)):
        client.get(url.format(port=canary.port).strip().replace("\u200b", ""))

    assert canary.requests == []


def test_refusal_says_what_an_operator_can_do() -> None:
    with pytest.raises(EgressRefused) as refused:
        fetch("GET", "http://10.0.0.5/", timeout=5)

    assert str(refused.value).startswith("10.0.0.5 is a private address")
    assert "with TOOLHUB_PRIVATE_HOSTS, as tool:10.0.0.5" in str(refused.value)


def test_refusal_does_not_tell_the_private_address_behind_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    answer_lookups(monkeypatch, ["10.9.8.7"])

    with pytest.raises(EgressRefused) as refused:
        fetch("GET", "http://payroll.example/", timeout=5)

    assert "10.9.8.7" not in str(refused.value)


# -- Names and what they lead to -------------------------------------------------------------------------------------


def answer_lookups(monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> list[str]:
    """Each look-up of a name gets the next of the answers, the last one for ever. Returns the names looked up."""
    looked_up: list[str] = []

    def getaddrinfo(host: str, port: int, *args: Any, **options: Any) -> list[Any]:
        looked_up.append(host)
        addresses = answers[min(len(looked_up), len(answers)) - 1]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return looked_up


def record_connections(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    connected: list[str] = []

    def connect_tcp(self: Any, host: str, *args: Any, **options: Any) -> httpcore2.NetworkStream:
        connected.append(host)
        raise httpcore2.ConnectError("nobody there")

    monkeypatch.setattr(httpcore2.SyncBackend, "connect_tcp", connect_tcp)
    return connected


def test_rebinding_name_is_looked_up_once_and_the_connection_is_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up = answer_lookups(monkeypatch, ["93.184.216.34"], ["127.0.0.1"])
    connected = record_connections(monkeypatch)

    with pytest.raises(EgressFailed):
        fetch("GET", "http://rebind.example/", timeout=5)

    assert looked_up == ["rebind.example"]
    assert connected == ["93.184.216.34"]


def test_second_connection_to_a_rebinding_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    answer_lookups(monkeypatch, ["93.184.216.34"], ["127.0.0.1"])
    connected = record_connections(monkeypatch)

    with guarded_client(timeout=5) as client:
        with pytest.raises(httpx2.ConnectError):
            client.get("http://rebind.example/")
        with pytest.raises(EgressRefused):
            client.get("http://rebind.example/")

    assert connected == ["93.184.216.34"]


def test_one_private_address_among_public_ones_refuses_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    answer_lookups(monkeypatch, ["93.184.216.34", "192.168.0.1"])
    connected = record_connections(monkeypatch)

    with pytest.raises(EgressRefused):
        fetch("GET", "http://mixed.example/", timeout=5)

    assert connected == []


def test_next_address_of_a_name_is_tried_when_the_first_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    answer_lookups(monkeypatch, ["93.184.216.34", "93.184.216.35"])
    connected = record_connections(monkeypatch)

    with pytest.raises(EgressFailed):
        fetch("GET", "http://two.example/", timeout=5)

    assert connected == ["93.184.216.34", "93.184.216.35"]


def test_look_up_that_hangs_ends_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    woken = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **options: woken.wait(5) and [])
    started = time.monotonic()

    with pytest.raises(EgressFailed):
        fetch("GET", "http://slow.example/", timeout=0.3)

    assert time.monotonic() - started < 2
    woken.set()


def test_name_that_does_not_exist_is_a_failure_not_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def getaddrinfo(*args: Any, **options: Any) -> list[Any]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)

    with pytest.raises(EgressFailed) as failed:
        fetch("GET", "http://missing.example/", timeout=5)

    assert "name missing.example cannot be resolved" in str(failed.value)


@pytest.mark.parametrize(("port", "reached"), [(80, True), (443, True), (22, False), (6379, False), (8080, False)])
def test_tools_reach_public_hosts_on_web_ports_only(monkeypatch: pytest.MonkeyPatch, port: int, reached: bool) -> None:
    answer_lookups(monkeypatch, ["93.184.216.34"])
    connected = record_connections(monkeypatch)

    with pytest.raises(EgressFailed if reached else EgressRefused):
        fetch("GET", f"http://public.example:{port}/", timeout=5)

    assert bool(connected) is reached


def test_providers_are_reached_on_any_port_of_public_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    answer_lookups(monkeypatch, ["93.184.216.34"])
    connected = record_connections(monkeypatch)

    with guarded_client(timeout=5) as client, pytest.raises(httpx2.ConnectError):
        client.get("http://public.example:11434/v1/models")

    assert connected == ["93.184.216.34"]


def test_unix_socket_is_refused() -> None:
    with pytest.raises(EgressRefused):
        egress.GuardedBackend(egress.Guard(), egress.no_deadline).connect_unix_socket("/tmp/socket")


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"])
def test_proxy_of_the_environment_is_ignored(
    server: Server, canary: Server, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, canary.url)

    with guarded_client(timeout=5) as client:
        assert client.get(f"{server.url}/").text == "hello"
    assert fetch("GET", f"{server.url}/", timeout=5).text == "hello"
    assert canary.requests == []


# -- What the operator lets through ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "host", "reached"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1:{port}", "127.0.0.1", True),
        ("127.0.0.1:1", "127.0.0.1", False),
        ("127.0.0.0/8", "127.0.0.1", True),
        ("127.0.0.0/8:{port}", "127.0.0.1", True),
        ("127.0.0.0/8:1", "127.0.0.1", False),
        ("127.0.0.0/8", "localhost", True),
        ("127.0.0.0/8", "[::ffff:127.0.0.1]", True),
        ("[::ffff:127.0.0.0]/104", "[::ffff:127.0.0.1]", True),
        ("localhost", "localhost", True),
        ("localhost", "LocalHost.", True),
        ("LOCALHOST.:{port}", "localhost", True),
        ("localhost:1", "localhost", False),
        ("localhost", "127.0.0.1", False),
        ("calhost", "localhost", False),
        ("10.0.0.0/8", "127.0.0.1", False),
        ("::1", "127.0.0.1", False),
        ("127.0.0.1:http", "127.0.0.1", False),
        ("127.0.0.1/99", "127.0.0.1", False),
        ("*", "127.0.0.1", False),
        ("", "127.0.0.1", False),
        (":{port}", "127.0.0.1", False),
    ],
)
def test_private_host_is_reached_exactly_where_the_operator_listed_it(
    canary: Server, settings: Settings, entry: str, host: str, reached: bool
) -> None:
    settings.TOOLHUB_PRIVATE_HOSTS = ["tool:" + entry.format(port=canary.port)]
    url = f"http://{host}:{canary.port}/"

    if reached:
        assert fetch("GET", url, timeout=5).status == 200
    else:
        with pytest.raises(EgressRefused):
            fetch("GET", url, timeout=5)

    assert len(canary.requests) == int(reached)


@pytest.mark.parametrize(
    ("entry", "network", "port"),
    [
        ("[fd00::1]:8080", "fd00::1/128", 8080),
        ("fd00::/8", "fd00::/8", None),
        ("[fd00::]/8:443", "fd00::/8", 443),
        ("[fd00::/8]:443", "fd00::/8", 443),
        ("10.1.2.3/16", "10.1.0.0/16", None),
    ],
)
def test_entry_of_the_operator_may_be_a_network_with_a_port(entry: str, network: str, port: int | None) -> None:
    assert egress.allowed_host(entry) == egress.AllowedHost("", ipaddress.ip_network(network), port)


def test_listed_port_of_a_public_host_is_open_to_tools(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    settings.TOOLHUB_PRIVATE_HOSTS = ["tool:api.example:8443"]
    answer_lookups(monkeypatch, ["93.184.216.34"])
    connected = record_connections(monkeypatch)

    with pytest.raises(EgressFailed):
        fetch("GET", "http://api.example:8443/", timeout=5)
    with pytest.raises(EgressRefused):
        fetch("GET", "http://api.example:9443/", timeout=5)

    assert connected == ["93.184.216.34"]


def test_trusted_origin_is_one_host_and_port_and_nothing_else(canary: Server) -> None:
    with guarded_client(timeout=5, trusted_origin=f"127.0.0.1:{canary.port}") as client:
        assert client.get(f"{canary.url}/").text == "hello"
        for other in (f"http://127.0.0.1:{canary.port + 1}/", f"http://localhost:{canary.port}/"):
            with pytest.raises(EgressRefused):
                client.get(other)

    with pytest.raises(EgressRefused):
        fetch("GET", f"{canary.url}/", timeout=5)


def test_client_for_providers_serves_many_threads_and_follows_no_redirect(server: Server) -> None:
    server.redirect("/away", "http://10.0.0.1/")
    with guarded_client(timeout=5) as client, ThreadPoolExecutor(20) as threads:
        answers = list(threads.map(lambda _: client.get(f"{server.url}/").status_code, range(100)))

        assert answers == [200] * 100
        assert client.get(f"{server.url}/away").status_code == 302


# -- Redirects -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(
    "location",
    [
        "http://localhost:{port}/",
        "//127.1:{port}/",
        "http://2130706433:{port}/",
        "http://user@127.0.0.1:{port}/",
        "http://127.0.0.1:{port}\\@example.org/",
        "file:///etc/passwd",
        "gopher://127.0.0.1:{port}/",
        "http://[::ffff:127.0.0.1]:{port}/",
        "javascript:alert(1)",
        "http://[",
    ],
)
def test_redirect_to_what_is_not_allowed_is_refused(server: Server, canary: Server, location: str, status: int) -> None:
    server.redirect("/", location.format(port=canary.port), status)

    with pytest.raises(EgressRefused):
        fetch("GET", f"{server.url}/", timeout=5)

    assert canary.requests == []


def test_redirect_from_https_to_http_is_refused() -> None:
    request = httpx2.Request("GET", "https://example.org/a")

    with pytest.raises(EgressRefused):
        fetching._redirected(request, httpx2.Response(302, headers={"location": "http://example.org/b"}))


def test_zs_14_so_many_redirects_are_followed_and_no_more(server: Server) -> None:
    for step in range(1, 12):
        server.redirect(f"/{step}", f"/{step - 1}" if step > 1 else "/end")

    assert fetch("GET", f"{server.url}/3", timeout=5).url == f"{server.url}/end"
    with pytest.raises(EgressFailed):
        fetch("GET", f"{server.url}/4", timeout=5)
    with pytest.raises(EgressFailed):
        fetch("GET", f"{server.url}/11", timeout=5, max_redirects=50)
    with pytest.raises(EgressFailed):
        fetch("GET", f"{server.url}/2", timeout=5, max_redirects=1)
    assert fetch("GET", f"{server.url}/10", timeout=5, max_redirects=50).url == f"{server.url}/end"


SECRETS = {"Authorization": "Bearer secret", "Cookie": "a=secret", "X-Api-Key": "secret", "Private-Token": "secret"}


def test_credentials_do_not_follow_to_another_host(server: Server) -> None:
    server.redirect("/", f"http://localhost:{server.port}/other")

    fetch("GET", f"{server.url}/", headers={**SECRETS, "Accept": "text/plain"}, timeout=5)

    first, second = (request[2] for request in server.requests)
    assert {name.lower() for name in SECRETS} <= set(first)
    assert "secret" not in str(second)
    assert second["accept"] == "text/plain"
    assert second["host"] == f"localhost:{server.port}"


def test_credentials_do_not_follow_to_another_port(server: Server, canary: Server, settings: Settings) -> None:
    settings.TOOLHUB_PRIVATE_HOSTS = ["tool:127.0.0.1"]
    server.redirect("/", f"{canary.url}/")

    fetch("GET", f"{server.url}/", headers=SECRETS, timeout=5)

    assert "secret" not in str(canary.requests)


def test_credentials_stay_with_the_same_host(server: Server) -> None:
    server.redirect("/", "/next")

    fetch("GET", f"{server.url}/", headers=SECRETS, timeout=5)

    assert server.requests[1][2]["authorization"] == "Bearer secret"


def test_cookies_set_on_the_way_are_not_kept(server: Server) -> None:
    server.answers["/"] = say(b"", status=302, location="/next", set_cookie="track=1")

    fetch("GET", f"{server.url}/", timeout=5)

    assert "cookie" not in server.requests[1][2]


@pytest.mark.parametrize(
    ("status", "method", "then", "body"),
    [
        (301, "POST", "GET", b""),
        (302, "POST", "GET", b""),
        (303, "POST", "GET", b""),
        (303, "PUT", "GET", b""),
        (302, "PUT", "PUT", b"data"),
        (307, "POST", "POST", b"data"),
        (308, "POST", "POST", b"data"),
    ],
)
def test_redirect_keeps_or_changes_the_method(server: Server, status: int, method: str, then: str, body: bytes) -> None:
    server.redirect("/", "/next", status)

    fetch(method, f"{server.url}/", content=b"data", headers={"Content-Type": "text/plain"}, timeout=5)

    asked = server.requests[1]
    assert (asked[0], asked[3], "content-type" in asked[2]) == (then, body, bool(body))


def test_body_dropped_at_one_redirect_does_not_come_back_at_the_next(server: Server) -> None:
    server.redirect("/", "/second", 303)
    server.redirect("/second", "/third", 307)

    fetch("POST", f"{server.url}/", content=b"data", timeout=5)

    assert [request[3] for request in server.requests] == [b"data", b"", b""]


# -- Answers ---------------------------------------------------------------------------------------------------------


def test_answer_comes_with_status_headers_and_text(server: Server) -> None:
    server.answers["/"] = say("grün".encode("latin-1"), status=404, Content_Type="text/plain; charset=ISO-8859-1")

    fetched = fetch("GET", f"{server.url}/", timeout=5)

    assert (fetched.status, fetched.text, fetched.truncated) == (404, "grün", False)
    assert fetched.headers["content-type"] == "text/plain; charset=ISO-8859-1"


@pytest.mark.parametrize("charset", ["no-such-thing", "punycode", "idna", "undefined", "hex", "unicode-escape", "a\0b"])
def test_odd_charset_is_read_as_utf8(charset: str) -> None:
    headers = {"content-type": f"text/plain; charset={charset}"}

    assert Fetched("http://a/", 200, headers, "é\\x".encode() + b"\xff", False).text == "é\\x\ufffd"


def test_body_is_cut_at_the_cap(server: Server) -> None:
    server.answers["/exact"] = say(b"x" * 1_000)
    server.answers["/more"] = say(b"x" * 1_001)

    exact = fetch("GET", f"{server.url}/exact", timeout=5, max_bytes=1_000)
    more = fetch("GET", f"{server.url}/more", timeout=5, max_bytes=1_000)

    assert (len(exact.body), exact.truncated) == (1_000, False)
    assert (len(more.body), more.truncated) == (1_000, True)


def test_endless_body_is_cut_at_the_cap(server: Server) -> None:
    def endless(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("connection", "close")
        handler.end_headers()
        while True:
            handler.wfile.write(b"x" * 65_536)

    server.answers["/"] = endless

    assert fetch("GET", f"{server.url}/", timeout=5, max_bytes=300_000).truncated


def test_gzip_bomb_costs_no_more_than_the_cap(server: Server) -> None:
    bomb = gzip.compress(b"\0" * 50_000_000)
    server.answers["/"] = say(bomb, content_encoding="gzip")

    fetched = fetch("GET", f"{server.url}/", timeout=5, max_bytes=100_000)

    assert len(bomb) < 100_000
    assert (len(fetched.body), fetched.truncated) == (100_000, True)


@pytest.mark.parametrize("coding", ["gzip", "deflate", "raw deflate"])
def test_compressed_answer_is_read(server: Server, coding: str) -> None:
    text = b"a sentence that is said again. " * 1_000
    wbits = {"gzip": 31, "deflate": 15, "raw deflate": -15}[coding]
    packer = zlib.compressobj(wbits=wbits)
    server.answers["/"] = say(packer.compress(text) + packer.flush(), content_encoding=coding.split()[-1])

    assert fetch("GET", f"{server.url}/", timeout=5).body == text


@pytest.mark.parametrize("coding", ["gzip", "br", "gzip, gzip"])
def test_answer_in_a_coding_that_cannot_be_read_is_a_failure(server: Server, coding: str) -> None:
    server.answers["/"] = say(b"not compressed at all", content_encoding=coding)

    with pytest.raises(EgressFailed):
        fetch("GET", f"{server.url}/", timeout=5)


def test_drip_of_bytes_ends_at_the_total_deadline(server: Server) -> None:
    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("content-length", "1000")
        handler.end_headers()
        for _ in range(100):
            handler.wfile.write(b"x")
            time.sleep(0.05)

    server.answers["/"] = drip
    started = time.monotonic()

    with pytest.raises(EgressFailed) as failed:
        fetch("GET", f"{server.url}/", timeout=0.5)

    assert time.monotonic() - started < 1.5
    assert str(failed.value).endswith("within 0.5 s.")


def test_slow_redirects_share_one_deadline(server: Server) -> None:
    def slow(handler: BaseHTTPRequestHandler) -> None:
        time.sleep(0.25)
        say(b"", status=302, location="/")(handler)

    server.answers["/"] = slow
    started = time.monotonic()

    with pytest.raises(EgressFailed):
        fetch("GET", f"{server.url}/", timeout=0.4)

    assert time.monotonic() - started < 1


def test_host_that_nobody_answers_for_is_a_failure(settings: Settings) -> None:
    settings.TOOLHUB_PRIVATE_HOSTS = ["tool:127.0.0.1"]
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]

    with pytest.raises(EgressFailed):
        fetch("GET", f"http://127.0.0.1:{port}/", timeout=5)


@pytest.mark.parametrize(
    "headers",
    [{"Host": "other"}, {"content-length": "5"}, {"Proxy-Authorization": "x"}, {"X": "a\r\nHost: b"}, {"X": "日本"}],
)
def test_header_that_is_ours_or_not_a_header_is_refused(server: Server, headers: dict[str, str]) -> None:
    with pytest.raises(EgressRefused):
        fetch("GET", f"{server.url}/", headers=headers, timeout=5)

    assert server.requests == []


# -- Every address ---------------------------------------------------------------------------------------------------

RESERVED_V4 = [str(network) for network in egress.DENIED_V4]
reserved_v4 = st.sampled_from(RESERVED_V4).flatmap(lambda network: st.ip_addresses(v=4, network=network))


def disguises(address: int) -> list[str]:
    return [
        str(ipaddress.IPv6Address(base + (address << shift)))
        for base, shift in [
            (0xFFFF << 32, 0),
            (0, 0),
            (0xFFFF << 48, 0),
            (0x64FF9B << 96, 0),
            (0x64FF9B0001 << 80, 0),
            (0x2002 << 112, 80),
            (0x20010000 << 96, 0),
            (0x20010000 << 96, 64),
        ]
    ]


@given(reserved_v4)
def test_no_private_address_is_public_in_any_disguise(address: ipaddress.IPv4Address) -> None:
    assert [each for each in [str(address), *disguises(int(address))] if is_public(each)] == []


@given(st.ip_addresses(v=6, network=None).filter(lambda address: int(address) >> 125 != 1))
def test_no_ipv6_address_outside_global_unicast_is_public_on_its_own(address: ipaddress.IPv6Address) -> None:
    carried = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)

    assert not is_public(str(address)) or is_public(str(carried))


@given(st.ip_addresses())
def test_what_the_standard_library_calls_local_is_never_public(address: Any) -> None:
    if address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified:
        assert not is_public(str(address))


@pytest.mark.parametrize(
    "address", ["93.184.216.34", "8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "172.32.0.1", "64:ff9b::808:808"]
)
def test_addresses_of_the_internet_are_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "address", ["", "localhost", "1", "127.1", "fe80::1%eth0", "2606:4700::1111%eth0", "10.0.0.1/8", "168.63.129.16"]
)
def test_what_is_no_plain_public_address_is_not_public(address: str) -> None:
    assert not is_public(address)


def test_a_client_of_its_own_protocol_gets_checked_addresses(settings: Settings) -> None:
    settings.TOOLHUB_PRIVATE_HOSTS = ["tool:127.0.0.1:5432"]

    assert egress.resolve_checked("127.0.0.1", 5432, timeout=5) == ["127.0.0.1"]
    for host, port, ports in [
        ("127.0.0.1", 5433, None),
        ("localhost", 25, None),
        ("10.0.0.1", 5432, None),
        ("8.8.8.8", 22, frozenset({25})),
        ("/run/postgresql", 5432, None),
        ("", 5432, None),
        ("a,127.0.0.1", 5432, None),
    ]:
        with pytest.raises(EgressRefused):
            egress.resolve_checked(host, port, timeout=5, ports=ports)


def test_a_request_that_follows_no_redirect_refuses_it(server: Server) -> None:
    server.redirect("/here", f"{server.url}/there", status=307)

    with pytest.raises(EgressRefused, match="redirects elsewhere, and this request is not sent on"):
        fetch("POST", f"{server.url}/here", content=b"x", timeout=5, max_redirects=0)

    assert [path for _, path, _, _ in server.requests] == ["/here"]


@pytest.mark.parametrize(
    "url", ["https://example.org/a\\b", "https://example.org\\@evil.example/", "https://a.example/\tb"]
)
def test_s31_what_two_parsers_read_differently_is_refused_for_that(url: str) -> None:
    with pytest.raises(EgressRefused, match="a space, a control character or a backslash"):
        egress.check_url(url)


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_s35_no_more_is_made_of_a_compressed_piece_than_was_asked_for(coding: str) -> None:
    bomb = gzip.compress(b"0" * 10_000_000) if coding == "gzip" else zlib.compress(b"0" * 10_000_000)
    decode = decoder(coding)

    parts = [decode(bomb, 1_000), decode(b"", 500)]

    assert [len(part) for part in parts] == [1_000, 500]
