"""Approval rules: they name the calls that somebody must approve first."""

from __future__ import annotations

from django.db import models

from capabilities.contract import approvals
from capabilities.models.agents import Agent
from capabilities.models.permissions import Role
from capabilities.models.toolkits import Toolkit
from toolhub.tenants.rows.guarded import PublicModel


class AskWhen(models.TextChoices):
    """Frequency with which somebody is asked."""

    NEVER = approvals.NEVER, "Never"
    #: An allowed call is not asked for again in the session, nor while a consent for a time lasts.
    FIRST_IN_SESSION = approvals.FIRST_IN_SESSION, "First time in a session"
    #: Each call. No consent counts.
    ALWAYS = approvals.ALWAYS, "Always"


class ApprovalRule(PublicModel):
    """Calls that it means, and when somebody is asked of them. Of several rules that mean a call, the first counts.

    What is empty means every one. A toolkit, role or agent that a rule names stays while the rule does.
    """

    name = models.CharField(max_length=63)
    #: The lower one is asked first; of two with the same, by name.
    priority = models.PositiveIntegerField(default=100)
    #: As `contract.patterns` reads it.
    tool_pattern = models.CharField(max_length=100, default="*")
    #: Calls of the tools in it, however they came to be at hand.
    toolkit = models.ForeignKey(Toolkit, on_delete=models.PROTECT, null=True, blank=True, related_name="approval_rules")
    #: Calls for members who have it.
    role = models.ForeignKey(Role, on_delete=models.PROTECT, null=True, blank=True, related_name="approval_rules")
    agent = models.ForeignKey(Agent, on_delete=models.PROTECT, null=True, blank=True, related_name="approval_rules")
    #: The name of an argument, and a pattern with `*` and `?` that its value matches.
    argument = models.CharField(max_length=64, blank=True)
    argument_pattern = models.CharField(max_length=200, blank=True)
    when = models.CharField(max_length=20, choices=AskWhen, default=AskWhen.ALWAYS)
    #: Hours until nobody can answer any more.
    expires_after = models.PositiveIntegerField(default=approvals.USUAL_HOURS)
    #: Whether the requester may not answer themselves.
    needs_other_person = models.BooleanField(default=False)
    #: Text for whoever is asked.
    message = models.TextField(blank=True)

    class Meta(PublicModel.Meta):
        constraints = (models.UniqueConstraint(fields=["organisation", "name"], name="approval_rule_name_once"),)

    def __str__(self) -> str:
        return self.name
