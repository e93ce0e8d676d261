"""The list of a provider's models as it is read: nobody waits for a provider that drips."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from capabilities.language_models.providers.vendors import preset
from sessions.loop.clients import exchange
from sessions.loop.clients.errors import ModelError
from sessions.loop.clients.exchange import read_models
from sessions.loop.clients.transport import Endpoint
from tests.scripted_openai import Raw, ScriptedOpenAI


@pytest.fixture
def dripping() -> Iterator[str]:
    """The address of a server whose headers come a byte at a time, and never end."""
    server, stopped = socket.create_server(("127.0.0.1", 0)), threading.Event()

    def serve() -> None:
        connection, _ = server.accept()
        with connection, suppress(OSError):
            connection.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            while not stopped.wait(0.05):
                connection.sendall(b"x")

    threading.Thread(target=serve, daemon=True).start()
    yield f"http://127.0.0.1:{server.getsockname()[1]}/v1"
    stopped.set()
    server.close()


def test_a_provider_that_drips_is_left_at_the_deadline(dripping: str) -> None:
    began = time.monotonic()

    with pytest.raises(ModelError, match="did not answer in time") as raised:
        read_models(Endpoint(dripping, "sk-key", ""), 0.5)

    assert raised.value.code == "provider_timeout"
    assert time.monotonic() - began < 10


def test_a_refusal_says_no_key_and_not_everything(provider: ScriptedOpenAI) -> None:
    words = f"sk-very-secret-key {'x' * 9_000}".encode()
    provider.models = Raw(b'{"error": {"message": "' + words + b'"}}', 401, {"Content-Type": "application/json"})

    with pytest.raises(ModelError) as raised:
        read_models(Endpoint(provider.url, "sk-very-secret-key", ""), 5)

    assert "very-secret" not in str(raised.value)
    assert len(str(raised.value)) <= 400


def test_the_list_is_asked_for_as_each_vendor_wants(provider: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = read_models(Endpoint(provider.url, "sk-key-12345678", ""), 5)
    monkeypatch.setattr(exchange, "vendor_of", lambda url: preset("anthropic"))
    read_models(Endpoint(provider.url, "sk-key-12345678", ""), 5)

    assert answer["data"][0]["id"] == "scripted"
    assert [listing.get("x-api-key") for listing in provider.listings] == [None, "sk-key-12345678"]
    assert provider.listings[1]["anthropic-version"] == "2023-06-01"
