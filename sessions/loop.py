"""One turn from its claim to its end: select, ask the model, run what it calls for, ask again.

Everything that counts is read from stored steps and stored before it is acted on, so that any worker can go on with
the turn from any point.
"""

from __future__ import annotations

import contextvars
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any
from uuid import uuid4, uuid5

from django.conf import settings
from django.db import connection
from django.utils import timezone

from capabilities.active import ToolSpec, current_specs
from capabilities.kinds.builtin import display
from capabilities.tokens import count_each
from sessions import execution, ledger
from sessions.bell import announce_text
from sessions.execution import Outcome
from sessions.held import Held
from sessions.history import Conversation, conversation
from sessions.model_client import CallStopped, ModelBusy, ModelCall, ModelError, endpoint_of, request_body
from sessions.models import Step, StepKind, StepStatus, ToolSet, Turn, TurnStatus
from sessions.replies import CALL_ID, Call, Reply, Usage
from sessions.selection import Verdict, keep_tool_set, select_tools

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


def run_turn(held: Held) -> None:
    """Run a claimed turn to its end, or give it back. Raises ledger.LeaseLost where it is another worker's now."""
    turn = Turn.objects.select_related("agent", "agent__model", "agent__model__provider").get(pk=held.claim.turn_id)
    try:
        ledger.finish(held.claim, TurnStatus.DONE, **_answer(turn, held))
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
    except CallStopped:
        _end_stopped(held)


def _answer(turn: Turn, held: Held) -> dict[str, str]:
    """Go round until the model has an answer; returns the fields of the end."""
    tool_set, verdicts = _selection_of(turn)
    most = max_rounds(turn)
    while True:
        model_steps, tool_steps = _steps(turn)
        if model_steps:
            last = model_steps[-1]
            if not last.tool_calls:
                return _final(last)
            at_limit = last.round >= most
            _answer_calls(turn, held, last, tool_steps, at_limit=at_limit)
            if at_limit:
                return {"answer": ROUND_LIMIT.format(rounds=most), "error_code": "max_rounds"}
            _check_strikes(turn)
        _ask_model(turn, held, tool_set, verdicts if not model_steps else ())


def _selection_of(turn: Turn) -> tuple[ToolSet, Sequence[Verdict]]:
    """The turn's frozen selection: that of its first model call, else a new one."""
    first = Step.objects.filter(turn=turn, kind=StepKind.MODEL).select_related("tool_set").order_by("index").first()
    if first is not None and first.tool_set is not None:
        return first.tool_set, ()
    selection = select_tools(turn)
    return keep_tool_set(selection, turn.organisation_id), selection.verdicts


def max_rounds(turn: Turn) -> int:
    """Model calls that this turn may take: the model's own number first, then the agent's, then the setting (CX-32)."""
    return turn.agent.model.max_rounds or turn.agent.max_rounds or int(settings.TOOLHUB_MAX_ROUNDS)


def _steps(turn: Turn) -> tuple[list[Step], list[Step]]:
    steps = list(Step.objects.filter(turn=turn).order_by("index"))
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


def _ask_model(turn: Turn, held: Held, tool_set: ToolSet, verdicts: Sequence[Verdict]) -> Step:
    talk = conversation(turn, tool_tokens=tool_set.tokens)
    if talk.turns_cut:
        ledger.write_event(held.claim, "history_cut", {"turns": talk.turns_cut})
    started_at = timezone.now()
    call = ModelCall(
        endpoint=endpoint_of(turn.agent),
        body=request_body(turn.agent.model.name, talk.messages, tool_set.wire),
        stopped=held.stopped,
        deadline=held.deadline(turn.deadline_at),
        on_text=lambda text: announce_text(turn.pk, text),
        on_restart=lambda: ledger.write_event(held.claim, "attempt_restarted", {"epoch": held.claim.epoch}),
    )
    release_connection()
    reply = call.run()
    usage = reply.usage or _estimated(talk, tool_set, reply)
    return ledger.record_model_step(
        held.claim,
        started_at=started_at,
        tool_set=tool_set,
        text=reply.text,
        tool_calls=stored_calls(talk, reply),
        finish_reason=reply.finish_reason,
        input_tokens=usage.input_tokens,
        cached_tokens=usage.cached_tokens,
        output_tokens=usage.output_tokens,
        usage_estimated=reply.usage is None,
        verdicts=[asdict(verdict) for verdict in verdicts],
    )


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


def _estimated(talk: Conversation, tool_set: ToolSet, reply: Reply) -> Usage:
    """Our own count, for a provider that sent none."""
    sent, said = count_each([str(talk.messages), reply.text + "".join(call.arguments for call in reply.calls)])
    return Usage(sent + tool_set.tokens, 0, said)


# -- The calls --------------------------------------------------------------------------------------------------------


def _answer_calls(turn: Turn, held: Held, step: Step, tool_steps: Sequence[Step], *, at_limit: bool) -> None:
    """Give each call of the reply exactly one answer: those that may run side by side, the others a refusal."""
    known = {each.call_index: each for each in tool_steps if each.round == step.round}
    most = 0 if at_limit or step.finish_reason == "length" else int(settings.TOOLHUB_CALLS_PER_ROUND)
    open_calls = [index for index in range(len(step.tool_calls)) if _is_open(known.get(index))]
    beyond = [index for index in open_calls if index >= most and index not in known]
    if beyond:
        outcome = execution.failure(_why_not_run(step, at_limit), status=StepStatus.REFUSED)
        ledger.add_refused_steps(held.claim, [_call_fields(step, index) for index in beyond], outcome.result)
    to_run = [index for index in open_calls if index not in beyond]
    if not to_run:
        return
    version_ids = step.tool_set.version_ids if step.tool_set else []
    names = _selected(version_ids)

    def answer(index: int) -> None:
        try:
            _answer_call(turn, held, step, index, known.get(index), names)
        finally:
            release_connection()

    if len(to_run) == 1:
        answer(to_run[0])
        return
    with ThreadPoolExecutor(min(len(to_run), settings.TOOLHUB_PARALLEL_CALLS), "tool-calls") as pool:
        running = [pool.submit(contextvars.copy_context().run, _closing(answer), index) for index in to_run]
    for each in running:
        each.result()


def _is_open(step: Step | None) -> bool:
    return step is None or step.status == StepStatus.STARTED


def _why_not_run(step: Step, at_limit: bool) -> str:
    if at_limit:
        return "Not run: the turn is at its limit of rounds."
    if step.finish_reason == "length":
        return "Not run: the reply was cut off in the middle of the calls. Ask for less at once."
    return f"Not run: only {settings.TOOLHUB_CALLS_PER_ROUND} calls of one reply are run. Ask again for the rest."


def _selected(version_ids: Sequence[int]) -> dict[str, ToolSpec]:
    """The round's tools by name, as they are now; one that has another version since is not among them."""
    return {spec.name: spec for spec in current_specs(version_ids)}


def _answer_call(
    turn: Turn, held: Held, step: Step, index: int, known: Step | None, names: dict[str, ToolSpec]
) -> None:
    """One call: its intent on record first, then the run, then the outcome."""
    if held.stopped.is_set() or held.deadline(turn.deadline_at) <= time.monotonic():
        raise CallStopped
    raw = step.tool_calls[index]
    call = Call(raw["id"], raw.get("raw_name", raw["name"]), raw.get("raw_arguments", raw["arguments"]))
    spec = names.get(call.name)
    key = str(uuid5(turn.pk, f"{step.round}:{index}"))
    if known is None:
        arguments = execution.read_arguments(spec, call) if spec else {}
        known = ledger.add_step(
            held.claim,
            "tool_started",
            status=StepStatus.STARTED,
            tool_version_id=spec.version_id if spec else None,
            display=display(call.name, arguments if isinstance(arguments, dict) else {}),
            **_call_fields(step, index),
        )
    elif spec is None or spec.on_crash == "never":
        outcome = execution.outcome_unknown()
        ledger.finish_step(held.claim, known, outcome.status, result=outcome.result, result_sent=outcome.result_sent)
        return
    outcome = _outcome(turn, held, call, spec, key)
    if spec is not None:
        outcome = execution.capped(outcome, spec, turn.agent.model.context_window)
    ledger.finish_step(
        held.claim,
        known,
        outcome.status,
        result=outcome.result,
        result_sent=outcome.result_sent,
        malformed=outcome.malformed,
    )


def _outcome(turn: Turn, held: Held, call: Call, spec: ToolSpec | None, key: str) -> Outcome:
    if spec is None:
        return execution.inactive(call.name)
    refused = execution.refusal(turn, spec)
    if refused is not None:
        return refused
    arguments = execution.read_arguments(spec, call)
    if isinstance(arguments, Outcome):
        return arguments
    left = held.deadline(turn.deadline_at) - time.monotonic()
    context = execution.context_for(turn, spec, seconds_left=left, idempotency_key=key)
    release_connection()
    return execution.run_tool(spec, context, arguments, held.stopped)


def _call_fields(step: Step, index: int) -> dict[str, Any]:
    call = step.tool_calls[index]
    return {
        "kind": StepKind.TOOL,
        "round": step.round,
        "call_index": index,
        "tool_call_id": call["id"],
        "tool_name": call.get("raw_name", call["name"])[:200],
        "arguments": call.get("raw_arguments", call["arguments"]),
    }


def _closing(work: Any) -> Any:
    """The same work, that gives its thread's database connection back at the end."""

    def run(*args: Any) -> None:
        try:
            work(*args)
        finally:
            connection.close()

    return run


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


def _end_stopped(held: Held) -> None:
    """The turn was stopped from outside: cancelled, out of time, or this worker is going down."""
    if held.reason == "cancelled":
        ledger.finish(held.claim, TurnStatus.CANCELLED, error_code="cancelled", error_message="Stopped.")
    elif held.reason == "draining":
        ledger.release(held.claim)
    elif held.reason == "lost":
        raise ledger.LeaseLost(str(held.claim.turn_id))
    else:
        ledger.finish(held.claim, TurnStatus.EXPIRED, error_code="deadline", error_message="The turn ran out of time.")


def release_connection() -> None:
    """Before waiting for the world: a thread that waits holds no connection to a database server.

    SQLite is a file: a connection costs nothing to keep and a little to open.
    """
    if connection.vendor != "sqlite" and not connection.in_atomic_block:
        connection.close()
