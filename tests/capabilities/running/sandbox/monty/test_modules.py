"""Modules of Python's library that are written anew for the interpreter do the same as the original."""

from __future__ import annotations

import json
from typing import Any

import pytest

from capabilities.running.sandbox.monty import modules
from tests.capabilities.running.sandbox.running import ran

#: Expressions that must give the same in CPython and in the interpreter; an exception counts by its name.
SAME: dict[str, list[str]] = {
    "io": [
        "io.StringIO('a\\nb').read()",
        "list(io.StringIO('a\\nb\\n'))",
        "(lambda s: (s.write('ab'), s.write('c'), s.getvalue()))(io.StringIO())",
        "(lambda s: (s.read(2), s.tell(), s.readline(), s.seek(0), s.readlines()))(io.StringIO('abc\\nd'))",
        "(lambda s: (s.write('x'), s.getvalue()))(io.StringIO('abc'))",
        "io.StringIO().write(1)",
    ],
    "statistics": [
        "statistics.mean([1, 2, 3, 4]), statistics.mean([1, 2]), statistics.mean([0.1] * 10)",
        "statistics.fmean([1, 2, 4]), statistics.median([3, 1, 2]), statistics.median([1, 2, 3, 4])",
        "statistics.mode('aabb'), statistics.mean([1.5, 2]), statistics.mean((1, 2, 2))",
        "round(statistics.stdev([1.5, 2.5, 4.0]), 12), round(statistics.pstdev([1, 2, 4]), 12)",
        "statistics.variance([1, 2, 3, 4]), statistics.pvariance([1, 2, 3, 4])",
        "statistics.stdev([1, 2, 3], 2), statistics.pvariance([1, 2, 3], 2), statistics.pstdev([5])",
        "str(statistics.mean([Decimal('0.5'), Decimal('0.75')])), str(statistics.median([Decimal('1'), Decimal('2')]))",
        "statistics.mode([])",
        "statistics.mean([])",
        "statistics.stdev([1])",
        "statistics.pstdev([])",
        "statistics.median([])",
    ],
    "urllib.parse": [
        "urllib.parse.quote('é a/b?c'), urllib.parse.quote('a/b', safe=''), urllib.parse.quote_plus('a b&c')",
        "urllib.parse.unquote('%C3%A9%20a%zz%2'), urllib.parse.unquote_plus('a+b%20c')",
        "urllib.parse.urlencode({'a': 1, 'b': 'x y', 'c': True}), urllib.parse.urlencode([('a', [1, 2])], doseq=True)",
        "urllib.parse.parse_qs('a=1&a=2&b=&c=x%20y'), urllib.parse.parse_qsl('a=1&b=', keep_blank_values=True)",
    ],
}  # fmt: skip
CODE = """\
import {module}
from decimal import Decimal

def run():
    try:
        found = {expression}
    except Exception as error:
        return type(error).__name__
    return found
"""


def in_cpython(code: str) -> Any:
    names: dict[str, Any] = {}
    exec(code, names)
    return json.loads(json.dumps(names["run"]()))


@pytest.mark.parametrize(
    ("module", "expression"), [(module, each) for module, found in SAME.items() for each in found], ids=str
)
def test_a_module_does_the_same_as_the_original(module: str, expression: str) -> None:
    code = CODE.format(module=module, expression=expression)
    expected = in_cpython(code)
    if expected == "StatisticsError":  # a kind of it
        expected = "ValueError"

    found = ran(code)

    assert (found.error, found.value) == (None, expected)


def test_every_module_is_compared() -> None:
    there = {*modules.NAMES, *(f"{name}.{part}" for name, part in modules.PACKAGES.items())}

    assert set(SAME) == there
