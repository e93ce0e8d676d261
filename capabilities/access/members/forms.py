"""The filter of what one member may use."""

from __future__ import annotations

from django import forms
from django.utils.http import urlencode


class UsableFilter(forms.Form):
    """The address of a member's tools: a value that cannot be is left out."""

    q = forms.CharField(required=False, max_length=100)
    category = forms.CharField(required=False, max_length=64)
    show = forms.ChoiceField(required=False, choices=[("", "Allowed"), ("all", "Allowed or not")])
    after = forms.CharField(required=False, max_length=64)

    def values(self) -> dict[str, str]:
        self.full_clean()
        return {name: self.cleaned_data.get(name) or "" for name in self.fields}

    def query(self) -> str:
        """The same as the query of an address."""
        return urlencode({name: value for name, value in self.values().items() if value})
