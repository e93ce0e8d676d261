"""Works beside turns, such as runs by hand, imports and tests: how many of them one process does at once.

Each holds a thread of those that run turns, for as long as a far side takes. What finds no place stays queued: a sweep
calls for it again.
"""

from __future__ import annotations

from django.conf import settings

from capabilities.common.fair_places import FairPlaces


def limits() -> tuple[int, int]:
    """A fifth of the threads for works beside turns, and half of these for one organisation."""
    in_all = max(2, settings.WORKER_CONCURRENCY // 5)
    return in_all, in_all // 2


small_works = FairPlaces(limits)
