"""A member's calendar, and the key to its feed."""

from __future__ import annotations

import uuid
from zoneinfo import ZoneInfo

from django.db import models

from capabilities.models.numbered import MemberRow, NumberedRow


class CalendarEvent(NumberedRow):
    """Something at a time. An event that repeats keeps its local time, whatever daylight saving does."""

    class Repeat(models.TextChoices):
        NONE = "none", "Once"
        DAILY = "daily", "Every day"
        WEEKLY = "weekly", "Every week"
        MONTHLY = "monthly", "Every month"
        YEARLY = "yearly", "Every year"

    #: Fixed for as long as the event exists: calendars that read the feed know it by that.
    uid = models.UUIDField(default=uuid.uuid4, editable=False, unique=True)
    title = models.CharField(max_length=300)
    place = models.CharField(max_length=300, blank=True)
    notes = models.TextField(blank=True)
    #: An event of whole days starts and ends at midnight of its time zone.
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    is_all_day = models.BooleanField(default=False)
    time_zone = models.CharField(max_length=64)
    repeat = models.CharField(max_length=8, choices=Repeat, default=Repeat.NONE)
    #: The last day on which it may start.
    repeat_until = models.DateField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta(NumberedRow.Meta):
        db_table = "capabilities_calendarevent"
        indexes = (models.Index(fields=["membership", "starts_at"], name="calendar_by_start"),)

    def __str__(self) -> str:
        return self.title

    @property
    def days(self) -> int:
        """Number of days that an event of whole days takes."""
        zone = ZoneInfo(self.time_zone)
        return max(1, (self.ends_at.astimezone(zone).date() - self.starts_at.astimezone(zone).date()).days)


class CalendarFeed(MemberRow):
    """The secret address under which a member's calendar can be read. Only its SHA-256 is kept."""

    digest = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField()

    class Meta(MemberRow.Meta):
        db_table = "capabilities_calendarfeed"
        constraints = (models.UniqueConstraint(fields=["membership"], name="one_feed_per_member"),)

    def __str__(self) -> str:
        return f"Feed of {self.membership}"
