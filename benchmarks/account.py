"""What became of the turns of a run, by the database and by the marks that their calls left in the world outside.

Importing it sets Django up, with the settings that the environment names.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any
from uuid import UUID, uuid5

import django

django.setup()

from sessions.models import OPEN_STATUSES, Step, StepStatus, Turn, TurnEvent, TurnStatus  # noqa: E402
from toolhub.tenants.rows.scope import system_scope  # noqa: E402

Mark = dict[str, Any]


def held_by(pid: int) -> int:
    """Turns that a process of this machine has in its hands."""
    with system_scope():
        return Turn.objects.filter(status=TurnStatus.RUNNING, owner__contains=f":{pid}:").count()


def wait_for_the_end(limit: float, say: Callable[[str], None]) -> None:
    """Until no turn is open, or the time is up."""
    deadline, told = time.monotonic() + limit, 0.0
    while time.monotonic() < deadline:
        with system_scope():
            still_open = Turn.objects.filter(status__in=OPEN_STATUSES).count()
        if not still_open:
            return
        if time.monotonic() - told > 5:
            told = time.monotonic()
            say(f"{still_open} turns are open")
        time.sleep(0.25)


def moments() -> list[float]:
    """When something happened to any turn, in order, by the database's clock."""
    with system_scope():
        return [at.timestamp() for at in TurnEvent.objects.order_by("created_at").values_list("created_at", flat=True)]


def of(accepted: Sequence[str], marks: Sequence[Mark]) -> dict[str, Any]:
    """The line of counts; crash.py says what each one means."""
    with system_scope():
        turns = list(Turn.objects.order_by("session", "seq"))
        calls = list(Step.objects.filter(kind="tool"))
        events = Counter(TurnEvent.objects.values_list("turn", flat=True))
    waited = sorted((turn.ended_at - turn.created_at).total_seconds() for turn in turns if turn.ended_at)
    missing = {UUID(turn_id) for turn_id in accepted} - {turn.pk for turn in turns}
    effects = effects_of(calls, marks)
    return {
        "turns": len(accepted),
        "lost": len(missing) + effects.pop("unaccounted"),
        "duplicated": effects.pop("duplicated"),
        "stuck": sum(turn.is_open for turn in turns),
        "out_of_order": out_of_order(turns, marks),
        **effects,
        "done": sum(turn.status == TurnStatus.DONE for turn in turns),
        "failed": sum(not turn.is_open and turn.status != TurnStatus.DONE for turn in turns),
        "reclaims": sum(max(0, turn.epoch - 1) for turn in turns),
        "event_gaps": sum(turn.last_event != events[turn.pk] for turn in turns),
        "turn_seconds_p50": round(quantile(waited, 0.5), 1),
        "turn_seconds_p95": round(quantile(waited, 0.95), 1),
    }


def effects_of(calls: Sequence[Step], marks: Sequence[Mark]) -> dict[str, int]:
    """Calls on record against marks in the world: each mark has its call, and each call that is done has its mark.

    No two calls of a run say the same, so that a label seen twice is a call made twice, whatever its key.
    """
    status_of = {key_of(step): step.status for step in calls}
    left = Counter(str(mark["key"]) for mark in marks)
    unknown = [key for key, status in status_of.items() if status == StepStatus.UNKNOWN]
    unmarked = [key for key, status in status_of.items() if status == StepStatus.DONE and not left[key]]
    unowned = [key for key in left if status_of.get(key) not in (StepStatus.DONE, StepStatus.UNKNOWN)]
    return {
        "unaccounted": len(unmarked) + len(unowned),
        "duplicated": sum(count > 1 for count in Counter(str(mark["label"]) for mark in marks).values()),
        "unknown": len(unknown),
        "in_doubt": sum(key in left for key in unknown),
        "calls": len(calls),
        "marks": len(marks),
    }


def key_of(step: Step) -> str:
    """The key that a call carries, made here once more from what is on record."""
    return str(uuid5(step.turn_id, f"{step.round}:{step.call_index}"))


def out_of_order(turns: Sequence[Turn], marks: Sequence[Mark]) -> int:
    """Turns that began before the session's earlier one had ended, by the database's clock or by their marks."""
    marked: dict[str, list[float]] = {}
    for mark in marks:
        marked.setdefault(mark["label"].rpartition("/")[0], []).append(mark["at"])
    wrong = 0
    for earlier, later in pairwise(turns):
        if earlier.session_id != later.session_id or later.started_at is None:
            continue
        ours, theirs = marked.get(later.message), marked.get(earlier.message)
        began_early = earlier.ended_at is None or later.started_at < earlier.ended_at
        wrong += began_early or bool(ours and theirs and min(ours) < max(theirs))
    return wrong


def quantile(values: Sequence[float], share: float) -> float:
    return values[min(len(values) - 1, int(len(values) * share))] if values else 0.0
