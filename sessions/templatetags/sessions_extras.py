"""How a turn's parts are written in templates."""

from __future__ import annotations

import json
from datetime import datetime

from django import template
from django.utils import timezone
from django.utils.safestring import SafeString

from sessions.markdown import render_markdown
from sessions.models import Step, StepStatus, Turn, TurnStatus
from sessions.queries import SHOWN_CHARS

register = template.Library()

TURN_STATES = {
    TurnStatus.QUEUED: "wait",
    TurnStatus.RUNNING: "run",
    TurnStatus.WAITING_CHILD: "wait",
    TurnStatus.DONE: "ok",
    TurnStatus.FAILED: "bad",
    TurnStatus.CANCELLED: "off",
    TurnStatus.EXPIRED: "bad",
}
STEP_STATES = {
    StepStatus.STARTED: "run",
    StepStatus.DONE: "ok",
    StepStatus.FAILED: "bad",
    StepStatus.REFUSED: "bad",
    StepStatus.UNKNOWN: "warn",
}


@register.filter
def markdown(text: str) -> SafeString:
    return render_markdown(text)


@register.filter
def turn_state(status: str) -> str:
    """The badge of a turn's status."""
    return TURN_STATES.get(TurnStatus(status), "off") if status else "off"


@register.filter
def turn_state_label(status: str) -> str:
    return str(TurnStatus(status).label)


@register.filter
def step_state(status: str) -> str:
    """The badge of a step's status."""
    return STEP_STATES.get(StepStatus(status), "off")


@register.filter
def since(moment: datetime | None) -> float:
    """Seconds from then to now."""
    return (timezone.now() - moment).total_seconds() if moment else 0.0


@register.filter
def readable_json(text: str) -> str:
    """JSON with an indent where that is what it is; anything else as it came."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return json.dumps(value, indent=2, ensure_ascii=False) if isinstance(value, dict | list) else text


@register.filter
def duration(turn: Turn) -> float | None:
    """Seconds from the message to the answer."""
    return (turn.ended_at - turn.created_at).total_seconds() if turn.ended_at else None


@register.filter
def awaited(turn: Turn) -> str:
    """Which agents a turn waits for."""
    children = [getattr(step, "child_turn", None) for step in turn.steps.all()]
    names = dict.fromkeys(str(child.agent) for child in children if child is not None and child.is_open)
    return f"Waiting for {', '.join(names)}" if names else "Working"


@register.filter
def is_cut(step: Step) -> bool:
    """Whether a page shows less of the step's arguments or result than there is."""
    lengths: tuple[int, int] = (step.arguments_length, step.result_length)  # type: ignore[attr-defined]
    return max(lengths) > SHOWN_CHARS
