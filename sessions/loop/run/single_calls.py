"""A turn that is one call of a client's own: no model is asked, and all that holds for a model's call holds for it."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from capabilities.choosing.pipeline.counts import counted_for
from capabilities.choosing.pipeline.stages import Selection
from sessions.loop.calls.batch import answer_calls, can_read_on, mask_calls
from sessions.loop.clients.replies import Call
from sessions.loop.conversation.running import RunningTurn
from sessions.loop.conversation.steps import read_steps, steps_of
from sessions.loop.run.parking import settle
from sessions.loop.tools import execution
from sessions.selection.loading.offered import offered_to
from sessions.selection.tool_sets import keep_tool_set
from sessions.turns import ledger


def answer_single_call(turn: RunningTurn, call: dict[str, Any]) -> dict[str, Any]:
    """Make the call, or go on with it; returns the fields of the turn's end. Raises Parked where it waits.

    `call` has the tool's `name`, its `arguments` as JSON text, and the `toolkit` of the address, or "".
    """
    turn.steps = steps_of(turn.row)
    if not turn.steps.replies:
        _begin(turn, call)
    made = turn.steps.replies[0]
    while True:
        answer_calls(turn, made, at_limit=False)
        steps = turn.steps
        if steps.waits:
            reads_on = steps.was_delegated and can_read_on(turn, made)
            settle(turn, was_asked=steps.was_asked, can_read_on=reads_on)
            turn.steps = read_steps(turn.row)
            if any(each.is_unanswered for each in turn.steps.calls):
                continue
        mask_calls(turn, made)
        return {}


def _begin(turn: RunningTurn, call: dict[str, Any]) -> None:
    """Store the call, with the tools that it needs at hand as far as the member may use them by now."""
    name, arguments = str(call["name"]), str(call["arguments"])
    offered = offered_to(turn.row.membership_id, turn.row.agent, str(call["toolkit"]), turn.model)
    tools = counted_for(offered.for_call(name, arguments), turn.model)
    chosen = Selection(tools, (), turn.model.tokenizer.encoding)
    tool_set = keep_tool_set(chosen, turn.row.organisation_id) if tools else None
    stored = execution.stored_call(f"call_{uuid4().hex}", Call("", name, arguments))
    made, calls, turn.registry_version = ledger.record_client_call(turn.claim, stored, tool_set)
    turn.steps.replies.append(made)
    turn.steps.calls += calls
