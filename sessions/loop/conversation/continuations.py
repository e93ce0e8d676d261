"""Number of times that a turn took up other tools on its way: in loading mode `same_run`, a few."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from uuid import UUID

from sessions.models import Step, StepKind


def continuations_of(turn_id: UUID) -> int:
    """Count the model calls of the turn that carried other tools than the one before. One query."""
    steps = Step.objects.filter(turn=turn_id, kind=StepKind.MODEL).order_by("index")
    return changes_in(list(steps.values_list("tool_set_id", flat=True)))


def changes_in(tool_set_ids: Sequence[int | None]) -> int:
    """Count the model calls that carried other tools than the one before."""
    return sum(before != after for before, after in pairwise(tool_set_ids))
