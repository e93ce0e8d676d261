"""One event loop a process, in a thread of its own, in which all servers are spoken to.

Made when it is first needed and known by its process: a fork starts with none, and makes its own.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import os
import threading
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

from capabilities.running.mcp_client.errors import ServerSilent, Stopped
from toolhub.durations import duration

T = TypeVar("T")

#: The name of the thread that speaks to all servers.
THREAD = "mcp"
#: Seconds between looks at whether who asked was stopped.
LOOK_EVERY = 0.1
#: Seconds beyond its own deadline after which a coroutine is given up from outside.
GRACE = 5.0

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def background_loop() -> asyncio.AbstractEventLoop:
    """The loop of this process; it runs."""
    global _loop
    with _lock:
        if _loop is None:
            loop = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name=THREAD, daemon=True).start()
            _loop = loop
        return _loop


def has_loop() -> bool:
    """Return whether this process has made its loop."""
    return _loop is not None


def run(work: Coroutine[Any, Any, T], *, seconds: float, stopped: threading.Event | None = None) -> T:
    """Return what the coroutine returns, or raise what it raises; it ends itself within `seconds`.

    Raises Stopped when `stopped` is set meanwhile: the coroutine is then cancelled, and not waited for.
    """
    future = submit(work)
    until = time.monotonic() + seconds + GRACE
    while True:
        remaining = until - time.monotonic()
        concurrent.futures.wait([future], timeout=max(0.0, min(LOOK_EVERY if stopped else remaining, remaining)))
        if future.done():
            return future.result()
        if stopped is not None and stopped.is_set():
            future.cancel()
            raise Stopped("The call was stopped.")
        if time.monotonic() >= until:
            future.cancel()
            raise ServerSilent(f"The server did not answer within {duration(seconds)}.")


def submit(work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
    """Begin a coroutine in the loop. It knows nothing of the caller's context, such as whose rows are in scope."""
    return contextvars.Context().run(asyncio.run_coroutine_threadsafe, work, background_loop())


def _forget() -> None:
    """Forget the loop in the child of a fork: threads are gone, and a lock may have been held."""
    global _loop, _lock
    _loop, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget)
