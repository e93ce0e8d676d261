"""Waiting turns: for agents that work on parts of them, and for people who were asked. No worker holds such a turn."""

from __future__ import annotations

import time

from sessions.loop.calls import delegation
from sessions.loop.clients.errors import CallStopped
from sessions.loop.conversation.running import RunningTurn
from sessions.turns.waiting import park


class Parked(Exception):
    """The turn waits for other agents, or for people; nobody holds it any more."""


def settle(turn: RunningTurn, *, was_asked: bool = False, can_read_on: bool = False) -> None:
    """Take back what other agents have answered. Raises Parked where the turn waits for another one, or for a person:
    `was_asked` says that a call waits for one, or did when it was looked at.

    `can_read_on` says whether the round has the tool that reads on in a long answer.
    """
    while (waiting := delegation.take_back(turn, can_read_on=can_read_on)) or was_asked:
        if was_asked or any(child.is_open for child in waiting):
            _go_no_further(turn)
            if park(turn.claim):
                raise Parked(str(turn.row.pk))
            was_asked = False


def _go_no_further(turn: RunningTurn) -> None:
    """A turn that was stopped, or is out of time, does not wait first."""
    if turn.held.stopped.is_set() or turn.held.deadline(turn.row.deadline_at) <= time.monotonic():
        raise CallStopped
