"""A lock that is given to those who wait for it in the order in which they came."""

from __future__ import annotations

import threading
from collections import deque


class FairLock:
    """Held by nobody in particular: another thread may release it, as the end of a connection does."""

    def __init__(self) -> None:
        # Reentrant, because a release may run wherever the garbage collector does.
        self._mutex = threading.RLock()
        self._waiting: deque[threading.Lock] = deque()
        self._is_held = False

    def acquire(self, seconds: float) -> bool:
        """Take the lock behind all who wait for it already. False if that took longer than `seconds`."""
        turn = threading.Lock()
        turn.acquire()
        with self._mutex:
            self._waiting.append(turn)
            if not self._is_held:
                self._is_held = True
                self._waiting.popleft().release()
        try:
            if turn.acquire(timeout=seconds):
                return True
        except BaseException:
            if not self._leave(turn):
                self.release()
            raise
        return not self._leave(turn)

    def _leave(self, turn: threading.Lock) -> bool:
        """Wait no longer. False where the lock was handed over in this moment."""
        with self._mutex:
            if turn in self._waiting:
                self._waiting.remove(turn)
                return True
        return False

    def release(self) -> None:
        """Hand the lock to whoever waits longest."""
        with self._mutex:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._is_held = False


class Ticket:
    """The right to write, until it is given back: at the latest when nothing refers to the ticket any more."""

    def __init__(self, lock: FairLock) -> None:
        self._lock: FairLock | None = lock

    def give_back(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    __del__ = give_back
