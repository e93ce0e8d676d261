"""The steps of a turn in memory: read when a worker claims it, and then kept up by the only one who writes them."""

from __future__ import annotations

from dataclasses import dataclass, field

from sessions.models import Step, StepKind, Turn


@dataclass
class Steps:
    """Model calls and tool calls of a held turn, each in its order."""

    replies: list[Step] = field(default_factory=list)
    #: Each reply's in their order, from the moment that the reply is stored.
    calls: list[Step] = field(default_factory=list)
    #: Whether a call of the last reply was given to another agent: then its step is answered elsewhere.
    was_delegated: bool = False

    def in_order(self) -> list[Step]:
        return sorted([*self.replies, *self.calls], key=lambda step: step.index)

    def of_round(self, number: int) -> dict[int, Step]:
        """The calls of this round, by their place in the reply."""
        return {step.call_index: step for step in self.calls if step.round == number}


def steps_of(turn: Turn) -> Steps:
    """One query; none for a turn that has no step yet."""
    found = Steps()
    if turn.last_step:
        for step in Step.objects.filter(turn=turn).select_related("tool_set").order_by("index"):
            if step.kind != StepKind.NOTE:
                (found.replies if step.kind == StepKind.MODEL else found.calls).append(step)
    return found
