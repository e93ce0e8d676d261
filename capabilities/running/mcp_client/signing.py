"""Authentication that puts the credential on requests, last, and looks at answers before anybody reads them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextvars import ContextVar
from dataclasses import dataclass

import httpx2

from capabilities.contract.context import Credential
from capabilities.running.egress import EgressFailed
from capabilities.running.egress.placing import fits, place
from capabilities.running.mcp_client.limits import MAX_SIGNS
from toolhub.bounded_json import signs_in


@dataclass
class Seen:
    """Facts noted of the HTTP answers of one call."""

    status: int = 0
    challenge: str = ""
    #: True where the request that was answered so carried a credential.
    is_signed: bool = False


#: Set by whoever makes a call; the SDK carries the context along to the request.
seen: ContextVar[Seen | None] = ContextVar("seen", default=None)


class CredentialAuth(httpx2.Auth):
    """Signer that adds the credential to requests to its origins, behind everything else, and to no other request."""

    def __init__(self, credential: Credential) -> None:
        self.credential = credential

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Sign a request that goes to an origin of the credential, and note a refusal of the server."""
        address = str(request.url)
        if fits(self.credential, address):
            signed, headers = place(self.credential, address, request.headers)
            request.url, request.headers = httpx2.URL(signed), httpx2.Headers(headers)
        response = yield request
        noted = seen.get()
        if noted is not None and response.status_code >= 400:
            noted.status = response.status_code
            noted.challenge = response.headers.get("www-authenticate", "")
            noted.is_signed = fits(self.credential, address)


class CountedBody(httpx2.AsyncByteStream):
    """A body as it comes, for as long as what it becomes in memory stays small. A stream of events begins anew with
    each of them."""

    def __init__(self, response: httpx2.Response) -> None:
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        self._inner = response.stream
        self._host = response.request.url.host
        self._is_stream = response.headers.get("content-type", "").lower().startswith("text/event-stream")

    async def __aiter__(self) -> AsyncIterator[bytes]:
        parts = 0
        async for piece in self._inner:
            parts += signs_in(piece) - 1
            if parts > MAX_SIGNS:
                raise EgressFailed(f"The answer of {self._host} has more parts than are taken.")
            yield piece
            if self._is_stream and piece.endswith((b"\n\n", b"\r\n\r\n")):
                parts = 0

    async def aclose(self) -> None:
        await self._inner.aclose()


async def count_parts(response: httpx2.Response) -> None:
    """Have the response read as `CountedBody`; a hook of the client."""
    response.stream = CountedBody(response)
