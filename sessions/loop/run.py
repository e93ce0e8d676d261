"""One turn from its claim to its end: select, ask the model, run what it calls for, ask again.

Everything that counts is read from stored steps and stored before it is acted on, so that any worker can go on with
the turn from any point.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any
from uuid import uuid4

from django.conf import settings
from django.utils import timezone

from capabilities.common.tokens import count_each
from capabilities.kinds.builtin import display
from sessions.loop import delegation, execution
from sessions.loop.batch import answer_calls, release_connection
from sessions.loop.carried import Carried, carried_by
from sessions.loop.drafts import Draft
from sessions.loop.history import Conversation, TooLong, conversation
from sessions.loop.models.client import CallStopped, ModelBusy, ModelCall, ModelError, endpoint_of, request_body
from sessions.loop.models.replies import CALL_ID, Reply, Usage
from sessions.loop.prefix import prefix_of, remember
from sessions.models import Step, StepKind, Turn, TurnEvent, TurnStatus
from sessions.turns import ledger
from sessions.turns.held import Held

#: Rounds of a turn with malformed calls, and identical rounds in a row, after which it ends.
MAX_STRIKES = 3
MAX_REPEATS = 3
ROUND_LIMIT = (
    "I stopped after {rounds} rounds without a final answer. What was done so far stands; write again to go on."
)


class TurnFailed(Exception):
    """The turn ends without an answer; `code` is for programs, the message for people."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class HalfReply(CallStopped):
    """The turn was stopped while the model wrote; `step` is what `ledger.record_model_step` takes of what there is."""

    def __init__(self, step: dict[str, Any]) -> None:
        super().__init__()
        self.step = step


def run_turn(held: Held) -> None:
    """Run a claimed turn to its end, or give it back. Raises ledger.LeaseLost where it is another worker's now."""
    turn = Turn.objects.select_related("agent__model__provider", "session").get(pk=held.claim.turn_id)
    try:
        ledger.check_goes_on(held.claim)
        ledger.finish(held.claim, TurnStatus.DONE, **_answer(turn, held))
    except delegation.Parked:
        return
    except TurnFailed as failed:
        ledger.finish(held.claim, TurnStatus.FAILED, error_code=failed.code, error_message=str(failed))
    except ModelBusy as busy:
        ledger.write_event(held.claim, "provider_busy", {"error_code": busy.code, "seconds": round(busy.wait)})
        ledger.release(held.claim, wait=busy.wait)
    except ModelError as error:
        ledger.finish(held.claim, TurnStatus.FAILED, error_code=error.code, error_message=str(error))
    except ledger.CancelRequested:
        held.stop("cancelled")
        _end_stopped(held)
    except HalfReply as half:
        _end_stopped(held, half.step)
    except CallStopped:
        _end_stopped(held)


def _answer(turn: Turn, held: Held) -> dict[str, Any]:
    """Go round until the model has an answer; returns the fields of the end."""
    most = max_rounds(turn)
    while True:
        model_steps, tool_steps = _steps(turn)
        if model_steps:
            last = model_steps[-1]
            if not last.tool_calls:
                return _final(last)
            at_limit = last.round >= most
            answer_calls(turn, held, last, tool_steps, at_limit=at_limit)
            delegation.settle(turn, held)
            if at_limit:
                return {"answer": ROUND_LIMIT.format(rounds=most), "error_code": "max_rounds"}
            _check_strikes(turn)
            ledger.check_goes_on(held.claim)
        _ask_model(turn, held, carried_by(turn, held, model_steps))


def max_rounds(turn: Turn) -> int:
    """Model calls that this turn may take: the model's own number first, then the agent's, then the setting."""
    return turn.agent.model.max_rounds or turn.agent.max_rounds or int(settings.TOOLHUB_MAX_ROUNDS)


def _steps(turn: Turn) -> tuple[list[Step], list[Step]]:
    steps = list(Step.objects.filter(turn=turn).select_related("tool_set").order_by("index"))
    return (
        [step for step in steps if step.kind == StepKind.MODEL],
        [step for step in steps if step.kind == StepKind.TOOL],
    )


def _final(step: Step) -> dict[str, str]:
    if step.text:
        return {"answer": step.text}
    if step.finish_reason == "content_filter":
        raise TurnFailed("content_filter", "The provider's content filter held the answer back.")
    raise TurnFailed("empty_answer", "The model answered with nothing.")


# -- The model --------------------------------------------------------------------------------------------------------


def _ask_model(turn: Turn, held: Held, carried: Carried) -> Step:
    tool_set = carried.tool_set
    try:
        talk = conversation(turn, tool_tokens=tool_set.tokens, instructions=tool_set.instructions)
    except TooLong as error:
        raise TurnFailed("context_length", str(error)) from error
    _tell_cut(turn, held, talk)
    prefix = prefix_of(turn, tool_set, talk.messages)
    remember(turn, prefix, carried.tool_ids, held.claim)
    draft = Draft(held)
    step: dict[str, Any] = {
        "started_at": timezone.now(),
        "tool_set": tool_set,
        "verdicts": [asdict(verdict) for verdict in carried.verdicts],
        "load_count": carried.load_count,
        "prompt_bytes": prefix.prompt_bytes,
        "prefix_bytes": prefix.prefix_bytes,
    }
    endpoint = endpoint_of(turn.agent)
    displays = displays_of(talk.messages) if endpoint.is_offline else None
    call = ModelCall(
        endpoint=endpoint,
        body=request_body(turn.agent.model.name, talk.messages, tool_set.wire, displays=displays),
        stopped=held.stopped,
        deadline=held.deadline(turn.deadline_at),
        on_text=draft.add,
        on_wait=draft.pass_on,
        on_restart=draft.restart,
    )
    release_connection()
    try:
        reply = call.run()
    except CallStopped as stopped:
        half = call.half_reply()
        if half is None or held.reason in ("draining", "lost"):
            raise
        raise HalfReply(step | _said(talk, tool_set.tokens, half)) from stopped
    return ledger.record_model_step(held.claim, **step, **_said(talk, tool_set.tokens, reply))


def displays_of(messages: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Each call since the user spoke as its tool's display line, by its id; without those whose tool has none."""
    spoken = max((index for index, each in enumerate(messages) if each["role"] == "user"), default=-1)
    calls = [call for each in messages[spoken + 1 :] for call in each.get("tool_calls", ())]
    lines = {call["id"]: _display_of(call["function"]) for call in calls}
    return {call_id: line for call_id, line in lines.items() if line}


def _display_of(function: Mapping[str, str]) -> str:
    """Empty where there is only the tool's name to show."""
    arguments = json.loads(function["arguments"] or "{}")
    line = display(function["name"], arguments if isinstance(arguments, dict) else {})
    return "" if line == function["name"] else line


def _tell_cut(turn: Turn, held: Held, talk: Conversation) -> None:
    """What was left out of the request, as an event; a round that leaves out the same says nothing."""
    cut = {"turns": talk.turns_cut, "parts": talk.parts_cut}
    if not any(cut.values()):
        return
    known = TurnEvent.objects.filter(turn=turn, type="history_cut").order_by("-number")
    if known.values_list("payload", flat=True).first() != cut:
        ledger.write_event(held.claim, "history_cut", cut)


def _said(talk: Conversation, tool_tokens: int, reply: Reply) -> dict[str, Any]:
    """A model step's fields of what the model said and what that cost."""
    usage = reply.usage or _estimated(talk, tool_tokens, reply)
    return {
        "text": reply.text,
        "tool_calls": stored_calls(talk, reply),
        "finish_reason": reply.finish_reason,
        "input_tokens": usage.input_tokens,
        "cached_tokens": usage.cached_tokens,
        "output_tokens": usage.output_tokens,
        "usage_estimated": reply.usage is None,
    }


def stored_calls(talk: Conversation, reply: Reply) -> list[dict[str, str]]:
    """The reply's calls as they are stored and sent again: ids unique in the conversation, names and arguments that any
    provider takes. What the model really wrote is kept beside, under `raw_name` and `raw_arguments`."""
    taken = {call["id"] for message in talk.messages for call in message.get("tool_calls", ())}
    stored = []
    for call in reply.calls:
        call_id = call.id if CALL_ID.match(call.id) and call.id not in taken else f"call_{uuid4().hex}"
        taken.add(call_id)
        stored.append(execution.stored_call(call_id, call))
    return stored


def _estimated(talk: Conversation, tool_tokens: int, reply: Reply) -> Usage:
    """Our own count, for a provider that sent none."""
    sent, said = count_each([str(talk.messages), reply.text + "".join(call.arguments for call in reply.calls)])
    return Usage(sent + tool_tokens, 0, said)


# -- Ends -------------------------------------------------------------------------------------------------------------


def _check_strikes(turn: Turn) -> None:
    """End a turn whose model only repeats itself, or cannot write a call."""
    model_steps, tool_steps = _steps(turn)
    if len({step.round for step in tool_steps if step.is_malformed}) >= MAX_STRIKES:
        raise TurnFailed("malformed_calls", f"The model wrote tool calls that could not be run {MAX_STRIKES} times.")
    recent = model_steps[-MAX_REPEATS:]
    if len(recent) < MAX_REPEATS:
        return
    rounds = [
        [(step.tool_name, step.arguments, step.result) for step in tool_steps if step.round == model.round]
        for model in recent
    ]
    if all(each == rounds[0] for each in rounds):
        raise TurnFailed("repeated_calls", f"The model made the same calls {MAX_REPEATS} times with the same results.")


def _end_stopped(held: Held, half: dict[str, Any] | None = None) -> None:
    """The turn was stopped from outside: cancelled, out of time, or this worker is going down."""
    if held.reason == "cancelled":
        ledger.finish_stopped(held.claim, half=half)
    elif held.reason == "draining":
        ledger.release(held.claim)
    elif held.reason == "lost":
        raise ledger.LeaseLost(str(held.claim.turn_id))
    else:
        why = "The turn ran out of time."
        ledger.finish(held.claim, TurnStatus.EXPIRED, error_code="deadline", error_message=why, half=half)
