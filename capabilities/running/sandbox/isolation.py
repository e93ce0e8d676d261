"""Isolation of members' code from everything else on this machine. Where it is not possible, the code does not run."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass

from django.conf import settings

from capabilities.running.sandbox.bubblewrap import why_no_full_python
from capabilities.running.sandbox.monty import why_no_monty


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
    monty_reason, full_reason = why_no_monty(), why_no_full_python()
    return Isolation(not monty_reason, not full_reason, monty_reason, full_reason)
