"""The base of the forms of members' own rows, and their fields. Field names are the arguments of the writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from django import forms


def day_field(**more: Any) -> forms.DateField:
    return forms.DateField(widget=forms.DateInput(format="%Y-%m-%d", attrs={"type": "date"}), **more)


def moment_field(**more: Any) -> forms.DateTimeField:
    widget = forms.DateTimeInput(format="%Y-%m-%dT%H:%M", attrs={"type": "datetime-local"})
    return forms.DateTimeField(widget=widget, **more)


def text_field(limit: int, rows: int = 4, **more: Any) -> forms.CharField:
    return forms.CharField(max_length=limit, widget=forms.Textarea(attrs={"rows": rows}), **more)


def choice_field(choices: Any, **more: Any) -> forms.ChoiceField:
    return forms.ChoiceField(choices=choices, **more)


class RecordForm(forms.Form):
    """A row's values, as its write takes them."""

    #: Fields that only a row has that is there already.
    later: ClassVar[tuple[str, ...]] = ()

    def __init__(self, *args: Any, is_new: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if is_new:
            for name in self.later:
                del self.fields[name]

    @classmethod
    def initial_of(cls, shown: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values that the form begins with, from the row as REST shows it."""
        return dict(shown)

    def values(self) -> dict[str, Any]:
        return dict(self.cleaned_data)
