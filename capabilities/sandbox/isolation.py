"""Whether this machine can keep members' code apart from everything else. Where it cannot, the code does not run."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass

from django.conf import settings

from capabilities.sandbox.monty import running as monty
from capabilities.sandbox.values import HostFunctions, Limits


@dataclass(frozen=True)
class Isolation:
    """Which runtimes may be used in this process, and why one may not: a sentence for the operator, or empty."""

    monty: bool
    full: bool
    monty_reason: str = ""
    full_reason: str = ""

    def has(self, runtime: str) -> bool:
        return {"monty": self.monty, "full": self.full}.get(runtime, False)

    def reason(self, runtime: str) -> str:
        return {"monty": self.monty_reason, "full": self.full_reason}.get(runtime, f"There is no runtime {runtime!r}.")


_found: dict[int, Isolation] = {}
_lock = threading.Lock()


def isolation() -> Isolation:
    """Tried once in each process, at the first question: takes a part of a second then."""
    pid = os.getpid()
    if pid not in _found:
        with _lock:
            if pid not in _found:
                _found[pid] = _tried()
    return _found[pid]


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
    return "Full Python is not built yet."
