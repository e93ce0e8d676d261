"""The service as `manage.py up` starts it, on a data folder of its own, and what its processes cost.

Linux only: CPU and memory are read from the kernel, of each process while it runs.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from toolhub.embedded.supervisor import free_port  # noqa: E402
from toolhub.probe import is_ready  # noqa: E402 -- after the path

#: Seconds, far more than they take, for everything to be up, for one request, and for one turn of an idle service.
START_SECONDS = 900.0
REQUEST_SECONDS = 120.0
TURN_SECONDS = 300.0
#: Seconds between two looks at the database for turns that have ended.
LOOK_EVERY = 0.005
#: Processes of the service, by what their command line says.
PARTS = {"web": "toolhub.asgi", "worker": "celery", "valkey": "valkey-server", "offline model": "offline_model"}
ENDED = ("done", "failed", "cancelled", "expired")
#: What begins a line of the log that begins a record.
RECORD = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+ ", re.MULTILINE)


def say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


# -- Processes of this machine ---------------------------------------------------------------------------------------


def cpu_seconds(pids: Sequence[int]) -> float:
    """CPU time of these processes so far, with all their threads, in user and in kernel mode."""
    return sum(time.clock_gettime((~pid << 3) | 2) for pid in pids)  # the kernel's name of a process's clock


def rss_mb(pids: Sequence[int]) -> float:
    pages = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids]
    return sum(pages) * os.sysconf("SC_PAGE_SIZE") / 1e6


def descendants(pid: int) -> list[int]:
    """The process and all below it."""
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            parents.setdefault(parent, []).append(int(folder.name))
    found = [pid]
    for each in found:
        found += parents.get(each, [])
    return found


def command_line(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""


@contextmanager
def child(argv: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    process = subprocess.Popen(argv, cwd=ROOT, **options)
    try:
        yield process
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(20.0)
        process.kill()
        process.wait()


@contextmanager
def instant_model() -> Iterator[str]:
    """The address of a model that answers at once."""
    port = free_port()
    with child([sys.executable, str(ROOT / "benchmarks/instant_model.py"), str(port)]):
        yield f"http://127.0.0.1:{port}/v1"


@contextmanager
def throw_away() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="toolhub-benchmark-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# -- The service -----------------------------------------------------------------------------------------------------


class Service:
    """`manage.py up` with SQLite and its own Valkey, agents `tools-N`, and a token of a member of each organisation."""

    def __init__(self, folder: Path, model: str, counts: Sequence[int], organisations: int = 1) -> None:
        self.folder, self.model, self.counts, self.organisations = folder, model, counts, organisations
        self.port = free_port()
        for name in ("data", "tally"):
            (folder / name).mkdir(parents=True)
        self.env = self._environment()
        self.tokens: list[str] = []
        self.process: subprocess.Popen[bytes] | None = None
        self._thread = threading.local()

    def _environment(self) -> dict[str, str]:
        mine = ("TOOLHUB_", "OPENAI_", "DATABASE_URL", "REDIS_URL", "DJANGO_")
        clean = {name: value for name, value in os.environ.items() if not name.startswith(mine)}
        return clean | {
            "DJANGO_SETTINGS_MODULE": "benchmarks.turn_settings",
            "PYTHONPATH": str(ROOT),
            "PORT": str(self.port),
            "TOOLHUB_DATA_DIR": str(self.folder / "data"),
            "TOOLHUB_PRIVATE_HOSTS": "provider:127.0.0.1,tool:127.0.0.1,mcp:127.0.0.1",
            "TOOLHUB_QUEUED_PER_MEMBER": "100000",  # one member posts the whole load
            "TOOLHUB_QUEUED_PER_ORGANISATION": "100000",
            "TOOLHUB_LOG_LEVEL": "WARNING",
            "BENCHMARK_TALLY_FOLDER": str(self.folder / "tally"),
        }

    @property
    def database(self) -> Path:
        (found,) = (self.folder / "data").glob("*.sqlite3")
        return found

    @contextmanager
    def running(self) -> Iterator[None]:
        """From ready to ended. The first time, the agents and tokens are made too; later ones are seconds quicker."""
        with (self.folder / "up.log").open("ab") as log:
            argv = [sys.executable, "manage.py", "up"]
            with child(argv, env=self.env, stdout=log, stderr=log, stdin=subprocess.DEVNULL) as self.process:
                self._wait_until_ready()
                yield

    def copy(self, folder: Path) -> Service:
        """Another service with the same data, which does not run. This one may, but for what it does meanwhile."""
        other = Service(folder, self.model, self.counts, self.organisations)
        other.tokens = self.tokens
        ignored = shutil.ignore_patterns("valkey", "*.lock", f"{self.database.name}*")
        shutil.copytree(self.folder / "data", other.folder / "data", ignore=ignored, dirs_exist_ok=True)
        target = other.folder / "data" / self.database.name
        with closing(sqlite3.connect(self.database)) as mine, closing(sqlite3.connect(target)) as copied:
            mine.backup(copied)
        return other

    def _wait_until_ready(self) -> None:
        assert self.process is not None
        deadline = time.monotonic() + START_SECONDS
        while not (is_ready("127.0.0.1", self.port, ["localhost"], 1.0) and self.pids("worker")):
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise SystemExit(f"The service is not ready:\n{self.log()[-2000:]}")
            time.sleep(0.1)
        if not self.tokens:
            numbers = [str(number) for number in (self.organisations, *self.counts)]
            argv = [sys.executable, "benchmarks/turn_agents.py", self.model, *numbers]
            made = subprocess.run(argv, env=self.env, cwd=ROOT, check=True, stdout=subprocess.PIPE)
            self.tokens = json.loads(made.stdout.splitlines()[-1])

    def pids(self, part: str = "") -> list[int]:
        """Of one of PARTS, however many processes it has; without a name, of all, the supervisor's too."""
        assert self.process is not None
        found = descendants(self.process.pid)
        return [pid for pid in found if PARTS[part] in command_line(pid)] if part else found

    def log(self) -> str:
        return (self.folder / "up.log").read_text(errors="replace")

    def locked(self) -> int:
        """Records of the log, of any process, that say that the database was locked."""
        return sum("database is locked" in record for record in RECORD.split(self.log()))

    # -- As a client

    def ask(self, method: str, path: str, body: Any = None, *, token: str = "") -> tuple[int, Any]:
        """One request on this thread's connection, and (status, JSON) of its answer."""
        headers = {"Authorization": f"Bearer {token or self.tokens[0]}", "Content-Type": "application/json"}
        text = json.dumps(body) if body is not None else None
        for is_last in (False, True):
            connection = getattr(self._thread, "connection", None)
            if connection is None:
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=REQUEST_SECONDS)
                self._thread.connection = connection
            try:
                connection.request(method, path, text, headers)
                response = connection.getresponse()
                content = response.read()
                break
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                connection.close()  # it was idle for too long
                self._thread.connection = None
                if is_last:
                    raise
        return response.status, json.loads(content) if content.startswith((b"{", b"[")) else None

    def open_sessions(self, agent: str, count: int, *, token: str = "") -> list[str]:
        opened = [self.ask("POST", "/api/v1/sessions", {"agent": agent}, token=token) for _ in range(count)]
        assert all(status == 201 for status, _ in opened), opened
        return [session["id"] for _, session in opened]

    def post(self, session: str, message: str = "Add 42 to account 0.", *, token: str = "") -> str:
        """A turn's id. Raises AssertionError where it was not accepted."""
        status, turn = self.ask("POST", f"/api/v1/sessions/{session}/turns", {"message": message}, token=token)
        assert status == 202, (status, turn)
        return str(turn["id"])

    # -- By the database, which costs the service nothing

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(f"file:{self.database}?mode=ro", uri=True, timeout=20.0)) as connection:
            return connection.execute(sql, values).fetchall()

    def statuses(self, turn_ids: Sequence[str]) -> dict[str, str]:
        wanted = {turn_id.replace("-", ""): turn_id for turn_id in turn_ids}
        marks = ",".join("?" * len(wanted))
        found = self.rows(f"SELECT id, status FROM toolhub_sessions_turn WHERE id IN ({marks})", *wanted)
        return {wanted[key]: status for key, status in found}

    def wait_for(self, turn_id: str) -> None:
        deadline = time.monotonic() + TURN_SECONDS
        while (status := self.statuses([turn_id]).get(turn_id)) not in ENDED:
            if time.monotonic() > deadline:
                raise SystemExit(f"A turn is still {status} after {TURN_SECONDS:.0f} s.")
            time.sleep(LOOK_EVERY)
        if status != "done":
            raise SystemExit(f"A turn ended as {status}:\n{self.log()[-2000:]}")

    # -- Stopping the workers for a while

    @contextmanager
    def paused_workers(self) -> Iterator[None]:
        """Workers that do nothing meanwhile, and hold no lock of the database."""
        pids = self.pids("worker")
        while True:
            send(pids, signal.SIGSTOP)
            try:
                with closing(sqlite3.connect(self.database, timeout=0.2, isolation_level=None)) as connection:
                    connection.execute("BEGIN IMMEDIATE")
                    connection.execute("ROLLBACK")
                break
            except sqlite3.OperationalError:  # one was stopped in the middle of a write
                send(pids, signal.SIGCONT)
                time.sleep(0.1)
        try:
            yield
        finally:
            send(pids, signal.SIGCONT)


def send(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        os.kill(pid, number)


def side_by_side(work: Callable[[Any], Any], items: Sequence[Any], at_once: int) -> list[Any]:
    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(work, items))
