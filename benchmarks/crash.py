"""Kills workers and the broker under load, and counts what became of the turns.

    .venv/bin/python benchmarks/crash.py [--turns 200] [--seconds 40] [--kill-every 2] [--no-broker] [--dialect chat]

A web server takes turns over REST, two workers (--workers) run them, a scripted model asks for two tool calls a turn,
and each call leaves a mark in a counting process that nobody kills. While turns come in, one worker, picked at random,
is ended by SIGKILL every 2 s and started again; half way, the broker is too, and forgets everything. With --no-broker
none is there from begin to end. With --dialect responses the model refuses tools in chat completions, as OpenAI's
reasoning models do, and calls that come back without their reasoning: the service finds that out by itself, under the
load. The data folder is thrown away; DATABASE_URL, where set, names an empty database to use
instead of SQLite.

The last line of standard output is a JSON object. With any of the first four above 0 the exit code is 1:

lost          turns that were accepted (202) and of which the database knows nothing, and marks that do not add up: a
              call on record as done without a mark, or a mark without a call on record as done or unknown
duplicated    calls that left more than one mark
stuck         turns that had not ended when the time was up
out_of_order  turns that began, or left a mark, before the session's earlier turn had ended
failed        turns that ended in any other way than with their answer
unknown       calls that a kill cut off, so that nobody knows if they left a mark; the model was told so
in_doubt      those of them that did
reclaims      times that a turn was taken over from a dead worker
kills_in_work kills of a worker that had turns in its hands; the others hit one that was still starting
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.ending import to_its_end  # noqa: E402 -- after the path
from toolhub.embedded.supervisor import (  # noqa: E402
    Part,
    free_port,
    socket_path,
    stop_parts,
    uvicorn,
    valkey_command,
    worker_command,
)
from toolhub.probe import is_ready  # noqa: E402

#: Seconds for everything to be up, and for one request.
START_SECONDS = 90.0
REQUEST_SECONDS = 15.0


def say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


# -- The service under test ------------------------------------------------------------------------------------------


@dataclass
class House:
    """All processes of one run, on a data folder of their own."""

    folder: Path
    with_broker: bool
    worker_count: int
    dialect: str = "chat"
    #: More of the environment of all parts.
    more: Mapping[str, str] = field(default_factory=dict)
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))

    def __post_init__(self) -> None:
        self.port, self.counter_port, model_port = free_port(), free_port(), free_port()
        self.env = self.environment(model_port)
        (self.folder / "data").mkdir()
        self.socket = socket_path(self.folder / "data", "valkey.sock")
        self.env["REDIS_URL"] = f"unix://{self.socket}?db=0"
        os.environ.update(self.env)
        self.counter = self.part("counter", uvicorn("benchmarks.world:counter", "127.0.0.1", self.counter_port))
        self.model = self.part("model", uvicorn("benchmarks.world:model", "127.0.0.1", model_port))
        self.web = self.part("web", uvicorn("toolhub.asgi:application", "127.0.0.1", self.port))
        self.workers = [self.part(f"worker{number}", worker_command(100)) for number in range(1, self.worker_count + 1)]
        self.valkey = self.part("valkey", without_persistence(valkey_command(self.socket.parent, self.socket)))
        self.valkey.tidy = lambda: self.socket.unlink(missing_ok=True)

    def environment(self, model_port: int) -> dict[str, str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("TOOLHUB_", "OPENAI_"))}
        return clean | {
            "DJANGO_SETTINGS_MODULE": "benchmarks.settings",
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            "TOOLHUB_DATA_DIR": str(self.folder / "data"),
            "TOOLHUB_BOOTSTRAP_TOKEN": self.token,
            "TOOLHUB_PRIVATE_HOSTS": "provider:127.0.0.1,tool:127.0.0.1,mcp:127.0.0.1",
            "TOOLHUB_QUEUED_PER_MEMBER": "100000",  # one member posts the whole load
            "TOOLHUB_QUEUED_PER_ORGANISATION": "100000",
            "TOOLHUB_LOG_LEVEL": "WARNING",
            "OPENAI_BASE_URL": f"http://127.0.0.1:{model_port}/v1",
            "OPENAI_API_KEY": "benchmark",
            "BENCHMARK_COUNTER_PORT": str(self.counter_port),
            "BENCHMARK_DIALECT": self.dialect,
            **self.more,
        }

    def part(self, name: str, argv: Sequence[str]) -> Part:
        """A child that writes to a log in the folder, so that standard output is ours."""
        return Part(name, ["sh", "-c", f'exec "$@" >>"{self.folder}/{name}.log" 2>&1', "sh", *argv], self.env)

    @property
    def everything(self) -> list[Part]:
        return [self.web, *self.workers, self.valkey, self.counter, self.model]

    def start(self) -> None:
        for command in ("migrate", "bootstrap"):
            argv = [sys.executable, "manage.py", command]
            subprocess.run(argv, env=self.env, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        for part in self.everything:
            if part is not self.valkey or self.with_broker:
                part.start()
        deadline = time.monotonic() + START_SECONDS
        while not is_ready("127.0.0.1", self.port, ["localhost"], 1.0):
            if time.monotonic() > deadline or not self.web.running:
                raise SystemExit(f"The web server is not ready; see {self.folder}.")
            time.sleep(0.1)

    def stop(self) -> None:
        stop_parts(self.everything, 5.0)

    def ask(self, method: str, path: str, body: Any = None, *, port: int = 0, key: str = "") -> tuple[int, Any]:
        """One request, and (status, JSON) of its answer. Raises OSError or HTTPException where none came."""
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=REQUEST_SECONDS)
        try:
            headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
            headers |= {"Idempotency-Key": key} if key else {}
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            response = connection.getresponse()
            text = response.read()
            return response.status, json.loads(text) if text.startswith((b"{", b"[")) else None
        finally:
            connection.close()


def without_persistence(argv: Sequence[str]) -> list[str]:
    """A broker that forgets everything when it is killed: the harder case."""
    return ["no" if before == "--appendonly" else word for before, word in zip(["", *argv], argv, strict=False)]


# -- The load --------------------------------------------------------------------------------------------------------


@dataclass
class Load:
    """Turns that come in evenly over `seconds`, and what is killed meanwhile. One thread does all of it in turn."""

    house: House
    turns: int
    seconds: float
    sessions: Sequence[str]
    kill_every: float
    chance: random.Random
    accepted: list[str] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    kills: int = 0
    #: Those that hit a worker with turns in its hands, and how many turns a process holds.
    kills_in_work: int = 0
    held_by: Callable[[int], int] = lambda pid: 0
    broker_kills: int = 0

    def run(self) -> None:
        begun = time.monotonic()
        due = sorted(
            [(self.seconds * number / self.turns, "turn", number) for number in range(self.turns)]
            + [(at, "kill", 0) for at in steps(self.kill_every, self.seconds)]
            + [(self.seconds / 2, "broker", 0)] * self.house.with_broker
        )
        for at, what, number in due:
            time.sleep(max(0.0, begun + at - time.monotonic()))
            if what == "turn":
                self.write(number)
            else:
                self.kill(what)

    def kill(self, what: str) -> None:
        part = self.house.valkey if what == "broker" else self.chance.choice(self.house.workers)
        held = self.held_by(part.process.pid) if part.process else 0
        part.kill()
        part.start()
        self.kills += what == "kill"
        self.kills_in_work += held > 0
        self.broker_kills += what == "broker"
        say(f"killed {part.name} with {held} turns in its hands; {len(self.accepted)} accepted so far")

    def write(self, number: int) -> None:
        """Post one message. What is not answered is asked again with the same key, as a client should."""
        path = f"/api/v1/sessions/{self.sessions[number % len(self.sessions)]}/turns"
        for _ in range(5):
            begun = time.monotonic()
            try:
                status, turn = self.house.ask("POST", path, {"message": f"turn-{number}"}, key=f"turn-{number}")
            except (OSError, http.client.HTTPException) as error:
                say(f"no answer to a message: {error!r}")
                continue
            if status in (200, 202):
                self.accepted.append(turn["id"])
                self.waits.append(time.monotonic() - begun)
                return
            say(f"a message was answered with {status}: {turn}")


def steps(every: float, until: float) -> Iterator[float]:
    at = every
    while at < until:
        yield at
        at += every


def open_sessions(house: House, count: int) -> list[str]:
    opened = [house.ask("POST", "/api/v1/sessions", {"agent": "starter"}) for _ in range(count)]
    assert all(status == 201 for status, _ in opened), opened
    return [session["id"] for _, session in opened]


# -- The run ---------------------------------------------------------------------------------------------------------


@contextmanager
def throw_away(keep: bool) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="toolhub-crash-"))
    try:
        yield folder
    finally:
        if keep:
            say(f"kept {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


def run(options: argparse.Namespace) -> dict[str, Any]:
    begun = time.monotonic()
    with throw_away(options.keep) as folder:
        house = House(folder, with_broker=not options.no_broker, worker_count=options.workers, dialect=options.dialect)
        try:
            house.start()
            say(f"up after {time.monotonic() - begun:.0f} s")
            from benchmarks import account  # noqa: PLC0415 -- app ready: the settings are this run's

            sessions = open_sessions(house, options.sessions)
            chance = random.Random(options.seed)
            load = Load(house, options.turns, options.seconds, sessions, options.kill_every, chance)
            load.held_by = account.held_by
            load.run()
            account.wait_for_the_end(options.limit, say)
            _, marks = house.ask("GET", "/marks", port=house.counter_port)
            line = account.of(load.accepted, marks)
        finally:
            house.stop()
    waits = sorted(load.waits)
    return line | {
        "refused": options.turns - len(load.accepted),
        "accept_ms_p95": round(1000 * account.quantile(waits, 0.95)),
        "accept_ms_max": round(1000 * (waits[-1] if waits else 0)),
        "kills": load.kills,
        "kills_in_work": load.kills_in_work,
        "broker_kills": load.broker_kills,
        "broker": not options.no_broker,
        "dialect": options.dialect,
        "seconds": round(time.monotonic() - begun),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill workers and the broker under load, and count.")
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--sessions", type=int, default=40)
    parser.add_argument(
        "--seconds", type=float, default=40.0, help="in which the turns come in, and workers are killed"
    )
    parser.add_argument("--kill-every", type=float, default=2.0, metavar="SECONDS")
    parser.add_argument("--limit", type=float, default=180.0, help="seconds to wait for the last turn, after the load")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--no-broker", action="store_true", help="the broker is away for the whole run")
    parser.add_argument(
        "--dialect", choices=("chat", "responses"), default="chat", help="that the model takes tools in"
    )
    parser.add_argument("--seed", type=int, default=None, help="of the choice whom to kill")
    parser.add_argument("--keep", action="store_true", help="keep the data folder, with the logs")
    line = run(parser.parse_args())
    print(json.dumps(line), flush=True)
    return int(any(line[name] for name in ("lost", "duplicated", "stuck", "out_of_order")))


if __name__ == "__main__":
    sys.exit(to_its_end(main))
