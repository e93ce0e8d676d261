"""Files that came with a call's result, as rows to be stored with it."""

from __future__ import annotations

from dataclasses import replace

from django.db.models import Sum

from capabilities.common.text import storable
from capabilities.contract.results import MAX_NAME, ResultFile, plain_media_type
from sessions.loop.tools.execution import Outcome
from sessions.models import Step, StepFile, StepStatus

#: Bytes of all files of results that one organisation keeps. Looked at before a file is kept: calls side by side may
#: pass it by one result each.
MAX_OF_ORGANISATION = 1_000_000_000
NO_ROOM = "(The files of this result were not kept: the organisation has {most:,} bytes for files, and no room left.)"


def rows_of(step: Step, files: tuple[ResultFile, ...]) -> list[StepFile]:
    """The rows, not stored yet; none where the organisation has no room for them. One query; none without a file."""
    if not files:
        return []
    kept = StepFile.objects.aggregate(bytes=Sum("size"))["bytes"] or 0
    if kept + sum(len(each.content) for each in files) > MAX_OF_ORGANISATION:
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


def plain_name(name: str) -> str:
    """The last part of the name, without what no file name has."""
    last = storable(name.replace("\\", "/")).rsplit("/", 1)[-1]
    return "".join(each for each in last if each.isprintable()).strip(" .")[:MAX_NAME]


def with_files(outcome: Outcome, step: Step) -> tuple[Outcome, list[StepFile]]:
    """The outcome, which says so where its files are not kept, and their rows. One query; none without a file."""
    rows = rows_of(step, outcome.files)
    if rows or not outcome.files or outcome.status != StepStatus.DONE:
        return outcome, rows
    text = f"{outcome.result}\n{NO_ROOM.format(most=MAX_OF_ORGANISATION)}"
    return replace(outcome, result=text, result_sent=text), rows
