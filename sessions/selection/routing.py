"""Routing's inputs from a session: messages and tools before the message, and a turn's earlier decision."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from capabilities.choosing.pipeline.candidates import Offer
from capabilities.choosing.pipeline.routing import (
    Before,
    Decided,
    RoutingInputs,
    integers,
    is_routed,
    keywords_at,
    texts,
)
from capabilities.choosing.routing.follow_ups import is_open_question
from capabilities.common.text import storable
from capabilities.models import Agent
from sessions.models import ChatSession, Turn

#: Messages that are kept, and the characters of each; of an answer, the end.
MESSAGES = 2
MESSAGE_CHARACTERS = 1_000
ANSWER_CHARACTERS = 2_000
#: Names of calls that are kept.
OPEN_CALLS = 20
#: Characters at the end of an answer that are searched for a question.
QUESTION_CHARACTERS = 300


def routing_inputs(
    session: ChatSession, agent: Agent, offer: Offer, message: str, *, at: int | None, decided: Decided | None = None
) -> RoutingInputs | None:
    """Return the inputs that the message is routed by; None where there is neither a message nor an earlier decision,
    or messages decide nothing for this agent.

    One query, none where the keywords were read before `at` this registry version of the organisation.
    """
    if not is_routed(agent) or not (message or decided):
        return None
    keywords = keywords_at(agent.organisation_id, at)
    return RoutingInputs(offer.routable, keywords, before_of(session, agent), decided)


def before_of(session: ChatSession, agent: Agent) -> Before:
    """Return the marks that this agent's last turn in the session left; a stored value of another shape counts as
    nothing."""
    stored = routing_left(session, agent.pk)
    return Before(
        texts(stored.get("messages")),
        str(stored.get("answer", "")),
        tuple(integers(stored.get("sent"))),
        texts(stored.get("open_calls")),
        stored.get("unfinished") is True,
        frozenset(texts(stored.get("left_loaders"))),
    )


def routing_left(session: ChatSession, agent_id: int) -> dict[str, Any]:
    """Return the marks that the session keeps for this agent's routing, as they are stored."""
    marks = session.last_prompt.get(str(agent_id)) if isinstance(session.last_prompt, dict) else None
    stored = marks.get("routing") if isinstance(marks, dict) else None
    return stored if isinstance(stored, dict) else {}


def remembered_routing(
    turn: Turn, sent: Sequence[int], *, left_loaders: Iterable[str], answer: str, calls: Iterable[str]
) -> dict[str, Any]:
    """Build the marks that a turn's model call leaves for the agent's next turn; a later call of the turn replaces
    them.

    `sent` are the keys of the tools that routing sent, `left_loaders` names of tools that load others and were left
    out, `answer` and `calls` the model's words and the tools that it called.
    """
    last = routing_left(turn.session, turn.agent_id)
    earlier = texts(last.get("messages"))
    if last.get("turn") == turn.seq:
        earlier = earlier[1:]
    open_calls = [storable(name, 64) for name in dict.fromkeys(calls)][:OPEN_CALLS]
    return {
        "turn": turn.seq,
        "messages": [storable(turn.message[:MESSAGE_CHARACTERS]), *earlier[: MESSAGES - 1]],
        "answer": storable(answer[-ANSWER_CHARACTERS:]),
        "sent": list(sent),
        "open_calls": open_calls,
        "unfinished": bool(open_calls) or (bool(sent) and is_open_question(answer[-QUESTION_CHARACTERS:])),
        "left_loaders": sorted(left_loaders),
    }
