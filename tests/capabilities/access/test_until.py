"""Until when: what a choice means in the reader's time zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from capabilities.access.until import UntilForm, hours_until

#: 23:30 in Berlin, where it is summer; the next day begins at 22:00 UTC.
NOW = datetime(2026, 7, 1, 21, 30, tzinfo=UTC)


@pytest.fixture(autouse=True)
def at_that_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timezone, "now", lambda: NOW)


@pytest.mark.parametrize(
    ("fields", "end"),
    [
        ({"until": "1h"}, NOW + timedelta(hours=1)),
        ({"until": "8h", "zone": "Asia/Tokyo"}, NOW + timedelta(hours=8)),
        ({"until": "tonight", "zone": "Europe/Berlin"}, datetime(2026, 7, 1, 22, tzinfo=UTC)),
        ({"until": "tonight", "zone": "Asia/Tokyo"}, datetime(2026, 7, 2, 15, tzinfo=UTC)),
        ({"until": "tonight"}, datetime(2026, 7, 2, tzinfo=UTC)),
        # The clocks go back at 3:00 on the 25th: that day has 25 hours.
        (
            {"until": "date", "until_date": "2026-10-25", "zone": "Europe/Berlin"},
            datetime(2026, 10, 25, 23, tzinfo=UTC),
        ),
        (
            {"until": "date", "until_date": "2026-10-24", "zone": "Europe/Berlin"},
            datetime(2026, 10, 24, 22, tzinfo=UTC),
        ),
    ],
)
def test_a_choice_ends_when_the_reader_means(fields: dict[str, Any], end: datetime) -> None:
    form = UntilForm(fields)

    assert (form.errors, form.cleaned_data["expires_at"]) == ({}, end)


def test_the_browser_fills_the_zone_in_only_before_anybody_typed_it() -> None:
    assert "data-zone" in str(UntilForm()["zone"])
    assert "data-zone" not in str(UntilForm({"until": "1h", "zone": "UTC"})["zone"])


@pytest.mark.parametrize(("minutes", "hours"), [(1, 1), (60, 1), (61, 2), (8 * 60, 8), (-5, 1)])
def test_hours_are_counted_whole(minutes: int, hours: int) -> None:
    assert hours_until(NOW + timedelta(minutes=minutes)) == hours
