"""Works beside turns, such as runs by hand, imports and tests: how many of them one process does at once.

Each holds a thread of those that run turns, for as long as a far side takes. What finds no place stays queued: a sweep
calls for it again.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings


class SmallWorks:
    """A fifth of the threads for works beside turns, and half of these for one organisation."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: Counter[int] = Counter()

    @contextmanager
    def place_for(self, organisation_id: int) -> Iterator[bool]:
        """Whether there is a place, which is held meanwhile."""
        with self._lock:
            is_there = self._has_room(organisation_id)
            if is_there:
                self._running[organisation_id] += 1
        try:
            yield is_there
        finally:
            if is_there:
                with self._lock:
                    self._running[organisation_id] -= 1
                    self._running += Counter()  # drops those at zero

    def _has_room(self, organisation_id: int) -> bool:
        in_all = max(2, settings.WORKER_CONCURRENCY // 5)
        return self._running[organisation_id] < in_all // 2 and self._running.total() < in_all


small_works = SmallWorks()
