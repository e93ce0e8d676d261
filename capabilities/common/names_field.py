"""A form's field of several names, ticked one by one: what they name is looked up where they are written."""

from __future__ import annotations

from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.http import QueryDict

from toolhub.tenants.models import slug_validator

MAX_NAME = 64


class ShortNameField(forms.CharField):
    """A short name that may be left blank: of something new it is made from the field `source`, else it stays."""

    def __init__(self, source: str = "name", **kwargs: Any) -> None:
        self.source = source
        if "validators" not in kwargs and "max_length" not in kwargs:
            kwargs |= {"max_length": 63, "validators": [slug_validator]}
        kwargs.setdefault("help_text", "For addresses and the API: lower-case letters, digits and hyphens.")
        super().__init__(required=False, label="Short name", **kwargs)

    def get_bound_field(self, form: forms.BaseForm, field_name: str) -> forms.BoundField:
        """Only of something new does the script fill it in while the name is typed."""
        if not form.initial.get(field_name):
            self.widget.attrs["data-short-name-of"] = form.add_prefix(self.source)
        return super().get_bound_field(form, field_name)


class NamesField(forms.Field):
    """The ticked names as a tuple, in the order of the page; drawn by the template, not by the form."""

    widget = forms.SelectMultiple

    def __init__(self, kind: str, limit: int, **kwargs: Any) -> None:
        super().__init__(required=False, **kwargs)
        self.kind, self.limit = kind, limit

    def clean(self, value: Any) -> tuple[str, ...]:
        """Raises ValidationError for what cannot be a name: no database is asked for it."""
        names = tuple(value or ())
        for name in names[: self.limit + 1]:
            if len(name) > MAX_NAME or not name.isprintable():
                raise ValidationError(f"There is no {self.kind} {''.join(filter(str.isprintable, name))[:100]}.")
        return names


def in_places(data: QueryDict, field: str, limit: int, prefix: str = "place-") -> tuple[str, ...]:
    """The ticked names in the order of their places; those without one, or with the same, as they stand."""
    names = data.getlist(field)[: limit + 1]

    def position(name: str) -> int:
        text = data.get(f"{prefix}{name}", "")
        return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 10**6

    return tuple(dict.fromkeys(sorted(names, key=position)))
