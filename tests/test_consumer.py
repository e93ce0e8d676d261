"""A worker outlives its broker, however that ends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from celery.bootsteps import CLOSE, RUN  # type: ignore[attr-defined]
from kombu.asynchronous.timer import Timer

from toolhub.celery import app
from toolhub.consumer import Consumer

CONTROLLER = SimpleNamespace(use_eventloop=False, semaphore=None)


class Blueprint:
    """The steps of a consumer, of which the first start fails and the second one is asked to end."""

    def __init__(self, error: Exception) -> None:
        self.error, self.state, self.starts, self.restarts = error, RUN, 0, 0

    def start(self, parent: Any) -> None:
        self.starts += 1
        if self.starts == 1:
            raise self.error
        self.state = CLOSE

    def restart(self, parent: Any) -> None:
        self.restarts += 1


@pytest.mark.parametrize(
    "error",
    [
        ConnectionResetError("gone"),
        AttributeError("'NoneType' object has no attribute 'disconnect'"),
        IndexError("pop from an empty deque"),
        RuntimeError("dictionary changed size during iteration"),
        ValueError("I/O operation on closed file"),
    ],
)
def test_whatever_a_dead_broker_leaves_behind_the_worker_connects_again(error: Exception) -> None:
    consumer: Any = Consumer(
        lambda request: None, app=app, timer=Timer(), hostname="worker", worker_options={}, controller=CONTROLLER
    )
    consumer.blueprint = steps = Blueprint(error)

    consumer.start()

    assert (steps.starts, steps.restarts) == (2, 1)


def test_the_worker_uses_it() -> None:
    assert app.conf.worker_consumer == "toolhub.consumer:Consumer"
