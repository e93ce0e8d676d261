"""Rows of work by the clock: reminders, schedules that submit turns, and routines that a member starts by name."""

from __future__ import annotations

from django.db import models

from capabilities.models import Agent
from capabilities.models.numbered import NumberedRow
from sessions.models.chats import ChatSession
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.guarded import TenantModel
from toolhub.tenants.times import weekday_and_time, zone_of


class Reminder(NumberedRow):
    """A text that a member wants to read at a moment, in the session where it was asked for."""

    session = models.ForeignKey(ChatSession, on_delete=models.SET_NULL, null=True, related_name="+")
    text = models.CharField(max_length=500)
    due_at = models.DateTimeField()
    #: Set once, by whichever worker delivered it.
    fired_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta(NumberedRow.Meta):
        indexes = (
            models.Index(fields=["due_at"], condition=models.Q(fired_at__isnull=True), name="reminders_to_tell"),
        )

    def __str__(self) -> str:
        return self.text[:80]


class Schedule(NumberedRow):
    """A message that is submitted to an agent again and again, by a cron line."""

    name = models.CharField(max_length=100)
    #: Five fields of cron: minute, hour, day of month, month, day of week; read in `timezone`.
    cron = models.CharField(max_length=100)
    timezone = models.CharField(max_length=64, default="UTC")
    message = models.TextField()
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="+")
    #: Where its turns go; made at the first one.
    session = models.ForeignKey(ChatSession, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    is_enabled = models.BooleanField(default=True)
    #: The moment of the next turn. A worker that moves it on has taken that turn.
    next_at = models.DateTimeField()
    last_at = models.DateTimeField(null=True, blank=True)
    #: Why the last turn was not accepted, if it was not.
    last_error = models.CharField(max_length=300, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta(NumberedRow.Meta):
        indexes = (
            models.Index(fields=["next_at"], condition=models.Q(is_enabled=True), name="schedules_to_run"),
            models.Index(fields=["organisation", "name", "public_id"], name="schedules_by_name"),
        )

    def __str__(self) -> str:
        return self.name

    @property
    def next_text(self) -> str:
        """Next run, on the clock of the schedule's time zone: "Mon 23 Nov, 09:00"."""
        return weekday_and_time(self.next_at, zone_of(self.timezone))


class Routine(TenantModel):
    """A message that a member keeps under a name, to be submitted whenever it is called for."""

    membership = models.ForeignKey(Membership, on_delete=models.CASCADE, related_name="routines")
    name = models.CharField(max_length=64)
    message = models.TextField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta(TenantModel.Meta):
        constraints = (models.UniqueConstraint(fields=["membership", "name"], name="routine_name_once"),)

    def __str__(self) -> str:
        return self.name
