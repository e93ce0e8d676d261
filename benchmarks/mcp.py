"""What MCP servers cost: connecting and calling over HTTP and with processes, warm calls, and idle sessions' memory.

    python -m benchmarks.mcp [--idle 50] [--calls 200]

Prints one JSON object: milliseconds, and megabytes. The servers are the scripted ones of the tests, on this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "toolhub.settings")
os.environ.setdefault("TOOLHUB_PRIVATE_HOSTS", "provider:127.0.0.1,tool:127.0.0.1,mcp:127.0.0.1")

import django

django.setup()

from capabilities.running.mcp_client import background, client, exchanges  # noqa: E402
from capabilities.running.mcp_client.server_addresses import ServerAddress  # noqa: E402
from tests.capabilities.running.mcp_client import over_http, scripted  # noqa: E402

PROCESS = (sys.executable, str(Path(scripted.__file__)))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--idle", type=int, default=50, help="idle processes whose memory is measured")
    options.add_argument("--calls", type=int, default=200, help="warm calls of each kind")
    chosen = options.parse_args()
    process = ServerAddress("stdio", "benchmark", argv=PROCESS)
    with over_http.http_server(scripted.usual()) as modern, over_http.old_http_server(scripted.usual()) as old:
        found = {
            "http 2026-07-28": figures(ServerAddress("http", "benchmark", url=modern), chosen.calls),
            "http 2025-11-25": figures(ServerAddress("http", "benchmark", url=old), chosen.calls),
            "process": figures(process, chosen.calls),
        }
    client.close()
    found["idle"] = idle(chosen.idle)
    json.dump(found, sys.stdout, indent=1)
    print()


def figures(address: ServerAddress, calls: int) -> dict[str, float]:
    first = milliseconds(lambda: call(address))
    warm = sorted(milliseconds(lambda: call(address)) for _ in range(calls))
    return {
        "connect and first call ms": first,
        "warm p50 ms": round(statistics.median(warm), 2),
        "warm p95 ms": warm[int(len(warm) * 0.95)],
    }


def call(address: ServerAddress) -> Any:
    return client.call_tool(address, "echo", {"text": "hi"}, timeout=60)


def milliseconds(function: Callable[[], Any]) -> float:
    began = time.perf_counter()
    function()
    return round((time.perf_counter() - began) * 1_000, 2)


def idle(number: int) -> dict[str, float]:
    """The memory of this service's process with so many idle sessions, and of the processes themselves."""
    before = resident("self")
    for count in range(number):
        call(ServerAddress("stdio", f"idle {count}", argv=PROCESS))

    async def pids() -> list[int]:
        return [session.process.pid for session in exchanges.pool().sessions.values() if session.process is not None]

    running = background.run(pids(), seconds=10)
    time.sleep(1.0)
    began = time.process_time()
    time.sleep(5.0)
    busy = time.process_time() - began
    grown = resident("self") - before
    outside = sum(resident(str(pid)) for pid in running)
    client.close()
    return {
        "sessions": len(running),
        "this process MB": round(grown, 1),
        "this process MB a session": round(grown / max(1, len(running)), 2),
        "their processes MB": round(outside),
        "processor share while idle": round(busy / 5.0, 4),
    }


def resident(pid: str) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1_000_000


if __name__ == "__main__":
    main()
