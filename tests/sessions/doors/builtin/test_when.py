from __future__ import annotations

from datetime import UTC, datetime

import pytest

from capabilities.contract.context import ToolError
from sessions.doors.builtin._when import parse_moment

#: A Sunday, 14:30 in Berlin.
NOW = datetime(2026, 11, 22, 13, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("in 20 minutes", "2026-11-22T13:50+00:00"),
        ("in an hour", "2026-11-22T14:30+00:00"),
        ("in 2 days", "2026-11-24T13:30+00:00"),
        ("tomorrow 9:00", "2026-11-23T08:00+00:00"),
        ("tomorrow at 5 pm", "2026-11-23T16:00+00:00"),
        ("friday at 12 am", "2026-11-26T23:00+00:00"),
        ("friday", "2026-11-27T08:00+00:00"),
        ("15:00", "2026-11-22T14:00+00:00"),
        ("at 8:00", "2026-11-23T07:00+00:00"),
        ("2026-12-24", "2026-12-24T08:00+00:00"),
        ("2026-12-24T18:00", "2026-12-24T17:00+00:00"),
        ("2026-12-24 18:00", "2026-12-24T17:00+00:00"),
        ("2026-12-24T18:00Z", "2026-12-24T18:00+00:00"),
        ("2026-12-24T18:00:00-05:00", "2026-12-24T23:00+00:00"),
    ],
)
def test_a_moment_is_read_as_people_write_it(text: str, moment: str) -> None:
    assert parse_moment(text, NOW, "Europe/Berlin") == datetime.fromisoformat(moment)


@pytest.mark.parametrize("text", ["", "soon", "25:00", "tomorrow at 13 pm", "2026-02-30T10:00", "in 999999 weeks x"])
def test_a_malformed_moment_is_refused_with_the_format(text: str) -> None:
    with pytest.raises(ToolError, match=r"is (not a date|no time): write it as"):
        parse_moment(text, NOW, "Europe/Berlin")


def test_an_unknown_zone_is_told() -> None:
    with pytest.raises(ToolError, match="There is no time zone 'Mars/Olympus'"):
        parse_moment("tomorrow", NOW, "Mars/Olympus")
