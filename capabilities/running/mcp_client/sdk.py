"""Parts of the package `mcp` that it does not publish, all in this file: a new version may change them without a word.
It is pinned exactly in `pyproject.toml`, and `tests/capabilities/running/mcp_client/test_sdk.py` holds both.

- `mcp.client._probe.negotiate_auto` agrees on a version with a server of which none is known. Published is only
  `mcp.Client`, which begins every conversation with it, validates answers as a whole and keeps them.
  It calls `initialize` of the session, which `protocol.py` overrides.
- `mcp.client._transport`: `ReadStream` and `WriteStream`, the types of what every transport yields.
- `ClientSession._build_capabilities` makes the capabilities that go out; a published argument would send those of the
  modern protocol to older servers too.
- `ClientSession._stamp` puts version, client and capabilities on a request, as was agreed. `send_request` does so too,
  but validates the result: one malformed tool would cost the whole list.
- `logger` of three modules: they log what a server sends wrong with a traceback and its text.
- `mcp.client.streamable_http` words an HTTP status that came without a body of JSON-RPC by itself: that is no sentence
  of the server's. It sends a request in the context of whoever asked, by which `signing.seen` notes the status.
- Errors of an answer that is not MCP: none is declared, and the dispatcher passes on what the parsing raised.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import mcp_types as types
from mcp.client import session, streamable_http
from mcp.client._probe import negotiate_auto
from mcp.client._transport import ReadStream, WriteStream
from mcp.shared import jsonrpc_dispatcher
from mcp.shared.dispatcher import CallOptions
from mcp.shared.message import SessionMessage
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from capabilities.running.mcp_client.background import THREAD

__all__ = ["INVALID_ANSWER", "STATUS_MESSAGES", "Read", "SdkSession", "Write", "negotiate_auto"]

Read = ReadStream[SessionMessage | Exception]
Write = WriteStream[SessionMessage]

#: Messages of errors that the transport makes of an HTTP status.
STATUS_MESSAGES = ("Server returned an error response", "Not Found")
#: Errors that an answer that is no valid MCP raises; pydantic's is a ValueError.
INVALID_ANSWER = (ValueError, RuntimeError, KeyError, TypeError)


class _NotOfServers(logging.Filter):
    """Filter that lets nothing through that the SDK says in the thread that speaks to servers: what a server sends
    wrong, it logs with a traceback and with the text, and here it is a sentence for who asked. Other threads log as
    they did."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.threadName != THREAD or record.levelno >= logging.CRITICAL


for module in (session, streamable_http, jsonrpc_dispatcher):
    module.logger.addFilter(_NotOfServers())


class SdkSession(session.ClientSession):
    """The SDK's session, whose capabilities and stamps can be asked for."""

    def _build_capabilities(self, version: str) -> types.ClientCapabilities:
        """Build our capabilities: older protocols have other tasks, and no word for extensions."""
        capabilities = super()._build_capabilities(version)
        if version not in MODERN_PROTOCOL_VERSIONS:
            capabilities.extensions = None
        return capabilities

    def capabilities(self, version: str) -> types.ClientCapabilities:
        return self._build_capabilities(version)

    def stamped(self, method: str, params: Mapping[str, Any]) -> tuple[dict[str, Any], CallOptions]:
        """Return the params and the options of a request of the version that was agreed on."""
        data: dict[str, Any] = {"method": method, "params": dict(params)}
        options: CallOptions = {}
        self._stamp(data, options)
        return data["params"], options
