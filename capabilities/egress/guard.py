"""The check at the moment of connecting: names are looked up once, and connections pinned to what was checked.

Knows the operator's list of private hosts. Must not know what is asked, nor what comes back.
"""

from __future__ import annotations

import functools
import ipaddress
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import httpcore2
import httpx2
from django.conf import settings

from capabilities.egress.addresses import Address, allowed_host, check_url, is_public, plain_host
from capabilities.egress.errors import EgressFailed, EgressRefused

SocketOption = tuple[int, int, int] | tuple[int, int, bytes | bytearray] | tuple[int, int, None, int]
Clock = Callable[[float | None], float | None]
WEB_PORTS = frozenset({80, 443})


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
        if not is_public(address):
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


def _operator_allows(host: str, address: Address, port: int) -> bool:
    entries = (allowed_host(entry) for entry in settings.TOOLHUB_PRIVATE_HOSTS)
    return any(entry.covers(host, address, port) for entry in entries if entry is not None)


def is_listed(url: str) -> bool:
    """Whether the operator's list names the host of this address, by its name or as an IP address. Without a look-up.

    Raises EgressRefused for what is no web address.
    """
    parsed = check_url(url)
    host, port = plain_host(parsed.host), parsed.port or (443 if parsed.scheme == "https" else 80)
    try:
        address: Address = ipaddress.ip_address(host)
    except ValueError:
        names = (allowed_host(entry) for entry in settings.TOOLHUB_PRIVATE_HOSTS)
        return any(entry.name == host and entry.port in (None, port) for entry in names if entry is not None)
    return _operator_allows(host, address, port)


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
        host = plain_host(host)  # what is checked is what is looked up
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
    host = plain_host(host)
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
            ssl_context=ssl_context(),
            max_connections=connections,
            max_keepalive_connections=connections,
            keepalive_expiry=60.0,
            network_backend=GuardedBackend(guard, clock),
        )

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        check_url(str(request.url))
        return super().handle_request(request)


@functools.cache
def ssl_context() -> ssl.SSLContext:
    """One for all clients of the process: reading the system's certificates takes long."""
    return httpx2.create_ssl_context(trust_env=False)


def guarded_client(*, timeout: httpx2.Timeout | float, trusted_origin: str = "") -> httpx2.Client:
    """A client for a model provider's SDK: one a process, for all threads.

    Public addresses on any port. `trusted_origin` is one exact "host:port" that our own configuration named (the
    offline model) and that may be loopback. A refusal is raised as EgressRefused; an SDK may wrap it as its cause.
    """
    transport = GuardedTransport(Guard(ports=None, trusted_origin=trusted_origin), connections=200)
    return httpx2.Client(transport=transport, trust_env=False, follow_redirects=False, timeout=timeout)
