"""What one call of Python gives, and what becomes of its errors."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import pytest

from capabilities.contract.context import LinkNeeded
from capabilities.running.sandbox import HostError, HostFunctions, HttpAnswer, describe_runtime
from capabilities.running.sandbox.monty.pool import pool
from tests.capabilities.running.sandbox.running import ran

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


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("return {1, 2}", "Return a list"),
        ("return datetime.date(2026, 1, 1)", "isoformat"),
        ("return float('nan')", "None in place of NaN"),
        ("return {(1, 2): 3}", "str(key)"),
        ("import numpy", "lists, `math`"),
        ("return eval('int').from_bytes(b'a', 'big')", ".hex()"),
        ("return next(eval('(x for x in [1])'))", "next(iter(items), None)"),
        ("return exec('class A(ValueError): pass')", "plain classes"),
        ("return exec('from datetime import UTC')", "timezone.utc"),
        ("return run()", "loop in place"),
        ("return [0] * 10 ** 10", "Hold less at once"),
    ],
)
def test_an_error_of_a_call_says_what_to_write_instead(line: str, advice: str) -> None:
    error = ran(f"import datetime\n\ndef run():\n    {line}\n").error

    assert error is not None
    assert advice in error.advice
    assert error.advice in str(error)


def test_a_runner_that_is_not_there_refuses_s47(settings: Any) -> None:
    settings.TOOLHUB_FULL_PYTHON = False

    error: Any = ran("def run(): return 1\n", runtime="full").error

    assert error.kind == "Unavailable"
    assert "TOOLHUB_FULL_PYTHON" in error.message


def test_what_the_host_raises_beside_its_own_errors_goes_through(runtime: str) -> None:
    def link(*args: Any, **kwargs: Any) -> HttpAnswer:
        raise LinkNeeded("Connect the account first.", url="/accounts/", is_own=True)

    code = (
        "def run():\n    try:\n        http_get('https://example.com')\n    except BaseException:\n        return 1\n"
    )

    with pytest.raises(LinkNeeded):
        ran(code, runtime=runtime, host=HostFunctions(http=link))
    assert ran("def run():\n    return 2\n", runtime=runtime).value == 2


def test_a_run_that_is_stopped_ends(runtime: str) -> None:
    stopped = threading.Event()

    def stop(*args: Any, **kwargs: Any) -> HttpAnswer:
        stopped.set()
        return HttpAnswer(200, {}, "")

    code = "def run():\n    http_get('https://example.com')\n    http_get('https://example.com')\n    return 1\n"

    error = ran(code, runtime=runtime, host=HostFunctions(http=stop), stopped=stopped).error

    assert error is not None
    assert error.kind == "Stopped"


def test_the_time_in_host_functions_counts(runtime: str) -> None:
    def slow(*args: Any, timeout: float, **kwargs: Any) -> HttpAnswer:
        time.sleep(timeout)
        raise HostError("example.com did not finish its answer.")

    code = """\
def run():
    while True:
        try:
            http_get("https://example.com")
        except OSError:
            pass
"""

    found = ran(code, runtime=runtime, host=HostFunctions(http=slow), seconds=3)

    assert found.error is not None
    assert (found.error.kind, found.host_calls) == ("Timeout", 1)
    assert found.seconds < 8


def test_a_request_has_its_parameters_headers_and_body(runtime: str) -> None:
    asked: list[tuple[Any, ...]] = []

    def web(method: str, url: str, *, headers: Any, content: Any, timeout: float) -> HttpAnswer:
        asked.append((method, url, dict(headers), content))
        return HttpAnswer(201, {"x": "y"}, "é")

    code = """\
def run():
    first = http_get("https://h/p?a=1", {"b": [1, 2], "c": None, "d": "x y"}, {"X-A": "1"})
    second = http_post("https://h/p", {"a": 1})
    third = http_post("https://h/p", "text", headers={"content-type": "text/plain"})
    return [first, second["status"], third["body"]]
"""

    found = ran(code, runtime=runtime, host=HostFunctions(http=web))

    assert found.value == [{"status": 201, "headers": {"x": "y"}, "body": "é"}, 201, "é"]
    assert asked == [
        ("GET", "https://h/p?a=1&b=1&b=2&d=x+y", {"X-A": "1"}, None),
        ("POST", "https://h/p", {"Content-Type": "application/json"}, b'{"a": 1}'),
        ("POST", "https://h/p", {"content-type": "text/plain"}, b"text"),
    ]


@pytest.mark.parametrize(
    "call",
    [
        "http_get(1)",
        "http_get('https://h', 'a')",
        "http_get('https://h', {'a': {}})",
        "http_get('https://h', None, {'a': 1})",
        "http_get('https://h', None, {str(number): 'x' for number in range(51)})",
        "http_get('https://h' + 'x' * 9000)",
        "http_post('https://h', 'x' * 2_000_000)",
        "in_zone(1, 'UTC')",
        "now_in('Nowhere/At/All')",
        "now_in('../../etc/passwd')",
        "now_in(3)",
    ],
)
def test_a_host_function_refuses_what_it_cannot_take(call: str, runtime: str) -> None:
    error = ran(f"def run():\n    {call}\n", runtime=runtime).error

    assert error is not None
    assert error.kind in ("TypeError", "ValueError", "AttributeError")
    assert error.line == 2


def test_s44_times_are_asked_for_so_often_and_no_more() -> None:
    code = "def run(n):\n    for _ in range(n):\n        now_in('UTC')\n    return 'done'\n"

    assert ran(code, {"n": 1_000}).value == "done"
    assert "1,000 times in one run" in str(ran(code, {"n": 1_001}).error)


def test_arguments_that_json_does_not_have_are_refused(runtime: str) -> None:
    error = ran("def run(a):\n    return 1\n", {"a": object()}, runtime=runtime).error

    assert error is not None
    assert "cannot be handed to the code" in error.message


def test_tx_31_code_runs_in_a_process_of_its_own(full_python: None) -> None:
    found = ran("import os\n\ndef run():\n    return os.getpid()\n", runtime="full")

    assert found.value == 1
    with pool().checkout() as session:
        assert session.worker_pid not in (None, os.getpid())


def test_tx_36_helpers_work_the_same_in_full_python(full_python: None) -> None:
    helpers = {"prices": "import rates\n\ndef gross(net):\n    return net * rates.VAT / 0\n", "rates": "VAT = 2\n"}
    code = "import prices\n\ndef run(net):\n    return prices.gross(net)\n"

    error = ran(code, {"net": 1}, helpers=helpers, runtime="full").error

    assert error is not None
    assert (error.kind, error.line) == ("ZeroDivisionError", 4)


def test_s44_more_memory_than_the_limit_is_an_error_at_once(runtime: str) -> None:
    error = ran(
        "def run():\n    return len(b'x' * 2_000_000_000)\n", runtime=runtime, memory=64_000_000, seconds=20
    ).error

    assert error is not None
    assert (error.kind, error.message) == ("Memory", "It held more than 64 MB.")
