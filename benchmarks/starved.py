"""Two hundred turns at once, with hardly any connections to the database, a provider that freezes, and a worker that is
asked to end: how long everything stands still, and why.

    .venv/bin/python benchmarks/starved.py [--turns 200] [--workers 3] [--pool 4] [--freeze 10]

On PostgreSQL (one from a wheel is started; DATABASE_URL names another, empty one) three workers with a pool of four
connections each run the turns. Each turn is three model calls' worth of work: a reply that asks for two tools at once,
which both leave a mark outside, and an answer. All turns are posted at once. While they run, the provider is stopped
(SIGSTOP) for ten seconds, and in the middle of that one worker gets SIGTERM; it is started again when it has ended.

A stall is the time between two events of any turn, while turns are open. Its cause is what the longest part of it
overlaps with: `provider` (frozen), `pool` (a worker wrote that it got no connection), else `other`.

The last line of standard output is a JSON object. The exit code is 1 where turns were lost, doubled or stuck:

longest_stall        seconds, with its `cause`, and `stall_began`, in seconds from the first message
longest_own_stall    the same without the time in which the provider was frozen
stalls               those of more than 5 s, each as [seconds, cause]
pool_timeouts        lines of the workers' logs that say that a thread got no connection
sigterm_seconds      from SIGTERM until the worker had ended; null where it had to be killed after a minute
reclaims             turns that were taken over because a lease ran out
seconds              from the first message to the end of the last turn
lost, duplicated, stuck, done, failed   as in crash.py
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.crash import House, open_sessions, say, throw_away
from benchmarks.ending import to_its_end
from tests.postgres import running_postgres

#: What a worker's log says of a thread that got no connection.
NO_CONNECTION = "couldn't get a connection"
#: Seconds after which a stall is worth a line; from the first message to the freeze; until SIGTERM is not waited for.
LONG, FREEZE_AFTER, PATIENCE = 5.0, 4.0, 60.0
#: Messages that are posted at the same time.
POSTING = 8


@dataclass
class Faults:
    """What is done to the service while it works, and when."""

    house: House
    freeze: float
    frozen: tuple[float, float] = (0.0, 0.0)
    sigterm_seconds: float | None = None
    thread: threading.Thread = field(init=False)

    def start(self) -> None:
        self.thread = threading.Thread(target=self.run, name="faults")
        self.thread.start()

    def run(self) -> None:
        time.sleep(FREEZE_AFTER)
        assert self.house.model.process is not None
        begun = time.time()
        os.kill(self.house.model.process.pid, signal.SIGSTOP)
        say("the provider is frozen")
        ending = threading.Timer(self.freeze / 2, self.end_worker)
        ending.start()
        time.sleep(self.freeze)
        os.kill(self.house.model.process.pid, signal.SIGCONT)
        self.frozen = begun, time.time()
        say("the provider goes on")
        ending.join()

    def end_worker(self) -> None:
        worker, begun = self.house.workers[0], time.monotonic()
        worker.terminate()
        while worker.running and time.monotonic() - begun < PATIENCE:
            time.sleep(0.05)
        if not worker.running:
            self.sigterm_seconds = round(time.monotonic() - begun, 1)
        say(f"SIGTERM to a worker took {self.sigterm_seconds} s")
        worker.kill()
        worker.start()


def post_all(house: House, sessions: Sequence[str]) -> list[str]:
    """One message to each session, and the turns that came of it."""

    def post(number: int) -> str:
        path, body = f"/api/v1/sessions/{sessions[number]}/turns", {"message": f"turn-{number}"}
        while True:
            status, turn = house.ask("POST", path, body, key=f"turn-{number}")
            if status in (200, 202):
                return str(turn["id"])
            say(f"a message was answered with {status}")
            time.sleep(1.0)

    with ThreadPoolExecutor(POSTING) as posting:
        return list(posting.map(post, range(len(sessions))))


def timeouts(house: House) -> list[float]:
    """When workers wrote that a thread got no connection."""
    found = []
    for number in range(1, house.worker_count + 1):
        for line in (house.folder / f"worker{number}.log").read_text(errors="replace").splitlines():
            if NO_CONNECTION in line and line[:2] == "20":
                found.append(datetime.strptime(line[:23], "%Y-%m-%d %H:%M:%S,%f").timestamp())
    return found


def stalls_of(moments: Sequence[float], frozen: tuple[float, float], no_connection: Sequence[float]) -> list[Any]:
    """Each time between two moments, as (seconds, seconds of it in which the provider answered, cause, begin)."""
    found = []
    for begun, ended in pairwise(moments):
        seconds = ended - begun
        icy = max(0.0, min(ended, frozen[1]) - max(begun, frozen[0]))
        # A thread waits for half a minute before it says so, and the stall is that wait.
        starved = any(begun - 1 <= at <= ended + 1 for at in no_connection)
        cause = "provider" if icy >= seconds / 2 else "pool" if starved else "other"
        found.append((seconds, seconds - icy, cause, begun))
    return found


@contextmanager
def database() -> Iterator[str]:
    given = os.environ.get("DATABASE_URL", "")
    if given:
        yield given
    else:
        with running_postgres() as url:
            yield url


def run(options: argparse.Namespace) -> dict[str, Any]:
    with database() as url, throw_away(options.keep) as folder:
        more = {
            "DATABASE_URL": url,
            "TOOLHUB_DATABASE_POOL": str(options.pool),
            "TOOLHUB_RUNNING_PER_MEMBER": "100000",
            "TOOLHUB_RUNNING_PER_ORGANISATION": "100000",
            "BENCHMARK_CALLS_A_REPLY": "2",
            "BENCHMARK_MODEL_SECONDS": str(options.model_seconds),
        }
        house = House(folder, with_broker=True, worker_count=options.workers, more=more)
        faults = Faults(house, options.freeze)
        try:
            house.start()
            from benchmarks import account  # noqa: PLC0415 -- app ready: the settings are this run's

            sessions = open_sessions(house, options.turns)
            say(f"{len(sessions)} sessions are open")
            begun = time.time()
            faults.start()
            accepted = post_all(house, sessions)
            account.wait_for_the_end(options.limit, say)
            faults.thread.join()
            _, marks = house.ask("GET", "/marks", port=house.counter_port)
            line, moments = account.of(accepted, marks), account.moments()
        finally:
            house.stop()
        no_connection = timeouts(house)
    stalls = sorted(stalls_of([begun, *moments], faults.frozen, no_connection), reverse=True)
    return {
        "longest_stall": round(stalls[0][0], 1),
        "cause": stalls[0][2],
        "stall_began": round(stalls[0][3] - begun, 1),
        "longest_own_stall": round(max(own for _, own, _, _ in stalls), 1),
        "stalls": [[round(seconds, 1), cause] for seconds, _, cause, _ in stalls if seconds > LONG],
        "pool_timeouts": len(no_connection),
        "sigterm_seconds": faults.sigterm_seconds,
        "seconds": round(moments[-1] - begun, 1),
        **{name: line[name] for name in ("turns", "done", "failed", "lost", "duplicated", "stuck", "unknown")},
        **{name: line[name] for name in ("reclaims", "out_of_order", "turn_seconds_p50", "turn_seconds_p95")},
        "workers": options.workers,
        "pool": options.pool,
        "freeze": options.freeze,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Starve workers of connections and see them stand still.")
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--pool", type=int, default=4, help="connections of each process")
    parser.add_argument("--freeze", type=float, default=10.0, help="seconds in which the provider is stopped")
    parser.add_argument("--model-seconds", type=float, default=1.0, help="that a model call takes")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds to wait for the last turn, after the load")
    parser.add_argument("--keep", action="store_true", help="keep the data folder, with the logs")
    line = run(parser.parse_args())
    print(json.dumps(line), flush=True)
    return int(any(line[name] for name in ("lost", "duplicated", "stuck")))


if __name__ == "__main__":
    sys.exit(to_its_end(main))
