"""The query of a list's address: its filters, and where its page begins."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.http import urlencode

from toolhub.tenants.rows.cursors import MAX_PLACE
from toolhub.tenants.rows.keyset import Page, PageBounds

PLACES = ("after", "before")


class ListAddress(forms.Form):
    """Filters as fields of a subclass. A value that cannot be is left out."""

    after = forms.CharField(required=False, max_length=MAX_PLACE)
    before = forms.CharField(required=False, max_length=MAX_PLACE)

    def values(self) -> dict[str, str]:
        self.full_clean()
        return {name: str(self.cleaned_data.get(name) or "") for name in self.fields}

    @property
    def filters(self) -> dict[str, str]:
        return {name: value for name, value in self.values().items() if name not in PLACES}

    @property
    def place(self) -> PageBounds:
        values = self.values()
        return PageBounds(after=values["after"], before=values["before"])

    @property
    def query(self) -> str:
        """The filters as the query of an address."""
        return urlencode({name: value for name, value in self.filters.items() if value})

    def context(self, page: Page[Any]) -> dict[str, Any]:
        """Return the values that a list's template shows of these rows."""
        filters = self.filters
        return {
            "page": page,
            "filters": filters,
            "is_filtered": any(filters.values()),
            "is_first": not any(self.place.values()),
            "query": self.query,
        }
