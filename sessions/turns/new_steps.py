"""New steps of a turn: made in memory, and stored together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django.utils import timezone

from sessions.models import Step, StepKind, StepStatus
from sessions.turns.fencing import Claim
from toolhub.tenants.rows.statements import Insert

#: The columns of a new step, by the names of their fields.
COLUMNS = {each.name: each.attname for each in Step._meta.concrete_fields if each.name != "id"}
_STEPS = Insert(Step, dict.fromkeys(COLUMNS))
#: Steps that one statement inserts, at most.
STEPS_AT_ONCE = 33


def calls_of(claim: Claim, reply: Step, places: Iterable[int], first: int) -> list[Step]:
    """The calls at these places of a reply as pending steps, numbered from `first` on, to be inserted."""
    found = []
    for index, place in enumerate(places, first):
        call = reply.tool_calls[place]
        step = new_step(
            claim,
            index=index,
            kind=StepKind.TOOL,
            status=StepStatus.PENDING,
            round=reply.round,
            call_index=place,
            tool_call_id=call["id"],
            tool_name=call.get("raw_name", call["name"])[:200],
            arguments=call.get("raw_arguments", call["arguments"]),
        )
        found.append(step)
    return found


def new_step(claim: Claim, **fields: Any) -> Step:
    """A step of the claim's turn, to be inserted; one that is answered has ended."""
    now = timezone.now()
    own = {"organisation_id": claim.organisation_id, "turn_id": claim.turn_id, "epoch": claim.epoch}
    step = Step(**{"started_at": now, **own, **fields})
    if not step.is_unanswered:
        step.ended_at = now
    return step


def insert_steps(steps: Sequence[Step]) -> None:
    """Insert the steps, and give each its key. One query for each `STEPS_AT_ONCE`."""
    for begin in range(0, len(steps), STEPS_AT_ONCE):
        batch = steps[begin : begin + STEPS_AT_ONCE]
        rows = ({name: getattr(step, column) for name, column in COLUMNS.items()} for step in batch)
        for step, key in zip(batch, _STEPS.rows(*rows), strict=True):
            step.pk, step._state.adding = key, False
