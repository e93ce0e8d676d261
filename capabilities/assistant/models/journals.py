"""Journals of a member, with their entries."""

from __future__ import annotations

from django.db import models

from capabilities.models.numbered import NamedRow, NumberedRow


class Journal(NamedRow):
    """A named sequence of entries, made by its first one."""

    class Meta(NamedRow.Meta):
        db_table = "capabilities_journal"


class JournalEntry(NumberedRow):
    """An entry of a journal. A disabled one is hidden, and kept."""

    journal = models.ForeignKey(Journal, on_delete=models.CASCADE, related_name="entries")
    title = models.CharField(max_length=200, blank=True)
    text = models.TextField(blank=True)
    #: The day that it is about.
    date = models.DateField()
    disabled_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta(NumberedRow.Meta):
        db_table = "capabilities_journalentry"
        indexes = (models.Index(fields=["journal", "-date", "-number"], name="journal_newest_first"),)

    def __str__(self) -> str:
        return self.title or self.text[:80]

    @property
    def is_hidden(self) -> bool:
        return self.disabled_at is not None
