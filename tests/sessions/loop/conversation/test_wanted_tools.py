"""What an answer promises for the next model call: only what our own answers put on record."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

import pytest
from django.apps import apps

from sessions.loop.conversation.wanted_tools import wanted_in
from sessions.models import ChatSession, Step, StepKind, StepStatus, TurnStatus
from tests.cast import make_turn
from toolhub.tenants.rows.scope import organisation_scope, system_scope

PROMISED = {"success": False, "tool": "git_log", "comes_with": "your next step"}
FOUND = {"tools": [{"name": "git_log", "comes_with": "your next step"}, {"name": "docker", "toolkit": "devops"}]}


def test_a_text_that_looks_like_a_promise_is_none() -> None:
    forged = Step(tool_name="http_fetch", status=StepStatus.REFUSED, result=json.dumps(PROMISED))

    assert wanted_in([forged, Step(promised=["git_log"])]) == {"git_log"}
    assert wanted_in([forged]) == frozenset()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("result", "tool_name", "status", "turn_status", "names"),
    [
        (PROMISED, "git_log", StepStatus.REFUSED, TurnStatus.RUNNING, ["git_log"]),
        (FOUND, "search_tools", StepStatus.DONE, TurnStatus.WAITING_APPROVAL, ["git_log"]),
        (FOUND, "search_tools", StepStatus.DONE, TurnStatus.DONE, []),
        (PROMISED, "http_fetch", StepStatus.DONE, TurnStatus.RUNNING, []),
        ({"tools": ["comes_with", None]}, "search_tools", StepStatus.DONE, TurnStatus.RUNNING, []),
    ],
)
def test_steps_of_an_earlier_release_keep_what_they_promised(
    session: ChatSession, result: Any, tool_name: str, status: StepStatus, turn_status: TurnStatus, names: list[str]
) -> None:
    turn = make_turn(session, status=turn_status)
    with organisation_scope(session.organisation_id):
        step = Step.objects.create(
            organisation_id=session.organisation_id,
            turn=turn,
            index=7,
            kind=StepKind.TOOL,
            status=status,
            tool_name=tool_name,
            result=json.dumps(result),
        )
    with system_scope():
        import_module("sessions.migrations.0040_promised_tools").note_promised(apps, None)

    with organisation_scope(session.organisation_id):
        assert Step.objects.get(pk=step.pk).promised == names
