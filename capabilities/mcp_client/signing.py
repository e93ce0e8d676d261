"""Puts the credential on requests, last, and notes what the far side thinks of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextvars import ContextVar
from dataclasses import dataclass

import httpx2

from capabilities.contract.context import Credential
from capabilities.egress.placing import fits, place


@dataclass
class Seen:
    """What the HTTP answers of one call were."""

    status: int = 0
    challenge: str = ""


#: Set by whoever makes a call; the SDK carries the context along to the request.
seen: ContextVar[Seen | None] = ContextVar("seen", default=None)


class CredentialAuth(httpx2.Auth):
    """Adds the credential to every request to one of its origins, behind everything else, and to no other."""

    def __init__(self, credential: Credential) -> None:
        self.credential = credential

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        address = str(request.url)
        if fits(self.credential, address):
            signed, headers = place(self.credential, address, request.headers)
            request.url, request.headers = httpx2.URL(signed), httpx2.Headers(headers)
        response = yield request
        noted = seen.get()
        if noted is not None and response.status_code >= 400:
            noted.status = response.status_code
            noted.challenge = response.headers.get("www-authenticate", "")
