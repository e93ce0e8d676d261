"""What one call of Python gives, and what becomes of its errors."""

from __future__ import annotations

from typing import Any

import pytest

from capabilities.sandbox import HostFunctions, describe_runtime
from tests.capabilities.sandbox.running import ran

CALCULATOR = """\
def run(operation: str, a: float, b: float) -> dict:
    if operation == "divide" and b == 0:
        raise ValueError("Division by zero")
    results = {"add": a + b, "subtract": a - b, "multiply": a * b, "divide": a / b if b else None}
    result = results[operation]
    return {"result": result, "message": f"{a} {operation} {b} = {result}"}
"""
TEXT = """\
def run(text: str) -> dict:
    return {"transformed": text.upper()}
"""


def test_tx_28_the_calculator_gives_result_and_message() -> None:
    found = ran(CALCULATOR, {"operation": "add", "a": 2, "b": 3})

    assert found.value == {"result": 5, "message": "2 add 3 = 5"}


def test_tx_28_the_calculator_refuses_to_divide_by_zero() -> None:
    found = ran(CALCULATOR, {"operation": "divide", "a": 2, "b": 0})

    assert str(found.error) == "ValueError: Division by zero (line 3)"


def test_tx_29_the_text_tool_returns_upper_case() -> None:
    assert ran(TEXT, {"text": "hello"}).value == {"transformed": "HELLO"}


def test_an_error_names_the_line_of_the_tools_own_code() -> None:
    code = "def half(x):\n    return 1 / x\n\ndef run(x):\n    return half(x)\n"

    error = ran(code, {"x": 0}).error

    assert error is not None
    assert (error.kind, error.message, error.line) == ("ZeroDivisionError", "division by zero", 2)


@pytest.mark.parametrize("value", ["float('nan')", "{1, 2}", "b'a'", "{(1, 2): 3}", "print"])
def test_s46_a_result_that_is_not_json_is_an_error(value: str) -> None:
    assert ran(f"def run():\n    return [{value}]\n").error is not None


def test_tx_36_a_tool_imports_helper_modules_and_they_each_other() -> None:
    helpers = {
        "prices": "import rates\n\ndef gross(net):\n    return net * (1 + rates.VAT)\n",
        "rates": "VAT = 0.5\n",
    }

    found = ran("from prices import gross\n\ndef run(net):\n    return gross(net)\n", {"net": 4}, helpers=helpers)

    assert found.value == 6.0


def test_what_is_printed_comes_back_beside_the_result() -> None:
    found = ran("def run():\n    print('a', 1)\n    return 2\n")

    assert (found.value, found.printed) == (2, "a 1\n")


def test_the_clock_of_the_code_is_in_the_organisations_zone() -> None:
    code = "from datetime import datetime\n\ndef run():\n    return [datetime.now().hour, now_in('Asia/Tokyo').hour]\n"

    here, there = ran(code, host=HostFunctions(timezone="Asia/Tokyo")).value

    assert here in (there, (there - 1) % 24)


def test_requests_are_counted_and_the_one_too_many_ends_the_run() -> None:
    code = """\
def run(times):
    for _ in range(times):
        try:
            http_get("https://api.example.com/weather")
        except Exception:
            pass
    return "done"
"""

    assert (ran(code, {"times": 10}).value, ran(code, {"times": 10}).host_calls) == ("done", 10)
    error = ran(code, {"times": 11}).error
    assert error is not None
    assert error.kind == "HostCalls"


def test_a_web_that_fails_is_an_error_that_the_code_can_catch() -> None:
    code = """\
def run():
    try:
        http_get("https://api.example.com/")
    except OSError as error:
        return str(error)
"""

    assert ran(code, host=HostFunctions()).value == "This run cannot reach the web."


@pytest.mark.parametrize("runtime", ["monty", "full"])
def test_what_python_there_is_fits_into_a_tools_description(runtime: str) -> None:
    assert 300 < len(describe_runtime(runtime)) < 2_000


def test_an_unknown_runtime_is_an_error() -> None:
    error: Any = ran("def run(): return 1\n", runtime="pypy").error

    assert error.kind == "Unavailable"
