"""Models of a member's journals, and of an agent's own notes."""

from __future__ import annotations

from django.db import models

from capabilities.models.numbered import MemberRow, NamedRow, NumberedRow
from toolhub.tenants.rows.guarded import PublicModel


class AgentNote(MemberRow, PublicModel):
    """One agent's page of notes about its work for one member. No other agent reads it."""

    #: Empty for what a member writes when running the tools by hand.
    agent = models.ForeignKey("capabilities.Agent", on_delete=models.CASCADE, null=True, related_name="+")
    #: The slug of an agent that was gone when notes were bound to agents: nobody but the member reads these.
    former_agent = models.CharField(max_length=100, blank=True)
    text = models.TextField(blank=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta(MemberRow.Meta):
        db_table = "capabilities_agentnote"
        constraints = (
            models.UniqueConstraint(fields=["membership", "agent"], name="one_page_of_notes_per_agent"),
            models.UniqueConstraint(
                fields=["membership", "former_agent"],
                condition=models.Q(agent__isnull=True),
                name="one_page_of_notes_without_agent",
            ),
        )

    def __str__(self) -> str:
        return f"Notes of {self.agent or self.former_agent or 'no agent'}"


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
