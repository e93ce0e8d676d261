"""The two dialects behind one interface: how a request is made, and how its reply is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from capabilities.models import Dialect
from sessions.loop.clients import chat, responses
from sessions.loop.clients.replies import ReplyReader
from sessions.loop.clients.requests import CallSettings


class DialectModule(Protocol):
    """Interface of the modules `chat` and `responses`."""

    #: Behind the provider's address, and the field of a request that holds the conversation.
    PATH: str
    CONVERSATION: str
    READER: type[ReplyReader]

    def parts(
        self,
        messages: Sequence[Mapping[str, Any]],
        filled: frozenset[str],
        *,
        wants_namespaces: bool,
        tools: str,
        tools_key: int | None,
    ) -> list[str]:
        """The conversation as it goes out, each part as JSON. The named ones are for `responses`, which says them."""

    def parameters(self, settings: CallSettings) -> dict[str, Any]:
        """Fields of a request beside conversation and tools."""

    def tools_of(self, wire: str) -> str:
        """Stored definitions as they go out."""


DIALECTS: dict[Dialect, DialectModule] = {Dialect.CHAT: chat, Dialect.RESPONSES: responses}
