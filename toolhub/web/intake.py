"""Gate of every request before Django: whose address it bears, and how much body it may bring how slowly.

Pure ASGI: nothing here takes a thread or a database connection, so that whoever sends half a request holds neither.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from ipaddress import ip_address
from typing import Any

Scope = dict[str, Any]
Message = Mapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

#: Bytes of a body from whoever brings neither a login nor a token, and from anybody.
OUTSIDE_BYTES = 64 * 1024
MOST_BYTES = 4 * 1024 * 1024
#: Seconds for a whole body, and between two parts of it.
BODY_SECONDS = 60.0
PART_SECONDS = 10.0
#: Bodies of one address that are on their way at once.
BODIES_AT_ONCE = 64

API = ("/api/", "/v1/", "/mcp/")


class ClientAddress:
    """Puts the client's address where the server put its neighbour's, when that is a proxy of ours.

    Each proxy adds the address that asked it to the end of X-Forwarded-For; so with n of them the n-th from the end is
    the client, and the client itself may have written all before it. Without that many, the neighbour is the client.
    """

    def __init__(self, app: App, trusted_proxies: int) -> None:
        self.app = app
        self.trusted_proxies = trusted_proxies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self.trusted_proxies:
            address = self.forwarded(scope)
            if address is not None:
                scope = {**scope, "client": (address, 0)}
        await self.app(scope, receive, send)

    def forwarded(self, scope: Scope) -> str | None:
        """Return the client's address that the trusted proxies wrote; None where they did not."""
        lines = [value.decode("latin-1") for name, value in scope["headers"] if name == b"x-forwarded-for"]
        hops = [hop.strip() for hop in ",".join(lines).split(",") if hop.strip()]
        if len(hops) < self.trusted_proxies:
            return None
        try:
            return str(ip_address(hops[-self.trusted_proxies]))
        except ValueError:
            return None


class Refused(Exception):
    """A body that is not read to its end: status, code and sentence of the answer."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


class LimitedBodies:
    """Reads a body before the application is called, within limits of size, time and number; else 413, 408 or 429."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.on_their_way: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"]) if scope["type"] == "http" else {}
        if not headers.keys() & {b"content-length", b"transfer-encoding"} or headers.get(b"content-length") == b"0":
            return await self.app(scope, receive, send)
        address = str((scope.get("client") or ("",))[0])
        try:
            body = await self.counted(address, headers, receive)
        except Refused as refused:
            return await answer(scope, send, refused)
        if body is None:  # the client left
            return None
        return await self.app(scope, replayed(body, receive), send)

    async def counted(self, address: str, headers: dict[bytes, bytes], receive: Receive) -> bytes | None:
        """Return the whole body, None where the client left. Raises Refused for a body that is too large or too slow,
        and for too many at once from one address."""
        limit = MOST_BYTES if is_inside(headers) else OUTSIDE_BYTES
        if int(headers.get(b"content-length", b"0")) > limit:  # the server lets digits alone through
            raise too_large(limit)
        if self.on_their_way[address] >= BODIES_AT_ONCE:
            raise Refused(429, "too_many", f"At most {BODIES_AT_ONCE} requests at once may be half sent.")
        self.on_their_way[address] += 1
        try:
            async with asyncio.timeout(BODY_SECONDS):
                return await read_body(receive, limit)
        except TimeoutError:
            raise Refused(408, "timeout", "The rest of the request did not come in time.") from None
        finally:
            self.on_their_way[address] -= 1
            if not self.on_their_way[address]:
                del self.on_their_way[address]


async def read_body(receive: Receive, limit: int) -> bytes | None:
    """The whole body; None when the client left. Raises TimeoutError after a silence, Refused beyond `limit` bytes."""
    body = bytearray()
    while True:
        message = await asyncio.wait_for(receive(), PART_SECONDS)
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if len(body) > limit:
            raise too_large(limit)
        if not message.get("more_body", False):
            return bytes(body)


def is_inside(headers: dict[bytes, bytes]) -> bool:
    """Return whether a login or a token came with the request; the application checks whether it is a good one."""
    return b"authorization" in headers or b"sessionid=" in headers.get(b"cookie", b"")


def too_large(limit: int) -> Refused:
    return Refused(413, "too_large", f"The body of this request may have at most {limit // 1024} KiB.")


def replayed(body: bytes, receive: Receive) -> Receive:
    """The body in one piece, then whatever comes after it."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return waiting.pop() if waiting else await receive()

    return receive_again


async def answer(scope: Scope, send: Send, refused: Refused) -> None:
    """Send a refusal: JSON for the API, else plain text."""
    if scope["path"].startswith(API):
        kind = b"application/json"
        error = {"code": refused.code, "message": refused.message, "field": None}
        content = json.dumps({"error": error}).encode()
    else:
        kind, content = b"text/plain; charset=utf-8", refused.message.encode()
    headers = [(b"content-type", kind), (b"content-length", str(len(content)).encode()), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": content})
