"""The filter of the list of files."""

from __future__ import annotations

from django import forms

from capabilities.agents.sharing.queries import BROKEN, GOOD
from toolhub.tenants.list_address import ListAddress


class FileFilter(ListAddress):
    state = forms.ChoiceField(required=False, choices=[("", "All"), (BROKEN, "Broken"), (GOOD, "In step")])
