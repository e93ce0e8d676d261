"""The HTTP connections of this process to servers: kept for the next call, apart for each principal."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace

import httpx2
from mcp.client import Transport
from mcp.client.streamable_http import streamable_http_client

from capabilities.running.egress import ExchangeLimits, guarded_async_client
from capabilities.running.egress.async_client import SERVERS
from capabilities.running.mcp_client.limits import CALLS_PER_SERVER, MAX_ANSWER
from capabilities.running.mcp_client.server_addresses import Key, ServerAddress
from capabilities.running.mcp_client.signing import CredentialAuth, count_parts

#: Seconds after which a connection without calls is let go.
CLIENT_IDLE_SECONDS = 60.0
#: No call takes longer than this, a stream of events neither; each call has its own, shorter time.
LONGEST = 3_600.0
HTTP_LIMITS = ExchangeLimits(
    seconds=LONGEST,
    idle_seconds=LONGEST,
    stream_seconds=LONGEST,
    max_bytes=MAX_ANSWER,
    connections=CALLS_PER_SERVER * 2,
)


class HttpClient:
    """The HTTP connections of one principal to one server, kept for its next call."""

    def __init__(self, address: ServerAddress) -> None:
        self.auth = CredentialAuth(address.credential)
        guard = replace(SERVERS, organisation=address.organisation)
        self.client = guarded_async_client(HTTP_LIMITS, guard=guard, auth=self.auth)
        self.client.event_hooks = {"response": [count_parts]}
        self.users = 0
        self.used_at = time.monotonic()


class HttpClients:
    """The HTTP clients of all principals, by principal and server. Used in the background loop only."""

    def __init__(self) -> None:
        self._clients: dict[Key, HttpClient] = {}

    @asynccontextmanager
    async def client(self, address: ServerAddress) -> AsyncGenerator[httpx2.AsyncClient]:
        """The HTTP client of this principal for this server."""
        client_entry = self._clients.get(address.key)
        if client_entry is None:
            client_entry = self._clients[address.key] = HttpClient(address)
        client_entry.auth.credential = address.credential
        client_entry.users += 1
        try:
            yield client_entry.client
        finally:
            client_entry.users -= 1
            client_entry.used_at = time.monotonic()

    def sign(self, address: ServerAddress) -> None:
        """Renew the credential of a kept session: a token may have been renewed."""
        client_entry = self._clients.get(address.key)
        if client_entry is not None:
            client_entry.auth.credential = address.credential

    async def let_go_of_idle(self, now: float) -> None:
        for key, client_entry in list(self._clients.items()):
            if not client_entry.users and now - client_entry.used_at > CLIENT_IDLE_SECONDS:
                del self._clients[key]
                await client_entry.client.aclose()

    async def close(self) -> None:
        for client_entry in self._clients.values():
            await client_entry.client.aclose()
        self._clients.clear()


def http_streams(address: ServerAddress, client: httpx2.AsyncClient) -> Transport:
    return streamable_http_client(address.url, http_client=client, max_sse_event_size=MAX_ANSWER)
