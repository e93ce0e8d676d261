"""One model call with its retries.

The request's bytes are made by the model's dialect (`chat`, `responses`) from parts that are text already (tool
definitions were serialised when they were saved), and handed to the SDK's transport as they are: `tools=[...]` would
walk every schema on every call, at 37 CPU ms a turn with 128 tools against 4.4. The SDK never retries; we do, for we
know the turn's deadline.
"""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from django.conf import settings

from capabilities.models import Dialect
from sessions.loop.clients.errors import CallStopped, ModelBusy, ModelError, ModelRefused
from sessions.loop.clients.exchange import Exchange
from sessions.loop.clients.failures import MAX_REFUSAL, MAX_SAID, Failed, without_key
from sessions.loop.clients.replies import Reply
from sessions.loop.clients.transport import Endpoint

#: Seconds between looks at whether the turn was stopped.
LOOK_EVERY = 0.2
#: Seconds that a thread waits for a provider; longer waits are the ledger's.
MAX_WAIT = 10.0
#: Seconds that a provider may make us wait at all.
MAX_RETRY_AFTER = 600.0
#: The finish_reason of a reply that we stopped in the middle.
STOPPED = "stopped"


@dataclass
class ModelCall:
    """One call with its retries. `stopped` is set from outside.

    `on_text` gets pieces, `on_wait` is called now and then while none comes, `on_restart` where all of them are void.
    """

    endpoint: Endpoint
    dialect: Dialect
    body: bytes
    stopped: threading.Event
    #: time.monotonic() after which nobody waits any more.
    deadline: float
    on_text: Callable[[str], None] = lambda text: None
    on_restart: Callable[[], None] = lambda: None
    tries: int = field(default_factory=lambda: settings.TOOLHUB_MODEL_TRIES)
    on_wait: Callable[[], None] = lambda: None
    #: The tools that were sent.
    names: Callable[[], frozenset[str]] = frozenset
    #: The try that is under way.
    _exchange: Exchange | None = None

    def run(self) -> Reply:
        """The model's reply. Raises ModelError, ModelBusy or CallStopped."""
        for attempt in range(1, self.tries + 1):
            exchange = self._exchange = Exchange(self.endpoint, self.dialect, self.body, self._time_left(), self.names)
            try:
                return self._read(exchange)
            except Failed as failed:
                self._exchange = None
                wait = self._wait_after(failed, attempt)
                if exchange.reader.spoke:
                    self.on_restart()
            finally:
                exchange.close()
            if self.stopped.wait(min(wait, self._time_left())):
                raise CallStopped
        raise AssertionError("unreachable")

    def half_reply(self) -> Reply | None:
        """Return the part of the reply that had come when the call was stopped, without calls; None if the provider had
        not begun to answer."""
        exchange = self._exchange
        if exchange is None or not exchange.has_begun:
            return None
        return replace(exchange.reader.build_half(), finish_reason=STOPPED)

    def _wait_after(self, failed: Failed, attempt: int) -> float:
        """Seconds until the next try. Raises ModelError where there is none, and ModelBusy where it is far off."""
        message, time_left = self._failure_text(failed), self._time_left()
        wait: float = random.uniform(0.2, 0.6) * 2 ** (attempt - 1)  # noqa: S311
        if failed.wait is not None:
            wait = min(failed.wait, MAX_RETRY_AFTER)
        if failed.refusal is not None:
            refusal = replace(failed.refusal, words=self._without_key(failed.refusal.words, MAX_REFUSAL))
            raise ModelRefused(failed.code, message, refusal) from failed
        if not failed.again or (failed.wait is not None and wait >= time_left):
            raise ModelError(failed.code, message, failed.wait) from failed
        if wait > MAX_WAIT:
            raise ModelBusy(failed.code, message, wait) from failed
        if attempt == self.tries:
            raise ModelError(failed.code, message, failed.wait) from failed
        return wait

    def _failure_text(self, failed: Failed) -> str:
        """Return the failure's message for people, without the API key."""
        return self._without_key(failed.message, MAX_SAID)

    def _without_key(self, words: str, most: int) -> str:
        """A provider may repeat our key, or say anything at all."""
        return without_key(words, self.endpoint.api_key, most)

    def _read(self, exchange: Exchange) -> Reply:
        exchange.start()
        while True:
            if self.stopped.is_set():
                raise CallStopped
            self._time_left()
            try:
                item = exchange.items.get(timeout=LOOK_EVERY)
            except queue.Empty:
                self.on_wait()
                continue
            if isinstance(item, Failed):
                raise item
            if item is None:
                return exchange.reader.build()
            self.on_text(item)

    def _time_left(self) -> float:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise CallStopped
        return left
