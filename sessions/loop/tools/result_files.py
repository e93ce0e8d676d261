"""Files that came with a call's result, as rows to be stored with it."""

from __future__ import annotations

from dataclasses import replace

from capabilities.contract.attachments import plain_name
from capabilities.contract.results import ResultFile, plain_media_type
from sessions.loop.tools.execution import Outcome
from sessions.models import Step, StepFile, StepStatus
from sessions.turns import files as room

NO_ROOM = "(The files of this result were not kept: the organisation has {most:,} bytes for files, and no room left.)"


def rows_of(step: Step, files: tuple[ResultFile, ...]) -> list[StepFile]:
    """The rows, not stored yet; none where the organisation has no room for them. One query; none without a file."""
    if not files or not room.has_room(files):
        return []
    return [
        StepFile(
            organisation_id=step.organisation_id,
            step=step,
            turn_id=step.turn_id,
            place=place,
            name=plain_name(each.name) or f"file-{place + 1}",
            media_type=plain_media_type(each.media_type),
            size=len(each.content),
            content=each.content,
        )
        for place, each in enumerate(files)
    ]


def with_files(outcome: Outcome, step: Step) -> tuple[Outcome, list[StepFile]]:
    """The outcome, which says so where its files are not kept, and their rows. One query; none without a file."""
    rows = rows_of(step, outcome.files)
    if rows or not outcome.files or outcome.status != StepStatus.DONE:
        return outcome, rows
    text = f"{outcome.result}\n{NO_ROOM.format(most=room.MAX_OF_ORGANISATION)}"
    return replace(outcome, result=text, result_sent=text), rows
