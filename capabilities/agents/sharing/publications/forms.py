"""Forms of publications."""

from __future__ import annotations

from django import forms

from capabilities.agents.sharing.publications.queries import WHOSE
from capabilities.models import Audience
from toolhub.tenants.list_address import ListAddress


class PublicationsAddress(ListAddress):
    """The address of the list."""

    q = forms.CharField(required=False, max_length=100)
    whose = forms.ChoiceField(required=False, choices=[("", "All"), *WHOSE.items()])


class PublishForm(forms.Form):
    """Form that chooses the audience of a copy."""

    audience = forms.ChoiceField(label="Who may read it", choices=Audience.choices)
