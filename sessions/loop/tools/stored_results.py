"""Whole results of calls, read again in the session that they belong to."""

from __future__ import annotations

import re
from dataclasses import replace
from uuid import UUID

from capabilities.choosing.pipeline.specs import specs
from capabilities.choosing.pipeline.stages import is_reader
from capabilities.contract.context import ToolError
from capabilities.models import Tool
from sessions.loop.tools import execution
from sessions.models import Step, StepKind, Turn

#: Columns of a call that are read here.
COLUMNS = ("status", "result", "hooked_result", "tool_name", "tool_version__tool")
_NUMBER = re.compile(r"\s*([1-9][0-9]{0,8})-([1-9][0-9]{0,8})\s*", re.ASCII)


def number_of(turn: Turn, step: Step) -> str:
    """Return the name of a call in its session, for its model: the number of the turn, and of the step in it."""
    return f"{turn.seq}-{step.index}"


def stored_result(number: str, *, session_id: UUID, membership_id: int) -> str:
    """The whole result of the call with this number, as its hooks left it. Three queries.

    Raises ToolError where this session has no such call of this member's, where it has no result yet, and where the
    member may not use its tool any more.
    """
    found, number = _NUMBER.fullmatch(number), number.strip()[:20]
    step = None
    if found is not None:
        of_member = Step.objects.filter(turn__session=session_id, turn__membership=membership_id, kind=StepKind.TOOL)
        columns = of_member.select_related("tool_version").only(*COLUMNS)
        step = columns.filter(turn__seq=int(found[1]), index=int(found[2])).first()
    if step is None:
        raise ToolError(f"There is no result {number} in this conversation.")
    if step.is_unanswered:
        raise ToolError(f"The call {number} has no result yet.")
    _check_permitted(step, membership_id)
    return step.result_for_model


def _check_permitted(step: Step, membership_id: int) -> None:
    """Raises ToolError where the call's tool is not the member's to use now; what it needs to work does not matter."""
    known = specs(Tool.objects.filter(pk=step.tool_version.tool_id)) if step.tool_version is not None else []
    for spec in known:
        if is_reader(spec):
            raise ToolError("That is itself a part of a result: give the number of the result that it belongs to.")
        if execution.refusal_to(membership_id, replace(spec, is_ready=True)) is not None:
            raise ToolError(f"Access denied: {spec.name} may not be used any more, nor its results be read.")
