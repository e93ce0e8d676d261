"""Forms of versions."""

from __future__ import annotations

from django import forms

from capabilities.catalogue.versions.writes import MAX_REASON
from toolhub.tenants.list_address import ListAddress


class VersionsAddress(ListAddress):
    """The address of a list of versions."""


class ReasonForm(forms.Form):
    """Form of a reason. A rejection needs it; its length is checked as it is stored."""

    reason = forms.CharField(
        required=False,
        label="Reason",
        help_text="The author reads it beside the version. A rejection needs one.",
        widget=forms.Textarea(attrs={"rows": 2, "maxlength": MAX_REASON}),
    )
