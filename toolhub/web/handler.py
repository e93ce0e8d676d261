"""Django behind ASGI, with the whole of a request in one thread of a pool, and streams that hold no thread.

Django's own handler changes between event loop and threads for each middleware and gives each request a thread of its
own, with a database connection of its own. Middlewares and views of ours are plain functions; only what a streaming
response yields is async.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import IO, TypeVar

from asgiref.sync import ThreadSensitiveContext
from django.core import signals
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler, get_script_prefix
from django.db import close_old_connections
from django.http import HttpResponse, HttpResponseBase
from django.urls import set_script_prefix

from toolhub.tenants.later import LaterResponse
from toolhub.tenants.rows.trouble import is_database_trouble
from toolhub.web.intake import API, Receive, Scope, Send
from toolhub.web.problems import unavailable

logger = logging.getLogger(__name__)

T = TypeVar("T")
#: Requests that are worked on at once; more wait for a thread.
THREADS = 40
#: Requests that wait for a thread at once; more are sent away.
MOST_WAITING = 200
#: Seconds after which a client that was sent away may try again.
TRY_AGAIN = 2
#: Answer to a client that is sent away: for people, and for programs.
BUSY = "This service has too much to do just now. Try again in a moment."
BUSY_JSON = json.dumps({"error": {"code": "busy", "message": BUSY, "field": None}})


class Busy(Exception):
    """Refusal of a request, because too many wait for a thread."""


class Left(Exception):
    """The client left while its request waited for a thread: nobody wants the answer."""


class Handler(ASGIHandler):
    """Django's handler, with one change of threads a request in place of one for each middleware and signal."""

    def __init__(self) -> None:
        self.threads = ThreadPoolExecutor(THREADS, thread_name_prefix="request")
        #: Requests in a thread or on their way to one, and those that wait for one.
        self.at_work = self.waiting = 0
        super().__init__()

    def load_middleware(self, is_async: bool = False) -> None:
        """The middlewares as plain functions, whatever they could be."""
        super().load_middleware(is_async=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise ValueError(f"Only HTTP is spoken here, not {scope['type']}.")
        # A stream reads in these threads, one call after another; each read opens and closes its own connection.
        async with ThreadSensitiveContext(executor=self.threads):
            await self.handle(scope, receive, send)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. A client that leaves while it waits for a thread gets none; one that leaves later ends a
        stream, and a plain answer is made to its end unsent. Where too many wait, the answer is 503."""
        try:
            body = await self.read_body(receive)
        except RequestAborted:
            return
        try:
            response = await self.in_turn(partial(self.respond, scope, body), receive)
            if isinstance(response, LaterResponse):
                await self.send_later(response, scope["path"], receive, send)
            elif response.streaming:
                await self.stream(response, receive, send)
            else:
                await self.send_response(response, send)
        except Left:
            return
        except Busy:
            await self.send_response(busy(str(scope["path"])), send)
        finally:
            body.close()

    async def in_turn(self, work: Callable[[], T], receive: Receive) -> T:
        """Run `work` in a thread of the pool and return its result. Raises Busy where too many wait for one, and Left
        where the client leaves before it has begun."""
        if self.at_work < THREADS:
            return await self.in_thread(work)
        if self.waiting >= MOST_WAITING:
            raise Busy
        self.waiting += 1
        self.at_work += 1
        started = asyncio.Event()
        loop = asyncio.get_running_loop()

        def run() -> T:
            loop.call_soon_threadsafe(started.set)
            return work()

        working = self.threads.submit(copy_context().run, run)
        try:
            try:
                await self.begins(started, working, receive)
            finally:
                self.waiting -= 1
            return await asyncio.wrap_future(working)
        finally:
            self.at_work -= 1

    async def begins(self, started: asyncio.Event, working: Future[T], receive: Receive) -> None:
        """Wait for a thread. Raises Left, with the work taken back, where the client leaves before."""
        starting = asyncio.ensure_future(started.wait())
        leaving = asyncio.ensure_future(self.listen_for_disconnect(receive))
        try:
            await asyncio.wait([starting, leaving], return_when=asyncio.FIRST_COMPLETED)
        finally:
            starting.cancel()
            leaving.cancel()
            await asyncio.gather(starting, leaving, return_exceptions=True)
        if not started.is_set() and working.cancel():
            raise Left

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread of the pool, in a copy of this context, and return its result."""
        self.at_work += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self.threads, copy_context().run, work)
        finally:
            self.at_work -= 1

    def respond(self, scope: Scope, body: IO[bytes]) -> HttpResponseBase:
        """The response of the views. One that does not stream is closed: nothing but its bytes is left to send."""
        set_script_prefix(get_script_prefix(scope))
        signals.request_started.send(sender=self.__class__, scope=scope)
        request, refused = self.create_request(scope, body)
        response = self.get_response(request) if request is not None else refused
        assert response is not None
        if response.streaming:
            close_old_connections()  # of this thread, which goes on to another request
        else:
            response.close()
        return response

    async def send_later(self, later: LaterResponse, path: str, receive: Receive, send: Send) -> None:
        """Wait for the response and send it, unless the client leaves meanwhile."""
        making = asyncio.ensure_future(later.made())
        leaving = asyncio.ensure_future(self.listen_for_disconnect(receive))
        try:
            await asyncio.wait([making, leaving], return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            if not making.done():
                making.cancel()
            results = await asyncio.gather(making, leaving, return_exceptions=True)
        response = results[0]
        if isinstance(response, Exception) and is_database_trouble(response):
            response = unavailable(path, response)
        if isinstance(response, HttpResponseBase):
            if response.streaming:
                await self.stream(response, receive, send)
            else:
                await self.send_response(response, send)
                response.close()
        elif isinstance(response, Exception):
            raise response

    async def stream(self, response: HttpResponseBase, receive: Receive, send: Send) -> None:
        """Send what the response yields until its end, or until the client has left."""
        sending = asyncio.ensure_future(self.send_response(response, send))
        leaving = asyncio.ensure_future(self.listen_for_disconnect(receive))
        try:
            await asyncio.wait([sending, leaving], return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            sending.cancel()
            results = await asyncio.gather(sending, leaving, return_exceptions=True)
            await self.in_thread(response.close)
        if isinstance(results[0], Exception):
            if is_database_trouble(results[0]):  # the stream ends unfinished, and its reader asks again
                logger.warning("A stream lost the database: %s", results[0])
                return
            raise results[0]


def busy(path: str) -> HttpResponse:
    """The answer to a request that is not taken: JSON for programs."""
    is_api = path.startswith(API)
    kind = "application/json" if is_api else "text/plain; charset=utf-8"
    return HttpResponse(BUSY_JSON if is_api else BUSY, kind, 503, headers={"Retry-After": str(TRY_AGAIN)})
