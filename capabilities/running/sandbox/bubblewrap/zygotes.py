"""The processes that calls in full Python are forked from: one of each organisation, warm, replaced after misuse."""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from capabilities.running.sandbox.bubblewrap.launch import CannotLaunch, launched, user_of
from capabilities.running.sandbox.bubblewrap.machine import Missing, sandbox

#: Seconds that a start may take, and after which one that nobody uses is ended.
START_SECONDS = 15.0
IDLE_SECONDS = 300.0
#: Zygotes of one process of this service; the one used longest ago makes room.
MOST = 16


class Zygote:
    """One running zygote. Made by `zygote_of`."""

    def __init__(self, organisation_id: int) -> None:
        """Start it. Raises Missing, with what bubblewrap says, where this machine cannot."""
        self.is_retired = False
        self.used_at = time.monotonic()
        self.calls: set[int] = set()
        self._number = 0
        self._lock = threading.Lock()
        self._control, child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with child_end, tempfile.TemporaryFile() as errors:
            try:
                self._start(organisation_id, child_end, errors.fileno())
            except CannotLaunch as why:
                self._control.close()
                raise Missing(str(why)) from why
            if not self._is_ready:
                self.end()
                errors.seek(0)
                words = errors.read(1_000).decode("utf-8", "replace").strip().splitlines()
                raise Missing(words[-1] if words else "the sandbox did not start")
        self._control.settimeout(1.0)

    def _start(self, organisation_id: int, child_end: socket.socket, errors: int) -> None:
        """Start the process, and wait until it is ready or has ended. Raises Missing, CannotLaunch."""
        needs = sandbox()
        with launched(
            needs.bwrap,
            needs.arguments,
            needs.command,
            user=user_of(organisation_id),
            stdin=child_end.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=errors,
            process_group=0,
            cwd="/",
        ) as self.process:
            child_end.close()
            self._control.settimeout(START_SECONDS)
            try:
                self._is_ready = self._control.recv(16) == b"ready"
            except OSError:
                self._is_ready = False

    def start_call(self) -> tuple[int, socket.socket]:
        """The number of a new call, and the socket to it. Raises OSError where the zygote is gone."""
        own_end, child_end = socket.socketpair()
        with self._lock, child_end:
            self._number += 1
            number = self._number
            try:
                socket.send_fds(self._control, [json.dumps({"call": number}).encode()], [child_end.fileno()])
            except OSError:
                own_end.close()
                raise
            self.calls.add(number)
            self.used_at = time.monotonic()
        return number, own_end

    def end_call(self, number: int, *, is_clean: bool) -> None:
        """End a call and its process: the code may have sent a result and gone on. One that was not clean leaves a
        zygote that gets no more calls, and ends with its last."""
        with self._lock:
            with suppress(OSError):
                self._control.send(json.dumps({"kill": number}).encode())
            if not is_clean:
                self.is_retired = True
            self.calls.discard(number)
            is_over = self.is_retired and not self.calls
        if is_over:
            self.end()

    def retire(self) -> None:
        """Give the zygote no more calls; it ends with its last one."""
        with self._lock:
            self.is_retired = True
            is_over = not self.calls
        if is_over:
            self.end()

    @property
    def is_alive(self) -> bool:
        return not self.is_retired and self.process.poll() is None

    def end(self) -> None:
        """End it with every process in it."""
        with suppress(OSError):
            self._control.close()
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(5)


class _Zygotes:
    """Zygotes of this process, by organisation."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.by_organisation: dict[int, Zygote] = {}
        self.starting: dict[int, threading.Lock] = {}
        # A zygote dies with the thread that started it: this one stays.
        self.starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="zygotes")


_by_process: dict[int, _Zygotes] = {}
_lock = threading.Lock()


def _zygotes() -> _Zygotes:
    with _lock:
        return _by_process.setdefault(os.getpid(), _Zygotes())


def zygote_of(organisation_id: int) -> Zygote:
    """The organisation's zygote, started where there is none. Raises Missing."""
    zygotes = _zygotes()
    with zygotes.lock:
        found = zygotes.by_organisation.get(organisation_id)
        if found is not None and found.is_alive:
            return found
        starting = zygotes.starting.setdefault(organisation_id, threading.Lock())
    with starting:
        with zygotes.lock:
            found = zygotes.by_organisation.get(organisation_id)
            if found is not None and found.is_alive:
                return found
        made = zygotes.starter.submit(Zygote, organisation_id).result()
        with zygotes.lock:
            old = zygotes.by_organisation.get(organisation_id)
            zygotes.by_organisation[organisation_id] = made
            spare = [] if old is None else [old]
            spare += _spare(zygotes.by_organisation, keep=organisation_id)
        for one in spare:
            one.retire()
    return made


def _spare(zygotes: dict[int, Zygote], *, keep: int) -> list[Zygote]:
    """Take out those that nobody has used for long, and more where there are too many."""
    now, found = time.monotonic(), []
    for organisation_id, one in sorted(zygotes.items(), key=lambda item: item[1].used_at):
        is_idle = not one.calls and now - one.used_at > IDLE_SECONDS
        if organisation_id != keep and not one.calls and (is_idle or len(zygotes) > MOST):
            found.append(zygotes.pop(organisation_id))
    return found


@atexit.register
def close() -> None:
    """End this process's own zygotes, never those of the process it was forked from."""
    zygotes = _by_process.pop(os.getpid(), None)
    if zygotes is not None:
        for one in zygotes.by_organisation.values():
            one.end()
        zygotes.starter.shutdown(wait=False)


def forget_locks() -> None:
    """Make new locks in a child after a fork: what the parent held at that moment must not hold the child."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=forget_locks)


def forget(organisation_id: int) -> None:
    """Have the organisation's next call start a new zygote."""
    zygotes = _zygotes()
    with zygotes.lock:
        found = zygotes.by_organisation.pop(organisation_id, None)
    if found is not None:
        found.retire()


def status(organisation_id: int) -> dict[str, Any]:
    """Return facts of the zygote's process, where there is one: for tests and measurements."""
    found = _zygotes().by_organisation.get(organisation_id)
    return {} if found is None else {"pid": found.process.pid, "calls": len(found.calls), "retired": found.is_retired}
