"""Processes that run turns, as the others see them: of no organisation."""

from __future__ import annotations

from django.db import models


class WorkerSign(models.Model):
    """The last sign of life of one worker process. Only one that gets on with its work renews it."""

    #: The process, among all that ever were.
    owner = models.CharField(max_length=100, primary_key=True)
    seen_at = models.DateTimeField()

    def __str__(self) -> str:
        return self.owner
