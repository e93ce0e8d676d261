"""Errors of a request to a server. Each message is one sentence for a person and for the model.

McpError
├── ServerUnreachable    nothing came: no connection, no process, an address that may not be reached
├── ServerSilent         it did not answer in time
├── ServerLost           the connection ended, or the process did, while it was asked
├── NotAuthorised        it wants another credential, or one that may do more
├── AnswerRefused        what it sent is no answer, or one that is not taken
├── ServerRefused        it answered with an error of the protocol
├── ServerBusy           too many calls of it run already
└── Stopped              who asked does not want it any more
"""

from __future__ import annotations

from typing import Any


class McpError(Exception):
    """Error of a request to a server. `nothing_came`: the message holds no word of the far side."""

    nothing_came = True


class ServerUnreachable(McpError):
    pass


class ServerSilent(McpError):
    """The time was up. What the call did is not known."""

    nothing_came = False


class ServerLost(McpError):
    """Loss of the connection or process during a call: what the call did is not known."""


class NotAuthorised(McpError):
    """Refusal of a credential. `status` is 401 or 403; `challenge` the WWW-Authenticate header as it came, or empty."""

    def __init__(self, message: str, *, status: int, challenge: str) -> None:
        super().__init__(message)
        self.status = status
        self.challenge = challenge


class AnswerRefused(McpError):
    pass


class ServerRefused(McpError):
    """Error of the protocol. `code` and `data` are those of the JSON-RPC error. `is_unknown`: no such error came, but a
    status of HTTP that leaves open what the call did."""

    nothing_came = False

    def __init__(self, message: str, *, code: int, data: Any = None, is_unknown: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.data = data
        self.is_unknown = is_unknown


class ServerBusy(McpError):
    pass


class Stopped(McpError):
    pass
