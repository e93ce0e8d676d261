"""Lets many turns at once meet a budget with room for one, and then does to others what may happen to a turn.

    .venv/bin/python benchmarks/budget_race.py [--turns 50]

A web server takes turns over REST and two workers run them, on SQLite in a data folder that is thrown away, or on the
empty database that DATABASE_URL names. First one turn says what a call reserves. Then a budget is made with room for
one such call, and 50 turns of as many sessions begin at once; the model takes its time, so that all of them ask while
the first still holds what it reserved. Then, under a wide budget that all turns count on: workers are ended by SIGKILL
in the middle of model calls, turns are stopped in mid-stream, a provider falls over behind its first words and answers
with 500 before it recovers, or never recovers.

The last line of standard output is a JSON object of integers; the exit code is 1 where one of the first six is wrong:

started               turns of the race that a worker began: 50
let_through           those whose model call was made: 1
overrun_reservations  reservations that were made when there was no room for them: 0
charged               tokens that the wide budget says were spent, by all turns of the run
used                  tokens that these turns used, by their own count: the same
leaked                tokens that are still reserved when every turn has ended: 0
refused               turns of the race that ended with `budget_exceeded`
killed                workers that were ended, and `cut_off` the model calls that were under way in them
stopped               turns that were stopped in mid-stream
recovered             turns that had their answer after the provider's failures, and `failed` those that did not
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.crash import House, open_sessions, say, throw_away  # noqa: E402 -- after the path
from benchmarks.ending import to_its_end  # noqa: E402
from toolhub.embedded.supervisor import Part, free_port, uvicorn  # noqa: E402

#: Turns of each kind of mishap.
OF_A_KIND = 6
#: Seconds, far more than it takes, until something is so.
LIMIT = 180.0


class RaceHouse(House):
    """The service with a model of its own, whose turns are not limited but by budgets."""

    def __post_init__(self) -> None:
        super().__post_init__()
        port = free_port()
        self.env["OPENAI_BASE_URL"] = address = f"http://127.0.0.1:{port}/v1"
        self.model = self.part("model", uvicorn("benchmarks.budget_model:model", "127.0.0.1", port))
        for part in (self.web, *self.workers):
            part.env = {**part.env, "OPENAI_BASE_URL": address}

    def environment(self, model_port: int) -> dict[str, str]:
        limits = {"TOOLHUB_RUNNING_PER_MEMBER": "100000", "TOOLHUB_RUNNING_PER_ORGANISATION": "100000"}
        return super().environment(model_port) | limits

    @property
    def everything(self) -> list[Part]:
        return [self.web, *self.workers, self.valkey, self.model]


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LIMIT
    while not is_so():
        if time.monotonic() > deadline:
            raise SystemExit(f"After {LIMIT:.0f} s: not {what}.")
        time.sleep(0.1)


def post(house: House, session: str, message: str) -> str:
    status, turn = house.ask("POST", f"/api/v1/sessions/{session}/turns", {"message": message})
    if status != 202:
        raise SystemExit(f"A message was answered with {status}: {turn}")
    return str(turn["id"])


def post_each(house: House, sessions: list[str], message: Callable[[int], str]) -> list[str]:
    """One message into each session, all at once; returns the turns."""
    with ThreadPoolExecutor(len(sessions)) as pool:
        return list(pool.map(lambda each: post(house, each[1], message(each[0])), enumerate(sessions)))


def make_budget(house: House, name: str, tokens: int) -> None:
    body = {"name": name, "limit": str(tokens), "window": "total", "warn_at": []}
    status, answer = house.ask("POST", "/api/v1/budgets", body)
    if status != 201:
        raise SystemExit(f"The budget {name} was answered with {status}: {answer}")


def race(house: House, turns: int) -> dict[str, int]:
    from benchmarks import budget_account as account  # noqa: PLC0415 -- app ready: the settings are this run's

    (first,) = post_each(house, open_sessions(house, 1), lambda _: "hold 00")
    wait_until(lambda: account.ended([first]) == 1, "the first turn ended")
    amount = account.reserved_by(first)
    limit = amount + amount // 4
    make_budget(house, "Room for one", limit)
    sessions = open_sessions(house, turns)
    say(f"a call reserves {amount:,} tokens; {turns} turns begin")
    begun = post_each(house, sessions, lambda number: f"hold {number + 1:02}")
    wait_until(lambda: account.ended(begun) == turns, "the race over")
    house.ask("PATCH", f"/api/v1/budgets/{account.budget_id('Room for one')}", {"is_enabled": False})
    return account.of_race(begun, limit)


def mishaps(house: House) -> dict[str, int]:
    from benchmarks import budget_account as account  # noqa: PLC0415 -- app ready: the settings are this run's

    def begin(kind: str) -> list[str]:
        return post_each(house, open_sessions(house, OF_A_KIND), lambda number: f"{kind} {number}")

    cut_off = begin("stream killed")
    wait_until(lambda: account.writing(cut_off) == OF_A_KIND, "every call under way")
    for worker in house.workers:
        worker.kill()
        worker.start()
    say(f"killed {len(house.workers)} workers in {OF_A_KIND} model calls")
    stopped = begin("stream stopped")
    wait_until(lambda: account.writing(stopped) == OF_A_KIND, "every call under way again")
    for turn_id in stopped:
        house.ask("POST", f"/api/v1/turns/{turn_id}/cancel", {})
    recovered, failed = begin("late"), begin("broken")
    all_of_them = [*cut_off, *stopped, *recovered, *failed]
    wait_until(lambda: account.ended(all_of_them) == len(all_of_them), "every turn ended")
    return {
        "killed": len(house.workers),
        "cut_off": account.count(cut_off, "done"),
        "stopped": account.count(stopped, "cancelled"),
        "recovered": account.count(recovered, "done"),
        "failed": account.count(failed, "failed"),
    }


def run(options: argparse.Namespace) -> dict[str, int]:
    begun = time.monotonic()
    with throw_away(options.keep) as folder:
        house = RaceHouse(folder, with_broker=True, worker_count=2)
        try:
            house.start()
            say(f"up after {time.monotonic() - begun:.0f} s")
            from benchmarks import budget_account as account  # noqa: PLC0415 -- app ready

            make_budget(house, "Everything", 10**12)
            of_race = race(house, options.turns)
            say(f"the race is over: {of_race}")
            of_mishaps = mishaps(house)
            deadline = time.monotonic() + 30.0
            while account.leaked() and time.monotonic() < deadline:  # what only a sweep releases
                time.sleep(0.25)
            return of_race | account.totals("Everything") | of_mishaps | {"seconds": round(time.monotonic() - begun)}
        finally:
            house.stop()


def is_right(line: dict[str, Any], turns: int) -> bool:
    return (
        (line["started"], line["let_through"], line["overrun_reservations"], line["leaked"]) == (turns, 1, 0, 0)
        and line["charged"] == line["used"]
        and line["used"] > 0
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Let many turns at once meet a budget with room for one.")
    parser.add_argument("--turns", type=int, default=50)
    parser.add_argument("--keep", action="store_true", help="keep the data folder, with the logs")
    options = parser.parse_args()
    line = run(options)
    print(json.dumps(line), flush=True)
    return int(not is_right(line, options.turns))


if __name__ == "__main__":
    sys.exit(to_its_end(main))
