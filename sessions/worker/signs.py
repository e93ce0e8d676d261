"""A worker's sign of life: a row for `/readyz`, and a file for the health check of its own container.

Neither a process that runs nor one that answers is a sign: only a worker whose sweeps come round, and whose threads
come back from the queue while turns wait, renews them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from django.conf import settings
from django.db.models.functions import Now

from sessions.models import WorkerSign
from sessions.turns.held import Held
from sessions.turns.ledger import from_now

logger = logging.getLogger(__name__)

#: Seconds between two signs.
RENEW_EVERY = 3.0
#: Seconds without progress after which a worker gives no sign any more.
STUCK_SECONDS = 20.0
#: Seconds after which the row of a worker that was killed is removed, and beyond its longest time for which a turn may
#: be in a thread that still counts as one that works.
FORGOTTEN_SECONDS, LATE_SECONDS = 3_600.0, 60.0


@dataclass
class Progress:
    """Last signs of progress of this process, on its monotonic clock."""

    swept_at: float = field(default_factory=time.monotonic)
    #: When a thread came back from the queue, with a turn or without one.
    chose_at: float = field(default_factory=time.monotonic)
    #: Since when turns wait that a free place of this process could take.
    waiting_since: float | None = None

    def note_waiting(self, waits: bool) -> None:
        """A sweep saw whether a turn waits although this process has room for it."""
        if not waits:
            self.waiting_since = None
        elif self.waiting_since is None:
            self.waiting_since = time.monotonic()

    def is_stuck(self, held: Sequence[Held]) -> bool:
        """Return whether the sweeps stand still, no thread comes back from the queue although turns wait, or every
        thread is in a turn that is long past its time."""
        now = time.monotonic()
        if now - self.swept_at > STUCK_SECONDS:
            return True
        if self.waiting_since is not None and now - max(self.waiting_since, self.chose_at) > STUCK_SECONDS:
            return True
        longest = settings.TOOLHUB_TURN_SECONDS + LATE_SECONDS
        return sum(now - each.since > longest for each in held) >= settings.WORKER_CONCURRENCY


def renew(owner: str) -> None:
    """Give a sign. One query; two more for the first."""
    if not WorkerSign.objects.filter(pk=owner).update(seen_at=Now()):
        WorkerSign.objects.filter(seen_at__lt=from_now(-FORGOTTEN_SECONDS)).delete()
        WorkerSign.objects.create(owner=owner, seen_at=Now())
    try:
        Path(settings.WORKER_FILE).write_text(f"{owner}\n")
    except OSError as error:
        logger.warning("The sign of life could not be written to %s: %s", settings.WORKER_FILE, error.strerror)


def withdraw(owner: str) -> None:
    """Remove the sign of this worker, which ends: it counts no more. One query."""
    WorkerSign.objects.filter(pk=owner).delete()
    Path(settings.WORKER_FILE).unlink(missing_ok=True)


def has_living_worker() -> bool:
    """Return whether a worker gave a sign lately. One query."""
    return WorkerSign.objects.filter(seen_at__gt=from_now(-settings.WORKER_ALIVE_SECONDS)).exists()
