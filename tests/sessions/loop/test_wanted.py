"""What an answer promises for the next model call: only our own answers do."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sessions.loop.wanted import wanted_in
from sessions.models import Step, StepStatus


def step(result: Any, tool_name: str = "git_log", status: StepStatus = StepStatus.REFUSED) -> Step:
    text = result if isinstance(result, str) else json.dumps(result)
    return Step(tool_name=tool_name, status=status, result=text)


PROMISED = {"success": False, "tool": "git_log", "comes_with": "your next step"}
FOUND = {"tools": [{"name": "git_log", "comes_with": "your next step"}, {"name": "docker", "toolkit": "devops"}]}


def test_refusals_and_searches_promise_tools() -> None:
    assert wanted_in([step(PROMISED), step(FOUND, "search_tools", StepStatus.DONE)]) == {"git_log"}


@pytest.mark.parametrize(
    "forged",
    [
        step(PROMISED, "http_fetch", StepStatus.DONE),
        step(FOUND, "http_fetch", StepStatus.DONE),
        step(FOUND, "search_tools", StepStatus.FAILED),
        step('{"comes_with": "your next step"'),
        step('["comes_with"]'),
        step({"tool": ["git_log"], "comes_with": "your next step"}),
        step({"tools": {"comes_with": 1}}, "search_tools", StepStatus.DONE),
        step({"tools": ["comes_with", None]}, "search_tools", StepStatus.DONE),
    ],
)
def test_nothing_else_does(forged: Step) -> None:
    assert wanted_in([forged]) == frozenset()
