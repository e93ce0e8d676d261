from __future__ import annotations

from contextlib import suppress
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capabilities.contract.context import ToolError
from capabilities.running.records.dates import parse_date

#: A Wednesday.
TODAY = date(2026, 11, 18)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-23", date(2026, 11, 23)),
        (" 2026-11-23 ", date(2026, 11, 23)),
        ("2026-11-23T10:00:00Z", date(2026, 11, 23)),
        ("Today", TODAY),
        ("tomorrow", date(2026, 11, 19)),
        ("yesterday", date(2026, 11, 17)),
        ("day after tomorrow", date(2026, 11, 20)),
        ("monday", date(2026, 11, 23)),
        ("Fri", date(2026, 11, 20)),
        ("next friday", date(2026, 11, 20)),
        ("on sunday", date(2026, 11, 22)),
        ("wednesday", date(2026, 11, 25)),
        ("in 3 days", date(2026, 11, 21)),
        ("in 1 day", date(2026, 11, 19)),
        ("in a week", date(2026, 11, 25)),
        ("next week", date(2026, 11, 25)),
        ("in 2 weeks", date(2026, 12, 2)),
        ("next month", date(2026, 12, 18)),
    ],
)
def test_dates_as_people_write_them(text: str, expected: date) -> None:
    assert parse_date(text, TODAY) == expected


@pytest.mark.parametrize("text", ["", "soon", "2026-02-30", "in 99999 years", "the 3rd", "in days", "mo"])
def test_what_is_no_date_is_refused_with_the_form_to_write(text: str) -> None:
    with pytest.raises(ToolError) as refused:
        parse_date(text, TODAY)

    assert str(refused.value) == f"{text!r} is not a date: write it as YYYY-MM-DD."


@given(st.text())
def test_any_text_is_a_date_or_refused(text: str) -> None:
    with suppress(ToolError):
        assert isinstance(parse_date(text, TODAY), date)
