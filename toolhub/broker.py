"""A worker's side of the queue: what is no task is dropped with a line in the log, and the worker goes on.

Kombu reads each message outside of any guard: one that is no JSON would end the worker. A task is a doorbell that may
be lost, so nothing is owed to what cannot be read.
"""

from __future__ import annotations

import logging
from typing import Any

from kombu.transport import redis

logger = logging.getLogger(__name__)

#: Errors that reading a message can raise. A broker that is away raises others, and Celery connects again.
UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, RecursionError)


class Channel(redis.Channel):
    def _brpop_read(self, **options: Any) -> Any:
        try:
            return super()._brpop_read(**options)  # type: ignore[misc]
        except UNREADABLE as error:
            logger.warning("A message in the queue is no task, and was dropped: %s.", type(error).__name__)
            return True


def use_our_channel() -> None:
    """Use this channel for every connection of this process, whatever the scheme of its address."""
    redis.Transport.Channel = Channel
