"""Memories: facts that a member asked agents to keep."""

from __future__ import annotations

from django.db import models

from capabilities.models.numbered import NumberedRow
from toolhub.tenants.models import Membership


class Memory(NumberedRow):
    """A fact that a member asked to be kept."""

    membership = models.ForeignKey(Membership, on_delete=models.CASCADE, related_name="memories")
    text = models.TextField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta(NumberedRow.Meta):
        db_table = "capabilities_memory"

    def __str__(self) -> str:
        return self.text[:80]
