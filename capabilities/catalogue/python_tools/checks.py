"""Checks of a Python version before somebody decides on it: its form, what is wrong in the code, its tests.

All of it runs in the sandbox, bounded, and before a transaction begins.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from capabilities.catalogue.tools.writes import Definition
from capabilities.common.argument_checks import complaints_about
from capabilities.common.confined import ConfinedError
from capabilities.common.refused import ChangeRefused
from capabilities.contract.context import ToolError
from capabilities.contract.warnings import normalised, normalised_value
from capabilities.models import HelperVersion, ToolTestCase
from capabilities.running.kinds.lines import filled_line
from capabilities.running.kinds.python import check_implementation as check_form
from capabilities.running.kinds.python import failure_text, limits_of
from capabilities.running.sandbox import HostFunctions, Problem, SandboxResult, check_python, run_python

#: Seconds that one run by an editor may take, and all tests of a tool together.
RUN_SECONDS = 10.0
TESTS_SECONDS = 30.0
#: Characters of an outcome that a test keeps.
MAX_OUTCOME = 2_000
#: Problems that a refusal names.
NAMED = 3


@dataclass(frozen=True)
class PythonContent:
    """A Python tool as it is written, before it is a version. `timeout` is in seconds."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    code: str
    runtime: str = "monty"
    human_format: str = ""
    instructions: str = ""
    helpers: Mapping[str, int] = field(default_factory=dict)
    effect: str = "external"
    timeout: float = 20.0
    max_result_chars: int = 40_000

    def definition(self) -> Definition:
        """Return the definition as a version has it: what a model reads holds no hidden characters."""
        return Definition(
            self.name,
            normalised(self.description),
            normalised_value(self.parameters),
            self.effect,
            timeout=self.timeout,
            max_result_chars=self.max_result_chars,
            instructions=normalised(self.instructions),
            implementation={
                "runtime": self.runtime,
                "code": self.code.replace("\r\n", "\n"),
                "helpers": dict(self.helpers),
            },
            human_format=normalised(self.human_format),
        )


def check_definition(definition: Definition) -> None:
    """Raise ChangeRefused with the field at fault unless it has the form of a Python tool. One query for helpers."""
    definition.check()
    if definition.parameters.get("type") != "object":
        raise ChangeRefused("parameters", 'The schema of the arguments begins with {"type": "object", ...}.')
    check_form(definition)


def problems_of(definition: Definition, organisation_id: int) -> list[Problem]:
    """Return the problems of the code, by line. Takes a child process and the sandbox; one query for helpers."""
    implementation = definition.implementation
    try:
        return check_python(
            str(implementation["code"]),
            helpers=helper_codes(implementation.get("helpers") or {}),
            runtime=str(implementation["runtime"]),
            parameters=definition.parameters,
            organisation_id=organisation_id,
        )
    except ConfinedError as error:
        return [Problem(None, None, str(error))]


def helper_codes(wanted: Mapping[str, int]) -> dict[str, str]:
    """The code of these versions of helper modules, approved or not. At most one query."""
    if not wanted:
        return {}
    rows = HelperVersion.objects.filter(module__name__in=list(wanted)).values_list("module__name", "number", "code")
    return {name: code for name, number, code in rows if wanted.get(name) == number}


def run_once(
    definition: Definition, arguments: Mapping[str, Any], organisation_id: int, *, seconds: float = RUN_SECONDS
) -> SandboxResult:
    """One run of the code with these arguments, without a way to the web. Never raises for what the code does."""
    implementation = definition.implementation
    return run_python(
        str(implementation["code"]),
        arguments,
        helpers=helper_codes(implementation.get("helpers") or {}),
        runtime=str(implementation["runtime"]),
        limits=limits_of(min(definition.timeout, seconds)),
        host=HostFunctions(),
        organisation_id=organisation_id,
        stopped=threading.Event(),
    )


def complaint_about_arguments(definition: Definition, arguments: Any, organisation_id: int) -> str:
    """Return why a call with these arguments does not fit the schema, or empty."""
    try:
        found = complaints_about(json.dumps(definition.parameters), arguments, organisation_id)
    except ToolError as error:
        return str(error)
    return "; ".join(map(str, found))


@dataclass(frozen=True)
class Checked:
    """Result of a check: problems by line, the line for people, and one run where there was something to try."""

    definition: Definition
    problems: Sequence[Problem] = ()
    display: str = ""
    result: str = ""
    error: str = ""
    #: True where the code ran with the example.
    has_run: bool = False

    @property
    def blocks(self) -> bool:
        return any(each.blocks for each in self.problems)

    @property
    def refusal(self) -> str:
        """Reason why it cannot be submitted, with the lines; empty where it can."""
        found = [str(each) for each in self.problems if each.blocks]
        rest = len(found) - NAMED
        return " ".join([*found[:NAMED], *([f"And {rest} more."] if rest > 0 else [])])


def check_content(definition: Definition, example: Mapping[str, Any] | None, organisation_id: int) -> Checked:
    """Return the problems of the code, and the result of one call with `example`. Nothing is saved.

    Raises ChangeRefused with the field at fault where it has not the form of a Python tool. Three queries at most.
    """
    check_definition(definition)
    problems = problems_of(definition, organisation_id)
    if example is None:
        return Checked(definition, problems)
    display = filled_line(definition.human_format, example) if definition.human_format else ""
    unfit = complaint_about_arguments(definition, example, organisation_id)
    if unfit or any(each.blocks for each in problems):
        return Checked(definition, problems, display, error=f"Not run: {unfit or 'the code has problems'}.")
    result = run_once(definition, example, organisation_id)
    if result.error is not None:
        return Checked(definition, problems, display, error=failure_text(result), has_run=True)
    shown = json.dumps(result.value, indent=2, ensure_ascii=False)
    return Checked(definition, problems, display, shown, has_run=True)


@dataclass(frozen=True)
class TestOutcome:
    """Outcome of a saved test."""

    case: ToolTestCase
    has_passed: bool
    outcome: str

    __test__ = False


def run_tests(definition: Definition, cases: Iterable[ToolTestCase], organisation_id: int) -> list[TestOutcome]:
    """Run each saved test in the sandbox, all of them within TESTS_SECONDS."""
    until = time.monotonic() + TESTS_SECONDS
    found = []
    for case in cases:
        remaining = until - time.monotonic()
        if remaining <= 0.1:
            found.append(TestOutcome(case, False, "Not run: the tests before it took too long."))
            continue
        result = run_once(definition, case.arguments, organisation_id, seconds=min(RUN_SECONDS, remaining))
        found.append(TestOutcome(case, *_judged(case, result)))
    return found


def _judged(case: ToolTestCase, result: SandboxResult) -> tuple[bool, str]:
    if result.error is not None:
        text = failure_text(result)
        wanted = str(case.expected or "")
        return case.expects_error and wanted in text, text[:MAX_OUTCOME]
    shown = json.dumps(result.value, ensure_ascii=False)[:MAX_OUTCOME]
    return not case.expects_error and (case.expected is None or result.value == case.expected), shown
