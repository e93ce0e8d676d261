"""Forms of tools."""

from __future__ import annotations

from django import forms

from capabilities.catalogue.tools.writes import MAX_INSTRUCTIONS
from capabilities.models import ToolKind
from toolhub.tenants.list_address import ListAddress


class CatalogueFilter(ListAddress):
    """Query of the catalogue's list: what is looked for, and where the page begins. A value that cannot be is left
    out."""

    q = forms.CharField(required=False, max_length=100)
    category = forms.CharField(required=False, max_length=64)
    state = forms.ChoiceField(
        required=False,
        choices=[
            ("", "Any state"),
            ("on", "On"),
            ("off", "Off"),
            ("set-up", "Needs set-up"),
            ("waiting", "Waiting for approval"),
            ("kept-back", "Kept back"),
            ("refused", "Refused by a model"),
        ],
    )
    kind = forms.ChoiceField(required=False, choices=[("", "Any kind"), *ToolKind.choices])
    agent = forms.CharField(required=False, max_length=63)
    sort = forms.ChoiceField(
        required=False, choices=[("", "By name"), ("tokens", "Most tokens first"), ("used", "Last used first")]
    )


class ReaderFilter(ListAddress):
    """The address of who may use a tool."""

    q = forms.CharField(required=False, max_length=100)


class InstructionsForm(forms.Form):
    """Instructions of one tool. Their length is checked as it is stored: a browser counts line ends twice."""

    instructions = forms.CharField(
        required=False,
        label="Instructions for the model",
        help_text="Sent only while the tool is. Saving another text makes a new version of the tool.",
        widget=forms.Textarea(attrs={"rows": 4, "maxlength": MAX_INSTRUCTIONS}),
    )
