"""How long one organisation's turn waits behind the 1,000 of another.

    .venv/bin/python benchmarks/fairness.py [--quick] [--backlog 1000]

The service is started as `manage.py up` starts it, on SQLite with its own Valkey, with a model that answers at once.
While its workers are stopped, one organisation posts the backlog, spread over its sessions; then the same organisation
posts one turn more in a new session, and then another organisation posts one. The workers go on, and the clock starts.

The backlog's own last turn waits as every turn would, if the first to come were the first to run: what comes before it
is taken before it. The other organisation's waits as long as the service lets it.

The last line of standard output is a JSON object, in seconds:

backlog          from then until every turn of the backlog has ended
one_turn         one turn of an idle service, from its post to its end
wait_fair        from then until the other organisation's turn has its answer, and `begins_fair` until it begins
wait_first_come  the same of the backlog's last turn, and `begins_first_come`
turns            in the backlog
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from datetime import UTC, datetime
from itertools import repeat
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.ending import to_its_end
from benchmarks.up import ENDED, Service, instant_model, say, side_by_side, throw_away

AGENT = "tools-5"
#: Posts at once, while the backlog comes in.
POSTING = 4


def run(turns: int, turns_a_session: int) -> dict[str, Any]:
    with throw_away() as folder, instant_model() as model:
        service = Service(folder / "service", model, (5,), organisations=2)
        with service.running():
            one, other = service.tokens
            idle = [one_turn(service, token) for token in (one, other, one, other)]
            sessions = service.open_sessions(AGENT, -(-turns // turns_a_session), token=one)
            (behind,) = service.open_sessions(AGENT, 1, token=one)
            (alone,) = service.open_sessions(AGENT, 1, token=other)
            with service.paused_workers():
                posts = [session for _ in range(turns_a_session) for session in sessions][:turns]
                backlog = side_by_side(service.post, posts, POSTING)
                say(f"{len(backlog):,} turns wait")
                last, single = service.post(behind, token=one), service.post(alone, token=other)
                begun = time.time()
            wait_for_all(service)
            return {
                "backlog": round(max(at(service, turn_id, "ended_at") for turn_id in backlog) - begun, 2),
                "one_turn": round(median(idle[2:]), 2),
                "wait_fair": round(at(service, single, "ended_at") - begun, 2),
                "wait_first_come": round(at(service, last, "ended_at") - begun, 2),
                "begins_fair": round(at(service, single, "started_at") - begun, 2),
                "begins_first_come": round(at(service, last, "started_at") - begun, 2),
                "turns": turns,
            }


def one_turn(service: Service, token: str) -> float:
    """Seconds of a turn while nothing else runs."""
    (session,) = service.open_sessions(AGENT, 1, token=token)
    begun = time.monotonic()
    service.wait_for(service.post(session, token=token))
    return time.monotonic() - begun


def wait_for_all(service: Service) -> None:
    marks = ",".join(repeat("?", len(ENDED)))
    while True:
        ((still_open,),) = service.rows(
            f"SELECT count(*) FROM toolhub_sessions_turn WHERE status NOT IN ({marks})", *ENDED
        )
        if not still_open:
            break
        say(f"{still_open:,} turns are open")
        time.sleep(1.0)
    ended = dict(service.rows("SELECT status, count(*) FROM toolhub_sessions_turn GROUP BY status"))
    if set(ended) != {"done"}:
        raise SystemExit(f"Not every turn has its answer: {ended}")


def at(service: Service, turn_id: str, column: str) -> float:
    """When that was, by the database's clock, which is this machine's."""
    ((moment,),) = service.rows(f"SELECT {column} FROM toolhub_sessions_turn WHERE id = ?", turn_id.replace("-", ""))
    return datetime.fromisoformat(moment).replace(tzinfo=UTC).timestamp()


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure how long one organisation's turn waits behind another's.")
    parser.add_argument("--quick", action="store_true", help="a backlog of 100 turns")
    parser.add_argument("--backlog", type=int, default=None, metavar="TURNS")
    parser.add_argument("--turns-a-session", type=int, default=5)
    options = parser.parse_args()
    line = run(options.backlog or (100 if options.quick else 1000), options.turns_a_session)
    print(json.dumps(line), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(to_its_end(main))
