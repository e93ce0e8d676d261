"""The steps of a turn in memory: read when a worker claims it, and then kept up by the only one who writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from django.db.models import Case, Exists, OuterRef, When
from django.db.models.functions import Now

from sessions.models import BEFORE_CALL, Approval, CallWait, Step, StepKind, Turn


@dataclass
class Steps:
    """Model calls, or the call that a client made itself, and tool calls of a held turn, each in its order."""

    replies: list[Step] = field(default_factory=list)
    #: Each reply's in their order, from the moment that the reply is stored.
    calls: list[Step] = field(default_factory=list)
    #: Tools that were added to the conversation, in their order.
    added: list[Step] = field(default_factory=list)
    #: Whether a call of the last reply was given to another agent: then its step is answered elsewhere.
    was_delegated: bool = False
    #: Questions to people before calls began, by the key of the call's step, as they were when the turn was claimed.
    approvals: dict[int, Approval] = field(default_factory=dict)
    #: Waits of calls that have begun, by the key of the call's step.
    call_waits: dict[int, CallWait] = field(default_factory=dict)
    #: Whether a call of the last reply waits for a person, or for a far side.
    was_asked: bool = False
    #: Secrets that sign the calls which this worker answered, by the key of the call's step.
    secrets: dict[int, Sequence[str]] = field(default_factory=dict)

    @property
    def waits(self) -> bool:
        """True where some call of the last reply is answered elsewhere."""
        return self.was_delegated or self.was_asked

    def in_order(self) -> list[Step]:
        return sorted([*self.replies, *self.calls, *self.added], key=lambda step: step.index)

    def add(self, step: Step) -> None:
        """Put the step behind those of its kind; a note is not kept."""
        kinds = {StepKind.MODEL: self.replies, StepKind.TOOL: self.calls, StepKind.TOOLS: self.added}
        kinds[StepKind.CLIENT] = self.replies
        if step.kind != StepKind.NOTE:
            kinds[StepKind(step.kind)].append(step)

    def of_round(self, number: int) -> dict[int, Step]:
        """The calls of this round, by their place in the reply."""
        return {step.call_index: step for step in self.calls if step.round == number}


def steps_of(turn: Turn) -> Steps:
    """Return the steps of a turn as it was claimed. One query; none for a turn that had no step yet."""
    return read_steps(turn) if turn.last_step else Steps()


def read_steps(turn: Turn) -> Steps:
    """Return the steps of a turn as they are now. One query, and one for the questions to people, where there are
    any."""
    asked = Approval.objects.filter(step=OuterRef("pk"))
    rows = Step.objects.filter(turn=turn).select_related("tool_set", "wait").order_by("index")
    rows = rows.annotate(has_asked=Exists(asked), is_due=Case(When(wait__poll_at__lte=Now(), then=True), default=False))
    found = Steps()
    steps = list(rows)
    approvals: dict[int, Approval] = {}
    if any(vars(step)["has_asked"] for step in steps):
        approvals = Approval.objects.filter(turn=turn).order_by("pk").in_bulk()
    for step in steps:
        if (wait := getattr(step, "wait", None)) is not None:
            found.call_waits[step.pk] = _at_hand(wait, step, approvals)
        found.add(step)
    found.approvals = {each.step_id: each for each in approvals.values() if each.kind in BEFORE_CALL}
    return found


def _at_hand(wait: CallWait, step: Step, approvals: Mapping[int, Approval]) -> CallWait:
    """The wait with its step and what was asked at hand, and whether its far side is to be asked again by now."""
    wait.step = step
    wait.asked = approvals.get(wait.asked_id or 0)
    wait.answer = approvals.get(wait.answer_id or 0)
    vars(wait)["is_due"] = vars(step)["is_due"]
    return wait
