"""Until when: some hours, tonight, a date, or without an end. Days end at midnight in the reader's time zone."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from math import ceil
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django import forms
from django.utils import timezone

#: Hours of the choices that are some hours from now.
HOURS = {"1h": 1, "8h": 8}
TONIGHT, DATE, NEVER = "tonight", "date", "never"
CHOICES = [("1h", "1 hour"), ("8h", "8 hours"), (TONIGHT, "Until tonight"), (DATE, "Until a date")]


class UntilForm(forms.Form):
    """Fields for an end. `cleaned_data["expires_at"]` is that moment; None for no end.

    The browser fills in its time zone; without script the field says UTC, and can be changed.
    """

    until = forms.ChoiceField(label="For how long", choices=CHOICES, initial="8h")
    until_date = forms.DateField(
        required=False, label="Date", widget=forms.DateInput(attrs={"type": "date"}, format="%Y-%m-%d")
    )
    zone = forms.CharField(
        required=False,
        max_length=64,
        initial="UTC",
        label="Time zone",
        help_text="The day ends at midnight there.",
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not self.is_bound:
            self.fields["zone"].widget.attrs["data-zone"] = ""

    def clean_zone(self) -> ZoneInfo:
        name = self.cleaned_data["zone"] or "UTC"
        try:
            return ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise forms.ValidationError("This is no time zone. Examples: Europe/Berlin, UTC.") from error

    def clean(self) -> dict[str, Any] | None:
        """Return the data with `expires_at`; an end that is past or missing is an error of its field."""
        super().clean()
        data = self.cleaned_data
        if "until" not in data or "zone" not in data or "until_date" not in data:
            return data
        if data["until"] == DATE and data["until_date"] is None:
            self.add_error("until_date", "Choose a date.")
            return data
        try:
            data["expires_at"] = self.end(data["until"], data["until_date"], data["zone"])
        except OverflowError:
            self.add_error("until_date", "This date is too far away.")
        else:
            if data["expires_at"] is not None and data["expires_at"] <= timezone.now():
                self.add_error("until_date", "This date has passed.")
        return data

    def end(self, until: str, day: date | None, zone: ZoneInfo) -> datetime | None:
        """The moment that a choice means, now. Raises OverflowError past the last year that there is."""
        now = timezone.now()
        if until in HOURS:
            return now + timedelta(hours=HOURS[until])
        if until == TONIGHT:
            return end_of_day(now.astimezone(zone).date(), zone)
        return end_of_day(day, zone) if until == DATE and day is not None else None


def end_of_day(day: date, zone: ZoneInfo) -> datetime:
    """Midnight at the end of that day there."""
    return datetime.combine(day + timedelta(days=1), time.min, zone).astimezone(UTC)


def hours_until(moment: datetime) -> int:
    """Whole hours from now to the moment, at least 1; the last one counts if it has begun."""
    return max(1, ceil((moment - timezone.now()) / timedelta(hours=1)))
