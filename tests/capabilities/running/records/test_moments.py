from __future__ import annotations

from datetime import date, datetime, time
from zoneinfo import ZoneInfo

import pytest

from capabilities.contract.context import ToolError
from capabilities.running.records.moments import parse_clock, parse_when, zone_named
from tests.capabilities.assistant.builtin.conftest import NOW

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("2026-11-23", date(2026, 11, 23)),
        ("tomorrow", date(2026, 11, 19)),
        ("in 3 days", date(2026, 11, 21)),
        ("2026-11-23 15:00", datetime(2026, 11, 23, 15, tzinfo=BERLIN)),
        ("2026-11-23T15:00:30", datetime(2026, 11, 23, 15, 0, 30, tzinfo=BERLIN)),
        ("2026-11-23T15:00Z", datetime(2026, 11, 23, 16, tzinfo=BERLIN)),
        ("2026-11-23T15:00+09:00", datetime(2026, 11, 23, 7, tzinfo=BERLIN)),
        ("tomorrow 15:00", datetime(2026, 11, 19, 15, tzinfo=BERLIN)),
        ("Friday at 3 pm", datetime(2026, 11, 20, 15, tzinfo=BERLIN)),
        ("friday, 12am", datetime(2026, 11, 20, 0, tzinfo=BERLIN)),
        ("2026-11-23 3pm", datetime(2026, 11, 23, 15, tzinfo=BERLIN)),
        ("18:15", datetime(2026, 11, 18, 18, 15, tzinfo=BERLIN)),
    ],
)
def test_a_day_or_a_moment_is_read(text: str, when: date) -> None:
    assert parse_when(text, NOW, BERLIN) == when


@pytest.mark.parametrize("text", ["", "soon", "25:00", "tomorrow 9:75", "tomorrow 13pm", "2026-13-01", "T", "١٢:٠٠"])
def test_what_is_no_moment_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(ToolError, match="write it as YYYY-MM-DD"):
        parse_when(text, NOW, BERLIN)


@pytest.mark.parametrize("text", ["0001-01-01T00:00", "9999-12-31", "2201-01-01"])
def test_what_is_too_far_away_is_refused(text: str) -> None:
    with pytest.raises(ToolError, match="too far away"):
        parse_when(text, NOW, BERLIN)


@pytest.mark.parametrize(
    ("text", "clock"), [("15:00", time(15)), ("3 pm", time(15)), ("3", None), ("friday 3pm", None)]
)
def test_a_time_of_day_is_read(text: str, clock: time | None) -> None:
    assert parse_clock(text) == clock


@pytest.mark.parametrize("name", ["Mars/Base", "../etc/passwd", "", "\0"])
def test_an_unknown_zone_is_refused(name: str) -> None:
    with pytest.raises(ToolError, match="use an IANA name"):
        zone_named(name)
