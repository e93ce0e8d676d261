"""Counts of the times that the bytes of a `tools` array were at hand, and that they had to be written anew.

They are kept by a hash of their content: the versions of the tools in their order, what toolkits say of these, and what
counts their tokens. Equal content has an equal key in every worker, so that there is nothing to invalidate: a tool that
is edited has another version, and with it another key. Each process keeps the last ones, all share the stored rows.
Counted is each time that tools are selected for a turn, by organisation and day; its further calls have the same bytes.
A count that is lost with the cache is not made up for.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from dataclasses import dataclass
from datetime import date, timedelta
from enum import StrEnum

from django.core.cache import cache
from django.utils import timezone

logger = logging.getLogger(__name__)

#: Sentence that pages show beside the numbers.
SAVES = "This saves time, not tokens: the definitions go to the provider with each model call all the same."
#: Days for which the counts are kept.
DAYS = 31


class Found(StrEnum):
    """Place where the bytes were."""

    #: In the worker's own memory: no query.
    HERE = "here"
    #: In the database, where another worker or an earlier call had stored them: one query.
    STORED = "stored"
    #: Nowhere: they were written and stored.
    NOWHERE = "nowhere"


@dataclass(frozen=True)
class SchemaCacheNumbers:
    """Selections of tools over some days, by where the bytes of their definitions were."""

    here: int = 0
    stored: int = 0
    nowhere: int = 0

    @property
    def selections(self) -> int:
        return self.here + self.stored + self.nowhere

    @property
    def hits(self) -> int:
        return self.here + self.stored

    @property
    def hit_percent(self) -> int:
        """Percent of selections that found their bytes; 0 where there was none."""
        return self.hits * 100 // self.selections if self.selections else 0

    @property
    def saves(self) -> str:
        return SAVES


#: Counts of this process that it has not passed on yet.
_counted: Counter[tuple[int, date, Found]] = Counter()
_lock = threading.Lock()


def note(organisation_id: int, found: Found) -> None:
    """Count one selection. No query; `pass_on` shows it to others."""
    with _lock:
        _counted[organisation_id, timezone.now().date(), found] += 1


def pass_on() -> None:
    """Add what this process counted to what all have counted. Each worker does it now and then."""
    with _lock:
        counted = dict(_counted)
        _counted.clear()
    for (organisation_id, day, found), number in counted.items():
        key = _key(organisation_id, day, found)
        try:
            cache.add(key, 0, timeout=(DAYS + 1) * 24 * 3600)
            cache.incr(key, number)
        except Exception:  # a cache that is away costs a count, and no turn
            logger.warning("Hits of the schema cache could not be counted", exc_info=True)
            return


def schema_cache_numbers(organisation_id: int, days: int = 1) -> SchemaCacheNumbers:
    """Return the numbers of the last so many days (UTC), today included; zeros where the cache is away. No query."""
    today = timezone.now().date()
    span = [today - timedelta(days=back) for back in range(min(max(days, 1), DAYS))]
    keys = {_key(organisation_id, day, found): found for day in span for found in Found}
    try:
        kept = cache.get_many(keys)
    except Exception:
        logger.warning("Hits of the schema cache could not be read", exc_info=True)
        return SchemaCacheNumbers()
    sums = Counter[Found]()
    for key, number in kept.items():
        sums[keys[key]] += number if isinstance(number, int) else 0
    return SchemaCacheNumbers(sums[Found.HERE], sums[Found.STORED], sums[Found.NOWHERE])


def _key(organisation_id: int, day: date, found: Found) -> str:
    return f"schemas:{organisation_id}:{day.isoformat()}:{found}"
