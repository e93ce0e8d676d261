"""The filter of what one member may use."""

from __future__ import annotations

from django import forms

from toolhub.tenants.list_address import ListAddress


class UsableFilter(ListAddress):
    """The address of a member's tools: a value that cannot be is left out."""

    q = forms.CharField(required=False, max_length=100)
    category = forms.CharField(required=False, max_length=64)
    show = forms.ChoiceField(required=False, choices=[("", "Allowed"), ("all", "Allowed or not")])
