"""The form of an organisation's settings: it shapes and checks, the domain function writes."""

from __future__ import annotations

from typing import Any
from zoneinfo import available_timezones

from django import forms
from django.utils.timezone import now

from toolhub.tenants.organisation.writes import MAX_NAME, OrganisationContent
from toolhub.tenants.times import LANGUAGES, day_and_time, written_in


def zone_names() -> list[str]:
    """Names of time zones to choose from, as suggestions."""
    return sorted(each for each in available_timezones() if "/" in each or each == "UTC")


def _example(language: str) -> str:
    """This moment, as this language writes it."""
    with written_in(language):
        return day_and_time(now())


class OrganisationForm(forms.Form):
    name = forms.CharField(max_length=MAX_NAME, label="Name")
    time_zone = forms.CharField(
        max_length=64,
        label="Time zone",
        help_text="Pages show times in it, and hours, days and months of budgets begin by it. Running ones keep what "
        "was spent.",
        widget=forms.TextInput(
            attrs={"list": "zones", "autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}
        ),
    )
    date_language = forms.ChoiceField(label="Dates", help_text="How pages write them. Words around them are English.")
    has_assistant = forms.BooleanField(required=False, label="Personal assistant")

    zones = staticmethod(zone_names)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choices = [(code, f"{title}: {_example(code)}") for code, title in LANGUAGES]
        self.fields["date_language"].choices = choices  # type: ignore[attr-defined]

    def clean_time_zone(self) -> str:
        name: str = self.cleaned_data["time_zone"]
        if name not in available_timezones():
            raise forms.ValidationError("Give the name of a time zone, such as Europe/Berlin.", code="unknown")
        return name

    def content(self) -> OrganisationContent:
        data = self.cleaned_data
        return OrganisationContent(data["name"], data["time_zone"], data["date_language"], data["has_assistant"])
