"""The time line of a turn: when it waited, asked its model, and ran tools. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sessions.models import Step, StepKind, Turn

#: Percent of the line that the shortest piece takes, so that it is seen.
LEAST_WIDTH = 0.4
Span = tuple[datetime, datetime | None]


@dataclass(frozen=True)
class TimeSpan:
    """A piece of a line: `kind` is model, tool, person or queue; `start` and `width` are percent of the turn."""

    kind: str
    start: float
    width: float


@dataclass(frozen=True)
class TimelineRow:
    """One model call or tool call with its step, or the wait before them."""

    title: str
    spans: Sequence[TimeSpan]
    #: Seconds after the turn was sent, and how long it took; None while it goes on.
    after: float
    seconds: float | None
    #: Seconds of these in which it waited for a person.
    waited: float = 0.0
    step: Step | None = None


@dataclass(frozen=True)
class Timeline:
    """A turn's rows in the order of their steps, and its length in seconds, so far where it goes on."""

    rows: Sequence[TimelineRow]
    seconds: float


class _Scale:
    """Moments of one turn as percent of its length."""

    def __init__(self, begin: datetime, end: datetime) -> None:
        self.begin, self.end = begin, end
        self.seconds = max((end - begin).total_seconds(), 0.001)

    def after(self, moment: datetime) -> float:
        return max(0.0, (moment - self.begin).total_seconds())

    def span(self, kind: str, start: datetime, end: datetime | None) -> TimeSpan:
        left = min(100 - LEAST_WIDTH, 100 * self.after(start) / self.seconds)
        right = min(100.0, 100 * self.after(end or self.end) / self.seconds)
        return TimeSpan(kind, round(left, 2), round(max(LEAST_WIDTH, right - left), 2))


def timeline_of(turn: Turn, steps: Iterable[Step], asked: Mapping[int, Sequence[Span]], now: datetime) -> Timeline:
    """Return the time line of a turn with these steps. `asked`: by key of a step, when its call began to wait for a
    person and was answered."""
    shown = [step for step in steps if step.kind in (StepKind.MODEL, StepKind.TOOL)]
    scale = _Scale(turn.created_at, turn.ended_at or now)
    first = min((step.started_at for step in shown), default=turn.ended_at)
    rows = [_queue(turn, first, scale)]
    rows += [_row(step, asked.get(step.pk, ()), scale) for step in shown]
    return Timeline(rows, scale.seconds)


def _queue(turn: Turn, until: datetime | None, scale: _Scale) -> TimelineRow:
    seconds = None if until is None else scale.after(until)
    return TimelineRow("Waited for a worker", [scale.span("queue", turn.created_at, until)], 0.0, seconds)


def _row(step: Step, waits: Sequence[Span], scale: _Scale) -> TimelineRow:
    is_model = step.kind == StepKind.MODEL
    spans = [scale.span("model" if is_model else "tool", step.started_at, step.ended_at)]
    spans += [scale.span("person", start, end) for start, end in waits]
    return TimelineRow(
        f"Model call {step.round}" if is_model else step.tool_name,
        spans,
        scale.after(step.started_at),
        step.seconds,
        sum(((end or scale.end) - start).total_seconds() for start, end in waits),
        step,
    )
