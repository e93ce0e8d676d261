"""The Celery task: fetch, claim, delegate. Its argument is the turn's id and nothing else."""

from __future__ import annotations

from uuid import UUID

from celery import shared_task

from sessions.bell import TASK
from sessions.worker import work_on


@shared_task(name=TASK, ignore_result=True)
def run_turn(turn_id: str) -> None:
    work_on(UUID(turn_id))
