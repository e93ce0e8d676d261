"""The check at the moment of connecting: names are looked up once, and connections pinned to what was checked.

Knows the operator's list of private hosts. Must not know what is asked, nor what comes back.
"""

from __future__ import annotations

import functools
import ipaddress
import logging
import re
import socket
import ssl
import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

import httpcore2
import httpx2
from django.conf import settings

from capabilities.running.egress.addresses import (
    Address,
    AllowedHost,
    Purpose,
    allowed_host,
    check_url,
    is_public,
    plain_host,
)
from capabilities.running.egress.errors import EgressFailed, EgressRefused
from toolhub.tenants.rows.scope import current_scope, has_scope

logger = logging.getLogger(__name__)

SocketOption = tuple[int, int, int] | tuple[int, int, bytes | bytearray] | tuple[int, int, None, int]
Clock = Callable[[float | None], float | None]
WEB_PORTS = frozenset({80, 443})


@dataclass(frozen=True)
class Guard:
    """Places that may be reached: public addresses on `ports` (None: any), what the operator listed for one of these
    purposes, and `trusted_origin`. `organisation` is the short name of the one that asks; "": the one in scope."""

    ports: frozenset[int] | None = WEB_PORTS
    trusted_origin: str = ""
    purposes: tuple[Purpose, ...] = (Purpose.TOOL,)
    organisation: str = ""

    def check(self, host: str, address: str, port: int) -> None:
        """Raises EgressRefused unless `address`, to which `host` leads, may be reached on `port`."""
        if self.trusted_origin and f"{host}:{port}" == self.trusted_origin.lower().replace("[", "").replace("]", ""):
            return
        target = ipaddress.ip_address(address)
        if any(entry.covers(host, target, port) for entry in listed_for(self.purposes, self.organisation)):
            return
        if not is_public(address):
            # The address behind a name stays unsaid: else any tenant could read the private DNS through us.
            verb = "is" if host == address else "leads to"
            raise EgressRefused(
                f"{host} {verb} a private address; an operator can allow it with TOOLHUB_PRIVATE_HOSTS, as "
                f"{self.purposes[0]}:{host}."
            )
        if self.ports is not None and port not in self.ports:
            raise EgressRefused(
                f"Port {port} of {host} is not open to tools, only 80 and 443 are; "
                "an operator can allow it with TOOLHUB_PRIVATE_HOSTS."
            )


def listed_for(purposes: Collection[Purpose], organisation: str = "") -> list[AllowedHost]:
    """The entries of the operator's list for one of these purposes. A query where one names an organisation, and
    it is not said which one asks."""
    every = (allowed_host(entry) for entry in settings.TOOLHUB_PRIVATE_HOSTS)
    entries = [entry for entry in every if entry is not None and entry.purpose in purposes]
    if not any(entry.organisation for entry in entries):
        return entries
    slug = organisation or asking_organisation()
    return [entry for entry in entries if entry.organisation in ("", slug)]


def asking_organisation() -> str:
    """The short name of the organisation in scope, "-" where there is none. No query while no entry of the operator's
    list names an organisation; else one."""
    entries = (allowed_host(entry) for entry in settings.TOOLHUB_PRIVATE_HOSTS)
    if not has_scope() or not any(entry is not None and entry.organisation for entry in entries):
        return "-"
    from toolhub.tenants.models import Organisation  # noqa: PLC0415 -- app ready

    return Organisation.objects.filter(pk=current_scope()).values_list("slug", flat=True).first() or "-"


def warn_of_open_hosts() -> None:
    """Log each entry of the operator's list that names no purpose: it counts for providers, and for nothing else."""
    for entry in settings.TOOLHUB_PRIVATE_HOSTS:
        host = allowed_host(entry)
        if host is not None and not host.names_purpose:
            logger.warning(
                "TOOLHUB_PRIVATE_HOSTS: %s names no purpose, and counts for model providers only. Write provider:%s, "
                "and tool:%s or mcp:%s where tools or MCP servers may reach it too.",
                *[entry] * 4,
            )


def is_listed(url: str, purposes: Collection[Purpose] = (Purpose.TOOL, Purpose.MCP)) -> bool:
    """Return whether the operator's list names this address's host, by name or as an IP address. Without a look-up.

    Raises EgressRefused for what is no web address.
    """
    parsed = check_url(url)
    host, port = plain_host(parsed.host), parsed.port or (443 if parsed.scheme == "https" else 80)
    try:
        address: Address = ipaddress.ip_address(host)
    except ValueError:
        return any(entry.name == host and entry.port in (None, port) for entry in listed_for(purposes))
    return any(entry.covers(host, address, port) for entry in listed_for(purposes))


class GuardedBackend(httpcore2.SyncBackend):
    """Backend that resolves a name once, checks every address it leads to, and connects to a checked address itself.

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
        """Connect to the first address of the host that takes the connection; all are checked before. Raises
        EgressRefused for a forbidden one; ConnectTimeout and ConnectError."""
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
        """Raises EgressRefused: nothing outside is reached by a socket of the machine."""
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

    The look-up has no timeout of its own, so it runs in a thread that is left behind when it takes too long. Raises
    httpcore2.ConnectTimeout then, and httpcore2.ConnectError for a name that is not known.
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


def resolve_checked(
    host: str,
    port: int,
    *,
    timeout: float | None,
    ports: frozenset[int] | None = None,
    purposes: tuple[Purpose, ...] = (Purpose.TOOL,),
) -> list[str]:
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
        Guard(ports=ports, purposes=purposes).check(host, address, port)
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
    """Return the TLS context for all clients of the process: reading the system's certificates takes long."""
    return httpx2.create_ssl_context(trust_env=False)


def guarded_client(*, timeout: httpx2.Timeout | float, trusted_origin: str = "") -> httpx2.Client:
    """A client for a model provider's SDK: one a process, for all threads.

    Public addresses on any port. `trusted_origin` is one exact "host:port" that our own configuration named (the
    offline model) and that may be loopback. A refusal is raised as EgressRefused; an SDK may wrap it as its cause.
    """
    guard = Guard(ports=None, trusted_origin=trusted_origin, purposes=(Purpose.PROVIDER,))
    return httpx2.Client(transport=_ProviderTransport(guard), trust_env=False, follow_redirects=False, timeout=timeout)


class _ProviderTransport(httpx2.BaseTransport):
    """Connections to providers. Where an entry of the operator's list is one organisation's, each organisation has
    connections of its own: a kept one was checked for whoever opened it."""

    def __init__(self, guard: Guard) -> None:
        self.guard = guard
        self._pools: dict[str, GuardedTransport] = {}
        self._lock = threading.Lock()

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send the request by the connections of the organisation that asks."""
        key = asking_organisation()
        with self._lock:
            pool = self._pools.get(key)
            if pool is None:
                guard = replace(self.guard, organisation=key)
                pool = self._pools[key] = GuardedTransport(guard, connections=200)
        return pool.handle_request(request)

    def close(self) -> None:
        for pool in list(self._pools.values()):
            pool.close()
