"""The work of a turn in one line."""

from __future__ import annotations

from dataclasses import dataclass

from django import template

from sessions.models import StepKind, StepStatus, Turn

register = template.Library()

#: Names of tools that the line has.
MOST_NAMES = 4


@dataclass(frozen=True)
class Work:
    """Figures of a turn's steps. They are folded where the turn has an answer, which is what one reads then."""

    is_folded: bool
    calls: int
    failed: int
    notes: int
    #: Tools that were called, in the order of their first calls.
    names: str
    #: Tokens that went to models and came from them.
    tokens: int

    @property
    def failed_text(self) -> str:
        return f"{self.failed} failed"

    @property
    def notes_text(self) -> str:
        return f"{self.notes} note{'' if self.notes == 1 else 's'}"


@register.filter
def work(turn: Turn) -> Work:
    """Return the figures of the turn's steps, which are read already. No query."""
    steps = list(turn.steps.all())
    calls = [step for step in steps if step.kind == StepKind.TOOL]
    failed = sum(step.status in (StepStatus.FAILED, StepStatus.REFUSED, StepStatus.UNKNOWN) for step in calls)
    names = list(dict.fromkeys(step.tool_name for step in calls))
    return Work(
        is_folded=bool(turn.answer) and not turn.is_open and bool(steps),
        calls=len(calls),
        failed=failed,
        notes=sum(step.kind == StepKind.NOTE for step in steps),
        names=", ".join(names[:MOST_NAMES]) + (", …" if len(names) > MOST_NAMES else ""),
        tokens=turn.input_tokens + turn.output_tokens,
    )
