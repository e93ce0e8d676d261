"""Runner of jobs that read a member's text, in a child process with limits on memory and processor time.

A parser can crash (`compile` overflows the stack), ask for all memory, or never come back; a child takes nobody with
it. What it may take is processor time, so that a text is not too complex because the machine has much to do; its
caller waits no longer than that asked for. How many run at once is bounded, for each organisation as well.

    ConfinedError
    ├── TooComplex       it crashed, or hit a limit
    │   └── TookTooLong  it took its whole processor time, or its caller was stopped
    └── Busy             no child was free in time, or the one that was had no processor, twice
"""

from __future__ import annotations

import json
import logging
import os
import resource
import selectors
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Literal

from django.conf import settings

from capabilities.contract.context import ToolContext, ToolError
from toolhub.bounded_json import load_json
from toolhub.tenants.audit.writes import in_request

logger = logging.getLogger(__name__)

Job = Literal[
    "atom",
    "definitions",
    "differences",
    "document",
    "openapi",
    "outline",
    "page",
    "pattern",
    "python_code",
    "schema",
    "sqlite",
    "syntax",
    "tool_file",
    "toolkit_file",
    "versions",
]

#: Limits of one child: bytes of memory, seconds of processor time, bytes of its answer.
MEMORY = 512_000_000
SECONDS = 5.0
ANSWER_BYTES = 4_000_000
#: Bytes of its answer for each of its values, at least: 400,000 values in all.
BYTES_OF_VALUE = 10
#: Seconds between looks at whether the caller was stopped.
LOOK_EVERY = 0.1
#: Calls of one organisation that wait for a free child at once where people wait for them: each holds a thread that
#: answers everybody's pages.
PEOPLE_WAITING = 4

CHILD = Path(__file__).with_name("confined_jobs") / "child.py"
#: Where a child imports from: this code, and the installed packages.
FOLDERS = (str(Path(__file__).resolve().parents[2]), *{sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})


class ConfinedError(ToolError):
    """The text could not be read in a child process."""


class TooComplex(ConfinedError):
    """This is too complex to check."""


class TookTooLong(TooComplex):
    """This is too complex to check: it took too long."""


class Busy(ConfinedError):
    """This host is busy, and too many checks are running at the same time: try again in a moment."""


def run_in_context(job: Job, context: ToolContext, **arguments: Any) -> Any:
    """Run a job for a tool, within its call's time; see `run`."""
    seconds = min(SECONDS, context.timeout * 0.9)
    waited = context.timeout * 0.9
    return run(job, arguments, context.organisation_id, seconds=seconds, wait=waited, stopped=context.stopped)


def run(
    job: Job,
    arguments: Mapping[str, Any],
    organisation_id: int,
    *,
    seconds: float = SECONDS,
    wait: float = 2 * SECONDS,
    stopped: threading.Event | None = None,
    most: int = ANSWER_BYTES,
    memory: int | None = None,
) -> Any:
    """Return the job's result as plain JSON. Raises TooComplex or Busy, whose messages are sentences for the caller.

    `seconds` of processor time are what the child may take, `wait` in seconds what all may take, a wait for a free
    child included. A query of a database may wait itself, so that its `seconds` are those of a clock. `most` is in
    bytes of the answer, `memory` in those that the child may take. While a request to the web server is answered, only
    so many of one organisation wait at once.
    """
    deadline = time.monotonic() + wait
    memory = memory or MEMORY
    stopped = stopped or threading.Event()
    slots = _slots_of_queries if job == "sqlite" else _slots
    with slots.taken(organisation_id, deadline, stopped, most_waiting=PEOPLE_WAITING if in_request() else None):
        if job == "sqlite":
            until = min(deadline, time.monotonic() + seconds)
            return _answer(job, arguments, until - time.monotonic(), until, stopped, most, memory)
        return _answer_of_two(job, arguments, seconds, deadline, stopped, most, memory)


def _answer_of_two(
    job: Job,
    arguments: Mapping[str, Any],
    seconds: float,
    deadline: float,
    stopped: threading.Event,
    most: int,
    memory: int,
) -> Any:
    """A child that the machine gave too little processor time, or ended, is tried once more. Raises Busy after that."""
    halfway = (time.monotonic() + deadline) / 2
    for until in (halfway, deadline):
        with suppress(_Starved):
            return _answer(job, arguments, seconds, until, stopped, most, memory)
    raise Busy(str(Busy.__doc__))


class _Starved(TookTooLong):
    """A child ended without its processor time having been taken."""


def _answer(
    job: Job,
    arguments: Mapping[str, Any],
    seconds: float,
    until: float,
    stopped: threading.Event,
    most: int,
    memory: int,
) -> Any:
    """Run one job in a child process and return its answer. Raises ConfinedError."""
    # Less than the time that is left, so that one that had a processor all the while ends by this limit.
    cpu = max(1, min(round(seconds + 0.5), int(0.8 * (until - time.monotonic()))))
    command = [sys.executable, "-I", "-S", str(CHILD), job, str(memory), str(cpu), *FOLDERS]
    # A file and not a pipe: a child that does not read cannot hold the writer.
    with tempfile.TemporaryFile() as file:
        file.write(json.dumps(arguments).encode())
        file.seek(0)
        try:
            data, code = output_of(command, most, until, stopped, stdin=file)
        except TimeoutError:
            raise (TookTooLong if stopped.is_set() else _Starved)(str(TookTooLong.__doc__)) from None
    if code == -signal.SIGXCPU:
        raise TookTooLong(str(TookTooLong.__doc__))
    if code == -signal.SIGKILL:  # not by us: by the machine, for want of memory
        raise _Starved(str(TookTooLong.__doc__))
    if code == 0 and len(data) <= most:
        with suppress(ValueError):
            answer = load_json(data, most_bytes=most, most_values=most // BYTES_OF_VALUE)
            if isinstance(answer, dict) and "result" in answer:
                return answer["result"]
    logger.warning("The child process for %s gave up or crashed: status %s, %s bytes", job, code, len(data))
    raise TooComplex("This is too complex to check.")


def output_of(
    command: Sequence[str],
    limit: int,
    deadline: float,
    stopped: threading.Event,
    *,
    stdin: IO[bytes] | int = subprocess.DEVNULL,
    folder: Path | str = "/",
    environment: Mapping[str, str] | None = None,
    memory: int | None = None,
) -> tuple[bytes, int]:
    """Return the output of a command, to a little over `limit` bytes, and its status; negative is the signal that
    ended it.

    Nothing of this process's environment is handed on. Its process group is gone on return. Raises TimeoutError at
    the deadline (of time.monotonic), or when stopped.
    """
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=dict(environment or {"LC_ALL": "C.UTF-8"}),
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        process_group=0,
    )
    with process:
        if memory is not None:
            _bound_memory(process.pid, memory)
        try:
            data = _read(process, limit, deadline, stopped)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return data, process.returncode


def _read(process: subprocess.Popen[bytes], limit: int, deadline: float, stopped: threading.Event) -> bytes:
    """Read what the child writes, a little over `limit` at most. Raises TimeoutError at the deadline, and when
    stopped."""
    assert process.stdout is not None
    data = bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while len(data) <= limit:
            remaining = deadline - time.monotonic()
            if stopped.is_set() or remaining <= 0:
                raise TimeoutError
            if selector.select(min(LOOK_EVERY, remaining)):
                chunk = os.read(process.stdout.fileno(), 65_536)
                if not chunk:
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(max(0.1, deadline - time.monotonic()))
                    break
                data += chunk
    return bytes(data)


def _bound_memory(pid: int, memory: int) -> None:
    if hasattr(resource, "prlimit"):  # Linux
        with suppress(OSError):
            resource.prlimit(pid, resource.RLIMIT_AS, (memory, memory))


class Places:
    """The children that may run at once in this process: so many in all, and so many of one organisation, as the
    settings of these names say."""

    def __init__(self, in_all: str, of_one: str) -> None:
        self._in_all = in_all
        self._of_one = of_one
        self._free = threading.Condition()
        self._running: Counter[int] = Counter()
        self._waiting: Counter[int] = Counter()

    @contextmanager
    def taken(
        self, organisation_id: int, deadline: float, stopped: threading.Event, *, most_waiting: int | None = None
    ) -> Iterator[None]:
        """Hold a place. Raises Busy when none is free by the deadline, when stopped, and at once where so many of the
        organisation wait already."""
        with self._free:
            if not self._has_room(organisation_id):
                self._wait(organisation_id, deadline, stopped, most_waiting)
            self._running[organisation_id] += 1
        try:
            yield
        finally:
            with self._free:
                self._running[organisation_id] -= 1
                self._running += Counter()  # drops those at zero
                self._free.notify_all()

    def _wait(self, organisation_id: int, deadline: float, stopped: threading.Event, most_waiting: int | None) -> None:
        if most_waiting is not None and self._waiting[organisation_id] >= most_waiting:
            raise Busy(str(Busy.__doc__))
        self._waiting[organisation_id] += 1
        try:
            while not self._has_room(organisation_id):
                remaining = deadline - time.monotonic()
                if remaining <= 0 or stopped.is_set():
                    raise Busy(str(Busy.__doc__))
                self._free.wait(min(LOOK_EVERY, remaining))
        finally:
            self._waiting[organisation_id] -= 1
            self._waiting += Counter()  # drops those at zero

    def _has_room(self, organisation_id: int) -> bool:
        of_one, in_all = int(getattr(settings, self._of_one)), int(getattr(settings, self._in_all))
        return self._running[organisation_id] < of_one and self._running.total() < in_all


_OF_CHILDREN = ("TOOLHUB_CHILD_PROCESSES", "TOOLHUB_CHILD_PROCESSES_PER_ORGANISATION")
_slots = Places(*_OF_CHILDREN)
#: Queries may take a minute, where all else takes seconds: nobody's check waits for them.
_slots_of_queries = Places(*_OF_CHILDREN)
