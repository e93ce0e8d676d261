"""Isolation of members' code from everything else on this machine. Where it is not possible, the code does not run."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass

from django.conf import settings

from capabilities.running.sandbox.bubblewrap import full
from capabilities.running.sandbox.monty import running as monty
from capabilities.running.sandbox.values import HostFunctions, Limits


@dataclass(frozen=True)
class Isolation:
    """Runtimes that may be used in this process, and why one may not: a sentence for the operator, or empty."""

    monty: bool
    full: bool
    monty_reason: str = ""
    full_reason: str = ""

    def has(self, runtime: str) -> bool:
        return {"monty": self.monty, "full": self.full}.get(runtime, False)

    def reason(self, runtime: str) -> str:
        return {"monty": self.monty_reason, "full": self.full_reason}.get(runtime, f"There is no runtime {runtime!r}.")


_found: dict[tuple[int, bool], Isolation] = {}
_lock = threading.Lock()


def isolation() -> Isolation:
    """Return the isolation of this process, tried once, at the first question: takes a part of a second then."""
    key = (os.getpid(), settings.TOOLHUB_FULL_PYTHON)
    if key not in _found:
        with _lock:
            if key not in _found:
                _found[key] = _tried()
    return _found[key]


def _forget_locks() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forget_locks)


def _tried() -> Isolation:
    monty_reason = _monty_reason()
    full_reason = _full_reason()
    return Isolation(not monty_reason, not full_reason, monty_reason, full_reason)


def _monty_reason() -> str:
    result = monty.run(
        "def run(): return 1", {}, helpers={}, limits=Limits(), host=HostFunctions(), stopped=threading.Event()
    )
    if result.value == 1:
        return ""
    return f"The interpreter does not work here: {result.error}"


def _full_reason() -> str:
    if not settings.TOOLHUB_FULL_PYTHON:
        return "Full Python is switched off: the operator sets TOOLHUB_FULL_PYTHON to allow it."
    result = full.run(
        PROBE, {}, helpers={}, limits=PROBE_LIMITS, host=HostFunctions(), organisation_id=0, stopped=threading.Event()
    )
    if result.error is not None:
        return f"Full Python cannot be isolated here: {result.error}"
    held = result.value if isinstance(result.value, dict) else {}
    broken = sorted(what for what in MUST_HOLD if held.get(what) is not True)
    if broken:
        return f"Full Python cannot be isolated here: {', '.join(broken)} does not hold."
    return ""


PROBE_LIMITS = Limits(seconds=10.0)
#: Findings that a call must make, else no call is made.
MUST_HOLD = (
    "no other process",
    "no second process",
    "no second thread",
    "no program",
    "no network",
    "no files of the machine",
    "nothing to write but its own folder",
    "no environment",
    "no capability",
    "no new namespace",
)
PROBE = """
import ctypes, os, threading
libc = ctypes.CDLL(None, use_errno=True)

def refused(function):
    try:
        function()
    except (OSError, RuntimeError):
        return True
    return False

def write(path):
    with open(path, "w") as file:
        file.write("x")

def must(result):
    if result != 0:
        raise OSError(ctypes.get_errno(), "refused")

def connect():
    import socket
    socket.create_connection(("127.0.0.1", 9), timeout=1)

def run():
    return {
        "no other process": os.getpid() == 1 and not os.path.exists("/proc/1"),
        "no second process": refused(os.fork) and refused(lambda: os.posix_spawn("/bin/sh", ["sh"], {})),
        "no second thread": refused(lambda: threading.Thread(target=print).start()),
        "no program": refused(lambda: os.execv("/bin/sh", ["sh"])),
        "no network": refused(connect),
        "no files of the machine": not os.path.exists("/etc/passwd") and not os.path.exists("/home"),
        "nothing to write but its own folder": refused(lambda: write("/x")) and os.listdir("/tmp") == [],
        "no environment": set(os.environ) <= {"TZ", "HOME", "TMPDIR", "LC_ALL"},
        "no capability": refused(lambda: must(libc.mount(b"none", b"/tmp", b"tmpfs", 0, None))),
        "no new namespace": refused(lambda: must(libc.unshare(0x10000000))),
    }
"""
