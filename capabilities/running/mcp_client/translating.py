"""Translation of what the SDK and the network raise into this room's errors, one sentence each."""

from __future__ import annotations

import anyio
import httpx2
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, INVALID_REQUEST, PARSE_ERROR, REQUEST_TIMEOUT

from capabilities.running.egress import EgressError, is_refused
from capabilities.running.mcp_client.errors import (
    AnswerRefused,
    McpError,
    NotAuthorised,
    ServerLost,
    ServerRefused,
    ServerSilent,
    ServerUnreachable,
)
from capabilities.running.mcp_client.protocol import VERSIONS, OtherVersion
from capabilities.running.mcp_client.sdk import INVALID_ANSWER, STATUS_MESSAGES
from capabilities.running.mcp_client.server_addresses import ServerAddress
from capabilities.running.mcp_client.signing import Seen
from capabilities.running.mcp_client.words import readable
from toolhub.durations import duration

#: Characters of an error's own words that are passed on.
MAX_WORDS = 500
#: Statuses of requests that were refused: then nothing was done. Those of a credential have words of their own.
REFUSED = frozenset(status for status in range(400, 500) if is_refused(status)) - {401, 403}


def translated(error: BaseException, address: ServerAddress, noted: Seen, seconds: float) -> McpError:
    """The error as one of ours."""
    error = leaf(error)
    if isinstance(error, McpError):
        return error
    name = address.title
    if isinstance(error, OtherVersion):
        return AnswerRefused(_of_version(error, name))
    if noted.status in (401, 403):
        wants = _refused_credential(noted)
        return NotAuthorised(f"{name} {wants}.", status=noted.status, challenge=noted.challenge)
    if noted.status in REFUSED and not isinstance(error, MCPError):
        return ServerRefused(f"{name} answered with an error: HTTP status {noted.status}.", code=INVALID_REQUEST)
    if isinstance(error, MCPError):
        return _of_protocol(error, name, noted, seconds)
    if isinstance(error, EgressError):
        return ServerUnreachable(str(error))
    if isinstance(error, TimeoutError | httpx2.TimeoutException):
        return ServerSilent(f"{name} did not answer within {duration(seconds)}.")
    if isinstance(error, httpx2.HTTPError):
        return ServerUnreachable(f"{name} could not be reached: {str(error).rstrip('.') or type(error).__name__}.")
    if isinstance(error, anyio.BrokenResourceError | anyio.ClosedResourceError | SubscriptionLost):
        return ServerLost(f"The connection to {name} ended.")
    if isinstance(error, OSError):
        return ServerUnreachable(f"The process of {name} could not be started: {error.strerror or error}.")
    if isinstance(error, INVALID_ANSWER):
        return AnswerRefused(f"{name} sent an answer that is not valid MCP.")
    return ServerLost(f"{name} could not be asked ({type(error).__name__}).")


def _of_version(error: OtherVersion, name: str) -> str:
    version = readable(error.version)[0][:40].strip()
    if error.pinned:
        text = f"speaks {version}" if version else "does not speak it"
        return f"Version {error.pinned} of the protocol is pinned for {name}, which {text}: choose another, or none."
    return f"{name} speaks version {version} of the protocol. Known here are {', '.join(VERSIONS)}."


def _refused_credential(noted: Seen) -> str:
    if not noted.is_signed:
        if noted.status == 401:
            return "asks for a credential, and none is set: an administrator chooses one on the page of the server"
        return "does not allow this without a credential, and none is set"
    return "does not accept the credential" if noted.status == 401 else "does not allow this with the credential"


def leaf(error: BaseException) -> BaseException:
    """Return the error that a group of exceptions is about: the first in it that is not the end of a wait."""
    while isinstance(error, BaseExceptionGroup):
        inner = [each for each in error.exceptions if not isinstance(each, GeneratorExit)]
        error = inner[0] if inner else error.exceptions[0]
    return error


def _of_protocol(error: MCPError, name: str, noted: Seen, seconds: float) -> McpError:
    """Return our error for an error of the protocol, with the server's words cut."""
    if error.code == REQUEST_TIMEOUT and noted.status not in REFUSED:
        return ServerSilent(f"{name} did not answer within {duration(seconds)}.")
    if error.code == CONNECTION_CLOSED and noted.status not in REFUSED:
        return ServerLost(f"The connection to {name} ended.")
    if error.code == PARSE_ERROR:
        return AnswerRefused(f"{name} sent an answer that is not valid MCP.")
    words = readable(error.message)[0][:MAX_WORDS].strip().rstrip(".")
    is_status = noted.status >= 400 and words in (*STATUS_MESSAGES, "")
    if is_status:
        words = f"HTTP status {noted.status}"
    return ServerRefused(
        f"{name} answered with an error: {words}.",
        code=error.code,
        data=error.data,
        is_unknown=is_status and not is_refused(noted.status),
    )
