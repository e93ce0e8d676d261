"""The messages of a turn's next model call."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from sessions.loop.clients.requests import TOOLS
from sessions.loop.conversation.history import messages_of
from sessions.loop.conversation.running import RunningTurn
from sessions.loop.conversation.window import Conversation, Message, fit, room_for_messages
from sessions.selection.queries import system_text


def conversation(
    turn: RunningTurn,
    *,
    tool_tokens: int,
    instructions: str = "",
    added: Collection[int] = (),
) -> Conversation:
    """The session's messages up to this turn with its steps so far, cut to the model's window less a reserve for the
    answer.

    Where not all of it fits, the oldest turns are left out, from then on, and half of the room is free again, so that
    the same turns stand in front for many turns to come. Where that is not enough, this turn's results are cut, the
    oldest first.
    `instructions` are those of the tools at hand; they stand behind the agent's prompt, and behind what a client of the
    gateway says. Of the steps that add tools to the conversation, those with the keys `added` do; their tokens are
    among `tool_tokens`. Raises TooLong.
    """
    row, past = turn.row, turn.past
    own = [*past.goes_on_from, *messages_of(row, turn.steps.in_order(), turn.model, past.files)]
    of_client = row.asked.instructions if row.asked is not None else ""
    prompt = system_text(turn.prompt, of_client, instructions)
    head: list[Message] = [{"role": "system", "content": prompt}] if prompt else []
    room = room_for_messages(turn.model, tool_tokens)
    if past.most_sent is not None:
        room = min(room, past.most_sent)
    talk = fit(head, [block.messages for block in past.blocks], own, room, past.sizes, past.encoding)
    talk = replace(talk, messages=[each for each in talk.messages if each["role"] != TOOLS or each["step"] in added])
    past.sent = talk.messages
    if talk.parts_cut:  # all of them are out, for this once
        return talk
    return replace(talk, turns_cut=past.keep(len(past.blocks) - talk.turns_cut))
