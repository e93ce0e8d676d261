"""An asynchronous client behind the same guard, for SDKs that bring their own protocol: MCP over HTTP.

Knows HTTP and the limits of one exchange. Which addresses may be reached, the guard says. It runs on asyncio.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

import anyio
import httpcore2
import httpx2

from capabilities.running.egress.addresses import Purpose, check_url, plain_host
from capabilities.running.egress.decoding import ACCEPTED, decoder
from capabilities.running.egress.errors import EgressFailed, EgressRefused
from capabilities.running.egress.guard import Guard, SocketOption, resolve, ssl_context
from toolhub.durations import duration

#: Bytes that a compressed body may become however small it was sent, and times that it may get larger beyond that.
FREE_BYTES = 2_000_000
MOST_TIMES = 10
#: Bytes that a compressed body is taken apart to at a time.
PIECE = 65_536
STREAM = "text/event-stream"
#: Guard by which MCP servers are reached.
SERVERS = Guard(purposes=(Purpose.MCP,))


@dataclass(frozen=True)
class ExchangeLimits:
    """Limits of one request with its answer, in time and size.

    `seconds` is for all of it, look-up and last byte included. A stream of events has `stream_seconds` instead once it
    has begun, and `idle_seconds` from one piece to the next. `max_bytes` holds for the body as sent and as
    decompressed; headers have about 100 KB.
    """

    seconds: float = 30.0
    connect_seconds: float = 10.0
    idle_seconds: float = 60.0
    stream_seconds: float = 300.0
    max_bytes: int = 2_000_000
    connections: int = 20


USUAL = ExchangeLimits()


def guarded_async_client(
    limits: ExchangeLimits = USUAL,
    *,
    guard: Guard = SERVERS,
    headers: Mapping[str, str] | None = None,
    auth: httpx2.Auth | None = None,
) -> httpx2.AsyncClient:
    """A client for use in one event loop. It follows no redirect, keeps no cookie and asks no proxy.

    Raises EgressRefused and EgressFailed (addresses, sizes), and httpx2's own errors: a limit of time is its timeout.
    """
    return httpx2.AsyncClient(
        transport=AsyncGuardedTransport(guard, limits),
        headers=dict(headers or {}),
        auth=auth,
        cookies=CookieJar(policy=DefaultCookiePolicy(allowed_domains=[])),
        trust_env=False,
        follow_redirects=False,
        timeout=httpx2.Timeout(None, connect=limits.connect_seconds, pool=limits.seconds),
    )


class AsyncGuardedBackend(httpcore2.AnyIOBackend):
    """Async form of GuardedBackend: looks a name up once, checks every address, and connects to a checked one."""

    def __init__(self, guard: Guard) -> None:
        self.guard = guard

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[SocketOption] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Connect to the first address of the host that takes the connection; all are checked before. Raises
        EgressRefused for a forbidden one; ConnectTimeout and ConnectError."""
        host = plain_host(host)
        until = None if timeout is None else time.monotonic() + timeout
        addresses = await _resolve(host, port, timeout)
        for address in addresses:
            self.guard.check(host, address, port)
        failure: Exception = httpcore2.ConnectError(f"{host} has no address.")
        for address in addresses:
            remaining = None if until is None else until - time.monotonic()
            if remaining is not None and remaining <= 0:
                raise httpcore2.ConnectTimeout(f"{host} was not connected to in time.")
            try:
                return await super().connect_tcp(address, port, remaining, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        raise failure

    async def connect_unix_socket(self, *arguments: Any, **options: Any) -> httpcore2.AsyncNetworkStream:
        """Raises EgressRefused: nothing outside is reached by a socket of the machine."""
        raise EgressRefused("A socket of this machine is not on the network; name an http or https address.")


async def _resolve(host: str, port: int, timeout: float | None) -> list[str]:
    """Resolve as `resolve` does, in a thread of its own: names that nobody answers for hold up no other's look-up."""
    loop = asyncio.get_running_loop()
    found: asyncio.Future[list[str]] = loop.create_future()

    def settle(addresses: list[str], error: Exception | None) -> None:
        if not found.done():  # the caller may have gone
            if error is None:
                found.set_result(addresses)
            else:
                found.set_exception(error)

    def look_up() -> None:
        addresses: list[str] = []
        failure: Exception | None = None
        try:
            addresses = resolve(host, port, timeout)
        except Exception as error:
            failure = error
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, addresses, failure)

    threading.Thread(target=look_up, name="egress-resolve-async", daemon=True).start()
    return await found


class AsyncGuardedTransport(httpx2.AsyncHTTPTransport):
    """httpx2's transport over a pool with our backend, with limits on each exchange.

    Its own `__init__` is left out on purpose, as in GuardedTransport.
    """

    def __init__(self, guard: Guard, limits: ExchangeLimits) -> None:
        self.limits = limits
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=ssl_context(),
            max_connections=limits.connections,
            max_keepalive_connections=limits.connections,
            keepalive_expiry=30.0,
            network_backend=AsyncGuardedBackend(guard),
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send the request; return the response with a body that ends at its limits. Raises EgressRefused for its
        address; httpx2.ReadTimeout after the limit's seconds."""
        check_url(str(request.url))
        request.headers["accept-encoding"] = ACCEPTED  # what `decoder` takes apart, and nothing else
        until = anyio.current_time() + self.limits.seconds
        try:
            with anyio.fail_after(self.limits.seconds):
                response = await super().handle_async_request(request)
        except TimeoutError as error:
            raise _late(request, self.limits.seconds) from error
        if response.headers.get("content-type", "").lower().startswith(STREAM):
            until = anyio.current_time() + self.limits.stream_seconds
            stream = _LimitedBody(request, response, self.limits, until, idle=self.limits.idle_seconds)
        else:
            stream = _LimitedBody(request, response, self.limits, until, idle=None)
        headers = [
            (name, value)
            for name, value in response.headers.raw
            if name.lower() not in ((b"content-encoding", b"content-length") if stream.is_compressed else ())
        ]
        return httpx2.Response(response.status_code, headers=headers, stream=stream, extensions=response.extensions)


def _late(request: httpx2.Request, seconds: float) -> httpx2.ReadTimeout:
    late = f"{request.url.host} did not finish its answer within {duration(seconds)}."
    return httpx2.ReadTimeout(late, request=request)


class _LimitedBody(httpx2.AsyncByteStream):
    """A body as it comes, decompressed, for as long and as large as the limits say."""

    def __init__(
        self,
        request: httpx2.Request,
        response: httpx2.Response,
        limits: ExchangeLimits,
        until: float,
        *,
        idle: float | None,
    ) -> None:
        self.request = request
        self.response = response
        self.limits = limits
        self.until = until
        self.idle = idle
        coding = response.headers.get("content-encoding", "")
        self.is_compressed = coding.strip().lower() not in ("", "identity")
        self.decode = decoder(coding)
        self.received = self.made = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        assert isinstance(self.response.stream, httpx2.AsyncByteStream)
        pieces = aiter(self.response.stream)
        while (piece := await self._next(pieces)) is not None:
            self.received += len(piece)
            if self.received > self.limits.max_bytes:
                raise self._too_large()
            for part in self._decoded(piece):
                yield part

    async def _next(self, pieces: AsyncIterator[bytes]) -> bytes | None:
        remaining = self.until - anyio.current_time()
        seconds = remaining if self.idle is None else min(self.idle, remaining)
        try:
            with anyio.fail_after(max(0.0, seconds)):
                return await anext(pieces, None)
        except TimeoutError as error:
            await self.aclose()
            raise _late(self.request, self.limits.seconds if self.idle is None else seconds) from error

    def _decoded(self, piece: bytes) -> Iterable[bytes]:
        """Decompress in parts of bounded size, so that a bomb is found out before it has gone off."""
        if not self.is_compressed:
            yield piece
            return
        while part := self.decode(piece, PIECE):
            piece = b""
            self.made += len(part)
            if self.made > min(self.limits.max_bytes, max(FREE_BYTES, MOST_TIMES * self.received)):
                raise self._too_large()
            yield part

    def _too_large(self) -> EgressFailed:
        return EgressFailed(f"The answer of {self.request.url.host} is larger than is taken.")

    async def aclose(self) -> None:
        await self.response.aclose()
