"""HTTP exchanges with a provider, each read in a thread of its own: a model call, and the list of models."""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import httpx2
from django.conf import settings

from capabilities.language_models.providers.vendors import vendor_of
from capabilities.models import Dialect
from sessions.loop.clients.dialects import DIALECTS
from sessions.loop.clients.errors import ModelError
from sessions.loop.clients.failures import (
    MAX_SAID,
    Failed,
    failure,
    no_reply,
    raise_bad_end,
    raise_error_object,
    without_key,
)
from sessions.loop.clients.replies import ReplyReader
from sessions.loop.clients.transport import DONE, Endpoint, begins_with, bounded, is_done, sdk, sse_events
from toolhub.bounded_json import JsonMessages, load_json

#: Values of one answer, all events of a stream together: of 8 MB that say anything. Some providers answer deep.
MOST_VALUES, MOST_DEPTH = 800_000, 500
#: Names of events that say nothing.
KEEPS_OPEN = frozenset({"ping", "keepalive", "keep-alive", "heartbeat"})


class Exchange:
    """One HTTP exchange, read in a thread of its own, so that whoever waits for it can stop waiting at any time.

    `items` gets pieces of text, at the end None, or a Failed.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        dialect: Dialect,
        body: bytes,
        seconds: float,
        names: Callable[[], frozenset[str]] = frozenset,
    ) -> None:
        self.endpoint, self.dialect, self.body = endpoint, dialect, body
        # A second more than the deadline leaves, so that it is the deadline that ends the call.
        self.seconds = min(seconds + 1.0, settings.TOOLHUB_MODEL_SECONDS)
        self.reader: ReplyReader = DIALECTS[dialect].READER(base_url=endpoint.base_url, names=names)
        self.items: queue.Queue[str | Failed | None] = queue.Queue()
        self._response: httpx2.Response | None = None
        self._rest: Iterator[bytes] = iter(())
        self._is_over = self._closed = False

    @property
    def has_begun(self) -> bool:
        """True where the provider took the request."""
        return self._response is not None

    def start(self) -> None:
        threading.Thread(target=self._run, name="model-call", daemon=True).start()

    def close(self) -> None:
        """Stop reading: the reading thread is woken by the end of its socket. A whole answer's connection is kept."""
        self._closed = True
        response = self._response
        if self._is_over or response is None or response.is_closed:
            return
        stream = response.extensions.get("network_stream")
        connection = stream.get_extra_info("socket") if stream is not None else None
        if connection is not None:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _run(self) -> None:
        try:
            self._exchange()
            self._is_over = True
            self.items.put(None)
            self._read_to_end()
        except Failed as failed:
            self.items.put(failed)
        except Exception as error:  # whatever a hostile answer provokes ends the try, never the worker
            self.items.put(failure(error))
        finally:
            if self._response is not None:
                with suppress(Exception):
                    self._response.close()

    def _exchange(self) -> None:
        response: httpx2.Response = sdk(self.endpoint).post(
            DIALECTS[self.dialect].PATH,
            cast_to=httpx2.Response,
            content=self.body,
            stream=True,
            options={"timeout": httpx2.Timeout(self.seconds, connect=min(10.0, self.seconds))},
        )
        self._response = response
        self._rest = bounded(response)
        if self._closed:
            return
        first, self._rest = begins_with(self._rest)
        if first[:1] == b"<":
            raise no_reply(b"".join(self._rest), "The provider answered with a page")
        if first[:1] in (b"{", b"[") and not first.startswith(DONE.encode()):
            self._read_whole()
        else:
            self._read_stream()
        if not self.reader.events:
            raise no_reply(first, "The provider's answer is no reply of a model")
        raise_bad_end(self.reader)
        if text := self.reader.end():
            self.items.put(text)

    def _read_to_end(self) -> None:
        """The few bytes behind the end of a stream, so that the connection can carry the next call."""
        with suppress(Exception):
            for _ in zip(range(10), self._rest, strict=False):
                pass

    def _read_whole(self) -> None:
        received = b"".join(self._rest).decode("utf-8", "replace").removeprefix("\ufeff")
        try:
            answer = load_json(received, most_values=MOST_VALUES, most_depth=MOST_DEPTH, constant=float)
        except ValueError as error:
            lines = [line.encode() for line in received.splitlines() if line.strip()]
            if len(lines) > 1:  # an object in each line, as Ollama streams, or one with an end behind it
                self._rest = iter([b"data: %s\n\n" % line for line in lines])
                self._read_stream()
                return
            raise no_reply(received.encode(), "The provider's answer is not JSON") from error
        answers = answer if isinstance(answer, list) else [answer]
        raise_error_object(answer)
        self.reader.is_streamed = False
        for each in answers:
            self.items.put(self.reader.add_whole(each))

    def _read_stream(self) -> None:
        ended, messages = False, JsonMessages(MOST_VALUES, most_values_of_one=MOST_VALUES, most_depth=MOST_DEPTH)
        for name, data in sse_events(self._rest):
            if not data.strip():
                continue
            if is_done(data):
                ended = True
                break
            try:
                chunk = messages.load(data, constant=float)
            except ValueError as error:
                if name == "error":
                    raise_error_object(data, is_error=True)
                if name in KEEPS_OPEN:
                    continue
                # To go on without this piece could change what a call says.
                raise Failed("provider_invalid", "Part of the provider's answer is not JSON.", again=True) from error
            raise_error_object(chunk, is_error=name == "error")
            if text := self.reader.add_event(chunk):
                self.items.put(text)
            if self.reader.is_over:
                break
        if self.reader.events and not ended and not self.reader.finish_reason:
            raise Failed("provider_reset", "The provider's answer broke off.", again=True)


# -- The list of models ----------------------------------------------------------------------------------------------


def read_models(endpoint: Endpoint, seconds: float) -> Any:
    """Return the provider's answer to `GET /models`, as it is. Raises ModelError.

    A thread of its own reads it, so that nobody waits longer than `seconds` for a provider that drips.
    """
    answers: queue.Queue[Any] = queue.Queue()

    def read() -> None:
        try:
            answers.put(_models_answer(endpoint, time.monotonic() + seconds))
        except Failed as failed:
            answers.put(failed)
        except Exception as error:  # as in Exchange
            answers.put(failure(error))

    threading.Thread(target=read, name="model-list", daemon=True).start()
    try:
        answer = answers.get(timeout=seconds)
    except queue.Empty:
        raise ModelError("provider_timeout", "The provider did not answer in time.") from None
    if isinstance(answer, Failed):
        raise ModelError(answer.code, without_key(answer.message, endpoint.api_key, MAX_SAID)) from answer
    return answer


def _models_answer(endpoint: Endpoint, until: float) -> Any:
    seconds = max(0.1, until - time.monotonic())
    headers, params = dict[str, str](), dict[str, object]()
    if vendor_of(endpoint.base_url).key == "anthropic":  # its list is not part of its OpenAI endpoint
        headers = {"x-api-key": endpoint.api_key, "anthropic-version": "2023-06-01"}
        params = {"limit": 1000}
    response: httpx2.Response = sdk(endpoint).get(
        "/models",
        cast_to=httpx2.Response,
        stream=True,
        options={"timeout": httpx2.Timeout(seconds), "headers": headers, "params": params},
    )
    try:
        received = bytearray()
        for piece in bounded(response):
            received += piece
            if time.monotonic() > until:
                raise Failed("provider_timeout", "The provider did not answer in time.", again=False)
        return load_json(received)
    except ValueError as error:
        raise Failed("provider_invalid", "The provider's list of models is not JSON.", again=False) from error
    finally:
        response.close()
