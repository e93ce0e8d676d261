from __future__ import annotations

import re
import uuid
from datetime import UTC, date, datetime, timedelta
from io import StringIO
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from dateutil.rrule import rrulestr
from dateutil.tz import resolve_imaginary, tzical
from hypothesis import example, given
from hypothesis import strategies as st

from capabilities.assistant.models import CalendarEvent
from capabilities.assistant.records.calendar_feed import feed_text
from capabilities.assistant.records.recurrence import starts

NOW = datetime(2026, 11, 18, 9, 30, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")
UID = uuid.UUID("11111111-2222-4333-8444-555555555555")

texts = st.text(st.characters(exclude_categories=["Cs"]))


def make_event(start: datetime, hours: float = 1, **fields: Any) -> CalendarEvent:
    defaults = {"uid": UID, "title": "Stand-up", "updated_at": NOW, "time_zone": str(start.tzinfo)} | fields
    return CalendarEvent(starts_at=start, ends_at=start + timedelta(hours=hours), **defaults)


def lines_of(*events: CalendarEvent) -> list[str]:
    return feed_text("Acme: Alice", events, NOW).replace("\r\n ", "").split("\r\n")


def read_starts(text: str, last: datetime) -> list[datetime]:
    """Every start before `last` that another program reads from the feed, in UTC without a zone, as `last` is. It knows
    no time zone but those that the feed describes."""
    zones = tzical(StringIO(text))
    found: list[datetime] = []
    for block in text.replace("\r\n ", "").split("BEGIN:VEVENT")[1:]:
        first = re.search(r"DTSTART(?:;TZID=([^:]+))?:(\w+)", block)
        assert first
        zone = zones.get(first[1]) if first[1] else UTC
        start = datetime.strptime(first[2].rstrip("Z"), "%Y%m%dT%H%M%S").replace(tzinfo=zone)
        rule = re.search(r"RRULE:\S+", block)
        for each in rrulestr(rule[0], dtstart=start) if rule else (start,):
            moment = resolve_imaginary(each).astimezone(UTC).replace(tzinfo=None)
            if moment >= last:
                break
            found.append(moment)
    return sorted(found)


def value_of(name: str, text: str) -> str:
    """A text value of the feed, read as RFC 5545 has it."""
    found = re.search(rf"^{name}:(.*?)\r\n", text.replace("\r\n ", ""), re.MULTILINE | re.DOTALL)
    assert found
    return re.sub(r"\\(.)", lambda part: "\n" if part[1] in "nN" else part[1], found[1])


def test_the_whole_feed_is_as_rfc_5545_has_it() -> None:
    event = make_event(datetime(2026, 11, 20, 15, tzinfo=BERLIN), place="Room 1; left", notes="a,b\nc")

    assert feed_text("Acme, Inc.", [event], NOW) == (
        "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:-//toolhub//calendar//EN\r\nCALSCALE:GREGORIAN\r\nMETHOD:PUBLISH\r\n"
        "X-WR-CALNAME:Acme\\, Inc.\r\n"
        "BEGIN:VEVENT\r\nSUMMARY:Stand-up\r\nDTSTART:20261120T140000Z\r\nDTEND:20261120T150000Z\r\n"
        "DTSTAMP:20261118T093000Z\r\nUID:11111111-2222-4333-8444-555555555555@toolhub\r\n"
        "DESCRIPTION:a\\,b\\nc\r\nLOCATION:Room 1\\; left\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"
    )


def test_whole_days_are_dates_with_the_end_left_out() -> None:
    event = make_event(datetime(2026, 12, 24, tzinfo=BERLIN), 72, is_all_day=True, repeat="yearly")

    lines = lines_of(event)

    assert [line for line in lines if line.startswith(("DTSTART", "DTEND", "RR", "TZID"))] == [
        "DTSTART;VALUE=DATE:20261224",
        "DTEND;VALUE=DATE:20261227",
        "RRULE:FREQ=YEARLY",
    ]


def test_an_event_without_length_has_no_end() -> None:
    assert not [line for line in lines_of(make_event(NOW, 0)) if line.startswith("DTEND")]


@pytest.mark.parametrize(
    ("until", "rule"), [(None, "FREQ=WEEKLY"), ("2026-12-24", "FREQ=WEEKLY;UNTIL=20261224T093000Z")]
)
def test_in_utc_one_rule_is_enough(until: str | None, rule: str) -> None:
    day = datetime.fromisoformat(until).date() if until else None
    event = make_event(NOW.replace(tzinfo=ZoneInfo("UTC")), repeat="weekly", repeat_until=day)

    assert f"RRULE:{rule}" in lines_of(event)


def test_a_repeated_event_keeps_its_local_time_when_the_clock_changes() -> None:
    event = make_event(datetime(2026, 10, 19, 9, tzinfo=BERLIN), repeat="weekly", repeat_until=date(2026, 11, 2))

    text = feed_text("Acme: Alice", [event], NOW)

    lines = text.replace("\r\n ", "").split("\r\n")
    assert [line for line in lines[lines.index("BEGIN:VEVENT") :] if line.startswith(("DTSTART", "DTEND", "RR"))] == [
        "DTSTART;TZID=Europe/Berlin:20261019T090000",
        "DTEND;TZID=Europe/Berlin:20261019T100000",
        "RRULE:FREQ=WEEKLY;UNTIL=20261102T080000Z",
    ]
    found = [datetime(2026, 10, 19, 7), datetime(2026, 10, 26, 8), datetime(2026, 11, 2, 8)]
    assert read_starts(text, datetime(2027, 1, 1)) == found


@pytest.mark.parametrize("repeat", ["daily", "weekly", "monthly", "yearly"])
@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Asia/Kolkata", "Pacific/Auckland"])
@pytest.mark.parametrize("hour", [0, 2, 12, 23])
def test_the_rule_tells_every_start_and_no_other(repeat: str, zone: str, hour: int) -> None:
    first = datetime(2025, 10, 31, hour, 30)
    event = make_event(first.replace(tzinfo=ZoneInfo(zone)), repeat=repeat)
    last = datetime(2030, 1, 1)

    found = read_starts(feed_text("a", [event], NOW), last)

    local = starts(first, repeat, first, last + timedelta(days=2))
    in_utc = [start.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC).replace(tzinfo=None) for start in local]
    assert found == [start for start in in_utc if start < last]


def test_a_time_zone_is_described_once_with_changes_at_the_time_before_them() -> None:
    times = {ZoneInfo("America/New_York"): 2, BERLIN: 1}
    events = [
        make_event(datetime(2026, 3, 1, 9, tzinfo=zone), repeat="daily") for zone, n in times.items() for _ in range(n)
    ]

    lines = lines_of(*events)

    assert [line for line in lines if line.startswith("TZID")] == ["TZID:America/New_York", "TZID:Europe/Berlin"]
    changes = [lines[at + 1] for at, line in enumerate(lines) if line in {"BEGIN:DAYLIGHT", "BEGIN:STANDARD"}]
    assert changes[1:3] == ["DTSTART:20230312T020000", "DTSTART:20231105T020000"]
    assert changes[4:6] == ["DTSTART:20230326T020000", "DTSTART:20231029T030000"]


def test_a_repeated_event_is_one_entry_whenever_it_began() -> None:
    event = make_event(datetime(1900, 3, 1, 9, tzinfo=BERLIN), repeat="daily")

    now, later = (feed_text("a", [event], NOW + timedelta(days=days)) for days in (0, 30))

    assert now == later
    assert (now.count("BEGIN:VEVENT"), now.count("UID:")) == (1, 1)


@given(texts)
@example(r"C:\New\name")
def test_lines_are_short_and_a_text_reads_back(title: str) -> None:
    text = feed_text("a", [make_event(NOW, title=f"x{title}")], NOW)

    assert all(len(line.encode()) <= 75 for line in text.split("\r\n"))
    assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)|(?<!\r)\n", text)
    kept = re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", "", title).replace("\r\n", "\n").replace("\r", "\n")
    assert value_of("SUMMARY", text) == f"x{kept}"
