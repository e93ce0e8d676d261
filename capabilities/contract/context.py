"""What a running tool is given, and how it refuses."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from uuid import UUID

from capabilities.contract.envelope import Envelope


class ToolError(Exception):
    """The tool cannot do this; the message is one sentence that the model can act on.

    `nothing_came`: no far side has answered, so that the message holds no word of one.
    """

    def __init__(self, message: str, *, nothing_came: bool = False) -> None:
        super().__init__(message)
        self.nothing_came = nothing_came


@dataclass(frozen=True)
class Credential:
    """What the organisation set up for the service behind a tool: settings by name, secrets included."""

    values: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: Those of the values that must never be seen: they are masked in the result, should a far side send one back.
    secrets: tuple[str, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class ToolContext:
    """For whom, where and how long one call runs. Rights were checked before it was made.

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
    #: What the organisation set up for the tool's service, secrets included: they go out, never into a result.
    service: Mapping[str, str] = field(default_factory=dict)
    #: The same for every try of one call: send it as Idempotency-Key, where a far side takes one.
    idempotency_key: str = ""
    #: Set when the turn was cancelled or ran out of time: a long tool looks at it now and then.
    stopped: threading.Event = field(default_factory=threading.Event)
    #: Set by a tool that found text from outside where its declaration promises none, such as in an earlier session.
    untrusted: threading.Event = field(default_factory=threading.Event)
    #: The key of the agent that calls; None for a run by hand.
    agent_id: int | None = None
    #: The knobs in force for the call.
    envelope: Envelope | None = None
