"""A turn that is one call of a client's own: no model is asked, and all that holds for a model's call holds for it."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from capabilities.choosing.pipeline.counts import counted_for
from capabilities.choosing.pipeline.stages import Selection
from sessions.loop.calls.batch import answer_calls, can_read_on
from sessions.loop.clients.replies import Call
from sessions.loop.conversation.steps import Steps, read_steps, steps_of
from sessions.loop.run.parking import settle
from sessions.loop.tools import execution
from sessions.models import Turn
from sessions.selection.loading.offered import offered_to
from sessions.selection.tool_sets import keep_tool_set
from sessions.turns import ledger
from sessions.turns.held import Held


def answer_single_call(turn: Turn, held: Held, call: dict[str, Any]) -> dict[str, Any]:
    """Make the call, or go on with it; returns the fields of the turn's end. Raises Parked where it waits.

    `call` has the tool's `name`, its `arguments` as JSON text, and the `toolkit` of the address, or "".
    """
    steps = steps_of(turn)
    if not steps.replies:
        _begin(turn, held, steps, call)
    made = steps.replies[0]
    while True:
        answer_calls(turn, held, made, steps, at_limit=False)
        if not steps.waits:
            return {}
        reads_on = steps.was_delegated and can_read_on(turn, made)
        settle(turn, held, was_asked=steps.was_asked, can_read_on=reads_on)
        steps = read_steps(turn)
        if not any(each.is_unanswered for each in steps.calls):
            return {}


def _begin(turn: Turn, held: Held, steps: Steps, call: dict[str, Any]) -> None:
    """Store the call, with the tools that it needs at hand as far as the member may use them by now."""
    name, arguments = str(call["name"]), str(call["arguments"])
    offered = offered_to(turn.membership_id, turn.agent, str(call["toolkit"]), turn.model)
    tools = counted_for(offered.for_call(name, arguments), turn.model)
    chosen = Selection(tools, (), turn.model.tokenizer.encoding)
    tool_set = keep_tool_set(chosen, turn.organisation_id) if tools else None
    stored = execution.stored_call(f"call_{uuid4().hex}", Call("", name, arguments))
    made, calls, turn.registry_version = ledger.record_client_call(held.claim, stored, tool_set)
    steps.replies.append(made)
    steps.calls += calls
