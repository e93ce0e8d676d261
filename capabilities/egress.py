"""The one way out to the network, for tools and for model providers: what may be reached is decided here.

Knows addresses, ports and redirects, and the operator's list of private hosts. Must not know organisations, tools or
rows: whoever calls says what is asked, this module says whether it may leave the house.
"""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import re
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import httpcore2
import httpx2
from django.conf import settings

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
SocketOption = tuple[int, int, int] | tuple[int, int, bytes | bytearray] | tuple[int, int, None, int]


class EgressError(Exception):
    """Nothing came back from the network. The message is one sentence for the reader, and for the model."""


class EgressRefused(EgressError):
    """This may not be asked, however often: the address, port, scheme or header is not allowed."""


class EgressFailed(EgressError):
    """It may be asked, but did not work: no name, no connection, no answer in time, or too many redirects."""


# -- Which addresses are public --------------------------------------------------------------------------------------

# An explicit list: `ipaddress.is_global` is wrong about several of these in Python 3.11. 168.63.129.16 is a public
# address on which a cloud answers its own machines.
DENIED_V4 = [
    ipaddress.IPv4Network(f"{first}/{bits}")
    for first, bits in {
        "0.0.0.0": 8,  # noqa: S104 -- refused, not bound
        "10.0.0.0": 8,
        "100.64.0.0": 10,
        "127.0.0.0": 8,
        "168.63.129.16": 32,
        "169.254.0.0": 16,
        "172.16.0.0": 12,
        "192.0.0.0": 24,
        "192.0.2.0": 24,
        "192.88.99.0": 24,
        "192.168.0.0": 16,
        "198.18.0.0": 15,
        "198.51.100.0": 24,
        "203.0.113.0": 24,
        "224.0.0.0": 4,
        "240.0.0.0": 4,
    }.items()
]
# Global unicast is all that IPv6 has handed out; of it, these are not public. Teredo (2001::/32) is in 2001::/23.
GLOBAL_V6 = ipaddress.IPv6Network("2000::/3")
DENIED_V6 = [ipaddress.IPv6Network(network) for network in ("2001::/23", "2001:db8::/32", "3fff::/20")]
# Prefixes that carry an IPv4 address, and how far to shift it out: IPv4-mapped, IPv4-compatible, IPv4-translated,
# NAT64, 6to4. What they carry is what is reached.
CARRIERS = tuple(
    (ipaddress.IPv6Network(network), shift)
    for network, shift in (
        ("::ffff:0:0/96", 0),
        ("::/96", 0),
        ("::ffff:0:0:0/96", 0),
        ("64:ff9b::/96", 0),
        ("2002::/16", 80),
    )
)


def is_public(address: str) -> bool:
    """Whether this IP address (in standard notation) is one that anybody on the internet may reach."""
    try:
        return _is_public(ipaddress.ip_address(address))
    except ValueError:
        return False


def _is_public(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in DENIED_V4)
    if address.scope_id is not None:
        return False
    for network, shift in CARRIERS:
        if address in network:
            return _is_public(ipaddress.IPv4Address(int(address) >> shift & 0xFFFFFFFF))
    return address in GLOBAL_V6 and not any(address in network for network in DENIED_V6)


# -- What the operator lets through ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class AllowedHost:
    """One entry of TOOLHUB_PRIVATE_HOSTS: a name or a network, on one port or (None) on any."""

    name: str
    network: Network | None
    port: int | None

    def covers(self, host: str, address: Address, port: int) -> bool:
        if self.port is not None and self.port != port:
            return False
        if self.network is None:
            return self.name == host
        mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        return address in self.network or (mapped is not None and mapped in self.network)


def allowed_host(entry: str) -> AllowedHost | None:
    """`name`, `10.0.0.5`, `10.0.0.0/8`, `fd00::/8`, each with `:port` if wanted (IPv6 then in brackets); else None."""
    text, port = entry.strip().lower(), ""
    if text.startswith("["):
        text, _, rest = text[1:].partition("]")
        prefix, _, port = rest.partition(":")
        text += prefix
    elif text.count(":") == 1:
        text, _, port = text.partition(":")
    if not text or (port and not port.isdecimal()):
        return None
    number = int(port) if port else None
    try:
        return AllowedHost("", ipaddress.ip_network(text, strict=False), number)
    except ValueError:
        return None if "/" in text else AllowedHost(_plain(text), None, number)


def _plain(host: str) -> str:
    """A host name as it is compared: lower case, without the dot that may end it."""
    return host.lower().removesuffix(".")


def _operator_allows(host: str, address: Address, port: int) -> bool:
    entries = (allowed_host(entry) for entry in settings.TOOLHUB_PRIVATE_HOSTS)
    return any(entry.covers(host, address, port) for entry in entries if entry is not None)


# -- The guard, at the moment of connecting --------------------------------------------------------------------------

WEB_PORTS = frozenset({80, 443})
Clock = Callable[[float | None], float | None]


@dataclass(frozen=True)
class Guard:
    """Who may be reached: public addresses on `ports` (None: any), what the operator listed, and `trusted_origin`."""

    ports: frozenset[int] | None = WEB_PORTS
    trusted_origin: str = ""

    def check(self, host: str, address: str, port: int) -> None:
        """Raises EgressRefused unless `address`, to which `host` leads, may be reached on `port`."""
        if self.trusted_origin and f"{host}:{port}" == self.trusted_origin.lower().replace("[", "").replace("]", ""):
            return
        target = ipaddress.ip_address(address)
        if _operator_allows(host, target, port):
            return
        if not _is_public(target):
            # The address behind a name stays unsaid: else any tenant could read the private DNS through us.
            what = "is" if host == address else "leads to"
            raise EgressRefused(
                f"{host} {what} a private address; an operator can allow it with TOOLHUB_PRIVATE_HOSTS."
            )
        if self.ports is not None and port not in self.ports:
            raise EgressRefused(
                f"Port {port} of {host} is not open to tools, only 80 and 443 are; "
                "an operator can allow it with TOOLHUB_PRIVATE_HOSTS."
            )


class GuardedBackend(httpcore2.SyncBackend):
    """Resolves a name once, checks every address it leads to, and connects to a checked address itself.

    There is no second look-up that a rebinding name server could answer differently.
    """

    def __init__(self, guard: Guard, clock: Clock) -> None:
        self.guard = guard
        self.clock = clock

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[SocketOption] | None = None,
    ) -> httpcore2.NetworkStream:
        host = _plain(host)  # what is checked is what is looked up
        addresses = resolve(host, port, self.clock(timeout))
        for address in addresses:
            self.guard.check(host, address, port)
        failure: Exception = httpcore2.ConnectError(f"{host} has no address.")
        for address in addresses:
            try:
                stream = super().connect_tcp(address, port, self.clock(timeout), local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
            else:
                return ClockedStream(stream, self.clock)
        raise failure

    def connect_unix_socket(self, *arguments: Any, **options: Any) -> httpcore2.NetworkStream:
        raise EgressRefused("A socket of this machine is not on the network; name an http or https address.")


class ClockedStream(httpcore2.NetworkStream):
    """A connection whose every wait is cut to what the clock leaves: a drip of bytes cannot outlast the deadline."""

    def __init__(self, stream: httpcore2.NetworkStream, clock: Clock) -> None:
        self.stream = stream
        self.clock = clock

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self.stream.read(max_bytes, self.clock(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), 65_536):
            self.stream.write(buffer[start : start + 65_536], self.clock(timeout))

    def close(self) -> None:
        self.stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        return ClockedStream(self.stream.start_tls(ssl_context, server_hostname, self.clock(timeout)), self.clock)

    def get_extra_info(self, info: str) -> Any:
        return self.stream.get_extra_info(info)


def no_deadline(timeout: float | None) -> float | None:
    return timeout


def deadline_clock(seconds: float) -> Clock:
    """Cuts every wait to what is left of `seconds` from now, and raises httpcore2's timeout when nothing is."""
    deadline = time.monotonic() + seconds

    def left(timeout: float | None) -> float:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise httpcore2.ReadTimeout("deadline")
        return remaining if timeout is None else min(timeout, remaining)

    return left


def resolve(host: str, port: int, timeout: float | None) -> list[str]:
    """The addresses behind a name, in the system's order, each once.

    The look-up has no timeout of its own, so it runs in a thread that is left behind when it takes too long.
    """
    found: list[str] = []
    failed: list[Exception] = []

    def look_up() -> None:
        try:
            answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            found.extend(dict.fromkeys(str(answer[4][0]) for answer in answers))
        except (OSError, UnicodeError) as error:
            failed.append(error)

    thread = threading.Thread(target=look_up, name="egress-resolve", daemon=True)
    thread.start()
    thread.join(timeout)
    if thread.is_alive():
        raise httpcore2.ConnectTimeout(f"The name {host} was not resolved in time.")
    if failed:
        raise httpcore2.ConnectError(f"The name {host} cannot be resolved.") from failed[0]
    return found


def resolve_checked(host: str, port: int, *, timeout: float | None, ports: frozenset[int] | None = None) -> list[str]:
    """The addresses behind a name, for a client that speaks no HTTP; each may be reached on `port`.

    The client must connect to one of these, and not look the name up again. `ports` are those open at public addresses
    (None: any). Raises EgressRefused and EgressFailed.
    """
    if not re.fullmatch(r"[A-Za-z0-9._:-]+", host):
        raise EgressRefused("The address names no valid host.")
    host = _plain(host)
    try:
        addresses = resolve(host, port, timeout)
    except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
        raise EgressFailed(str(error)) from error
    for address in addresses:
        Guard(ports=ports).check(host, address, port)
    return addresses


class GuardedTransport(httpx2.HTTPTransport):
    """httpx2's transport over a pool with our backend.

    Its own `__init__` is left out on purpose: should a later httpx2 keep its pool elsewhere, this transport has none
    and fails, instead of connecting past the guard.
    """

    def __init__(self, guard: Guard, clock: Clock = no_deadline, connections: int = 1) -> None:
        self._pool = httpcore2.ConnectionPool(
            ssl_context=_ssl_context(),
            max_connections=connections,
            max_keepalive_connections=connections,
            keepalive_expiry=60.0,
            network_backend=GuardedBackend(guard, clock),
        )

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        check_url(str(request.url))
        return super().handle_request(request)


@functools.cache
def _ssl_context() -> ssl.SSLContext:
    return httpx2.create_ssl_context(trust_env=False)


def guarded_client(*, timeout: httpx2.Timeout | float, trusted_origin: str = "") -> httpx2.Client:
    """A client for a model provider's SDK: one a process, for all threads.

    Public addresses on any port. `trusted_origin` is one exact "host:port" that our own configuration named (the
    offline model) and that may be loopback. A refusal is raised as EgressRefused; an SDK may wrap it as its cause.
    """
    transport = GuardedTransport(Guard(ports=None, trusted_origin=trusted_origin), connections=200)
    return httpx2.Client(transport=transport, trust_env=False, follow_redirects=False, timeout=timeout)


# -- Fetching --------------------------------------------------------------------------------------------------------

MAX_REDIRECTS = 3
REDIRECTS = frozenset({301, 302, 303, 307, 308})
# All that another host gets to see after a redirect: any other header may be a key, whatever it is called.
HARMLESS_HEADERS = frozenset({"accept", "accept-encoding", "accept-language", "content-type", "range", "user-agent"})
# These say where a message goes or how long it is, which is ours to say.
OWN_HEADERS = frozenset({"host", "connection", "content-length", "transfer-encoding", "upgrade", "te", "trailer"})
# Not charsets but transformations of Python's, some of them quadratic or raising whatever `errors` says.
ODD_CODECS = frozenset({"idna", "punycode", "undefined", "unicode_escape", "raw_unicode_escape", "mbcs", "oem"})


@dataclass(frozen=True)
class Fetched:
    """An answer, of whatever status. `headers` has lower-case names; `body` is decompressed, cut where `truncated`."""

    url: str
    status: int
    headers: Mapping[str, str]
    body: bytes
    truncated: bool

    @property
    def text(self) -> str:
        charset = httpx2.Response(200, headers={"content-type": self.headers.get("content-type", "")}).charset_encoding
        name = (charset or "utf-8").lower().replace("-", "_")
        try:
            return self.body.decode("utf-8" if name in ODD_CODECS else name, "replace")
        except (LookupError, ValueError):
            return self.body.decode("utf-8", "replace")


def fetch(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    content: bytes | None = None,
    timeout: float,
    max_bytes: int = 2_000_000,
    max_redirects: int = MAX_REDIRECTS,
) -> Fetched:
    """Ask the network. `timeout` is seconds for all of it: look-ups, redirects and the last byte of the body.

    Follows redirects itself, each checked like the first address; with `max_redirects` 0 one is refused. The body is
    cut at `max_bytes`, counted both as sent and as decompressed. Raises EgressRefused and EgressFailed.
    """
    clock = deadline_clock(timeout)
    request = httpx2.Request(method.upper(), check_url(url), headers=_request_headers(headers or {}), content=content)
    limit = min(max_redirects, MAX_REDIRECTS)
    with GuardedTransport(Guard(), clock) as transport, _told_plainly(request.url.host, timeout):
        for _ in range(limit + 1):
            response = transport.handle_request(request)
            try:
                if response.status_code not in REDIRECTS or "location" not in response.headers:
                    body, truncated = _read_body(response, max_bytes)
                    return Fetched(
                        url=str(request.url),
                        status=response.status_code,
                        headers=MappingProxyType(dict(response.headers.items())),
                        body=body,
                        truncated=truncated,
                    )
            finally:
                response.close()
            if not limit:
                raise EgressRefused(f"{request.url.host} redirects elsewhere, and this request is not sent on.")
            request = _redirected(request, response)
    raise EgressFailed(f"{request.url.host} was not reached: there were more than {limit} redirects.")


@contextlib.contextmanager
def _told_plainly(host: str, timeout: float) -> Iterator[None]:
    """Turns the client's exceptions into ours, one sentence each."""
    try:
        yield
    except (httpx2.TimeoutException, httpcore2.TimeoutException) as error:
        raise EgressFailed(f"{host} did not finish its answer within {timeout:g} s.") from error
    except httpx2.LocalProtocolError as error:
        raise EgressRefused(f"The request to {host} is not valid HTTP: {str(error).rstrip('.')}.") from error
    except httpx2.HTTPError as error:
        raise EgressFailed(f"{host} could not be reached: {str(error).rstrip('.')}.") from error


def check_url(url: str) -> httpx2.URL:
    """The address as it will be used. Raises EgressRefused unless it is plain http or https without a user name."""
    _check_characters(url)
    try:
        parsed = httpx2.URL(url)
    except (httpx2.InvalidURL, ValueError) as error:
        raise EgressRefused("This is not a valid address; it must look like https://example.org/path.") from error
    if parsed.scheme not in ("http", "https"):
        raise EgressRefused("Only http and https addresses can be reached.")
    if not re.fullmatch(rb"[A-Za-z0-9._:-]+", parsed.raw_host):
        raise EgressRefused("The address names no valid host; it must look like https://example.org/path.")
    if parsed.userinfo:
        raise EgressRefused("The address has a user name or an @ before its host; send credentials as a header.")
    return parsed


def _check_characters(url: str) -> None:
    """What one parser of addresses drops and another reads is how a guard and a client come to disagree."""
    if any(character.isspace() or not character.isprintable() or character == "\\" for character in url):
        raise EgressRefused("The address has a space, a control character or a backslash in it; encode it with %.")


def _request_headers(headers: Mapping[str, str]) -> httpx2.Headers:
    for name in headers:
        if name.lower() in OWN_HEADERS or name.lower().startswith("proxy-"):
            raise EgressRefused(f"The header {name} cannot be set; it follows from the address and the body.")
    try:
        asked = httpx2.Headers(dict(headers))
    except UnicodeEncodeError as error:
        raise EgressRefused("A header has a character in it that headers cannot carry.") from error
    defaults = httpx2.Headers({"accept": "*/*", "user-agent": "toolhub"})
    defaults.update(asked)
    defaults["accept-encoding"] = "gzip, deflate"
    return defaults


def _redirected(request: httpx2.Request, response: httpx2.Response) -> httpx2.Request:
    """The next request of a chain. Its address gets the same checks as the first, and less of our secrets."""
    target = _redirect_target(request.url, response.headers["location"])
    method, content, headers = request.method, request.content, request.headers
    if (response.status_code == 303 and method != "HEAD") or (response.status_code in (301, 302) and method == "POST"):
        method, content = "GET", b""
    # httpx2 leaves out a scheme's usual port, so that the step up from http to https counts as the same host.
    same_host = (request.url.host, request.url.port) == (target.host, target.port)
    kept = {
        name: value
        for name, value in headers.items()
        if name not in OWN_HEADERS
        and (same_host or name in HARMLESS_HEADERS)
        and (content or name not in ("content-type", "content-encoding"))
    }
    return httpx2.Request(method, target, headers=kept, content=content or None)


def _redirect_target(source: httpx2.URL, location: str) -> httpx2.URL:
    _check_characters(location)
    try:
        target = check_url(str(source.join(location)))
    except (httpx2.InvalidURL, ValueError) as error:
        raise EgressRefused(f"{source.host} redirects to an address that is not valid.") from error
    if source.scheme == "https" and target.scheme == "http":
        raise EgressRefused(f"{source.host} redirects from https to http, which is not followed.")
    return target


def _read_body(response: httpx2.Response, max_bytes: int) -> tuple[bytes, bool]:
    """The decompressed body, and whether it was cut.

    Both what comes off the wire and what it inflates to stop at `max_bytes`, so a bomb costs no more than an honest
    body. A ratio between the two is not held against it: honest JSON lists shrink twentyfold.
    """
    decode = _decoder(response.headers.get("content-encoding", ""))
    body, received = bytearray(), 0
    for piece in response.iter_raw():
        received += len(piece)
        body += decode(piece, max_bytes + 1 - len(body))
        if max(received, len(body)) > max_bytes:
            return bytes(body[:max_bytes]), True
    return bytes(body), False


def _decoder(coding: str) -> Callable[[bytes, int], bytes]:
    """A function of a piece and the most bytes to make of it. One layer only: nested ones are made by attackers."""
    coding = coding.strip().lower()
    if coding in ("", "identity"):
        return lambda piece, most: piece
    if coding not in ("gzip", "x-gzip", "deflate"):
        return _unknown_coding
    inflate = None

    def decode(piece: bytes, most: int) -> bytes:
        nonlocal inflate
        if inflate is None:  # "deflate" comes with a zlib header, or, from some servers, without any
            bare = coding == "deflate" and piece[:1] and piece[0] & 0x0F != 8
            inflate = zlib.decompressobj(-zlib.MAX_WBITS if bare else zlib.MAX_WBITS | 32)
        try:
            return inflate.decompress(piece, most)
        except zlib.error as error:
            raise EgressFailed("The answer is compressed, and damaged.") from error

    return decode


def _unknown_coding(piece: bytes, most: int) -> bytes:
    raise EgressFailed("The answer is compressed in a way that was not asked for.")
