"""What a turn of two rounds and one tool call costs, with a model that answers at once.

    .venv/bin/python benchmarks/turn_cost.py [--peers] [--quick] [--turns 40] [--filled 100000]

The service is started as `manage.py up` starts it, on SQLite with its own Valkey, on a data folder that is thrown away,
and turns come in over REST. Beside it the same turn is run without the service: by a bare loop with the openai SDK and,
with --peers, by openai-agents and pydantic-ai, which are installed into a throw-away environment. They send the same
tools, byte for byte; none of them stores anything. A second organisation of the same service runs it with routing on,
so that only the tools go that the message needs, and under a budget. All take their turns in blocks that alternate. A
second service has --filled finished turns in its database. --quick has less of everything and takes about a minute; its
figures are rough.

CPU is that of the processes, in user and in kernel mode, so that it holds on a machine that does other things too; what
the same processes spend idle in the same time is subtracted. Turns per second are of the clock, and hold only on an
idle machine. Linux only.

The last line of standard output is a JSON object:

statements        that a worker sends to the database for one turn, from its claim to its end (with SQLite's BEGIN)
commits           transactions of one turn, and writes outside of one
write_commits     those of them that wrote
autocommit_reads  reads outside of a transaction; a server counts each as one, so for it there are so many more
worker_cpu_ms     CPU of the workers a turn, at 5 tools; `by_tools` has it at 1, 5, 32 and 128, with the others'
web_cpu_ms        CPU of the web server from POST to 202, at 5 tools
ratio_bare        worker_cpu_ms over that of the bare loop, at 5 tools
ratio_agents_5    the same over openai-agents at 5 tools, and at 128; null without --peers
ratio_agents_128
ratio_pydantic_5  the same over pydantic-ai
ratio_pydantic_128
ratio_governed    worker CPU of a budgeted, routed turn over that of one without, at 5 tools
ratio_governed_128   the same at 128
tool_tokens       tokens of tools that a turn sends, by tools; `governed_tool_tokens` those of the budgeted, routed turn
governed_statements   what a budgeted, routed turn asks the database for, at 5 tools
ratio_full_database   worker CPU at 5 tools with --filled turns in the database, over that with an empty one
web_ratio_full_database   the same of the web server
turns_per_second      with 4 sessions at once, each with its next turn as soon as the last has ended
turns_per_second_64   with 64
locked            records of the log that say that the database was locked, at 64 sessions and (without --quick) at 150
refused           posts in the same time that got another answer than 202; each is posted again
rss_mb            memory of all processes behind the measured turns, before the many sessions; `rss_mb_by_part` has each
idle_ms_a_second  CPU of workers and web server, idle; `idle_ms_a_second_full` with the full database
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import venv
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.ending import to_its_end
from benchmarks.fill import add_copies
from benchmarks.many_tools import tally
from benchmarks.up import (
    ENDED,
    LOOK_EVERY,
    PARTS,
    ROOT,
    Service,
    child,
    cpu_seconds,
    instant_model,
    rss_mb,
    say,
    throw_away,
)

#: Tools that the agents have, and those of the figures that stand for one number.
COUNTS = (1, 5, 32, 128)
FEW, MANY = 5, 128
#: What the peers are, and with which versions they were compared.
PEERS = {"agents": "openai-agents==0.24.0", "pydantic": "pydantic-ai-slim[openai]==2.68.0"}
#: Sessions at once whose turns per second are measured; where only `locked` is; and turns of each session.
SESSIONS = (4, 64)
CROWD = 150


# -- The service -----------------------------------------------------------------------------------------------------


class Counted(NamedTuple):
    """What a turn asks the database for."""

    statements: float
    commits: float
    write_commits: float
    autocommit_reads: float


class Gauge:
    """CPU of one service's workers and web server a turn, with what they spend idle subtracted."""

    def __init__(self, service: Service, idle_seconds: float) -> None:
        self.service = service
        self.pids = {part: service.pids(part) for part in ("worker", "web")}
        begun, before = time.monotonic(), self._read()
        time.sleep(idle_seconds)
        self.idle = {part: used / (time.monotonic() - begun) for part, used in self._since(before).items()}

    def _read(self) -> dict[str, float]:
        return {part: cpu_seconds(pids) for part, pids in self.pids.items()}

    def _since(self, before: dict[str, float]) -> dict[str, float]:
        return {part: now - before[part] for part, now in self._read().items()}

    def turns(self, agent: str, count: int, *, token: str = "") -> dict[str, float]:
        """CPU milliseconds of `worker` and `web`, a turn. Each turn is the first of its session, one after another."""
        sessions = self.service.open_sessions(agent, count, token=token)
        begun, before = time.monotonic(), self._read()
        for session in sessions:
            self.service.wait_for(self.service.post(session, token=token))
        seconds = time.monotonic() - begun
        used = self._since(before)
        return {part: 1000 * (used[part] - self.idle[part] * seconds) / count for part in used}


def govern(service: Service) -> str:
    """Turn routing on for the agents of the service's second organisation, and give it a budget; the token of its
    member."""
    token = service.tokens[1]
    for count in COUNTS:
        changed, answer = service.ask("PATCH", f"/api/v1/agents/tools-{count}", {"routing_mode": "hybrid"}, token=token)
        if changed != 200:
            raise SystemExit(f"Routing was answered with {changed}: {answer}")
    budget = {"name": "A day", "limit": str(10**12), "window": "day"}
    made, answer = service.ask("POST", "/api/v1/budgets", budget, token=token)
    if made != 201:
        raise SystemExit(f"The budget was answered with {made}: {answer}")
    return token


def tool_tokens(service: Service) -> dict[str, dict[int, int]]:
    """Tokens of tools that the model calls of the last turn sent, by the name of the organisation and by tools."""
    found: dict[str, dict[int, int]] = defaultdict(dict)
    rows = service.rows(
        "SELECT o.slug, a.slug, s.tool_tokens FROM toolhub_sessions_step s"
        " JOIN toolhub_sessions_turn t ON t.id = s.turn_id JOIN capabilities_agent a ON a.id = t.agent_id"
        " JOIN tenants_organisation o ON o.id = t.organisation_id WHERE s.kind = 'model' AND s.round = 1 ORDER BY s.id"
    )
    for organisation, agent, tokens in rows:
        if agent.startswith("tools-"):
            found[organisation][int(agent.removeprefix("tools-"))] = 2 * tokens
    return found


def tallied(service: Service, agent: str, count: int, *, token: str = "") -> Counted:
    """What one turn in the workers asks the database for, on average."""
    sessions = service.open_sessions(agent, count, token=token)
    folder, pids = service.folder / "tally", service.pids("worker")
    before = tally.read(folder, pids)
    for session in sessions:
        service.wait_for(service.post(session, token=token))
    time.sleep(0.2)  # what a worker does behind a turn's end
    after = tally.read(folder, pids)
    return Counted(*(round((now - then) / count, 1) for now, then in zip(after, before, strict=True)))


def crowd(service: Service, sessions: int, turns: int) -> tuple[float, int]:
    """Turns per second of so many sessions at once, each with `turns` turns, and how many posts were refused.

    A session's next turn is posted as soon as its last has ended.
    """
    opened = service.open_sessions(f"tools-{FEW}", sessions)
    left = dict.fromkeys(opened, turns)
    running: dict[str, str] = {}
    refused = 0

    def post(session: str) -> tuple[str, int, Any]:
        return session, *service.ask("POST", f"/api/v1/sessions/{session}/turns", {"message": "Add 42 to account 0."})

    with ThreadPoolExecutor(sessions) as pool:
        begun = time.monotonic()
        posting = {pool.submit(post, session) for session in opened}
        while posting or running:
            for done in [each for each in posting if each.done()]:
                posting.discard(done)
                session, status, turn = done.result()
                if status == 202:
                    running[turn["id"]] = session
                else:
                    refused += 1
                    posting.add(pool.submit(post, session))
            for turn_id, state in service.statuses(list(running)).items() if running else ():
                if state in ENDED:
                    session = running.pop(turn_id)
                    left[session] -= 1
                    if left[session]:
                        posting.add(pool.submit(post, session))
            time.sleep(2 * LOOK_EVERY)
        return sessions * turns / (time.monotonic() - begun), refused


# -- The others ------------------------------------------------------------------------------------------------------


@contextmanager
def client(python: str, kind: str, model: str) -> Iterator[Callable[[int, int], float]]:
    """CPU milliseconds a turn of another implementation, by tools and turns."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "PYTHON"))}
    argv = [python, str(ROOT / "benchmarks/turn_clients.py"), kind, model]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with child(argv, env=environment, text=True, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        asked, answers = process.stdin, process.stdout

        def turns(tools: int, count: int) -> float:
            print(tools, count, file=asked, flush=True)
            answer = answers.readline()
            if not answer:
                raise SystemExit(f"The turns by {kind} ended without an answer.")
            return float(json.loads(answer))

        yield turns


def peers_python(folder: Path) -> str:
    """The Python of a new environment that has the peers."""
    say(f"installing {' and '.join(PEERS.values())} ...")
    venv.create(folder, with_pip=True)
    python = str(folder / "bin/python")
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PEERS.values()]
    subprocess.run(install, check=True, stdout=sys.stderr)
    return python


# -- The run ---------------------------------------------------------------------------------------------------------


Figures = Mapping[str, Mapping[int, list[float]]]


def run(options: argparse.Namespace) -> dict[str, Any]:
    with ExitStack() as stack:
        folder = stack.enter_context(throw_away())
        python = peers_python(folder / "peers") if options.peers else ""
        model = stack.enter_context(instant_model())
        empty = Service(folder / "empty", model, COUNTS, organisations=2)
        stack.enter_context(empty.running())
        turn_id = warm(empty)
        governed = govern(empty)
        warm(empty, token=governed)
        say("a service is up")
        full = empty.copy(folder / "full")
        fill(full, turn_id, options.filled)
        stack.enter_context(full.running())
        warm(full)
        say("a second one is up, with a full database")
        clients = {"bare": stack.enter_context(client(sys.executable, "bare", model))}
        if options.peers:
            clients |= {kind: stack.enter_context(client(python, kind, model)) for kind in PEERS}
        gauges = {"": Gauge(empty, options.idle_seconds), "full_": Gauge(full, options.idle_seconds)}
        figures = blocks(gauges, clients, options, governed)
        counted = tallied(empty, f"tools-{FEW}", 3)
        sent = tool_tokens(empty)
        memory = {part: rss_mb(empty.pids(part)) for part in PARTS}
        memory["all"] = rss_mb(empty.pids())
        line = summary(figures, counted)
        line["governed_statements"] = tallied(empty, f"tools-{FEW}", 3, token=governed).statements
        line["governed_tool_tokens"] = sent.pop("number-1")
        (line["tool_tokens"],) = sent.values()
        line["rss_mb"] = round(memory.pop("all"), 1)
        line["rss_mb_by_part"] = {part: round(size, 1) for part, size in memory.items()}
        for name, gauge in zip(("idle_ms_a_second", "idle_ms_a_second_full"), gauges.values(), strict=True):
            line[name] = {part: round(1000 * idle, 1) for part, idle in gauge.idle.items()}
        return line | crowds(empty, options)


def warm(service: Service, *, token: str = "") -> str:
    """Two turns of each agent, and the id of the last: the imports and tool sets of all later ones are there."""
    for count in reversed(COUNTS):
        for session in service.open_sessions(f"tools-{count}", 2, token=token):
            turn_id = service.post(session, token=token)
            service.wait_for(turn_id)
    return turn_id


def fill(service: Service, turn_id: str, count: int) -> None:
    """Copy one turn `count` times."""
    begun = time.monotonic()
    add_copies(service.database, turn_id, count)
    size = service.database.stat().st_size / 1e6
    say(f"a database has {count:,} turns and {size:,.0f} MB, after {time.monotonic() - begun:.0f} s")


def blocks(
    gauges: dict[str, Gauge],
    clients: dict[str, Callable[[int, int], float]],
    options: argparse.Namespace,
    governed: str,
) -> Figures:
    """CPU milliseconds a turn, by what and by tools, one figure a block. `governed` is the token of the organisation
    whose turns are routed and have a budget."""
    figures: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for number in range(1, options.blocks + 1):
        for count in COUNTS:
            turns = max(2, options.turns // options.blocks)
            for prefix, gauge in gauges.items():
                if count == FEW or not prefix:
                    for part, used in gauge.turns(f"tools-{count}", turns).items():
                        figures[prefix + part][count].append(used)
            for part, used in gauges[""].turns(f"tools-{count}", turns, token=governed).items():
                figures[f"governed_{part}"][count].append(used)
            for kind, others_turns in clients.items():
                figures[kind][count].append(others_turns(count, 5 * turns))
            used_now = ", ".join(f"{name} {values[count][-1]:.1f}" for name, values in figures.items() if values[count])
            say(f"block {number} of {options.blocks}, {count} tools: CPU ms a turn: {used_now}")
    return figures


def crowds(service: Service, options: argparse.Namespace) -> dict[str, Any]:
    speeds, refused = {}, 0
    for sessions in (*SESSIONS, *(() if options.quick else (CROWD,))):
        turns = max(1 if sessions >= CROWD else 2, options.crowd_turns // sessions)
        speeds[sessions], failed = crowd(service, sessions, turns)
        refused += failed
        say(
            f"{sessions} sessions at once: {speeds[sessions]:.1f} turns a second, {failed} posts refused, "
            f"{service.locked()} records of a locked database so far"
        )
    few, many = SESSIONS
    return {
        "turns_per_second": round(speeds[few], 1),
        "turns_per_second_64": round(speeds[many], 1),
        "locked": service.locked(),
        "refused": refused,
    }


def summary(figures: Figures, counted: Counted) -> dict[str, Any]:
    cost = {name: {count: median(found) for count, found in by.items() if found} for name, by in figures.items()}
    say(table(cost))

    def ratio(one: str, other: str, count: int) -> float | None:
        return round(cost[one][count] / cost[other][count], 2) if other in cost and one in cost else None

    return {
        **counted._asdict(),
        "worker_cpu_ms": round(cost["worker"][FEW], 1),
        "web_cpu_ms": round(cost["web"][FEW], 1),
        "ratio_bare": ratio("worker", "bare", FEW),
        "ratio_agents_5": ratio("worker", "agents", FEW),
        "ratio_agents_128": ratio("worker", "agents", MANY),
        "ratio_pydantic_5": ratio("worker", "pydantic", FEW),
        "ratio_pydantic_128": ratio("worker", "pydantic", MANY),
        "ratio_governed": ratio("governed_worker", "worker", FEW),
        "ratio_governed_128": ratio("governed_worker", "worker", MANY),
        "ratio_full_database": ratio("full_worker", "worker", FEW),
        "web_ratio_full_database": ratio("full_web", "web", FEW),
        "by_tools": {name: {str(key): round(value, 1) for key, value in by.items()} for name, by in cost.items()},
    }


def table(cost: dict[str, dict[int, float]]) -> str:
    names = {
        "worker": "toolhub, workers",
        "web": "toolhub, POST to 202",
        "governed_worker": "workers, budget and routing",
        "governed_web": "POST to 202, with a budget",
        "full_worker": "workers, full database",
        "full_web": "POST to 202, full database",
        "bare": "bare loop, openai SDK",
        "agents": "openai-agents",
        "pydantic": "pydantic-ai",
    }
    lines = [f"{'CPU ms a turn':28}" + "".join(f"{count:>8}" for count in COUNTS) + "  tools"]
    for name, by in cost.items():
        values = (f"{by[count]:8.1f}" if count in by else " " * 8 for count in COUNTS)
        lines.append(f"{names[name]:28}" + "".join(values))
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure what a turn costs, and compare it with turns of others.")
    parser.add_argument("--peers", action="store_true", help="compare with openai-agents and pydantic-ai too")
    parser.add_argument("--quick", action="store_true", help="less of everything, in about a minute")
    parser.add_argument("--turns", type=int, default=None, help="of each kind and number of tools")
    parser.add_argument("--filled", type=int, default=None, metavar="TURNS", help="in the full database")
    options = parser.parse_args()
    options.turns = options.turns or (4 if options.quick else 40)
    options.filled = options.filled or (3_000 if options.quick else 100_000)
    options.blocks = 2 if options.quick else 4
    options.idle_seconds = 1.5 if options.quick else 8.0
    options.crowd_turns = 16 if options.quick else 256
    begun = time.monotonic()
    line = run(options)
    say(f"after {time.monotonic() - begun:.0f} s")
    print(json.dumps(line), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(to_its_end(main))
