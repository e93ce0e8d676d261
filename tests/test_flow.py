"""A turn through everything that an operator runs: web server, worker, Valkey and database, each a process."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import pickle
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
import redis
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

from sessions.turns.bell import REGISTRIES
from tests.paths import ROOT
from tests.processes import wait_for
from tests.scripted_openai import Raw, Say, ScriptedOpenAI, call
from tests.valkey import Valkey, running_valkey
from toolhub.embedded.supervisor import Part, free_port, stop_parts, uvicorn, worker_command
from toolhub.probe import is_ready

START_SECONDS = 60.0
TOKEN = "flow-" + "t" * 40

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(sys.platform != "linux", reason="children die with their parent on Linux only"),
]


@dataclass
class House:
    """The service's processes, started as `up` starts them, with a provider that answers from a script."""

    folder: Path
    valkey: Valkey
    provider: ScriptedOpenAI
    port: int = field(default_factory=free_port)
    parts: list[Part] = field(default_factory=list)

    @property
    def database(self) -> Path:
        return self.folder / "flow.sqlite3"

    @property
    def env(self) -> dict[str, str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("TOOLHUB_", "OPENAI_"))}
        return clean | {
            "DJANGO_SETTINGS_MODULE": "toolhub.settings",
            "TOOLHUB_DATA_DIR": str(self.folder / "data"),
            "DATABASE_URL": f"sqlite:///{self.database}",
            "REDIS_URL": self.valkey.url,
            "TOOLHUB_PRIVATE_HOSTS": "provider:127.0.0.1,tool:127.0.0.1,mcp:127.0.0.1",
            "TOOLHUB_BOOTSTRAP_TOKEN": TOKEN,
            "OPENAI_BASE_URL": self.provider.url,
        }

    def start(self, empty_database: Path | None) -> None:
        if empty_database is not None:
            shutil.copy(empty_database, self.database)
        for command in ("bootstrap",) if empty_database is not None else ("migrate", "bootstrap"):
            argv = [sys.executable, "manage.py", command]
            subprocess.run(argv, cwd=ROOT, env=self.env, check=True, capture_output=True)
        self.part("web", uvicorn("toolhub.asgi:application", "127.0.0.1", self.port))
        self.worker()
        wait_for(lambda: is_ready("127.0.0.1", self.port, ["localhost"]), START_SECONDS)

    def web(self) -> int:
        """The port of one more web server."""
        port = free_port()
        self.part("web", uvicorn("toolhub.asgi:application", "127.0.0.1", port))
        wait_for(lambda: is_ready("127.0.0.1", port, ["localhost"]), START_SECONDS)
        return port

    def worker(self) -> Part:
        return self.part("worker", worker_command(10))

    def part(self, name: str, argv: list[str]) -> Part:
        self.parts.append(Part(name, argv, self.env))
        self.parts[-1].start()
        return self.parts[-1]

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def session(self) -> str:
        status, session = self.ask("POST", "/api/v1/sessions", {"agent": "starter"})
        assert status == 201
        return str(session["id"])

    def write(self, session: str, message: str) -> str:
        status, turn = self.ask("POST", f"/api/v1/sessions/{session}/turns", {"message": message})
        assert status == 202
        return str(turn["id"])

    def turn(self, turn_id: str) -> dict[str, Any]:
        turn: dict[str, Any] = self.ask("GET", f"/api/v1/turns/{turn_id}")[1]
        return turn

    def watch(self, turn_id: str) -> list[str]:
        """The types of the turn's stored events, until the stream ends."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", f"/api/v1/turns/{turn_id}/events", headers={"Authorization": f"Bearer {TOKEN}"})
            lines = connection.getresponse().read().decode().splitlines()
        finally:
            connection.close()
        types = [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]
        return [each for each in types if each != "delta"]

    def events(self, turn_id: str) -> list[str]:
        return [row[0] for row in self.rows("SELECT type FROM {events} WHERE turn_id = ? ORDER BY number", turn_id)]

    def rows(self, query: str, turn_id: str = "") -> list[Any]:
        with sqlite3.connect(self.database) as connection:
            query = query.format(events="toolhub_sessions_turnevent", tasks="capabilities_task")
            found = connection.execute(query, [turn_id.replace("-", "")] if turn_id else []).fetchall()
        connection.close()
        return found


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory, empty_database: Path | None) -> Iterator[House]:
    provider = ScriptedOpenAI().start()
    with running_valkey() as valkey:
        house = House(tmp_path_factory.mktemp("flow"), valkey, provider)
        try:
            house.start(empty_database)
            yield house
        finally:
            stop_parts(house.parts, 10)
            provider.stop()


def test_a_message_over_rest_changes_the_database_and_is_watched(house: House) -> None:
    house.provider.enqueue(Say(calls=[call("task_create", {"title": "buy milk"})]), Say("Added."))

    turn_id = house.write(house.session(), "Add a task: buy milk")
    events = house.watch(turn_id)

    turn = house.turn(turn_id)
    assert (turn["status"], turn["answer"], turn["usage"]["rounds"]) == ("done", "Added.", 2)
    assert events == ["accepted", "started", "model", "tool_started", "tool_done", "model", "done"]
    assert house.rows("SELECT title FROM {tasks}") == [("buy milk",)]


def test_a_change_of_a_list_reaches_a_client_of_mcp_on_another_web_server(house: House) -> None:
    other = house.web()
    url, headers = f"http://127.0.0.1:{other}/mcp/starter", {"authorization": f"Bearer {TOKEN}"}

    async def told() -> tuple[list[str], list[str]]:
        async with (
            httpx2.AsyncClient(headers=headers, timeout=60) as http,
            Client(streamable_http_client(url, http_client=http)) as client,
            client.listen(tools_list_changed=True) as changes,
        ):
            before = [tool.name for tool in (await client.list_tools()).tools]
            changed = await asyncio.to_thread(house.ask, "PATCH", f"/api/v1/tools/{before[-1]}", {"is_enabled": False})
            assert changed[0] == 200
            await asyncio.wait_for(anext(aiter(changes)), 30)
            return before, [tool.name for tool in (await client.list_tools(cache_mode="bypass")).tools]

    with redis.Redis.from_url(house.valkey.url) as client, client.pubsub() as heard:
        heard.subscribe(REGISTRIES)
        before, after = asyncio.run(told())
        messages = [message for _ in range(50) if (message := heard.get_message(timeout=0.1)) is not None]

    assert after == before[:-1]
    assert {message["channel"].decode() for message in messages if message["type"] == "message"} == {REGISTRIES}


def envelope(body: str, kind: str, task: str) -> bytes:
    """A message as Kombu writes it."""
    delivery = {"exchange": "", "routing_key": "celery"}
    properties = {"delivery_tag": task + kind, "delivery_info": delivery, "body_encoding": "base64"}
    headers = {"task": task, "id": "x"}
    found = {"body": body, "content-type": kind, "content-encoding": "utf-8", "headers": headers}
    return json.dumps(found | {"properties": properties}).encode()


#: What somebody who can write to Valkey may put into the queue.
NO_TASKS = [
    b"\x00\xff\xfe no JSON",
    b"",
    b"[]",
    b"7",
    b"null",
    b"{}",
    b"[" * 100_000,
    pickle.dumps({"task": "sessions.run_turn"}),
    b'{"body": 7, "properties": {}}',
    envelope("gASVAA==", "application/x-python-serialize", "sessions.run_turn"),
    envelope("W10=", "application/json", "os.system"),
    envelope("bm8=", "application/json", "sessions.run_turn"),
    envelope("W10=", "application/json", "sessions.run_turn"),
    envelope("!", "no/such", "sessions.run_turn"),
]


def test_a_worker_goes_on_whatever_is_in_its_queue(house: House) -> None:
    (worker,) = [part for part in house.parts if part.name == "worker"]
    assert worker.process is not None
    with redis.Redis.from_url(house.valkey.url) as client:
        for message in NO_TASKS * 3:  # more than the worker takes at once
            client.lpush("celery", message)
        wait_for(lambda: client.llen("celery") == 0, 20)
        left = client.llen("celery")

    house.provider.enqueue(Say("I am still here."))
    began = time.monotonic()
    turn = house.write(house.session(), "Are you there?")
    wait_for(lambda: house.turn(turn)["status"] == "done", 30)

    assert (house.turn(turn)["answer"], left) == ("I am still here.", 0)
    assert time.monotonic() - began < 10  # by the bell, not by the next start of a worker
    assert worker.process.poll() is None


def test_stop_reaches_the_worker_while_the_provider_hangs(house: House) -> None:
    asked = len(house.provider.requests)
    house.provider.enqueue(Raw(delay=60))
    turn_id = house.write(house.session(), "Think for a minute")
    wait_for(lambda: len(house.provider.requests) > asked, 20)

    house.ask("POST", f"/api/v1/turns/{turn_id}/cancel")
    stopped_at = time.monotonic()
    events = house.watch(turn_id)

    assert time.monotonic() - stopped_at < 5
    assert events == ["accepted", "started", "cancelled"]
    assert house.turn(turn_id)["status"] == "cancelled"


def test_a_worker_that_is_asked_to_end_gives_its_turn_to_another(house: House) -> None:
    asked = len(house.provider.requests)
    house.provider.enqueue(Raw(delay=60), Say("Here I am."))
    turn_id = house.write(house.session(), "Survive a deploy")
    wait_for(lambda: len(house.provider.requests) > asked, 20)

    leaving = next(part for part in house.parts if part.name == "worker" and part.running)
    assert leaving.process is not None
    leaving.process.send_signal(signal.SIGTERM)
    house.worker()
    wait_for(lambda: house.turn(turn_id)["status"] == "done", 40)

    assert house.turn(turn_id)["answer"] == "Here I am."
    assert house.events(turn_id) == ["accepted", "started", "attempt_restarted", "model", "done"]
    assert leaving.process.wait(20) == 0
