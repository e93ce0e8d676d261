"""The Docker Engine's HTTP API as rows for a model: containers, their logs, starting and stopping them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from capabilities.assistant.builtin._lib.remote import Remote, a_dict, dicts, filled, short
from capabilities.contract.context import ToolError

LOG_BYTES = 1_000_000
LOG_LIMIT = 20_000
#: Seconds that a container gets to stop by itself.
STOP_SECONDS = 10


def containers(engine: Remote, name: str, lines: int) -> dict[str, Any]:
    found = dicts(engine.json("GET", "containers", "json", shape=list, query={"all": 1}))
    rows = [_container(row) for row in found]
    return {"containers": [row for row in rows if name in row.get("name", "")][:100]}


def logs(engine: Remote, name: str, lines: int) -> dict[str, Any]:
    query = {"stdout": 1, "stderr": 1, "tail": lines, "timestamps": 0}
    answer = engine.ask("GET", "containers", name, "logs", query=query, max_bytes=LOG_BYTES)
    text = demultiplexed(engine.good(answer, _missing(name)).body).decode("utf-8", "replace")
    return {"container": name, "logs": text[-LOG_LIMIT:]} | ({"truncated": True} if len(text) > LOG_LIMIT else {})


def inspect(engine: Remote, name: str, lines: int) -> dict[str, Any]:
    """Return one container, without the values of its environment: those are credentials, often enough."""
    row = engine.json("GET", "containers", name, "json", shape=dict, missing=_missing(name))
    state, config = a_dict(row.get("State")), a_dict(row.get("Config"))
    environment, command = config.get("Env"), config.get("Cmd")
    exit_code, restarts = state.get("ExitCode"), row.get("RestartCount")
    return filled(
        {
            "name": short(row.get("Name"), 100).lstrip("/"),
            "id": short(row.get("Id"))[:12],
            "image": short(config.get("Image"), 200),
            "state": short(state.get("Status"), 30),
            "health": short(a_dict(state.get("Health")).get("Status"), 30),
            "started": short(state.get("StartedAt"), 40),
            "exit_code": exit_code if isinstance(exit_code, int) and state.get("Running") is False else None,
            "error": short(state.get("Error"), 300),
            "restarts": restarts if isinstance(restarts, int) else None,
            "command": [short(word, 100) for word in command[:20]] if isinstance(command, list) else [],
            "environment": [short(pair, 200).partition("=")[0] for pair in environment[:50]]
            if isinstance(environment, list)
            else [],
            "networks": [short(each, 60) for each in list(a_dict(_networks(row)))[:10]],
            "ports": [short(each, 30) for each in list(a_dict(a_dict(row.get("NetworkSettings")).get("Ports")))[:20]],
        }
    )


def start(engine: Remote, name: str, lines: int) -> dict[str, Any]:
    return _switched(engine, name, "start", "started", "was running already")


def stop(engine: Remote, name: str, lines: int) -> dict[str, Any]:
    return _switched(engine, name, "stop", "stopped", "was stopped already", {"t": STOP_SECONDS})


ACTIONS: dict[str, Callable[[Remote, str, int], dict[str, Any]]] = {
    "containers": containers,
    "logs": logs,
    "inspect": inspect,
    "start": start,
    "stop": stop,
}


def demultiplexed(stream: bytes) -> bytes:
    """The text of a log. Of a container without a terminal it comes in frames: kind, three zeros, length, text."""
    text, rest = b"", stream
    while len(rest) >= 8 and rest[0] in (0, 1, 2) and rest[1:4] == b"\0\0\0":
        length = int.from_bytes(rest[4:8], "big")
        text, rest = text + rest[8 : 8 + length], rest[8 + length :]
    return text if text and rest[:1] in (b"", b"\0", b"\1", b"\2") else text + rest


def _switched(
    engine: Remote, name: str, verb: str, done: str, already: str, query: Mapping[str, int] | None = None
) -> dict[str, Any]:
    answer = engine.ask("POST", "containers", name, verb, query=query)
    if answer.status != 304:
        engine.good(answer, _missing(name))
        if answer.status != 204:
            raise ToolError("Docker answered in a form that is not understood: is its address right?")
    return {"container": name, "state": already if answer.status == 304 else done}


def _container(row: Mapping[str, Any]) -> dict[str, Any]:
    called = row.get("Names")
    return filled(
        {
            "name": short(called[0], 100).lstrip("/") if isinstance(called, list) and called else "",
            "id": short(row.get("Id"))[:12],
            "image": short(row.get("Image"), 200),
            "state": short(row.get("State"), 30),
            "status": short(row.get("Status"), 100),
        }
    )


def _networks(row: Mapping[str, Any]) -> Any:
    return a_dict(row.get("NetworkSettings")).get("Networks")


def _missing(name: str) -> str:
    return f"There is no container {name}: the action containers lists them."
