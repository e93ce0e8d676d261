"""Django behind ASGI, with the whole of a request in one thread of a pool, and streams that hold no thread.

Django's own handler changes between event loop and threads for each middleware and gives each request a thread of its
own, with a database connection of its own. Middlewares and views of ours are plain functions; only what a streaming
response yields is async.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import IO, TypeVar

from asgiref.sync import ThreadSensitiveContext
from django.core import signals
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler, get_script_prefix
from django.db import close_old_connections
from django.http import HttpResponseBase
from django.urls import set_script_prefix

from toolhub.intake import Receive, Scope, Send
from toolhub.tenants.later import LaterResponse

T = TypeVar("T")
#: Requests that are worked on at once; more wait for a thread.
THREADS = 40


class Handler(ASGIHandler):
    """Django's handler, with one change of threads a request in place of one for each middleware and signal."""

    def __init__(self) -> None:
        self.threads = ThreadPoolExecutor(THREADS, thread_name_prefix="request")
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
        """Answer one request; a client that leaves ends a stream, and a plain answer is made to its end unsent."""
        try:
            body = await self.read_body(receive)
        except RequestAborted:
            return
        try:
            response = await self.in_thread(partial(self.respond, scope, body))
            if isinstance(response, LaterResponse):
                await self.send_later(response, receive, send)
            elif response.streaming:
                await self.stream(response, receive, send)
            else:
                await self.send_response(response, send)
        finally:
            body.close()

    async def in_thread(self, work: Callable[[], T]) -> T:
        """What `work` returns, run in a thread of the pool and in a copy of this context."""
        return await asyncio.get_running_loop().run_in_executor(self.threads, copy_context().run, work)

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

    async def send_later(self, later: LaterResponse, receive: Receive, send: Send) -> None:
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
            raise results[0]
