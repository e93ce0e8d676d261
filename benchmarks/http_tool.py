"""CPU of a call of an HTTP tool, beside that of a bare client's: `python -m benchmarks.http_tool [--calls 300]`.

Both ask the same server on this machine for the same JSON, in turns, in this process and on this thread: the bare
client (httpx2) with a connection of its own for each call, as the guard has, and with one that stays open. Prints one
JSON object: CPU milliseconds of a call, and how many times the bare client's that is. The server is another process.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "toolhub.settings")
os.environ.setdefault("TOOLHUB_PRIVATE_HOSTS", "provider:127.0.0.1,tool:127.0.0.1,mcp:127.0.0.1")

import django

django.setup()

import httpx2  # noqa: E402
from django.utils import timezone  # noqa: E402

from capabilities.contract.context import Credential, ToolContext  # noqa: E402
from capabilities.contract.envelope import Envelope  # noqa: E402
from capabilities.contract.spec import ToolSpec  # noqa: E402
from capabilities.models import ToolVersion  # noqa: E402
from capabilities.running.kinds import http  # noqa: E402

#: Answers every request with JSON of some kilobytes, and keeps the connection open.
SERVER = """
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

BODY = json.dumps({"data": [{"id": n, "name": f"Row {n}", "text": "x" * 60} for n in range(40)]}).encode()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY)

    def log_message(self, *arguments):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--calls", type=int, default=300)
    chosen = options.parse_args()
    process = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = f"http://127.0.0.1:{int(process.stdout.readline())}"
        json.dump(figures(url, chosen.calls), sys.stdout, indent=1)
        print()
    finally:
        process.terminate()
        process.wait()


def figures(url: str, calls: int) -> dict[str, float]:
    """The median CPU milliseconds of each way, called in turns."""
    kept = httpx2.Client(trust_env=False)
    ways: dict[str, Callable[[], Any]] = {
        "tool": lambda: tool_call(url),
        "bare, a connection each": lambda: bare(url),
        "bare, one connection": lambda: kept.get(f"{url}/users/7", params={"verbose": "true"}).json(),
    }
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(calls + 20):
        for name, way in ways.items():
            begun = time.process_time()
            way()
            if number >= 20:  # the first ones warm up
                taken[name].append((time.process_time() - begun) * 1_000)
    found = {name: round(statistics.median(each), 3) for name, each in taken.items()}
    return {f"{name}, CPU ms": value for name, value in found.items()} | {
        "tool / bare, a connection each": round(found["tool"] / found["bare, a connection each"], 2),
        "tool / bare, one connection": round(found["tool"] / found["bare, one connection"], 2),
    }


CONTEXT = httpx2.create_ssl_context(trust_env=False)


def bare(url: str) -> Any:
    with httpx2.Client(trust_env=False, verify=CONTEXT) as client:
        return client.get(f"{url}/users/7", params={"verbose": "true"}).json()


ENVELOPE = Envelope("never", 20.0, 40_000)
SPEC = ToolSpec(1, 1, "read_user", "http", "web", 1, True, "{}", "", 1, "read", ENVELOPE)


def tool_call(url: str) -> Any:
    """As the loop runs it: the implementation read, the request built, the credential placed, the answer mapped."""
    implementation = {
        "method": "GET",
        "url": f"{url}/users/{{id}}",
        "arguments": {"id": {"in": "path"}, "verbose": {"in": "query"}},
        "response": {"pointer": "/data", "fields": ["id", "name"]},
    }
    context = ToolContext(1, 1, "", Path("/"), timezone.now, 20.0, envelope=ENVELOPE)
    credential = Credential(headers={"Authorization": "Bearer secret"}, secrets=("secret",), origins=(url,))
    return http.run(
        spec=replace(SPEC),
        version=ToolVersion(implementation=implementation),
        credential=credential,
        context=context,
        arguments={"id": 7, "verbose": True},
    )


if __name__ == "__main__":
    main()
