"""A conversation that the provider found too long, made again for half the room."""

from __future__ import annotations

from sessions.loop.clients.errors import ModelError
from sessions.loop.conversation.running import RunningTurn
from sessions.turns import ledger


def compact(turn: RunningTurn, error: ModelError) -> bool:
    """Return whether the error is that the conversation is too long, and the first one of that kind: then the turn's
    next requests send at most half as much, with an event and a note. Nothing is read.

    The window that is set for the model may be too large, or the provider counts otherwise than we do. Where half is
    too much as well, the turn ends as the provider says.
    """
    past = turn.past
    if error.code != "context_length" or past.most_sent is not None or not past.sent:
        return False
    tokens = past.compact(str(error))
    name = turn.model.name
    ledger.write_event(turn.claim, "context_compacted", {"model": name, "tokens": tokens, "most": past.most_sent})
    ledger.add_note(
        turn.claim,
        f"The conversation of about {tokens:,} tokens was too long for {name}. It is sent again, cut to half of that:"
        " without the oldest turns, and where that is not enough, with shorter results.",
    )
    return True
