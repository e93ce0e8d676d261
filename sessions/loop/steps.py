"""The steps of a turn in memory: read when a worker claims it, and then kept up by the only one who writes them."""

from __future__ import annotations

from dataclasses import dataclass, field

from sessions.models import Approval, Step, StepKind, Turn


@dataclass
class Steps:
    """Model calls and tool calls of a held turn, each in its order."""

    replies: list[Step] = field(default_factory=list)
    #: Each reply's in their order, from the moment that the reply is stored.
    calls: list[Step] = field(default_factory=list)
    #: Whether a call of the last reply was given to another agent: then its step is answered elsewhere.
    was_delegated: bool = False
    #: What people were asked of calls, by the key of the call's step, as it was when the turn was claimed.
    approvals: dict[int, Approval] = field(default_factory=dict)
    #: Whether a call of the last reply waits for a person.
    was_asked: bool = False

    @property
    def waits(self) -> bool:
        """Whether something of the last reply is answered elsewhere."""
        return self.was_delegated or self.was_asked

    def in_order(self) -> list[Step]:
        return sorted([*self.replies, *self.calls], key=lambda step: step.index)

    def of_round(self, number: int) -> dict[int, Step]:
        """The calls of this round, by their place in the reply."""
        return {step.call_index: step for step in self.calls if step.round == number}


def steps_of(turn: Turn) -> Steps:
    """Those of a turn as it was claimed. One query; none for a turn that had no step yet."""
    return read_steps(turn) if turn.last_step else Steps()


def read_steps(turn: Turn) -> Steps:
    """Those of a turn now. One query."""
    found = Steps()
    for step in Step.objects.filter(turn=turn).select_related("tool_set", "approval").order_by("index"):
        if (approval := getattr(step, "approval", None)) is not None:
            found.approvals[step.pk] = approval
        if step.kind != StepKind.NOTE:
            (found.replies if step.kind == StepKind.MODEL else found.calls).append(step)
    return found
