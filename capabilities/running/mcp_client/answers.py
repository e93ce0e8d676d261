"""Answers of servers as plain data: the SDK's types stay inside this room. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class ListedTool:
    """One tool of a list."""

    name: str
    #: As the server sent it, fields that nobody knows included.
    definition: Mapping[str, Any]
    #: Why it cannot be called, such as a malformed x-mcp-header; empty for most.
    unusable: str = ""
    #: Arguments that go as headers besides (x-mcp-header): the path of names to the argument -> the header's last part.
    headers: Mapping[tuple[str, ...], str] = field(default_factory=dict)


@dataclass(frozen=True)
class Listing:
    """A server's list of tools, and its description of itself."""

    tools: tuple[ListedTool, ...]
    #: Version of the protocol that was spoken, such as 2026-07-28.
    protocol: str
    #: {"name", "version", ...}; empty where it does not say.
    server_info: Mapping[str, Any] = field(default_factory=dict)
    instructions: str = ""
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    #: Seconds that the list may be kept; None where the protocol has no such word. 0: it may change at any time.
    ttl: float | None = None
    #: Readers of the same list: public, or private to who asks.
    cache_scope: str = "private"
    #: The list is longer than was read.
    is_cut: bool = False
    #: One sentence for people where the list is not all of it, or does not end.
    note: str = ""

    @property
    def tells_changes(self) -> bool:
        """True where the server says that it announces changes to its list."""
        tools = self.capabilities.get("tools")
        return isinstance(tools, Mapping) and tools.get("listChanged") is True


@dataclass(frozen=True)
class CallAnswer:
    """Answer to a call: a result, questions that go before one, or a task that goes on. Exactly one is set."""

    #: `tools/call`'s result as it was sent.
    result: Mapping[str, Any] | None = None
    #: Questions by the server's keys, each {"method", "params"}; with `request_state`, which is sent back unchanged.
    questions: Mapping[str, Mapping[str, Any]] | None = None
    request_state: str | None = None
    #: A session of an older protocol asked in the middle of the call, which was given up: it is made again with
    #: `answers`, and not with `input_responses`.
    is_asked_in_session: bool = False
    #: {"taskId", "status", "pollIntervalMs", ...}
    task: Mapping[str, Any] | None = None
    #: The task is one of protocol 2025-11-25, which live in the session.
    is_old_task: bool = False
