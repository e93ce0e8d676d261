"""Order of a sweep's work: each step and each item by itself, so that one failure stops nobody else's.

An item that fails is logged with the number of its failures, and is left alone for a while that doubles each time. The
failures that a worker knows are its own and in memory: a restart tries everything once more.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from django.db import DatabaseError, InterfaceError, connection

from toolhub.tenants.rows.scope import organisation_scope

logger = logging.getLogger(__name__)

Key = TypeVar("Key", bound=Hashable)

#: Seconds that an item is left alone after its first failure, and after many.
FIRST_PAUSE = 2.0
LONGEST_PAUSE = 600.0
#: Failed items of one step that are remembered; the ones that waited longest are forgotten first.
REMEMBERED = 1_000


@dataclass
class Failures:
    """Number of times that an item failed in a row, and until when (monotonic seconds) it is left alone."""

    count: int
    until: float


@dataclass
class Backoff:
    """The failed items of one step of a sweep."""

    step: str
    _failures: dict[Hashable, Failures] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def paused(self) -> list[Any]:
        """Keys of the items that are left alone now. Leave them out of the query, or they take others' places in it."""
        now = time.monotonic()
        with self._lock:
            return [key for key, failures in self._failures.items() if failures.until > now]

    def note(self, key: Hashable) -> Failures:
        """Count one more failure of the item."""
        with self._lock:
            known = self._failures.pop(key, None)
            count = known.count + 1 if known else 1
            pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(count - 1, 30))
            self._failures[key] = failures = Failures(count, time.monotonic() + pause)
            if len(self._failures) > REMEMBERED:
                del self._failures[next(iter(self._failures))]
        return failures

    def forget(self, key: Hashable) -> None:
        with self._lock:
            self._failures.pop(key, None)

    def clear(self) -> None:
        with self._lock:
            self._failures.clear()


def each_item(
    backoff: Backoff,
    items: Iterable[tuple[Key, int]],
    work: Callable[[Key], object],
    on_failure: Callable[[Key, Exception], None] | None = None,
) -> int:
    """Do `work` for each (key, organisation), in the scope of its organisation; returns for how many it went well.

    One that raises is logged, counted and paused; the next one follows.

    `on_failure` can write the failure to the item's row; what it raises is logged only. Raises a DatabaseError or
    InterfaceError only where the connection itself is gone: that is no item's fault.
    """
    done = 0
    for key, organisation_id in items:
        with organisation_scope(organisation_id):
            try:
                work(key)
            except Exception as error:
                raise_if_disconnected(error)
                failures = backoff.note(key)
                logger.exception(
                    "Sweep: %s %s of organisation %s failed (%d in a row); tried again in %.0f s",
                    backoff.step,
                    key,
                    organisation_id,
                    failures.count,
                    failures.until - time.monotonic(),
                )
                if on_failure is not None:
                    _report(on_failure, key, error)
            else:
                backoff.forget(key)
                done += 1
    return done


def _report(on_failure: Callable[[Key, Exception], None], key: Key, error: Exception) -> None:
    try:
        on_failure(key, error)
    except Exception as another:
        raise_if_disconnected(another)
        logger.exception("Sweep: the failure of %s could not be written to its row", key)


def each_step(steps: Iterable[Callable[[], object]]) -> None:
    """Take each step of a sweep; one that raises is logged, and the next one follows. Raises as `each_item` does."""
    for step in steps:
        try:
            step()
        except Exception as error:
            raise_if_disconnected(error)
            logger.exception("Sweep: the step %s failed; the next one follows", getattr(step, "__name__", step))


def raise_if_disconnected(error: Exception) -> None:
    """Raise the error again where it says that the database is out of reach."""
    if isinstance(error, DatabaseError | InterfaceError) and not connection.is_usable():
        raise error
