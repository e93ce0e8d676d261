"""The dearest requests that a member and a stranger can send: CPU of each, and how long others wait beside four.

    .venv/bin/python benchmarks/dear_requests.py [--requests 6]

Starts the service as `manage.py up` does, on a data folder that is thrown away. Each kind of request is first sent
alone, and the CPU of the web server read before and after. Then four connections send it again and again, while a
neighbour, with a token of another organisation, asks for its list of agents and notes how long each answer takes.

The last line of standard output is a JSON object, by the kind of request:

status        what it was answered with
cpu_ms        CPU of the web server for one, the median
wait_ms       the neighbour's longest wait for an answer beside four connections that send it
quiet_ms      beside all kinds: the neighbour's longest wait while nobody else asks
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.up import Service, cpu_seconds, instant_model, say, throw_away

CONNECTIONS = 4
#: Answers that the neighbour waits for beside each kind.
LOOKS = 20
CALL = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"calculator","arguments":{"x":['
LISTS = b'{"model":"tools-4","messages":[{"role":"user","content":"hi"}],"x":['
#: kind -> method, path, body, and whether a token comes with it.
KINDS: dict[str, tuple[str, str, bytes, bool]] = {
    "stranger: the OpenAPI document": ("GET", "/api/schema/", b"", False),
    "stranger: a login of 64 KB": ("POST", "/accounts/login/", b"login=" + b"a" * 60_000, False),
    "member: 4 MB of lists to /v1": ("POST", "/v1/chat/completions", LISTS + b"[]," * 1_390_000 + b"1]}", True),
    "member: 1 MB of lists to /api/v1": ("POST", "/api/v1/sessions", b'{"agent":[' + b"[]," * 330_000 + b"1]}", True),
    "member: 2 MB of lists to /mcp": ("POST", "/mcp/tools-4", CALL + b"[]," * 690_000 + b"1]}}}", True),
    "member: the most values that /v1 takes": ("POST", "/v1/chat/completions", LISTS + b"[]," * 49_000 + b"1]}", True),
    "member: the most values that /mcp takes": ("POST", "/mcp/tools-4", CALL + b"[]," * 9_900 + b"1]}}}", True),
}


def send(port: int, kind: str, token: str) -> int:
    method, path, body, is_member = KINDS[kind]
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    if "login" in path:
        headers["Content-Type"] = "application/x-www-form-urlencoded"
    if is_member:
        headers["Authorization"] = f"Bearer {token}"
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        connection.request(method, path, body or None, headers)
        response = connection.getresponse()
        response.read()
        return response.status
    except OSError:
        return 0  # refused before the body was read
    finally:
        connection.close()


def cost_of(service: Service, kind: str, requests: int) -> dict[str, Any]:
    web, token = service.pids("web"), service.tokens[0]
    status, costs = send(service.port, kind, token), []
    for _ in range(requests):
        begun = cpu_seconds(web)
        status = send(service.port, kind, token)
        costs.append((cpu_seconds(web) - begun) * 1000)
    return {"status": status, "cpu_ms": round(statistics.median(costs), 1)}


@contextmanager
def hammered(service: Service, kind: str) -> Iterator[None]:
    """Four connections send the request, one after another each, until the end."""
    is_over = threading.Event()

    def work() -> None:
        while not is_over.is_set():
            send(service.port, kind, service.tokens[0])

    threads = [threading.Thread(target=work) for _ in range(CONNECTIONS)]
    for each in threads:
        each.start()
    time.sleep(1.0)
    try:
        yield
    finally:
        is_over.set()
        for each in threads:
            each.join()


def longest_wait(service: Service) -> float:
    """In milliseconds, of a member of the second organisation."""
    waits = []
    for _ in range(LOOKS):
        begun = time.monotonic()
        status, _ = service.ask("GET", "/api/v1/agents", token=service.tokens[1])
        waits.append((time.monotonic() - begun) * 1000)
        assert status == 200, status
    return round(max(waits), 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=6)
    chosen = parser.parse_args()
    with throw_away() as folder, instant_model() as model:
        service = Service(folder, model, [4], organisations=2)
        with service.running():
            longest_wait(service)
            found: dict[str, Any] = {"quiet_ms": longest_wait(service)}
            for kind in KINDS:
                found[kind] = cost_of(service, kind, chosen.requests)
                with hammered(service, kind):
                    found[kind]["wait_ms"] = longest_wait(service)
                say(f"{kind}: {found[kind]}")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
