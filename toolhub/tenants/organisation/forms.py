"""The form of an organisation's settings: it shapes and checks, the domain function writes."""

from __future__ import annotations

from zoneinfo import available_timezones

from django import forms

from toolhub.tenants.organisation.writes import MAX_NAME, OrganisationContent


def zone_names() -> list[str]:
    """Names of time zones to choose from, as suggestions."""
    return sorted(each for each in available_timezones() if "/" in each or each == "UTC")


class OrganisationForm(forms.Form):
    name = forms.CharField(max_length=MAX_NAME, label="Name")
    time_zone = forms.CharField(
        max_length=64,
        label="Time zone",
        help_text="Hours, days and months of budgets and reports begin by it. Running ones keep what was spent.",
        widget=forms.TextInput(
            attrs={"list": "zones", "autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}
        ),
    )
    has_assistant = forms.BooleanField(required=False, label="Personal assistant")

    zones = staticmethod(zone_names)

    def clean_time_zone(self) -> str:
        name: str = self.cleaned_data["time_zone"]
        if name not in available_timezones():
            raise forms.ValidationError("Give the name of a time zone, such as Europe/Berlin.", code="unknown")
        return name

    def content(self) -> OrganisationContent:
        data = self.cleaned_data
        return OrganisationContent(data["name"], data["time_zone"], data["has_assistant"])
