"""Notes: a member's scratchpad, and what each agent notes for itself."""

from __future__ import annotations

from django.db import models

from capabilities.models.numbered import MemberRow
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.guarded import PublicModel


class Scratchpad(PublicModel):
    """One member's page of working notes."""

    membership = models.OneToOneField(Membership, on_delete=models.CASCADE, related_name="scratchpad")
    text = models.TextField(blank=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta(PublicModel.Meta):
        db_table = "capabilities_scratchpad"

    def __str__(self) -> str:
        return f"Scratchpad of {self.membership}"


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
