"""Waiting turns: for agents that work on parts of them, and for people who were asked. No worker holds such a turn."""

from __future__ import annotations

import time

from sessions.loop.calls import delegation
from sessions.loop.clients.errors import CallStopped
from sessions.models import Turn
from sessions.turns.held import Held
from sessions.turns.waiting import park


class Parked(Exception):
    """The turn waits for other agents, or for people; nobody holds it any more."""


def settle(turn: Turn, held: Held, *, was_asked: bool = False, can_read_on: bool = False) -> None:
    """Take back what other agents have answered. Raises Parked where the turn waits for another one, or for a person:
    `was_asked` says that a call waits for one, or did when it was looked at.

    `can_read_on` says whether the round has the tool that reads on in a long answer.
    """
    while (waiting := delegation.take_back(turn, held, can_read_on=can_read_on)) or was_asked:
        if was_asked or any(child.is_open for child in waiting):
            _go_no_further(turn, held)
            if park(held.claim):
                raise Parked(str(turn.pk))
            was_asked = False


def _go_no_further(turn: Turn, held: Held) -> None:
    """A turn that was stopped, or is out of time, does not wait first."""
    if held.stopped.is_set() or held.deadline(turn.deadline_at) <= time.monotonic():
        raise CallStopped
