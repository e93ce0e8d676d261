"""The way in for MCP clients, beside Django: who asks, for what, and how much of it at once."""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TypeVar
from urllib.parse import urlsplit

from asgiref.sync import ThreadSensitiveContext
from django.conf import settings
from django.db import DatabaseError, InterfaceError
from django.http.request import split_domain_port, validate_host
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from sessions.doors.chats.stream_limits import (
    PULSE_SECONDS,
    STILL_HERE,
    TRY_AGAIN,
    TooManyStreams,
    open_streams,
)
from sessions.doors.mcp_server.callers import PREFIX, McpCaller, address_of
from sessions.doors.mcp_server.changes import changes
from sessions.doors.mcp_server.server import CALLER, make_manager
from toolhub.bounded_json import TooMuchJson, check_json
from toolhub.tenants.access import record_token_use
from toolhub.tenants.audit.writes import request_id
from toolhub.tenants.middleware import token_in
from toolhub.tenants.models import Access
from toolhub.tenants.models import Scope as TokenScope
from toolhub.tenants.rows.connections import give_back_connection
from toolhub.tenants.rows.scope import organisation_scope
from toolhub.tenants.rows.trouble import CODE, MESSAGE, is_database_trouble
from toolhub.tenants.rows.trouble import RETRY_AFTER as DATABASE_AGAIN
from toolhub.tenants.tokens.last_use import token_use
from toolhub.web.handler import Handler
from toolhub.web.intake import Message, Receive, Scope, Send, read_body, replayed
from toolhub.web.intake import Refused as BodyRefused

logger = logging.getLogger(__name__)

#: Message on the stream of an older client that a list changed.
LIST_CHANGED = 'event: message\ndata: {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n\n'

#: Values of one request's body.
MOST_VALUES = 20_000

Headers = Mapping[bytes, bytes]
T = TypeVar("T")


class DoorRefused(Exception):
    """A request that the server of MCP does not see: status, code, sentence and headers of the answer."""

    def __init__(self, status: int, code: str, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


def unavailable(error: Exception) -> DoorRefused:
    """The answer where the database cannot be used now. Raises the error where it is another one."""
    if not is_database_trouble(error):
        raise error
    logger.warning("The database cannot be used: %s", error)
    return DoorRefused(503, CODE, MESSAGE, retry_after=str(DATABASE_AGAIN))


class Answer:
    """The answer to one request: as the server of MCP gives it, or 503 where the database failed while it was made."""

    def __init__(self, caller: McpCaller, send: Send) -> None:
        self.caller, self.inner = caller, send
        self.trouble: DoorRefused | None = None
        self.is_refused = False
        #: The status and headers, which wait for the first bytes: a stream sends them before anything is known.
        self.beginning: list[Message] = []
        self.has_begun = False

    async def in_thread(self, work: Callable[[], T]) -> T:
        try:
            return await self.caller.in_thread(work)  # type: ignore[no-any-return]
        except (DatabaseError, InterfaceError) as error:
            if is_database_trouble(error):
                self.trouble = unavailable(error)
            raise

    async def send(self, message: Message) -> None:
        """Pass it on, unless the database failed before the answer began."""
        if self.is_refused:
            return
        if self.trouble is not None and not self.has_begun:
            self.is_refused = True
            await refuse(self.inner, self.trouble)
        elif message["type"] == "http.response.start":
            self.beginning.append(message)
        else:
            self.has_begun = True
            while self.beginning:
                await self.inner(self.beginning.pop(0))
            await self.inner(message)


class McpDoor:
    """ASGI: answers below /mcp/, from the start of the web server to its end, and leaves all else to Django."""

    def __init__(self, django: Handler) -> None:
        self.django = django
        # As much as Django takes of a body that is no file: it is parsed between the steps of all other requests.
        self.manager = make_manager(settings.DATA_UPLOAD_MAX_MEMORY_SIZE)
        self.is_open = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.live(receive, send)
        elif scope["type"] == "http" and scope["path"].startswith(PREFIX):
            await self.serve(scope, receive, send)
        else:
            await self.django(scope, receive, send)

    async def live(self, receive: Receive, send: Send) -> None:
        """Run the server from the web server's start to its end."""
        await receive()
        async with AsyncExitStack() as running:
            await running.enter_async_context(self.manager.run())
            self.is_open = True
            await send({"type": "lifespan.startup.complete"})
            await receive()
            self.is_open = False
        await send({"type": "lifespan.shutdown.complete"})

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, as whoever its token belongs to."""
        headers = dict(scope["headers"])
        try:
            caller = await self.admitted(scope, headers)
            slot = open_streams.take_for(caller.member, caller.token)
        except TooManyStreams as error:
            return await refuse(send, DoorRefused(429, "too_many", str(error), retry_after=str(TRY_AGAIN)))
        except DoorRefused as refused:
            return await refuse(send, refused)
        except (DatabaseError, InterfaceError) as error:
            return await refuse(send, unavailable(error))
        try:
            if scope["method"] == "GET":
                return await stream_changes(caller, receive, send)
            receive = await checked(receive, settings.DATA_UPLOAD_MAX_MEMORY_SIZE)
            answer = Answer(caller, send)
            scope = {**scope, CALLER: replace(caller, in_thread=answer.in_thread)}
            async with ThreadSensitiveContext(executor=self.django.threads):
                await self.manager.handle_request(scope, receive, answer.send)  # type: ignore[arg-type]
        except DoorRefused as refused:
            await refuse(send, refused)
        finally:
            slot.leave()

    async def admitted(self, scope: Scope, headers: Headers) -> McpCaller:
        """Return the caller, and what it asks for. Raises DoorRefused."""
        if not self.is_open:
            raise DoorRefused(503, "starting", "The service starts or ends.", retry_after=str(TRY_AGAIN))
        check_host(headers)
        if scope["method"] != "POST" and not opens_stream(scope["method"], headers):
            raise DoorRefused(405, "method_not_allowed", "Requests are sent by POST.", allow="POST")
        request_id.set(uuid.uuid4().hex)
        site = f"{scheme_of(scope, headers)}://{text_of(headers, b'host')}"
        return await self.in_thread(lambda: self.identified(scope, headers, site))

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread that answers Django's requests too, give its connection back, and return its
        result."""

        def run() -> T:
            try:
                return work()
            finally:
                give_back_connection()

        return await self.django.in_thread(run)

    def identified(self, scope: Scope, headers: Headers, site: str) -> McpCaller:
        """Identify the caller, in a thread: the token, what it may, and what the path names. Two queries. Raises
        DoorRefused."""
        token = token_in(text_of(headers, b"authorization"))
        if token is None:
            raise DoorRefused(
                401, "not_authenticated", "A usable API token is needed.", www_authenticate='Bearer realm="toolhub"'
            )
        member = token.membership
        if TokenScope.CHAT not in token.scopes:
            why = f"This token lacks the scope {TokenScope.CHAT.value}."
            raise DoorRefused(403, "forbidden", why, www_authenticate='Bearer error="insufficient_scope", scope="chat"')
        if not member.has_access(Access.MEMBER):
            raise DoorRefused(403, "forbidden", "Viewers do not call tools.")
        with organisation_scope(member.organisation_id):
            address = address_of(scope["path"], member)
        used_for = address.name if address is not None else ""
        client = str((scope.get("client") or ("",))[0])
        record_token_use(token, token_use(user_agent=text_of(headers, b"user-agent"), agent=used_for, address=client))
        if address is None:
            raise DoorRefused(404, "not_found", "There is no such agent or toolkit here.")
        return McpCaller(token, address, site, self.in_thread)


async def checked(receive: Receive, limit: int) -> Receive:
    """The body again, which is one message of JSON that is quickly parsed: that happens between the steps of all other
    requests. Raises DoorRefused."""
    try:
        body = await read_body(receive, limit) or b""
        check_json(body, most_bytes=limit, most_values=MOST_VALUES)
    except BodyRefused as refused:
        raise DoorRefused(refused.status, refused.code, refused.message) from None
    except TooMuchJson as error:
        raise DoorRefused(413, "too_large", f"The body {error}.") from None
    return replayed(body, receive)


def check_host(headers: Headers) -> None:
    """Raise DoorRefused for a name that is not this service's, and for a page of another's: as Django does for its own,
    so that no name that resolves to this machine lets a stranger's page call."""
    allowed = settings.ALLOWED_HOSTS
    host, _ = split_domain_port(text_of(headers, b"host"))
    if not host or not validate_host(host, allowed):
        raise DoorRefused(421, "wrong_host", "This service does not answer under that name: see ALLOWED_HOSTS.")
    origin = text_of(headers, b"origin")
    if not origin or origin in settings.CSRF_TRUSTED_ORIGINS:
        return
    try:
        asked_from = urlsplit(origin).hostname or ""
    except ValueError:  # no address, such as `http://[`
        asked_from = ""
    if not asked_from or not validate_host(asked_from, allowed):
        raise DoorRefused(403, "wrong_origin", "Pages of that origin may not call this service.")


def scheme_of(scope: Scope, headers: Headers) -> str:
    """Return the scheme by which the client came, as a proxy that ends TLS says."""
    if settings.BEHIND_TLS_PROXY and text_of(headers, b"x-forwarded-proto") == "https":
        return "https"
    return str(scope.get("scheme", "http"))


def opens_stream(method: str, headers: Headers) -> bool:
    """Return whether a client of a protocol before 2026-07-28 asks for the stream of changes."""
    version = text_of(headers, b"mcp-protocol-version")
    is_old = not version or version in HANDSHAKE_PROTOCOL_VERSIONS
    return method == "GET" and is_old and "text/event-stream" in text_of(headers, b"accept")


async def stream_changes(caller: McpCaller, receive: Receive, send: Send) -> None:
    """Tell the client of changes of its own list until it leaves, its token ends, or the service does."""
    headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store"), (b"x-accel-buffering", b"no")]
    leaving = asyncio.ensure_future(disconnected(receive))
    try:
        async with changes().listening(caller) as listener:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": STILL_HERE.encode(), "more_body": True})
            while not listener.is_over and not leaving.done():
                next_change = asyncio.ensure_future(listener.next(PULSE_SECONDS))
                await asyncio.wait([next_change, leaving], return_when=asyncio.FIRST_COMPLETED)
                if not next_change.done():
                    next_change.cancel()
                    break
                part = LIST_CHANGED if next_change.result() else STILL_HERE
                await send({"type": "http.response.body", "body": part.encode(), "more_body": True})
            await send({"type": "http.response.body", "body": b""})
    finally:
        leaving.cancel()


async def disconnected(receive: Receive) -> None:
    """Returns when the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


def text_of(headers: Headers, name: bytes) -> str:
    return headers.get(name, b"").decode("latin-1")


async def refuse(send: Send, refused: DoorRefused) -> None:
    """Send a refusal as JSON."""
    error = {"code": refused.code, "message": str(refused), "field": None}
    content = json.dumps({"error": error}).encode()
    headers = {"content-type": "application/json", "content-length": str(len(content)), **refused.headers}
    sent = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": refused.status, "headers": sent})
    await send({"type": "http.response.body", "body": content})
