"""The Celery tasks: fetch, claim, delegate. Their argument is a row's id and nothing else.

That of a turn is what the bell was rung for: the message says that there is work, and the queue decides which.
"""

from __future__ import annotations

from uuid import UUID

from celery import shared_task

from sessions.turns.bell import CONNECTION_TASK, IMPORT_TASK, TASK, TRIAL_TASK
from sessions.worker.process import take_turns, work_on_connection_test, work_on_import, work_on_trial


@shared_task(name=TASK, ignore_result=True)
def run_turn(turn_id: str) -> None:
    take_turns()


@shared_task(name=TRIAL_TASK, ignore_result=True)
def run_trial(trial_id: str) -> None:
    work_on_trial(UUID(trial_id))


@shared_task(name=CONNECTION_TASK, ignore_result=True)
def test_connection(test_id: str) -> None:
    work_on_connection_test(UUID(test_id))


@shared_task(name=IMPORT_TASK, ignore_result=True)
def read_import(import_id: str) -> None:
    work_on_import(UUID(import_id))
