"""A session's conversation as messages for a model, made from stored steps, and cut to the model's window."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from capabilities.tokens import count_each
from sessions.models import Step, StepKind, StepStatus, Turn, TurnStatus

#: Turns that are looked at, at most; older ones are long out of any window.
MAX_TURNS = 200
#: Share of the window that is left for the answer.
ANSWER_SHARE = 0.125
#: What the model reads behind an answer that was stopped in the middle.
CUT_OFF = "(This answer was stopped before its end.)"
NOT_RUN = json.dumps({"success": False, "error": "Not run: the turn ended before."})
#: What the model reads of a call that a crash, or the end of its turn, cut off between its start and its result.
OUTCOME_UNKNOWN = json.dumps(
    {"error": "outcome_unknown", "detail": "interrupted; it may have happened; do not repeat without checking"}
)

Message = dict[str, Any]


@dataclass(frozen=True)
class Conversation:
    """The messages to send, and how many of the older turns were left out to fit the window."""

    messages: list[Message]
    turns_cut: int


def conversation(turn: Turn, *, tool_tokens: int, instructions: str = "") -> Conversation:
    """The session's messages up to this turn, the oldest turns cut whole where the window is full. Two queries.

    `instructions` are those of the tools at hand; they stand behind the agent's prompt.
    """
    earlier = list(
        Turn.objects.filter(session=turn.session_id, seq__lt=turn.seq)
        .order_by("-seq")
        .only("id", "seq", "message", "answer", "status", "error_code", "organisation_id")[:MAX_TURNS]
    )
    earlier.reverse()
    steps = _steps_by_turn([*(each.pk for each in earlier), turn.pk])
    blocks = [turn_messages(each, steps[each.pk]) for each in earlier]
    own = [{"role": "user", "content": turn.message}, *step_messages(steps[turn.pk])]
    prompt = "\n\n".join(text for text in (turn.agent.prompt, instructions) if text)
    head: list[Message] = [{"role": "system", "content": prompt}] if prompt else []

    window = turn.agent.model.context_window
    room = int(window * (1 - ANSWER_SHARE)) - tool_tokens - sum(_tokens([head, own]))
    kept = _newest_that_fit(blocks, room)
    return Conversation([*head, *(message for block in kept for message in block), *own], len(blocks) - len(kept))


def turn_messages(turn: Turn, steps: Sequence[Step]) -> list[Message]:
    """An ended turn: what the user said, what came of it, and its answer where no step holds it.

    The assistant has the last word in any case: some providers take no user message behind a user's or a tool's.
    """
    messages = [{"role": "user", "content": turn.message}, *step_messages(steps)]
    last = messages[-1]
    if turn.answer and turn.status in (TurnStatus.CANCELLED, TurnStatus.EXPIRED, TurnStatus.FAILED):
        if last["role"] == "assistant" and last["content"] == turn.answer:
            messages.pop()
        messages.append({"role": "assistant", "content": f"{turn.answer}\n\n{CUT_OFF}"})
    elif turn.answer and not (last["role"] == "assistant" and last["content"] == turn.answer):
        messages.append({"role": "assistant", "content": turn.answer})
    elif last["role"] != "assistant":
        why = turn.error_code or turn.status
        messages.append({"role": "assistant", "content": f"(This turn ended without an answer: {why}.)"})
    return messages


def step_messages(steps: Sequence[Step]) -> list[Message]:
    """Model calls and tool results, each call answered exactly once and right behind the message that asked for it."""
    answers = {(step.round, step.call_index): step for step in steps if step.kind == StepKind.TOOL}
    messages: list[Message] = []
    for step in steps:
        if step.kind != StepKind.MODEL or not (step.text or step.tool_calls):
            continue
        messages.append(step.as_message())
        for index, call in enumerate(step.tool_calls):
            content = _result_sent(answers.get((step.round, index)))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})
    return messages


def _result_sent(step: Step | None) -> str:
    if step is None:
        return NOT_RUN
    if step.status in (StepStatus.STARTED, StepStatus.UNKNOWN):
        return step.result_sent or OUTCOME_UNKNOWN
    return step.result_sent


def _steps_by_turn(turn_ids: list[UUID]) -> dict[UUID, list[Step]]:
    found: dict[UUID, list[Step]] = defaultdict(list)
    rows = Step.objects.filter(turn__in=turn_ids).exclude(kind=StepKind.NOTE).order_by("index")
    rows = rows.only(
        "turn_id", "organisation_id", "kind", "status", "round", "call_index", "text", "tool_calls", "result_sent"
    )
    for step in rows:
        found[step.turn_id].append(step)
    return found


def _newest_that_fit(blocks: list[list[Message]], room: int) -> list[list[Message]]:
    first = len(blocks)
    for cost in reversed(_tokens(blocks)):
        room -= cost
        if room < 0:
            break
        first -= 1
    return blocks[first:]


def _tokens(blocks: list[list[Message]]) -> list[int]:
    """Tokens of each block as it is sent, with 4 more for each message's frame."""
    counts = count_each(json.dumps(block, ensure_ascii=False) for block in blocks)
    return [count + 4 * len(block) for count, block in zip(counts, blocks, strict=True)]
