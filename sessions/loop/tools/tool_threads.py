"""Threads that run tools, kept for the next tool with their connection to the database.

To start a thread and to open a connection costs more than many a tool.

Python cannot end a thread. One whose tool does not come back in its time is let go: it runs nothing else and ends with
its tool, and the next call gets another one.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import suppress

from django.db import connection

#: Seconds that a thread waits for its next tool before it ends.
IDLE_SECONDS = 60.0


class ToolRun:
    """One run of a tool. `function` must not raise."""

    def __init__(self, name: str, function: Callable[[], None]) -> None:
        self.name = name
        self.function = function
        self.is_let_go = False
        self._ended = threading.Event()

    def end(self) -> None:
        self._ended.set()

    def wait(self, seconds: float) -> None:
        """Wait until the run has ended, for `seconds` at most."""
        self._ended.wait(seconds)

    def is_alive(self) -> bool:
        return not self._ended.is_set()

    def let_go(self) -> None:
        """Mark the run as one that nobody waits for any more: its thread ends with it."""
        self.is_let_go = True


class _Thread:
    """A thread of the pool, and the run that it is given next."""

    def __init__(self, pool: ToolThreads) -> None:
        self.pool = pool
        self.runs = queue.SimpleQueue[ToolRun]()

    def start(self) -> None:
        threading.Thread(target=self._work, name="tool", daemon=True).start()

    def _work(self) -> None:
        try:
            while run := self._next():
                try:
                    run.function()
                    if run.is_let_go or connection.in_atomic_block:
                        return
                    connection.close_if_unusable_or_obsolete()
                    self.pool.take_back(self)  # before the run has ended: the next one finds it
                finally:
                    run.end()
        finally:
            connection.close()

    def _next(self) -> ToolRun | None:
        try:
            return self.runs.get(timeout=IDLE_SECONDS)
        except queue.Empty:
            return None if self.pool.drop(self) else self.runs.get()


class ToolThreads:
    """The threads that wait for a tool; the newest is taken first, so that those too many end."""

    def __init__(self) -> None:
        self._idle: list[_Thread] = []
        self._lock = threading.Lock()

    def start(self, name: str, function: Callable[[], None]) -> ToolRun:
        """Begin to run the function in a thread that waits, or in a new one."""
        with self._lock:
            thread = self._idle.pop() if self._idle else None
        if thread is None:
            thread = _Thread(self)
            thread.start()
        run = ToolRun(name, function)
        thread.runs.put(run)
        return run

    def take_back(self, thread: _Thread) -> None:
        with self._lock:
            self._idle.append(thread)

    def drop(self, thread: _Thread) -> bool:
        """Take the thread off those that wait; return False where it was just given a run."""
        with self._lock, suppress(ValueError):
            self._idle.remove(thread)
            return True
        return False


tool_threads = ToolThreads()
