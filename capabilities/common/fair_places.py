"""Places for work that holds a thread: so many in all, and so many of one organisation, so that no one has them all."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class FairPlaces:
    """Places of which one organisation holds a limited number. `limits` returns the number in all, and for one
    organisation. Nobody waits for a place here: see `confined.Places` for places that are waited for."""

    def __init__(self, limits: Callable[[], tuple[int, int]]) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._held: Counter[int] = Counter()

    @contextmanager
    def place_for(self, organisation_id: int) -> Iterator[bool]:
        """Take a place and hold it within the `with` block. Yields whether there was one."""
        with self._lock:
            in_all, of_one = self._limits()
            is_there = self._held[organisation_id] < of_one and self._held.total() < in_all
            if is_there:
                self._held[organisation_id] += 1
        try:
            yield is_there
        finally:
            if is_there:
                with self._lock:
                    self._held[organisation_id] -= 1
                    self._held += Counter()  # drops those at zero
