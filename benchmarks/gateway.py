"""What a call through `/v1/chat/completions` costs beside the same call to the provider, streamed.

    .venv/bin/python benchmarks/gateway.py [--calls 60] [--blocks 4]

The service is started as `manage.py up` starts it, on SQLite with its own Valkey, on a data folder that is thrown away;
the provider answers at once. Both are asked over plain HTTP, one call after another, in blocks that alternate: the
gateway by an agent with so many tools, the provider with the same tools, byte for byte. The model calls none of them,
so that a call is one round. CPU is that of the processes, in user and in kernel mode, less what they spend idle in the
same time; milliseconds are of the clock. Linux only.

The last line of standard output is a JSON object, each figure by tools (10 and 128):

direct_ms, gateway_ms          from the request to the end of the stream, the median
direct_first_ms, gateway_first_ms   the same to the first word
overhead_ms                    gateway_ms less direct_ms
web_cpu_ms, worker_cpu_ms, valkey_cpu_ms   CPU of these processes a call
cpu_ms                         their sum
"""

from __future__ import annotations

import argparse
import http.client
import json
import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.ending import to_its_end
from benchmarks.up import Service, cpu_seconds, instant_model, say, throw_away

COUNTS = (10, 128)
MEASURED = ("web", "worker", "valkey")
MESSAGES = [{"role": "user", "content": "Say what the sum is."}]


def streamed(address: str, body: Mapping[str, Any], token: str = "") -> tuple[float, float]:
    """Milliseconds to the first word and to the end of one streamed call, on a connection of its own."""
    parts = urlsplit(address)
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    begun, first = time.monotonic(), 0.0
    with closing(http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=120)) as connection:
        connection.request("POST", f"{parts.path}/chat/completions", json.dumps(body), headers)
        response = connection.getresponse()
        if response.status != 200:
            raise SystemExit(f"A call was answered with {response.status}: {response.read()!r}")
        for line in response:
            if not first and b'"content":"' in line.replace(b": ", b":").replace(b'"content":""', b""):
                first = time.monotonic()
    ended = time.monotonic()
    return 1000 * (first - begun), 1000 * (ended - begun)


def tools_of(model: str, count: int) -> Any:
    """The tools that the gateway sent last with so many of them."""
    parts = urlsplit(model)
    with closing(http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=120)) as connection:
        connection.request("GET", f"/tools/{count}")
        return json.loads(connection.getresponse().read())


def run(options: argparse.Namespace) -> dict[str, Any]:
    with ExitStack() as stack:
        folder = stack.enter_context(throw_away())
        model = stack.enter_context(instant_model())
        service = Service(folder / "service", model, COUNTS)
        stack.enter_context(service.running())
        gateway, token = f"http://127.0.0.1:{service.port}/v1", service.tokens[0]
        asked = {"messages": MESSAGES, "stream": True, "tool_choice": "none"}
        through = {count: {**asked, "model": f"tools-{count}"} for count in COUNTS}
        for count in COUNTS:
            for _ in range(3):
                streamed(gateway, through[count], token)
        direct = {count: {**asked, "model": "scripted", "tools": tools_of(model, count)} for count in COUNTS}
        say("the service is up")
        pids = {part: service.pids(part) for part in MEASURED}
        resting = _used(pids, lambda: time.sleep(options.idle_seconds))
        idle = {part: used / options.idle_seconds for part, used in resting.items()}
        figures: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
        calls = max(1, options.calls // options.blocks)
        for number in range(1, options.blocks + 1):
            for count in COUNTS:
                _measure(figures, "direct", count, calls, lambda count=count: streamed(model, direct[count]))
                begun = time.monotonic()
                used = _used(
                    pids,
                    lambda count=count: _measure(
                        figures, "gateway", count, calls, lambda: streamed(gateway, through[count], token)
                    ),
                )
                seconds = time.monotonic() - begun
                for part, cpu in used.items():
                    figures[f"{part}_cpu_ms"][count].append(1000 * (cpu - idle[part] * seconds) / calls)
                now = ", ".join(f"{name} {values[count][-1]:.1f}" for name, values in figures.items())
                say(f"block {number} of {options.blocks}, {count} tools: {now}")
        return summary(figures)


def _measure(figures: Any, name: str, count: int, calls: int, call: Any) -> None:
    for _ in range(calls):
        first, whole = call()
        figures[f"{name}_first_ms"][count].append(first)
        figures[f"{name}_ms"][count].append(whole)


def _used(pids: Mapping[str, list[int]], work: Any) -> dict[str, float]:
    """CPU seconds of each part while this work is done."""
    before = {part: cpu_seconds(found) for part, found in pids.items()}
    work()
    return {part: cpu_seconds(found) - before[part] for part, found in pids.items()}


def summary(figures: Mapping[str, Mapping[int, list[float]]]) -> dict[str, Any]:
    line: dict[str, Any] = {
        name: {count: round(median(values[count]), 2) for count in COUNTS} for name, values in figures.items()
    }
    line["overhead_ms"] = {count: round(line["gateway_ms"][count] - line["direct_ms"][count], 2) for count in COUNTS}
    line["cpu_ms"] = {count: round(sum(line[f"{part}_cpu_ms"][count] for part in MEASURED), 2) for count in COUNTS}
    return line


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--calls", type=int, default=60)
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--idle-seconds", type=float, default=10.0)
    print(json.dumps(run(parser.parse_args())))
    return 0


if __name__ == "__main__":
    sys.exit(to_its_end(main))
