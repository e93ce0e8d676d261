"""Addresses of servers, with the principal that asks, and the processes that the operator's file names. Pure.

Knows forms. Must not know rows, settings nor the SDK: `toolhub.settings` reads the operator's file with it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from capabilities.contract.context import Credential
from capabilities.running.mcp_client.limits import CONNECT_SECONDS
from toolhub.bounded_json import load_json

ENTRY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
#: Every organisation may use the entry.
EVERYBODY = "*"
#: A server, and the principal that asks it.
Key = tuple[str, str]


@dataclass(frozen=True)
class ServerAddress:
    """One server as one principal reaches it.

    `principal` is who asks: the organisation, and the secret that signs where each member has an own one. Sessions are
    never shared between principals.
    """

    transport: Literal["http", "stdio"]
    principal: str
    #: Owner whose share of this process's sessions it takes: the organisation.
    owner: str = ""
    #: Its short name, where the operator opened private hosts to single organisations; else "-".
    organisation: str = "-"
    #: Name that people give it, for sentences.
    title: str = "The MCP server"
    url: str = ""
    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    folder: str = "/"
    #: Sent only to its own origins.
    credential: Credential = field(default_factory=Credential, repr=False)
    #: The version of the protocol that it spoke when it was last asked, where that is known: saves a question.
    protocol: str = ""
    #: The version that is spoken with it and no other; empty: one is agreed on.
    pinned: str = ""
    #: Seconds that it may take to connect, or to start, and to agree on a version.
    start_seconds: float = CONNECT_SECONDS

    @property
    def place(self) -> str:
        """Place of the server, the same for every principal."""
        if self.transport == "http":
            return self.url
        started = json.dumps([self.argv, sorted(self.env.items()), self.folder])
        return "stdio " + hashlib.sha256(started.encode()).hexdigest()

    @property
    def key(self) -> Key:
        return self.place, f"{self.principal} {self.pinned}" if self.pinned else self.principal


@dataclass(frozen=True)
class StdioEntry:
    """A process that the operator's file names: what is started, exactly, and who may use it."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    folder: str = "/"
    #: Slugs of organisations, or "*".
    organisations: tuple[str, ...] = ()

    def is_open_to(self, slug: str) -> bool:
        """Return whether the organisation of this slug may use it."""
        return EVERYBODY in self.organisations or slug in self.organisations


class EntriesRefused(ValueError):
    """The operator's file cannot be used; the message says what to change."""


def read_entries(text: str) -> dict[str, StdioEntry]:
    """The entries of a file in the `mcpServers` form. Raises EntriesRefused."""
    try:
        document = load_json(text)
    except ValueError as error:
        raise EntriesRefused(f"it {error}") from error
    servers = document.get("mcpServers") if isinstance(document, dict) else None
    if not isinstance(servers, dict):
        raise EntriesRefused('it must be {"mcpServers": {NAME: {"command": ...}}}')
    return {name: _entry(name, value) for name, value in servers.items()}


def _entry(name: str, value: Any) -> StdioEntry:
    """Return one entry of the installation's stdio servers. Raises EntriesRefused."""
    if not ENTRY_NAME.fullmatch(name):
        raise EntriesRefused(f"{name!r} is no name: letters, digits, dots, dashes and underscores, at most 64")
    if not isinstance(value, dict):
        raise EntriesRefused(f"{name} must be an object with a command")
    known = {"command", "args", "env", "cwd", "organisations"}
    if unknown := sorted(set(value) - known):
        raise EntriesRefused(f"{name} has {unknown[0]!r}, which is none of {', '.join(sorted(known))}")
    command, folder = value.get("command"), value.get("cwd", "/")
    if not isinstance(command, str) or not command or "\0" in command:
        raise EntriesRefused(f"{name} must have a command, a path or a name on the PATH of its env")
    if not isinstance(folder, str) or not folder.startswith("/"):
        raise EntriesRefused(f"the cwd of {name} must be an absolute path")
    args = _texts(name, "args", value.get("args", []))
    organisations = _texts(name, "organisations", value.get("organisations", []))
    env = value.get("env", {})
    if not isinstance(env, dict) or not all(isinstance(each, str) for each in env.values()):
        raise EntriesRefused(f"the env of {name} must be an object of texts")
    return StdioEntry(name, (command, *args), env, folder, organisations)


def _texts(name: str, field_name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) and "\0" not in each for each in value):
        raise EntriesRefused(f"the {field_name} of {name} must be a list of texts")
    return tuple(value)
