"""Rows that the built-in tools keep for a member: tasks, a scratchpad, memories."""

from __future__ import annotations

from django.db import models

from capabilities.models.numbered import NumberedRow
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.guarded import PublicModel


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


class Scratchpad(PublicModel):
    """One member's page of working notes."""

    membership = models.OneToOneField(Membership, on_delete=models.CASCADE, related_name="scratchpad")
    text = models.TextField(blank=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta(PublicModel.Meta):
        db_table = "capabilities_scratchpad"

    def __str__(self) -> str:
        return f"Scratchpad of {self.membership}"


class Memory(NumberedRow):
    """A fact that a member asked to be kept."""

    membership = models.ForeignKey(Membership, on_delete=models.CASCADE, related_name="memories")
    text = models.TextField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta(NumberedRow.Meta):
        db_table = "capabilities_memory"

    def __str__(self) -> str:
        return self.text[:80]
