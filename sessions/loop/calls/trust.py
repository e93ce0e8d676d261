"""Decision on a call that the model wrote while text from outside was in the conversation.

The turn knows the step that brought the first such text (`Turn.untrusted_since`). A call counts as untrusted only if
the model had read that text: calls of one reply that run side by side do not taint each other, in whatever order they
end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from capabilities.contract.decisions import Decision
from capabilities.contract.trust import ALLOW, ASK, decision_on, where_since
from capabilities.running.registry import registry
from sessions.loop.tools.execution import has_own_schema
from sessions.models import Step, Turn

if TYPE_CHECKING:
    from sessions.loop.calls.preparing import Prepared


def untrusted_before(turn: Turn, call: Step) -> int | None:
    """The step since which text from outside is in the turn, 0 for its start; None where the model had not read any
    when it wrote this call."""
    reply_index = call.index - call.call_index - 1
    since = turn.untrusted_since
    return since if since is not None and since < reply_index else None


def decide_trust(prepared: Prepared) -> Decision | None:
    """Return the decision that text from outside in the conversation forces on the call; None where it forces none. No
    query, but one where the call is kept back."""
    turn, spec = prepared.turn.row, prepared.spec
    if spec.envelope.in_untrusted == ALLOW:
        return None
    since = untrusted_before(turn, prepared.step)
    if since is None or (spec.envelope.in_untrusted == ASK and _only_reads(prepared)):
        return None
    brought_by = (
        Step.objects.filter(turn=turn, index=since).values_list("tool_name", flat=True).first() if since else ""
    )
    return decision_on(spec.name, spec.envelope.in_untrusted, where_since(since, brought_by or ""))


def _only_reads(prepared: Prepared) -> bool:
    """Return whether a tool of our own changes nothing with this call, and sends no more than what to read."""
    spec = prepared.spec
    return has_own_schema(spec) and registry.tools[spec.name].only_reads(prepared.effective.values)


def keep_trust(turn: Turn, counters: Mapping[str, Any]) -> None:
    """Have the turn in memory know what its row knows, by the counters of a write. Calls side by side may come late
    with what was known before."""
    if counters["untrusted_since"] is not None:
        turn.untrusted_since = counters["untrusted_since"]
