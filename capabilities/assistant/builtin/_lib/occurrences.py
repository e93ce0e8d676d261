"""Occurrences of the events of a calendar in a stretch of time. Knows the rows of one member, and no tool."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from heapq import nsmallest
from zoneinfo import ZoneInfo

from django.db.models import Q, QuerySet

from capabilities.assistant.models import CalendarEvent
from capabilities.assistant.records.recurrence import starts
from capabilities.contract.context import ToolContext
from capabilities.running.records.own import own_rows


@dataclass(frozen=True)
class Occurrence:
    """One time at which an event happens, in the event's own time zone."""

    event: CalendarEvent
    start: datetime
    end: datetime

    def overlaps(self, other: Occurrence) -> bool:
        """Whole days are in nobody's way, and no event is in its own."""
        if self.event.is_all_day or other.event.is_all_day or self.event.pk == other.event.pk:
            return False
        return self.start < other.end and other.start < self.end


def events_between(context: ToolContext, first: datetime, last: datetime) -> QuerySet[CalendarEvent]:
    """Events that may happen then; whether one that repeats really does, its occurrences tell."""
    once = Q(repeat=CalendarEvent.Repeat.NONE)
    ended = Q(repeat_until__lt=(first - timedelta(days=368)).date())
    mine = own_rows(CalendarEvent, context).filter(starts_at__lt=last)
    return mine.filter((once & Q(ends_at__gt=first)) | (~once & ~ended) | (~once & Q(repeat_until=None)))


def occurrences(events: Iterable[CalendarEvent], first: datetime, last: datetime, limit: int) -> list[Occurrence]:
    """The earliest occurrences that touch the time from `first` to `last`, at most so many, in order."""
    found = (each for event in events for each in _occurrences_of(event, first, last))
    return nsmallest(limit, found, key=lambda each: (each.start, each.event.number))


def _occurrences_of(event: CalendarEvent, first: datetime, last: datetime) -> Iterator[Occurrence]:
    zone = ZoneInfo(event.time_zone)
    length = event.ends_at - event.starts_at
    begin = event.starts_at.astimezone(zone).replace(tzinfo=None)
    # A day more on either side: a local time is up to that far from what it is elsewhere.
    after = (first - length).astimezone(zone).replace(tzinfo=None) - timedelta(days=1)
    before = last.astimezone(zone).replace(tzinfo=None) + timedelta(days=1)
    for local in starts(begin, event.repeat, after, before, event.repeat_until):
        start = local.replace(tzinfo=zone)
        end = _end(event, start)
        # The same moment counts as touched by an event without length.
        if start < last and (end > first or start == end == first):
            yield Occurrence(event, start, end)


def _end(event: CalendarEvent, start: datetime) -> datetime:
    """Return the end of an occurrence, as much later as the first one's end: in days where it is of whole days, else in
    seconds."""
    if event.is_all_day:
        return datetime.combine(start.date() + timedelta(days=event.days), time(), start.tzinfo)
    return (start.astimezone(UTC) + (event.ends_at - event.starts_at)).astimezone(start.tzinfo)
