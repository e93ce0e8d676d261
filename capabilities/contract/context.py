"""Context that a running tool is given, and the errors by which it refuses."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from capabilities.contract.envelope import Envelope


class ToolError(Exception):
    """The tool cannot do this; the message is one sentence that the model can act on.

    `nothing_came`: no far side has answered, so that the message holds no word of one.
    """

    def __init__(self, message: str, *, nothing_came: bool = False) -> None:
        super().__init__(message)
        self.nothing_came = nothing_came


class CallWaits(Exception):
    """The call cannot end now: it goes on when somebody, or a far side, has done something. The turn waits for that
    without a worker, and the same call is then made again with `ToolContext.resumed`.

    `state` is what the runner wants back then, as it is; nobody else reads it.
    """

    def __init__(self, message: str, *, state: str = "") -> None:
        super().__init__(message)
        self.state = state


class InputNeeded(CallWaits):
    """The member has to fill in a form. `schema` is a flat JSON Schema: an object of strings, numbers, booleans and
    enums, as MCP's elicitation has it. The message is what the far side asks."""

    def __init__(self, message: str, *, schema: Mapping[str, Any], state: str = "") -> None:
        super().__init__(message, state=state)
        self.schema = schema


class LinkNeeded(CallWaits):
    """The member has to open an address, such as to connect an account or to agree to more permissions there.

    `is_own`: the address is a path of this service. Any other is shown with its host, and never opened by itself.
    """

    def __init__(self, message: str, *, url: str, state: str = "", is_own: bool = False) -> None:
        super().__init__(message, state=state)
        self.url = url
        self.is_own = is_own


class TaskStarted(CallWaits):
    """The far side works on it: it is asked again after `seconds`, and no thread waits meanwhile."""

    def __init__(self, message: str, *, seconds: float, state: str) -> None:
        super().__init__(message, state=state)
        self.seconds = seconds


@dataclass(frozen=True)
class Resumed:
    """Input of a call that goes on after it waited: its own `state`, and what the member did.

    `action` is accept, decline or cancel; `poll` for a task that is asked again, which changes nothing there, and
    `cancel` for one of a turn that was stopped. `content` is what the form says.
    """

    state: str
    action: str
    content: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Credential:
    """Credential that signs a call: the organisation's settings of the service behind a tool, or a stored credential.

    Added to the request behind everything that the model wrote, and only where the request goes to one of `origins`.
    """

    #: Settings of a service by name, secrets included.
    values: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: Texts that must never be seen: they are masked in the result, should a far side send them back.
    secrets: tuple[str, ...] = field(default=(), repr=False)
    #: For a stored credential: what is added to a request, and the origins (https://api.example.org) it may go to.
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    query: Mapping[str, str] = field(default_factory=dict, repr=False)
    origins: tuple[str, ...] = ()
    #: The key of the stored secret that was used, for who has to know that it was refused.
    secret_id: int | None = None


@dataclass(frozen=True)
class ToolContext:
    """Context of one call: its member, place and time limit. Rights were checked before it was made.

    Rows of the organisation may be read through the ORM: the call runs in its scope.
    """

    organisation_id: int
    membership_id: int
    #: The slug of the agent that calls, empty for a run by hand. It may change: what lasts hangs on `agent_id`.
    agent: str
    #: This organisation's own folder; file tools never leave it.
    workspace: Path
    #: Called for "now", aware, in the organisation's time zone.
    now: Callable[[], datetime]
    #: Seconds the call may take; the caller stops waiting after that.
    timeout: float
    session_id: UUID | None = None
    turn_id: UUID | None = None
    #: Characters of the result that the model will see.
    max_result_chars: int = 40_000
    #: The stored call that this is.
    step_id: int | None = None
    #: Settings of the organisation for the tool's service, secrets included: they go out, never into a result.
    service: Mapping[str, str] = field(default_factory=dict)
    #: One value for every try of one call: send it as Idempotency-Key, where a far side takes one.
    idempotency_key: str = ""
    #: Set when the turn was cancelled or ran out of time: a long tool looks at it now and then.
    stopped: threading.Event = field(default_factory=threading.Event)
    #: Set by a tool that found text from outside where its declaration promises none, such as in an earlier session.
    untrusted: threading.Event = field(default_factory=threading.Event)
    #: Names of tools that the call's answer says come with the next model call: only this service's own tools write it.
    promised: set[str] = field(default_factory=set)
    #: The key of the agent that calls; None for a run by hand.
    agent_id: int | None = None
    #: The knobs in force for the call.
    envelope: Envelope | None = None
    #: Set where the call goes on after it waited.
    resumed: Resumed | None = None
