"""Checks that a call of the model passes before it may begin: one way for every tool of any kind, and for delegation.

    right        may the member use the tool now?
    arguments    do they fit its schema?
    hooks        what do the organisation's hooks make of the arguments, and what do they say of the call?
    decision     what do those who may keep it back (`DECIDERS`) say: allow, ask somebody first, or deny?

Nothing has happened until then, and nothing says that it has: the call's step is pending. After a crash, or after
somebody was asked, the call passes all of it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from capabilities.contract.decisions import Decision, Verb, strictest
from capabilities.contract.effective import Effective
from capabilities.contract.spec import ToolSpec
from capabilities.running.kinds.effective import effective_arguments
from sessions.loop.calls.approvals import decide_asking
from sessions.loop.calls.trust import decide_trust
from sessions.loop.clients.replies import Call
from sessions.loop.conversation.running import RunningTurn
from sessions.loop.hooks.phases import hooked_call
from sessions.loop.tools import execution
from sessions.loop.tools.execution import Outcome
from sessions.models import Step, StepStatus


@dataclass(frozen=True)
class Prepared:
    """A call with the arguments that its tool gets. It may begin, unless `decision` says that somebody is asked first.

    `spec` has the envelope in force, `step` is the call's own, pending or begun before a crash.
    """

    turn: RunningTurn
    spec: ToolSpec
    step: Step
    arguments: dict[str, Any]
    decision: Decision | None = None
    #: Effects of hooks, as the step keeps them, and the text of theirs that the model reads beside the result.
    hooks: tuple[Mapping[str, Any], ...] = ()
    context: tuple[str, ...] = ()

    @cached_property
    def effective(self) -> Effective:
        """The arguments as they take effect: what is decided on, and what people are shown."""
        return effective_arguments(self.spec, self.arguments)

    @property
    def is_asked_for(self) -> bool:
        """True where somebody has to allow the call first."""
        return self.decision is not None and self.decision.verb == Verb.ASK


#: Says whether a call may run, or nothing. It raises nothing, and changes nothing.
Decider = Callable[[Prepared], Decision | None]
DECIDERS: tuple[Decider, ...] = (decide_asking, decide_trust)


def prepare(turn: RunningTurn, spec: ToolSpec, call: Call, step: Step) -> Prepared | Outcome:
    """The call, ready to begin or to be asked for; or why it may not, as the model reads it. One query for the right,
    and those of the deciders."""
    arguments = execution.permitted_arguments(turn, spec, call)
    if isinstance(arguments, Outcome):
        return arguments
    hooked, did = hooked_call(turn, spec, call, step, arguments)
    prepared = Prepared(turn, spec, step, dict(hooked.arguments), hooks=did, context=hooked.context)
    others = (other for decider in DECIDERS if (other := decider(prepared)) is not None)
    decision = strictest([*hooked.decisions, *others])
    if decision.verb == Verb.DENY:
        return replace(denied(spec, decision), hooks=did)
    return replace(prepared, decision=decision)


def denied(spec: ToolSpec, decision: Decision) -> Outcome:
    """Build the refusal that the model reads for a call that a decision keeps back."""
    return execution.failure(decision.for_model, status=StepStatus.REFUSED, denied_tool=spec.name)
