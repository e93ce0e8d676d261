"""What a call of a Python tool costs: in the interpreter, in full Python, and as a bare call in this process.

    .venv/bin/python benchmarks/sandbox.py

The same small tool (a calculator) is called one after another in each: the first call of a process, then warm ones;
then with ten requests to a web that answers at once, and from eight threads. The memory is what one process of each
holds, by its proportional share. The data folder is thrown away.

The last line of standard output is a JSON object: of each runtime the median of a warm call in milliseconds (`warm`),
how many times a bare call that is (`ratio`), the first call (`cold`) and the memory in megabytes (`memory`). The exit
code is 1 where a warm call misses its goal. A runtime that this machine cannot isolate is left out, with the reason.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
#: Milliseconds of a warm call, by runtime.
GOALS = {"monty": 10.0, "full": 50.0}
CALLS = 300
CODE = """\
def run(operation, a, b):
    if operation == "divide" and b == 0:
        raise ValueError("Division by zero")
    results = {"add": a + b, "subtract": a - b, "multiply": a * b}
    result = results[operation]
    return {"result": result, "message": f"{a} {operation} {b} = {result}"}
"""
ASKING = """\
def run():
    return sum(http_get("https://example.com/")["status"] for _ in range(10))
"""
ARGUMENTS = {"operation": "add", "a": 2, "b": 3}


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="toolhub-benchmark-") as folder:
        os.environ.update(TOOLHUB_DATA_DIR=folder, TOOLHUB_LOG_LEVEL="ERROR", TOOLHUB_FULL_PYTHON="1")
        os.environ["DJANGO_SETTINGS_MODULE"] = "toolhub.settings"
        sys.path.insert(0, str(ROOT))
        import django  # noqa: PLC0415 -- app ready

        django.setup()
        return report()


def report() -> int:
    from capabilities.running.sandbox import isolation  # noqa: PLC0415 -- app ready

    bare = timed(bare_call(), CALLS)
    print(f"bare call in this process: {bare:.4f} ms")
    found: dict[str, dict[str, float]] = {}
    for runtime, goal in GOALS.items():
        begun = time.perf_counter()
        ready = isolation()
        probed = (time.perf_counter() - begun) * 1000
        if not ready.has(runtime):
            print(f"{runtime}: left out. {ready.reason(runtime)}")
            continue
        found[runtime] = measured(runtime, bare)
        row = found[runtime]
        print(
            f"{runtime}: warm {row['warm']:.2f} ms (goal {goal:g}), p95 {row['p95']:.2f}, {row['ratio']:,.0f} times a"
            f" bare call; cold {row['cold']:.0f} ms; ten requests {row['asking']:.2f} ms; eight threads"
            f" {row['rate']:,.0f} calls/s; {row['memory']:.1f} MB a process; isolation tried in {probed:.0f} ms"
        )
    print(json.dumps({"bare": round(bare, 5), **found}))
    return int(any(found[runtime]["warm"] > goal for runtime, goal in GOALS.items() if runtime in found))


def bare_call() -> Callable[[], Any]:
    names: dict[str, Any] = {}
    exec(CODE, names)
    return lambda: json.loads(json.dumps(names["run"](**ARGUMENTS)))


def timed(function: Callable[[], Any], times: int) -> float:
    """The median of so many calls, in milliseconds."""
    return statistics.median(each(function) for _ in range(times))


def each(function: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    function()
    return (time.perf_counter() - begun) * 1000


def call(runtime: str, organisation_id: int, code: str = CODE, arguments: dict[str, Any] | None = None) -> Any:
    from capabilities.running.sandbox import HostFunctions, HttpAnswer, Limits, run_python  # noqa: PLC0415 -- app ready

    def web(*args: Any, **kwargs: Any) -> HttpAnswer:
        return HttpAnswer(200, {}, "{}")

    found = run_python(
        code,
        ARGUMENTS if arguments is None else arguments,
        helpers={},
        runtime=runtime,
        limits=Limits(),
        host=HostFunctions(http=web),
        organisation_id=organisation_id,
        stopped=threading.Event(),
    )
    assert found.error is None, found.error
    return found.value


def measured(runtime: str, bare: float) -> dict[str, float]:
    # The pool of the interpreter is of the process, and was started by the look at the isolation; a zygote is not.
    cold = each(lambda: call(runtime, 1))
    calls = sorted(each(lambda: call(runtime, 1)) for _ in range(CALLS))
    warm = statistics.median(calls)
    asking = timed(lambda: call(runtime, 1, ASKING, {}), 30)
    return {
        "warm": round(warm, 3),
        "p95": round(calls[int(len(calls) * 0.95)], 3),
        "ratio": round(warm / bare, 1),
        "cold": round(cold, 1),
        "asking": round(asking, 3),
        "rate": round(rate(runtime), 1),
        "memory": round(memory("monty" if runtime == "monty" else "python", runtime), 1),
    }


def rate(runtime: str) -> float:
    """Calls in a second, from eight threads for eight organisations."""

    def go(organisation_id: int) -> None:
        for _ in range(40):
            call(runtime, organisation_id)

    for organisation_id in range(1, 9):
        call(runtime, organisation_id)
    threads = [threading.Thread(target=go, args=[organisation_id]) for organisation_id in range(1, 9)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return 8 * 40 / (time.perf_counter() - begun)


def memory(name: str, runtime: str) -> float:
    """Megabytes that one process of the runtime holds, by its share; the median of them."""
    found = []
    for pid in below(os.getpid()):
        try:
            command = Path(f"/proc/{pid}/comm").read_text().strip()
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        if command.startswith(name):
            pss = next(line for line in rollup.splitlines() if line.startswith("Pss:"))
            found.append(int(pss.split()[1]) / 1000)
    return statistics.median(found) if found else 0.0


def below(pid: int) -> list[int]:
    """The process's children, and theirs."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += [int(child), *below(int(child))]
    return found


if __name__ == "__main__":
    sys.exit(main())
