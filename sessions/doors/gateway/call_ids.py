"""Ids of calls as clients of the gateway see them: from one its step is found, for whoever it was given to."""

from __future__ import annotations

import re
from dataclasses import dataclass
from uuid import UUID

from sessions.models import Step

_ID = re.compile(r"call_(?P<turn>[0-9a-f]{32})_(?P<round>[0-9]{1,4})_(?P<place>[0-9]{1,4})\Z")


@dataclass(frozen=True)
class CallId:
    """The call at `place` of the reply of `round` in a turn."""

    turn: UUID
    round: int
    place: int

    def __str__(self) -> str:
        return f"call_{self.turn.hex}_{self.round}_{self.place}"


def id_of(step: Step) -> str:
    return str(CallId(step.turn_id, step.round, step.call_index))


def read_id(text: str) -> CallId | None:
    """Read the id of a call; None for an id that is not one of ours."""
    found = _ID.match(text)
    return CallId(UUID(found["turn"]), int(found["round"]), int(found["place"])) if found else None
