"""Checks right before a model call: the one place where a turn may still be kept from it.

Anything that a call has to be given first (a part of a budget, a place in a queue of the provider's) is asked for here,
when everything that would be sent is known, and nothing has been sent.
"""

from __future__ import annotations

from sessions.loop.clients.errors import CallStopped
from sessions.loop.conversation.running import RunningTurn
from sessions.loop.conversation.steps import Steps
from sessions.turns.replies import ReplyRecord

#: Rounds of a turn with malformed calls, and identical rounds in a row, after which it ends.
MAX_STRIKES = 3
MAX_REPEATS = 3


class TurnFailed(Exception):
    """The turn ends without an answer; `code` is for programs, the message for people, `reply` what it ends with."""

    def __init__(self, code: str, message: str, reply: ReplyRecord | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reply = reply


def admit_model_call(turn: RunningTurn) -> None:
    """Let the turn's next model call through. No query.

    Raises CallStopped for a turn that was stopped or whose time is up, and TurnFailed for one whose model only repeats
    itself, or cannot write a call. The limit of rounds is asked earlier: it decides on the calls of the last reply too.
    """
    if not turn.held.may_begin(turn.row.deadline_at):
        raise CallStopped
    _check_strikes(turn.steps)


def _check_strikes(steps: Steps) -> None:
    if len({step.round for step in steps.calls if step.is_malformed}) >= MAX_STRIKES:
        raise TurnFailed("malformed_calls", f"The model wrote tool calls that could not be run {MAX_STRIKES} times.")
    recent = steps.replies[-MAX_REPEATS:]
    if len(recent) < MAX_REPEATS:
        return
    rounds = [
        [(step.tool_name, step.arguments, step.result) for _, step in sorted(steps.of_round(reply.round).items())]
        for reply in recent
    ]
    if all(each == rounds[0] for each in rounds):
        raise TurnFailed("repeated_calls", f"The model made the same calls {MAX_REPEATS} times with the same results.")
