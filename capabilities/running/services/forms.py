"""The form of a service."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms

from capabilities.running.registry import ServiceField
from capabilities.running.services.writes import MAX_VALUE, ShownService, binding_fields


class ServiceForm(forms.Form):
    """The fields that a service declares. What is stored of a secret is never in it, only the mask beside the field."""

    def __init__(self, *args: Any, service: ShownService, **kwargs: Any) -> None:
        kwargs["initial"] = {each.field.name: each.value for each in service.fields if not each.field.is_secret}
        super().__init__(*args, **kwargs)
        bound = [field.label for field in binding_fields(service.spec)]
        for each in service.fields:
            self.fields[each.field.name] = _service_field(each.field, each.value, bound)

    def values(self) -> dict[str, str]:
        return {name: self.cleaned_data.get(name, "") for name in self.fields}


def _service_field(field: ServiceField, value: str, bound: Sequence[str]) -> forms.Field:
    """Return the form field of a service's field. `bound`: the labels of the fields that a stored secret is for."""
    attrs = {"autocomplete": "off", "spellcheck": "false"}
    notes: Sequence[str] = [field.help]
    if field.is_secret:
        attrs["autocomplete"] = "new-password"
        kept = f"Stored: {value}. Leave blank to keep it."
        if bound:
            kept += f" It has to be typed again with another {' or '.join(bound)}."
        notes = [field.help, kept if value else "Encrypted when stored."]
    elif field.default:
        attrs["placeholder"] = field.default
    return forms.CharField(
        # A stored secret or a default stands in for an empty field.
        required=field.is_required and not field.default and not (field.is_secret and value),
        max_length=MAX_VALUE,
        label=field.label,
        help_text=" ".join(note for note in notes if note),
        widget=(forms.PasswordInput if field.is_secret else forms.TextInput)(attrs=attrs),
    )
