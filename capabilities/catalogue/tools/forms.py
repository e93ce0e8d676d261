"""Forms of tools."""

from __future__ import annotations

from django import forms
from django.utils.http import urlencode

from capabilities.catalogue.tools.writes import MAX_INSTRUCTIONS
from capabilities.models import ToolKind
from toolhub.tenants.list_address import ListAddress

#: Columns of the catalogue's list that a member may leave out, by their word in the address.
COLUMNS = {
    "category": "Category",
    "effect": "Effect",
    "use": "Use in 7 days",
    "failures": "Failures",
    "cost": "Cost of definition",
    "state": "State",
}


class ColumnsField(forms.Field):
    """Words of columns, several or with commas between, as one text in the order of the columns; unknown ones are left
    out."""

    widget = forms.SelectMultiple

    def to_python(self, value: list[str] | None) -> str:
        words = {word for text in value or () for word in text[:200].split(",")}
        return ",".join(each for each in COLUMNS if each in words)


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
        required=False,
        choices=[
            ("", "By name"),
            ("tokens", "Most tokens first"),
            ("used", "Last used first"),
            ("calls", "Most calls first"),
            ("failures", "Most failures first"),
        ],
    )
    columns = ColumnsField(required=False)

    @property
    def shown_columns(self) -> list[str]:
        """Columns that are shown: those asked for, else all."""
        return (self.filters["columns"] or ",".join(COLUMNS)).split(",")

    @property
    def sorted_by(self) -> dict[str, str]:
        """Queries of the address of the list in each order, by the order."""
        filters = {name: value for name, value in self.filters.items() if value and name != "sort"}
        orders = [value for value, _ in self.fields["sort"].choices]  # type: ignore[attr-defined]
        return {order: urlencode(filters | {"sort": order}) for order in orders}


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
