"""Hooks: what is done at one of the four phases of a turn, and how it went so far."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import Q

from capabilities.contract.hooks import ACTIONS, KEEP_BACK, MAX_NAME, PHASE_TITLES, Phase
from toolhub.tenants.models import Access
from toolhub.tenants.rows.guarded import PublicModel


class Hook(PublicModel):
    """One action at one phase, under conditions. What its columns hold is said by `capabilities/contract/hooks`."""

    name = models.CharField(max_length=MAX_NAME)
    description = models.TextField(blank=True)
    phase = models.CharField(max_length=24)
    action = models.CharField(max_length=40)
    settings = models.JSONField(default=dict, blank=True)
    #: Agents, providers and members in it are named by their `public_id`.
    when = models.JSONField(default=dict, blank=True)
    #: Lower ones run first.
    priority = models.PositiveIntegerField(default=100)
    #: Seconds that a Python hook may take.
    timeout = models.FloatField(default=5.0)
    on_error = models.CharField(max_length=12)
    #: Failures in a row after which it is switched off, where `on_error` says so.
    disable_after = models.PositiveIntegerField(default=5)
    is_enabled = models.BooleanField(default=True)
    #: The access of whoever wrote it last: what changes a turn acts for members up to this, unless an admin saves it.
    acts_for = models.CharField(max_length=16, choices=Access, default=Access.ADMIN)

    #: How often it did something, and how often it failed, since it was made.
    fired = models.PositiveBigIntegerField(default=0)
    last_fired_at = models.DateTimeField(null=True, blank=True)
    failed = models.PositiveBigIntegerField(default=0)
    failed_in_a_row = models.PositiveIntegerField(default=0)
    last_failed_at = models.DateTimeField(null=True, blank=True)
    last_error = models.TextField(blank=True, default="")
    #: When its failures switched it off; None where they did not, or somebody has saved it since.
    switched_off_at = models.DateTimeField(null=True, blank=True)

    class Meta(PublicModel.Meta):
        constraints = (
            models.UniqueConstraint(fields=["organisation", "name"], name="hook_name_once"),
            models.CheckConstraint(condition=Q(phase__in=[str(each) for each in Phase]), name="hook_phase_known"),
        )

    def __str__(self) -> str:
        return self.name

    @property
    def phase_title(self) -> str:
        return PHASE_TITLES[Phase(self.phase)]

    @property
    def action_title(self) -> str:
        return ACTIONS[self.action].title if self.action in ACTIONS else self.action

    @property
    def only_keeps_back(self) -> bool:
        """True where the hook changes nothing, but blocks calls or asks before them: then it acts for everybody."""
        return self.action in KEEP_BACK

    @property
    def reach_text(self) -> str:
        """Sentence that names the members it acts for."""
        if self.only_keeps_back or self.acts_for == Access.ADMIN:
            return "Acts in the turns of all members."
        text = f"Acts in the turns of members up to the access {Access(self.acts_for).label}."
        return f"{text} For higher ones an admin must save it."

    @property
    def entry(self) -> dict[str, Any]:
        """Entry of the hook, in the form that `normalised` makes."""
        names = ("name", "phase", "action", "settings", "when", "priority", "timeout", "on_error", "disable_after")
        return {name: getattr(self, name) for name in names}
