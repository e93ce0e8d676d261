"""What the check says of code: all at once, by line, with what to write instead; and that it is true."""

from __future__ import annotations

from typing import Any

import pytest

from capabilities.running.sandbox import check_python
from capabilities.running.sandbox.monty import gaps
from capabilities.running.sandbox.monty.checking import PROVIDED
from tests.capabilities.running.sandbox.running import ACME, checked, ran


def blocking(code: str, arguments: dict[str, Any] | None = None, **more: Any) -> list[tuple[int | None, str]]:
    return [(problem.line, problem.message) for problem in checked(code, arguments, **more) if problem.blocks]


def test_code_that_is_not_python_is_told_with_its_line(runtime: str) -> None:
    (problem,) = checked("def run(a):\n    return (a\n", {"a": 1}, runtime=runtime)

    assert problem.line == 2
    assert "'(' was never closed" in problem.message


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("x = 1\n", "There is no function `run`."),
        ("async def run(a):\n    return 1\n", "`run` is async."),
        ("def run(a, /):\n    return 1\n", "`run` takes a by its place only."),
        ("def run():\n    return 1\n", "`run` has no argument `a`, which the schema has."),
        ("def run(a, b):\n    return 1\n", "The schema has no `b`, which `run` asks for."),
    ],
)
def test_tx_26_the_entry_must_fit_the_schema(code: str, message: str, runtime: str) -> None:
    assert message in [problem.message for problem in checked(code, {"a": 1}, runtime=runtime)]


@pytest.mark.parametrize(
    "code",
    [
        "def run(a):\n    return a\n",
        "def run(a, b=1):\n    return a\n",
        "def run(**given):\n    return given\n",
        "def run(a, context):\n    return context\n",
        "def run(*, a: int) -> dict:\n    return {'a': a}\n",
    ],
)
def test_tx_26_an_entry_that_fits_has_no_problem(code: str) -> None:
    assert checked(code, {"a": 1}) == []


def test_an_argument_that_a_call_may_leave_out_needs_a_default() -> None:
    schema = {"type": "object", "properties": {"a": {}}, "required": []}

    (problem,) = check_python(
        "def run(a):\n    return a\n", helpers={}, runtime="monty", parameters=schema, organisation_id=ACME
    )

    assert problem.message == "A call may leave out `a`."
    assert "give it a default: `a=None`" in problem.advice


def test_all_gaps_are_told_in_one_answer_by_line() -> None:
    code = """\
import requests
from enum import Enum
from dataclasses import asdict, dataclass
import re

class Level(Enum):
    LOW = 1

class Broken(Exception):
    pass

@dataclass(order=True)
class Item:
    name: str

    @property
    def title(self):
        return self.name

    @staticmethod
    def made():
        return Item("x")

def rows(items):
    for item in items:
        yield item

def run(items):
    del items[0]
    first = next(item for item in items)
    text = re.sub("a", lambda m: "b", "aa")
    pattern = re.compile("a # b", re.VERBOSE)
    return sorted(items, key=str.lower)
"""

    lines = [line for line, _ in blocking(code, {"items": []})]

    assert lines == [1, 2, 3, 6, 9, 12, 16, 20, 26, 29, 30, 31, 32, 33]
    assert all(problem.advice for problem in checked(code, {"items": []}) if problem.blocks)


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("from enum import Enum", "constants"),
        ("from typing import NamedTuple", "@dataclass"),
        ("import requests", "http_get(url, params)"),
        ("from zoneinfo import ZoneInfo", "in_zone(moment, 'Europe/Berlin')"),
        ("from collections.abc import Mapping", "from typing import"),
        ("import urllib.request", "http_get(url, params)"),
        ("from datetime import UTC", "timezone.utc"),
        ("import nothing_such", "There are json, re,"),
        ("import uuid", "Full Python has it."),
        ("import operator", "Full Python has it."),
        ("import plistlib", "Full Python has it."),
        ("from urllib.parse import urljoin", "base.rstrip('/')"),
        ("from statistics import NormalDist", "statistics.stdev"),
        ("import html; html.unescape('x')", "replace("),
        ("from statistics import *", "Name what you use."),
        ("x = open('a')", "no files here"),
        ("x = 'a'.translate({})", "replace"),
        ("x = int.from_bytes(b'a', 'big')", ".hex()"),
    ],
)
def test_the_advice_says_what_to_write_instead(line: str, advice: str) -> None:
    problems = checked(f"{line}\n\ndef run():\n    return 1\n")

    assert [problem.line for problem in problems][:1] == [1]
    assert advice in " ".join(problem.advice for problem in problems)


@pytest.mark.parametrize(
    "line",
    [
        "from typing import Optional, Any, Dict",
        "import urllib.parse as p; p.quote('x')",
        "from urllib.parse import quote, urlencode",
        "import io, csv; list(csv.reader(io.StringIO('a,b')))",
        "try:\n    import numpy\nexcept ImportError:\n    numpy = None",
        "from collections import namedtuple; P = namedtuple('P', 'x y'); P(1, 2).x",
        "from functools import reduce, partial, lru_cache",
        "import statistics; statistics.mean([1, 2])",
        "x = dict.fromkeys('ab', 0); y = bytes.fromhex('61')",
    ],
)
def test_what_is_there_is_no_problem(line: str) -> None:
    assert blocking(f"{line}\n\ndef run():\n    return 1\n") == []


def test_a_name_that_nothing_defines_is_told(runtime: str) -> None:
    found = blocking("def run(a):\n    return b + a\n", {"a": 1}, runtime=runtime)

    assert found == [(2, "The name b is not defined.")]


def test_what_loading_the_code_raises_is_told(runtime: str) -> None:
    found = blocking("LIMIT = int('x')\n\ndef run():\n    return LIMIT\n", runtime=runtime)

    assert [line for line, _ in found] == [1]
    assert "ValueError" in found[0][1]


def test_code_that_never_ends_at_load_is_told(runtime: str) -> None:
    ((_, message),) = blocking("while True:\n    pass\n\ndef run():\n    return 1\n", runtime=runtime)

    assert "took longer" in message or "in time" in message


def test_a_doubt_of_the_type_check_blocks_nothing() -> None:
    problems = checked("def run(a: int) -> str:\n    return a\n", {"a": 1})

    assert [problem.blocks for problem in problems] == [False]
    assert problems[0].line == 2


def test_a_call_with_wrong_arguments_is_sure() -> None:
    code = "def half(x):\n    return x / 2\n\ndef run():\n    return half()\n"

    assert [line for line, _ in blocking(code)] == [5]


def test_tx_36_a_name_that_the_helper_does_not_have_is_told() -> None:
    helpers = {"prices": "def gross(net):\n    return net\n"}

    right = "from prices import gross\n\ndef run():\n    return gross(1)\n"
    wrong = "from prices import nett\n\ndef run():\n    return 1\n"

    assert blocking(right, helpers=helpers) == []
    assert blocking(wrong, helpers=helpers) == [(1, "prices.nett is not here.")]


def test_a_helper_that_does_not_load_is_told() -> None:
    ((_, message),) = blocking("import prices\n\ndef run():\n    return 1\n", helpers={"prices": "x = 1 / 0\n"})

    assert message.startswith("The module prices could not")
    assert message.endswith(": division by zero")


def test_a_package_is_not_there_in_full_python_either(full_python: None) -> None:
    ((line, message),) = blocking("import json\nimport requests\n\ndef run():\n    return 1\n", runtime="full")

    assert line == 2
    assert "requests is not installed" in message


def test_a_helper_module_needs_no_run() -> None:
    code = "def gross(net):\n    return net * 2\n"

    assert check_python(code, helpers={}, runtime="monty", parameters=None, organisation_id=ACME) == []


def test_what_the_description_lists_is_there() -> None:
    lines = "\n".join(f"import {name}" for name in PROVIDED.split(", "))

    assert ran(f"{lines}\n\ndef run():\n    return 1\n").value == 1


@pytest.mark.parametrize("name", [name for name in gaps.INSTEAD if "." in name])
def test_what_has_an_advice_is_not_there(name: str) -> None:
    """Else the advice would be about something that the next version of the interpreter has."""
    module, _, member = name.rpartition(".")
    if module in ("str", "int", "float", "bytes"):
        code = f"{name}('a')"
    elif module == "datetime.datetime":
        code = f"from datetime import datetime\ndatetime.{member}"
    elif name in ("asyncio.sleep",):
        pytest.skip("it is there, and does nothing")
    else:
        code = f"from {module} import {member}"

    assert ran(f"{code}\n\ndef run():\n    return 1\n").error is not None


@pytest.mark.parametrize("name", list(gaps.MODULES_INSTEAD))
def test_a_module_with_an_advice_is_not_there(name: str) -> None:
    assert ran(f"import {name}\n\ndef run():\n    return 1\n").error is not None


@pytest.mark.parametrize(
    ("name", "is_named"),
    [("uuid", True), ("enum", True), ("socket", False), ("urllib.request", False), ("numpy", False)],
)
def test_a_module_that_only_full_python_has_is_refused_with_that_word(name: str, is_named: bool) -> None:
    code = f"import {name}\n\ndef run():\n    return 1\n"
    problem, error = checked(code)[0], ran(code).error

    assert error is not None
    assert [("Full Python" in text) for text in (problem.advice, error.advice)] == [is_named, is_named]


@pytest.mark.parametrize("name", sorted(gaps.NOWHERE - {"urllib"}))
def test_a_module_of_nowhere_has_an_advice_of_its_own(name: str) -> None:
    assert gaps.module_advice(name)
