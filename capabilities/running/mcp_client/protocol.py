"""One conversation with a server: agreeing on a version, asking, and answering what it asks back.

On top of the SDK's session, which validates every answer as a whole and reads lists again on its own: here an answer
comes as it was sent, so that one malformed tool does not cost the list, and a hostile schema runs nowhere near.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import anyio
import mcp_types as types
from mcp.client.session import ClientRequestContext, IncomingMessage
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.inbound import MCP_NAME_HEADER, encode_header_value
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types.version import (
    HANDSHAKE_PROTOCOL_VERSIONS,
    KNOWN_PROTOCOL_VERSIONS,
    LATEST_HANDSHAKE_VERSION,
    LATEST_MODERN_VERSION,
    MODERN_PROTOCOL_VERSIONS,
)

from capabilities.running.mcp_client.sdk import Read, SdkSession, Write, negotiate_auto

CLIENT = types.Implementation(name="toolhub", version="1")
TASKS = "io.modelcontextprotocol/tasks"
#: Every version that is spoken here, the oldest first.
VERSIONS = KNOWN_PROTOCOL_VERSIONS
MODERN, LEGACY = LATEST_MODERN_VERSION, LATEST_HANDSHAKE_VERSION


class OtherVersion(Exception):
    """The server answered with a version that is not spoken here, or with another one than is pinned for it."""

    def __init__(self, version: str, pinned: str = "") -> None:
        super().__init__(version)
        self.version = version
        self.pinned = pinned


class OneCall:
    """A call in a session of an older protocol: what it may answer when it is asked, and what it was asked else."""

    def __init__(self, answers: Mapping[str, Mapping[str, Any]]) -> None:
        self.answers = answers
        self.asked: types.ElicitRequestParams | None = None
        self.was_asked = anyio.Event()


class Conversation(SdkSession):
    """A session that answers with what was sent."""

    def __init__(self, read: Read, write: Write, pinned: str = "") -> None:
        self.dispatcher = JSONRPCDispatcher(read, write)
        super().__init__(
            dispatcher=self.dispatcher,
            client_info=CLIENT,
            elicitation_callback=self._when_asked,
            message_handler=self._on_message,
            extensions={TASKS: {}},
        )
        #: The version that is spoken and no other; empty: one is agreed on.
        self.pinned = pinned
        #: The calls that run, of an older protocol.
        self.calls: set[OneCall] = set()
        #: Set when the server said that its list is another one.
        self.tools_changed = anyio.Event()

    @property
    def is_modern(self) -> bool:
        return self.protocol_version in MODERN_PROTOCOL_VERSIONS

    async def agree(self, version: str) -> None:
        """Agree on a version, beginning with the one that is expected; "" for none. Raises OtherVersion."""
        version = self.pinned or version
        if version in MODERN_PROTOCOL_VERSIONS:
            self.adopt(
                types.DiscoverResult(
                    supported_versions=[version],
                    capabilities=types.ServerCapabilities(),
                    ttl_ms=0,
                    cache_scope="private",
                )
            )
        elif version:
            await self.initialize()
        else:
            await negotiate_auto(self)

    async def initialize(self) -> types.InitializeResult:
        """Initialize as the SDK does, which always offers the newest version, and words an unknown one differently. It
        raises OtherVersion where the server takes another one only."""
        offered = self.pinned or LEGACY
        params = types.InitializeRequestParams(
            protocol_version=offered, capabilities=self.capabilities(offered), client_info=CLIENT
        )
        result = await self.send_request(types.InitializeRequest(params=params), types.InitializeResult)
        version = result.protocol_version
        if version not in HANDSHAKE_PROTOCOL_VERSIONS or self.pinned not in ("", version):
            raise OtherVersion(version, self.pinned)
        self.adopt(result)
        await self.send_notification(types.InitializedNotification())
        return result

    async def ask(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        seconds: float | None,
        headers: Mapping[str, str] | None = None,
        name: str = "",
        on_progress: ProgressFnT | None = None,
    ) -> dict[str, Any]:
        """Send a request and return its result as it was sent. `headers` and `name` (as Mcp-Name) go with it in the
        modern protocol only.

        Raises the SDK's MCPError, also when the time is up; the server is then notified.
        """
        sent_params, options = self.stamped(method, params)
        if self.is_modern:
            # No two requests have the same number, in whatever exchange: the second try of a call is another request.
            options["request_id"] = f"r-{uuid4().hex}"
            sent = options.setdefault("headers", {})
            sent.update(headers or {})
            if name:
                sent[MCP_NAME_HEADER] = encode_header_value(name)
        if seconds is not None:
            options["timeout"] = seconds
        if on_progress is not None:
            options["on_progress"] = on_progress
        return await self.dispatcher.send_raw_request(method, sent_params, options)

    async def _when_asked(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        """Answer with what the member said to the same question, or have the one call that runs give up and ask."""
        if len(self.calls) != 1:  # whose question it is cannot be told, and nobody else may see it
            return types.ErrorData(code=types.INVALID_REQUEST, message="Several calls run: nobody can be asked.")
        (call,) = self.calls
        answer = call.answers.get(question_key(params))
        if answer is not None:
            return types.ElicitResult.model_validate(answer)
        call.asked = params
        call.was_asked.set()
        await anyio.sleep(1.0)  # the call is cancelled meanwhile
        return types.ElicitResult(action="cancel")

    async def _on_message(self, message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self.tools_changed.set()


def question_key(params: types.ElicitRequestParams) -> str:
    """Return a key that distinguishes one question of a call from its others."""
    return params.model_dump_json(by_alias=True, exclude={"meta", "task", "elicitation_id"}, exclude_none=True)


@asynccontextmanager
async def conversation(read: Read, write: Write, version: str, pinned: str = "") -> AsyncGenerator[Conversation]:
    """A conversation that has agreed on a version, or speaks the one that is pinned. Raises the SDK's MCPError, and
    OtherVersion."""
    async with Conversation(read, write, pinned) as session:
        await session.agree(version)
        yield session
