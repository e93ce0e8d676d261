"""Tasks of a member."""

from __future__ import annotations

from django.db import models

from capabilities.models.numbered import NumberedRow
from toolhub.tenants.models import Membership


class Task(NumberedRow):
    """Something a member wants done."""

    class Status(models.TextChoices):
        OPEN = "open", "Open"
        DONE = "done", "Done"

    class Priority(models.TextChoices):
        LOW = "low", "Low"
        NORMAL = "normal", "Normal"
        HIGH = "high", "High"

    membership = models.ForeignKey(Membership, on_delete=models.CASCADE, related_name="tasks")
    title = models.CharField(max_length=500)
    notes = models.TextField(blank=True)
    due = models.DateField(null=True, blank=True)
    priority = models.CharField(max_length=8, choices=Priority, default=Priority.NORMAL)
    status = models.CharField(max_length=8, choices=Status, default=Status.OPEN)
    created_at = models.DateTimeField(auto_now_add=True)
    completed_at = models.DateTimeField(null=True, blank=True)

    class Meta(NumberedRow.Meta):
        db_table = "capabilities_task"

    def __str__(self) -> str:
        return self.title
