"""Ten tools as a model writes them: what runs as it is, and what one message is enough for."""

from __future__ import annotations

import difflib

import pytest

from tests.capabilities.running.sandbox.running import checked, ran
from tests.capabilities.running.sandbox.ten_tools import REWRITTEN, TEN, Example, Rewritten

BY_NAME = {example.name: example for example in TEN}
AS_THEY_ARE = [example for example in TEN if example.name not in {rewritten.name for rewritten in REWRITTEN}]


def test_six_of_the_ten_run_in_monty_as_they_are() -> None:
    assert (len(TEN), len(AS_THEY_ARE)) == (10, 6)


@pytest.mark.parametrize("example", AS_THEY_ARE, ids=lambda example: example.name)
def test_a_tool_runs_in_monty_as_it_is(example: Example) -> None:
    found = ran(example.code, example.arguments)

    assert found.error is None
    assert example.is_right(found.value)
    assert [problem for problem in checked(example.code, example.arguments) if problem.blocks] == []


@pytest.mark.parametrize("example", TEN, ids=lambda example: example.name)
@pytest.mark.usefixtures("full_python")
def test_every_tool_runs_in_full_python_as_it_is(example: Example) -> None:
    found = ran(example.code, example.arguments, runtime="full")

    assert found.error is None
    assert example.is_right(found.value)
    assert checked(example.code, example.arguments, runtime="full") == []


@pytest.mark.parametrize("rewritten", REWRITTEN, ids=lambda rewritten: rewritten.name)
def test_a_tool_that_does_not_runs_after_one_message(rewritten: Rewritten) -> None:
    example = BY_NAME[rewritten.name]
    problems = [problem for problem in checked(example.code, example.arguments) if problem.blocks]
    advised = {problem.line for problem in problems if problem.advice}

    assert ran(example.code, example.arguments).error is not None
    assert {problem.line for problem in problems} == advised == set(rewritten.because.values())
    assert changed_lines(example.code, rewritten.code) == set(rewritten.because)

    found = ran(rewritten.code, example.arguments)

    assert found.error is None
    assert example.is_right(found.value)
    assert [problem for problem in checked(rewritten.code, example.arguments) if problem.blocks] == []


def changed_lines(before: str, after: str) -> set[int]:
    """Numbers of the lines that are not in the other text any more, blank ones left out."""
    lines = before.splitlines()
    matcher = difflib.SequenceMatcher(a=lines, b=after.splitlines(), autojunk=False)
    changed = {
        number + 1
        for tag, start, end, _, _ in matcher.get_opcodes()
        if tag in ("replace", "delete")
        for number in range(start, end)
    }
    return {number for number in changed if lines[number - 1].strip()}
