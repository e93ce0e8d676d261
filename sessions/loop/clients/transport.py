"""Address of a model, and access to its provider over the openai SDK: one guarded client for each origin."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

import httpx2
import openai
from django.conf import settings

from capabilities.language_models.providers.resolve import ResolvedModel, ResolvedProvider
from capabilities.running.egress import guarded_client
from sessions.loop.clients.errors import ModelError
from sessions.loop.clients.failures import Failed
from toolhub.bounded_json import load_json

#: Bytes of one answer; more is no answer.
MAX_BYTES = 8_000_000
#: Bytes of a refusal that are read at all; of one that is compressed, which can become a thousand times as many.
MAX_ERROR_BYTES = 262_144
MAX_PACKED_ERROR_BYTES = 16_384
#: Data that ends a stream.
DONE = "[DONE]"
#: Bytes of the beginning of an answer, by which its form is told, and by which it is shown where it has none.
MAX_BEGINNING = 2_000


@dataclass(frozen=True)
class Endpoint:
    """Address of a model, and the key that opens it."""

    base_url: str
    api_key: str
    model: str
    #: "host:port" that our own configuration named, and that may be on this machine; empty for any other.
    trusted_origin: str = ""

    @property
    def is_offline(self) -> bool:
        """True for the offline model: the only one that our own configuration names."""
        return bool(self.trusted_origin)


def endpoint_of(model: ResolvedModel) -> Endpoint:
    """Return the endpoint of the model. A provider without an address is the offline model. Raises ModelError;
    ValueError where the model was read to be shown, without the key."""
    return endpoint_of_provider(model.provider, model.name)


def endpoint_of_provider(provider: ResolvedProvider, model_name: str = "") -> Endpoint:
    """Return the endpoint of the provider itself. A provider without an address is the offline model. Raises
    ModelError; ValueError where it was read without its key."""
    if provider.api_key is None:
        raise ValueError(f"{provider.slug} was read without its key.")
    if not provider.is_enabled:
        raise ModelError("provider_disabled", f"The provider {provider.name} is switched off.")
    if provider.base_url:
        return Endpoint(provider.base_url, provider.api_key, model_name)
    offline = settings.TOOLHUB_OFFLINE_MODEL_URL
    return Endpoint(offline, "offline", model_name, httpx2.URL(offline).netloc.decode())


@lru_cache(maxsize=64)
def http_client(trusted_origin: str) -> httpx2.Client:
    client = guarded_client(timeout=float(settings.TOOLHUB_MODEL_SECONDS), trusted_origin=trusted_origin)
    client.event_hooks = {"response": [_shorten_refusal]}
    return client


@lru_cache(maxsize=256)
def sdk(endpoint: Endpoint) -> openai.OpenAI:
    client = openai.OpenAI(
        base_url=endpoint.base_url,
        api_key=endpoint.api_key or "none",
        http_client=http_client(endpoint.trusted_origin),
        max_retries=0,
    )
    # The SDK takes these from our environment; they are nobody's business but the operator's own provider's.
    client.organization = client.project = None
    return client


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


def bounded(response: httpx2.Response) -> Iterator[bytes]:
    received = 0
    for piece in response.iter_bytes():
        received += len(piece)
        if received > MAX_BYTES:
            raise Failed("provider_invalid", f"The provider's answer is over {MAX_BYTES:,} bytes.", again=False)
        yield piece


def sse_data(pieces: Iterator[bytes]) -> Iterator[str]:
    """The data of each server-sent event."""
    return (data for _, data in sse_events(pieces))


def sse_events(pieces: Iterator[bytes]) -> Iterator[tuple[str, str]]:
    """The name and the data of each server-sent event, of those with data. Bytes are joined before they are read as
    UTF-8; CR LF, LF and CR end a line. An event also ends where the next one begins without the empty line between
    them, and some servers end a stream without the field's name, or write that twice."""
    name, data = "", list[str]()
    for line in _lines(pieces):
        field, _, value = line.lstrip().partition(":")
        is_data = field in ("data", "error") or line.strip() == DONE
        if data and (not line or field == "event" or (is_data and _is_whole("\n".join(data)))):
            yield name, "\n".join(data)
            name, data = "", []
        if field in ("event", "error"):
            name = "error" if field == "error" else value.strip()
        if is_data:
            data.append(DONE if line.strip() == DONE else value.removeprefix(" ").removeprefix("data: "))
    if data:
        yield name, "\n".join(data)


def _lines(pieces: Iterator[bytes]) -> Iterator[str]:
    begun: list[bytes] = []
    is_first = True
    for piece in chain(pieces, (b"\n",)):
        first, *lines = piece.split(b"\n")
        begun.append(first)
        if not lines:
            continue
        lines.insert(0, b"".join(begun))
        begun = [lines.pop()]
        for raw in lines:
            text = raw.rstrip(b"\r").decode("utf-8", "replace")
            yield from text.removeprefix("\ufeff" if is_first else "").split("\r")
            is_first = False


def is_done(data: str) -> bool:
    """Return whether this data says that the stream has ended."""
    return data.strip().strip('"[]').upper() == "DONE"


def _is_whole(data: str) -> bool:
    """Return whether this data is an event by itself, and no line of a longer one."""
    if is_done(data):
        return True
    try:
        load_json(data, most_values=800_000, most_depth=500, constant=float)
    except ValueError:
        return False
    return True


def begins_with(pieces: Iterator[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """The first bytes that are no space, or none where there is nothing else; and all pieces again."""
    read: list[bytes] = []
    for piece in pieces:
        read.append(piece)
        first = b"".join(read).removeprefix(b"\xef\xbb\xbf").lstrip()[:MAX_BEGINNING] if piece.strip() else b""
        if first and (first[:1] in b"{[<" or len(first) >= 6 or b":" in first):
            return first, chain(read, pieces)
    return b"".join(read).removeprefix(b"\xef\xbb\xbf").lstrip()[:MAX_BEGINNING], iter(read)
