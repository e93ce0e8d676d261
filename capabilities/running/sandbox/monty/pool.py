"""The processes that interpret code: one pool in each process of this service, made when it is first needed.

A pool does not live through a fork: it is kept by process number, and a child makes its own, unless its parent had one
already. What the interpreter's library then holds of the parent hangs the child: there, code is refused.
"""

from __future__ import annotations

import atexit
import os
import shlex
import threading
from contextlib import suppress
from pathlib import Path

from django.conf import settings
from pydantic_monty import Monty
from pydantic_monty._binary import find_monty_binary

from capabilities.running.sandbox.values import NICE

#: Seconds that one piece of code may keep its process busy before the process is ended, whatever its limits say.
REQUEST_SECONDS = 130.0
#: Sessions of a process before another takes its place.
SESSIONS_PER_PROCESS = 2_000

_lock = threading.Lock()
_pools: dict[int, Monty] = {}
_is_forked_too_late = False


def pool() -> Monty:
    """Return the pool of this process. Raises OSError where it cannot start: then nothing runs."""
    if _is_forked_too_late:
        raise OSError("this process was forked from one that had run Python tools")
    pid = os.getpid()
    found = _pools.get(pid)
    if found is not None:
        return found
    with _lock:
        if pid not in _pools:
            made = Monty(
                binary_path=_behind_all_else(),
                min_processes=1,
                max_processes=settings.TOOLHUB_PYTHON_PROCESSES,
                checkout_timeout=5.0,
                request_timeout=REQUEST_SECONDS,
                max_checkouts_per_worker=SESSIONS_PER_PROCESS,
                feed_duration_limit_grace=0.5,
            )
            made.__enter__()
            _pools[pid] = made
        return _pools[pid]


def _behind_all_else() -> Path:
    """A program of the data folder that runs the interpreter at a low priority: the pool starts its processes itself.

    Raises OSError where the interpreter is not installed, or the folder cannot be written.
    """
    program = settings.DATA_DIR / "sandbox" / "monty"
    text = f'#!/bin/sh\nexec nice -n {NICE} {shlex.quote(find_monty_binary())} "$@"\n'
    if not program.exists() or program.read_text() != text:
        program.parent.mkdir(parents=True, exist_ok=True)
        made = program.with_name(f"monty.{os.getpid()}")
        made.write_text(text)
        made.chmod(0o755)
        made.replace(program)
    return Path(program)


def forget_locks() -> None:
    """Make new locks in a child after a fork: what the parent held at that moment must not hold the child."""
    global _lock, _is_forked_too_late
    _lock = threading.Lock()
    _is_forked_too_late = bool(_pools)


@atexit.register
def close() -> None:
    """End this process's own pool, never that of the process it was forked from."""
    made = _pools.pop(os.getpid(), None)
    if made is not None:
        with suppress(Exception):
            made.__exit__(None, None, None)


os.register_at_fork(after_in_child=forget_locks)
