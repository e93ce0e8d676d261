"""The worker's side of the broker: however a connection to it ended, the worker connects again.

Celery begins anew after what its transport calls a connection error. A server that is killed in the middle of an answer
also leaves others (an AttributeError of a socket that is gone, an IndexError of half an answer), and one of these ended
the worker with all of its turns. The queue is in the database, so a worker without a broker is still of use.
"""

from __future__ import annotations

from typing import Any

from celery.worker import consumer


class Consumer(consumer.Consumer):
    """Connects again, however the last connection ended."""

    connection_errors: tuple[type[Exception], ...]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.connection_errors = (*self.connection_errors, Exception)
