"""One model call over the openai SDK, the only file that imports it.

The request's bytes are made by the model's dialect (`chat`, `responses`) from parts that are text already (tool
definitions were serialised when they were saved), and handed to the SDK's transport as they are: `tools=[...]` would
walk every schema on every call, at 37 CPU ms a turn with 128 tools against 4.4. The SDK never retries; we do, for we
know the turn's deadline.

ModelError            the call failed for good; `code` goes to the turn
├── ModelBusy         the provider asks to come back later than a thread should wait
└── ModelRefused      the provider does not take the request as it is
CallStopped           the turn was cancelled, ran out of time, or changed hands
"""

from __future__ import annotations

import email.utils
import json
import queue
import random
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import httpx2
import openai
from django.conf import settings

from capabilities.common.text import storable
from capabilities.egress import EgressRefused, guarded_client
from capabilities.models import Dialect
from capabilities.providers.resolve import ResolvedModel, ResolvedProvider
from capabilities.providers.vendors import vendor_of
from sessions.loop.models import chat, responses
from sessions.loop.models.chat import ChatReader
from sessions.loop.models.refusals import REFUSED, Refusal
from sessions.loop.models.replies import Reply, ReplyReader
from sessions.loop.models.responses import ResponsesReader

#: Seconds between looks at whether the turn was stopped.
LOOK_EVERY = 0.2
#: Seconds that a thread waits for a provider; longer waits are the ledger's.
MAX_WAIT = 10.0
#: Seconds that a provider may make us wait at all.
MAX_RETRY_AFTER = 600.0
#: Bytes of one answer; more is no answer.
MAX_BYTES = 8_000_000
#: Bytes of a refusal that are read at all; of one that is compressed, which can become a thousand times as many.
MAX_ERROR_BYTES = 262_144
MAX_PACKED_ERROR_BYTES = 16_384
#: Characters of what a provider says of an error that are passed on.
MAX_SAID = 400
#: Characters of a refusal that are read for what it teaches.
MAX_REFUSAL = 2_000
#: How OpenAI, vLLM, Ollama and llama.cpp say that the messages do not fit the model's window.
TOO_LONG = re.compile(r"context.(length|size|window)", re.IGNORECASE)
#: The finish_reason of a reply that we stopped in the middle.
STOPPED = "stopped"
#: How providers say that nobody pays any more, and that there is no such model: trying again changes neither.
NO_CREDIT = re.compile(r"insufficient_quota|credit balance is too low|insufficient.balance", re.IGNORECASE)
NO_MODEL = re.compile(
    r"model_not_found|model_decommissioned|\bmodel\b.{0,120}(?:does not exist|not found|decommissioned|no longer)",
    re.IGNORECASE | re.DOTALL,
)
RETRIED_STATUSES = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})


class ModelError(Exception):
    """The model call failed for good."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class ModelBusy(ModelError):
    """The provider asks to be left alone for `wait` seconds."""

    def __init__(self, code: str, message: str, wait: float) -> None:
        super().__init__(code, message)
        self.wait = wait


class ModelRefused(ModelError):
    """The request was refused before anything was answered."""

    def __init__(self, code: str, message: str, refusal: Refusal) -> None:
        super().__init__(code, message)
        self.refusal = refusal


class CallStopped(Exception):
    """Nobody waits for this answer any more."""


@dataclass(frozen=True)
class Endpoint:
    """Where a model is, and what opens it."""

    base_url: str
    api_key: str
    model: str
    #: "host:port" that our own configuration named, and that may be on this machine; empty for any other.
    trusted_origin: str = ""

    @property
    def is_offline(self) -> bool:
        """Whether it is the offline model: the only one that our own configuration names."""
        return bool(self.trusted_origin)


def endpoint_of(model: ResolvedModel) -> Endpoint:
    """Its address. A provider without one is the offline model. Raises ModelError; ValueError where the model was read
    to be shown, without the key."""
    return endpoint_of_provider(model.provider, model.name)


def endpoint_of_provider(provider: ResolvedProvider, model_name: str = "") -> Endpoint:
    """The same for the provider itself."""
    if provider.api_key is None:
        raise ValueError(f"{provider.slug} was read without its key.")
    if not provider.is_enabled:
        raise ModelError("provider_disabled", f"The provider {provider.name} is switched off.")
    if provider.base_url:
        return Endpoint(provider.base_url, provider.api_key, model_name)
    offline = settings.TOOLHUB_OFFLINE_MODEL_URL
    return Endpoint(offline, "offline", model_name, httpx2.URL(offline).netloc.decode())


def read_models(endpoint: Endpoint, seconds: float) -> Any:
    """What the provider answers to `GET /models`, as it is. Raises ModelError.

    It is read in a thread of its own, so that nobody waits longer than that for a provider that drips.
    """
    answers: queue.Queue[Any] = queue.Queue()

    def read() -> None:
        try:
            answers.put(_models_answer(endpoint, time.monotonic() + seconds))
        except _Failed as failed:
            answers.put(failed)
        except Exception as error:  # as in _Exchange
            answers.put(_failure(error))

    threading.Thread(target=read, name="model-list", daemon=True).start()
    try:
        answer = answers.get(timeout=seconds)
    except queue.Empty:
        raise ModelError("provider_timeout", "The provider did not answer in time.") from None
    if isinstance(answer, _Failed):
        raise ModelError(answer.code, _without_key(answer.message, endpoint.api_key, MAX_SAID)) from answer
    return answer


def _models_answer(endpoint: Endpoint, until: float) -> Any:
    seconds = max(0.1, until - time.monotonic())
    headers, params = dict[str, str](), dict[str, object]()
    if vendor_of(endpoint.base_url).key == "anthropic":  # its list is not part of its OpenAI endpoint
        headers = {"x-api-key": endpoint.api_key, "anthropic-version": "2023-06-01"}
        params = {"limit": 1000}
    response: httpx2.Response = _sdk(endpoint).get(
        "/models",
        cast_to=httpx2.Response,
        stream=True,
        options={"timeout": httpx2.Timeout(seconds), "headers": headers, "params": params},
    )
    try:
        received = bytearray()
        for piece in _bounded(response):
            received += piece
            if time.monotonic() > until:
                raise _Failed("provider_timeout", "The provider did not answer in time.", again=False)
        return json.loads(received.decode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise _Failed("provider_invalid", "The provider's list of models is not JSON.", again=False) from error
    finally:
        response.close()


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
    #: The try that is under way.
    _exchange: _Exchange | None = None

    def run(self) -> Reply:
        """The model's reply. Raises ModelError, ModelBusy or CallStopped."""
        for attempt in range(1, self.tries + 1):
            exchange = self._exchange = _Exchange(self.endpoint, self.dialect, self.body, self._time_left())
            try:
                return self._read(exchange)
            except _Failed as failed:
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
        """What had come of the reply when the call was stopped, without calls; None if the provider had not begun to
        answer."""
        exchange = self._exchange
        if exchange is None or not exchange.has_begun:
            return None
        return replace(exchange.reader.build_half(), finish_reason=STOPPED)

    def _wait_after(self, failed: _Failed, attempt: int) -> float:
        """Seconds until the next try. Raises ModelError where there is none, and ModelBusy where it is far off."""
        said, left = self._said(failed), self._time_left()
        wait: float = random.uniform(0.2, 0.6) * 2 ** (attempt - 1)  # noqa: S311
        if failed.wait is not None:
            wait = min(failed.wait, MAX_RETRY_AFTER)
        if failed.refusal is not None:
            refusal = replace(failed.refusal, words=self._without_key(failed.refusal.words, MAX_REFUSAL))
            raise ModelRefused(failed.code, said, refusal) from failed
        if not failed.again or (failed.wait is not None and wait >= left):
            raise ModelError(failed.code, said) from failed
        if wait > MAX_WAIT:
            raise ModelBusy(failed.code, said, wait) from failed
        if attempt == self.tries:
            raise ModelError(failed.code, said) from failed
        return wait

    def _said(self, failed: _Failed) -> str:
        """What went wrong, for people."""
        return self._without_key(failed.message, MAX_SAID)

    def _without_key(self, words: str, most: int) -> str:
        """A provider may repeat our key, or say anything at all."""
        return _without_key(words, self.endpoint.api_key, most)

    def _read(self, exchange: _Exchange) -> Reply:
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
            if isinstance(item, _Failed):
                raise item
            if item is None:
                return exchange.reader.build()
            self.on_text(item)

    def _time_left(self) -> float:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise CallStopped
        return left


def _without_key(words: str, key: str, most: int) -> str:
    return storable(words.replace(key, "***") if len(key) >= 8 else words, most)


class _Failed(Exception):
    """One try failed: whether another one makes sense, and after how many seconds if the provider said; or that the
    request has to be another one."""

    def __init__(
        self, code: str, message: str, *, again: bool, wait: float | None = None, refusal: Refusal | None = None
    ) -> None:
        super().__init__(message)
        self.code, self.message, self.again, self.wait, self.refusal = code, message, again, wait, refusal


class _Exchange:
    """One HTTP exchange, read in a thread of its own, so that whoever waits for it can stop waiting at any time.

    `items` gets pieces of text, at the end None, or a _Failed.
    """

    def __init__(self, endpoint: Endpoint, dialect: Dialect, body: bytes, seconds: float) -> None:
        self.endpoint, self.dialect, self.body = endpoint, dialect, body
        # A second more than the deadline leaves, so that it is the deadline that ends the call.
        self.seconds = min(seconds + 1.0, settings.TOOLHUB_MODEL_SECONDS)
        self.reader: ReplyReader = _READERS[dialect](base_url=endpoint.base_url)
        self.items: queue.Queue[str | _Failed | None] = queue.Queue()
        self._response: httpx2.Response | None = None
        self._rest: Iterator[bytes] = iter(())
        self._is_over = self._closed = False

    @property
    def has_begun(self) -> bool:
        """Whether the provider took the request."""
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
        except _Failed as failed:
            self.items.put(failed)
        except Exception as error:  # whatever a hostile answer provokes ends the try, never the worker
            self.items.put(_failure(error))
        finally:
            if self._response is not None:
                with suppress(Exception):
                    self._response.close()

    def _exchange(self) -> None:
        response: httpx2.Response = _sdk(self.endpoint).post(
            _PATHS[self.dialect],
            cast_to=httpx2.Response,
            content=self.body,
            stream=True,
            options={"timeout": httpx2.Timeout(self.seconds, connect=min(10.0, self.seconds))},
        )
        self._response = response
        self._rest = _bounded(response)
        if self._closed:
            return
        if "json" in response.headers.get("content-type", ""):
            self._read_whole()
        else:
            self._read_stream()

    def _read_to_end(self) -> None:
        """The few bytes behind the end of a stream, so that the connection can carry the next call."""
        with suppress(Exception):
            for _ in zip(range(10), self._rest, strict=False):
                pass

    def _read_whole(self) -> None:
        received = b"".join(self._rest)
        try:
            answer = json.loads(received.decode("utf-8", "replace"))
        except ValueError as error:
            raise _Failed("provider_invalid", "The provider's answer is not JSON.", again=True) from error
        _raise_error_object(answer)
        self.reader.is_streamed = False
        self.items.put(self.reader.add_whole(answer))
        if not self.reader.events:
            raise _Failed("provider_invalid", "The provider's answer is no reply of a model.", again=True)

    def _read_stream(self) -> None:
        ended = False
        for data in sse_data(self._rest):
            if not data.strip():
                continue
            if data.strip() == "[DONE]":
                ended = True
                break
            try:
                chunk = json.loads(data)
            except (ValueError, RecursionError) as error:
                # To go on without this piece could change what a call says.
                raise _Failed("provider_invalid", "Part of the provider's answer is not JSON.", again=True) from error
            _raise_error_object(chunk)
            if text := self.reader.add_event(chunk):
                self.items.put(text)
            if self.reader.is_over:
                break
        if not self.reader.events:
            raise _Failed("provider_invalid", "The provider's answer is no stream of a reply.", again=True)
        if not ended and not self.reader.finish_reason:
            raise _Failed("provider_reset", "The provider's answer broke off.", again=True)


def _bounded(response: httpx2.Response) -> Iterator[bytes]:
    received = 0
    for piece in response.iter_bytes():
        received += len(piece)
        if received > MAX_BYTES:
            raise _Failed("provider_invalid", f"The provider's answer is over {MAX_BYTES:,} bytes.", again=False)
        yield piece


def sse_data(pieces: Iterator[bytes]) -> Iterator[str]:
    """The data of each server-sent event. Bytes are joined before they are read as UTF-8; CR LF and LF end a line."""
    begun: list[bytes] = []
    data: list[str] = []
    for piece in pieces:
        first, *lines = piece.split(b"\n")
        begun.append(first)
        if not lines:
            continue
        lines.insert(0, b"".join(begun))
        begun = [lines.pop()]
        for raw in lines:
            line = raw.rstrip(b"\r").decode("utf-8", "replace")
            if line.startswith("data:"):
                data.append(line[5:].removeprefix(" "))
            elif not line and data:
                yield "\n".join(data)
                data = []
    rest = b"".join(begun)
    if rest.startswith(b"data:"):
        data.append(rest[5:].decode("utf-8", "replace").strip())
    if data:
        yield "\n".join(data)


def _raise_error_object(answer: Any) -> None:
    """An error that came with status 200, alone or in the middle of a stream."""
    if not isinstance(answer, dict):
        return
    response = answer.get("response")
    error = answer if answer.get("type") == "error" else answer.get("error")
    if answer.get("type") == "response.failed":
        error = (response.get("error") if isinstance(response, dict) else None) or "it failed"
    if not error:
        return
    if isinstance(error, dict) and isinstance(error.get("error"), dict):
        error = error["error"]
    message = error.get("message") if isinstance(error, dict) else error
    code = error.get("code") if isinstance(error, dict) else None
    again = not (isinstance(code, int) and 400 <= code < 500 and code not in RETRIED_STATUSES)
    if isinstance(code, str) and TOO_LONG.search(code):
        raise _Failed("context_length", f"The provider reported: {message}", again=False)
    raise _Failed("provider_error", f"The provider reported: {message}", again=again)


def _failure(error: Exception) -> _Failed:
    """What a raised error means for the turn."""
    if isinstance(error, openai.APIStatusError):
        return _status_failure(error)
    refusal = _cause(error, EgressRefused)
    if refusal is not None:
        return _Failed("provider_refused", f"The provider's address is not allowed: {refusal}", again=False)
    if isinstance(error, openai.APITimeoutError | httpx2.TimeoutException):
        return _Failed("provider_timeout", "The provider did not answer in time.", again=True)
    if isinstance(error, openai.APIConnectionError | httpx2.HTTPError | OSError):
        return _Failed("provider_unreachable", "The provider cannot be reached, or broke off.", again=True)
    return _Failed("provider_invalid", f"The provider's answer cannot be read ({type(error).__name__}).", again=True)


def _status_failure(error: openai.APIStatusError) -> _Failed:
    status, said = error.status_code, _words_of(error)
    if status in (401, 403):
        return _Failed("provider_auth", f"The provider refused the key ({status}): {said}", again=False)
    if status == 402 or (status < 500 and NO_CREDIT.search(f"{error.code} {said}")):
        return _Failed("provider_credit", f"The provider says that there is no credit left: {said}", again=False)
    if status == 429:
        wait = retry_after(error.response.headers)
        return _Failed("provider_rate_limit", f"The provider is at its limit: {said}", again=True, wait=wait)
    if status in RETRIED_STATUSES or status >= 500:
        wait = retry_after(error.response.headers)
        return _Failed("provider_error", f"The provider failed ({status}): {said}", again=True, wait=wait)
    told = f"The provider rejected the request ({status}): {said}"
    if TOO_LONG.search(f"{error.code} {said}"):
        return _Failed("context_length", told, again=False)
    if NO_MODEL.search(f"{error.code} {said}"):
        return _Failed("model_gone", f"The provider does not have the model any more: {said}", again=False)
    refusal = Refusal(status, _all_words_of(error), str(error.param or ""), str(error.code or ""))
    return _Failed("provider_rejected", told, again=False, refusal=refusal if status in REFUSED else None)


def _words_of(error: openai.APIStatusError) -> str:
    message = error.body.get("message") if isinstance(error.body, dict) else None
    return (message if isinstance(message, str) else str(error.message))[:MAX_REFUSAL]


def _all_words_of(error: openai.APIStatusError) -> str:
    """The whole of what was answered: some servers say which parameter they refuse beside the message only."""
    words = _words_of(error)
    details = error.body if isinstance(error.body, dict | list) else ""
    return words if words and isinstance(details, dict) and "message" in details else f"{words} {details}"


def retry_after(headers: httpx2.Headers) -> float | None:
    """Seconds that the provider asks to wait, of any of the ways to say so; None if it does not, or not sensibly."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value = headers.get(name, "").strip()
        try:
            seconds = float(value) / unit
        except ValueError:
            continue
        return seconds if 0 <= seconds < float("inf") else None
    try:
        moment = email.utils.parsedate_to_datetime(headers.get("retry-after", ""))
    except (TypeError, ValueError):
        return None
    return max(0.0, moment.timestamp() - time.time())


def _cause(error: BaseException | None, kind: type[Exception]) -> BaseException | None:
    seen = 0
    while error is not None and seen < 10:
        if isinstance(error, kind):
            return error
        error, seen = error.__cause__ or error.__context__, seen + 1
    return None


_READERS: dict[Dialect, type[ReplyReader]] = {Dialect.CHAT: ChatReader, Dialect.RESPONSES: ResponsesReader}
_PATHS = {Dialect.CHAT: chat.PATH, Dialect.RESPONSES: responses.PATH}


class _Beginning(httpx2.SyncByteStream):
    """The first bytes of a body: the SDK reads a refusal whole, however long it is."""

    def __init__(self, stream: httpx2.SyncByteStream, most: int) -> None:
        self.stream, self.most = stream, most

    def __iter__(self) -> Iterator[bytes]:
        left = self.most
        for piece in self.stream:
            yield piece[:left]
            left -= len(piece)
            if left <= 0:
                return

    def close(self) -> None:
        self.stream.close()


def _shorten_refusal(response: httpx2.Response) -> None:
    if response.is_error and isinstance(response.stream, httpx2.SyncByteStream):
        is_packed = "content-encoding" in response.headers
        response.stream = _Beginning(response.stream, MAX_PACKED_ERROR_BYTES if is_packed else MAX_ERROR_BYTES)


@lru_cache(maxsize=64)
def _http_client(trusted_origin: str) -> httpx2.Client:
    client = guarded_client(timeout=float(settings.TOOLHUB_MODEL_SECONDS), trusted_origin=trusted_origin)
    client.event_hooks = {"response": [_shorten_refusal]}
    return client


@lru_cache(maxsize=256)
def _sdk(endpoint: Endpoint) -> openai.OpenAI:
    client = openai.OpenAI(
        base_url=endpoint.base_url,
        api_key=endpoint.api_key or "none",
        http_client=_http_client(endpoint.trusted_origin),
        max_retries=0,
    )
    # The SDK takes these from our environment; they are nobody's business but the operator's own provider's.
    client.organization = client.project = None
    return client
