"""A form that a far side asks for, as a form of a page, and what was typed into it.

The names and words in it come from outside: fields of the page are named by their place, and nothing of it is markup.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol

from django import forms
from django.utils import timezone

from capabilities.common.visible import in_reading_order
from sessions.loop.calls.question_forms import MAX_TEXT, FieldKind, FormField, form_fields

#: Texts that may be longer get several lines.
ONE_LINE = 200
INPUT_TYPES: dict[FieldKind, str] = {"email": "email", "uri": "url", "date": "date", "date-time": "datetime-local"}
YES_OR_NO = (("true", "Yes"), ("false", "No"))


class Typed(Protocol):
    """The fields of a request, as Django reads them."""

    def get(self, key: str, default: str) -> Any: ...
    def getlist(self, key: str) -> list[str]: ...


class InputForm(forms.Form):
    """As typed, or with what the far side proposes. `part` tells its fields from those of other forms on the page.

    It only shows: the write checks what was filled in, and `errors` are its complaints by the name of the field.
    """

    def __init__(
        self, schema: Mapping[str, Any], part: str, typed: Typed | None = None, errors: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(auto_id=f"%s-{part}", use_required_attribute=False)
        for place, each in enumerate(form_fields(schema)):
            key = key_of(place)
            self.fields[key] = _page_field(each)
            self.initial[key] = _proposed(each) if typed is None else _typed(each, key, typed)
            if message := (errors or {}).get(each.name):
                self.errors[key] = self.error_class([message])


def _page_field(each: FormField) -> forms.Field:
    shared: dict[str, Any] = {
        "label": in_reading_order(each.label),
        "help_text": in_reading_order(each.description),
        "required": each.is_required,
    }
    choices = [(value, in_reading_order(words)) for value, words in each.choices]
    match each.kind:
        case "choices":
            boxes = forms.CheckboxSelectMultiple(attrs={"class": "form-check-input"})
            return forms.MultipleChoiceField(choices=choices, widget=boxes, **shared)
        case "choice" | "boolean":
            return forms.ChoiceField(choices=[("", "Choose"), *(choices or YES_OR_NO)], **shared)
        case "integer" | "number":
            return forms.FloatField(widget=forms.NumberInput(attrs={"step": "any", "autocomplete": "off"}), **shared)
        case "text" if each.maximum is None or each.maximum > ONE_LINE:
            return forms.CharField(max_length=MAX_TEXT, widget=forms.Textarea(attrs={"rows": 2}), **shared)
    widget = forms.TextInput(attrs={"autocomplete": "off"})
    widget.input_type = INPUT_TYPES.get(each.kind, "text")
    return forms.CharField(widget=widget, **shared)


def key_of(place: int) -> str:
    return f"field-{place}"


def _proposed(each: FormField) -> Any:
    default = each.default
    if isinstance(default, bool):
        return json.dumps(default)
    return [str(one) for one in default] if isinstance(default, list) else default


def _typed(each: FormField, key: str, typed: Typed) -> Any:
    return typed.getlist(key) if each.kind == "choices" else str(typed.get(key, ""))


def content_typed(schema: Mapping[str, Any], typed: Typed) -> dict[str, Any]:
    """Return what was typed, as values of the form by name; what cannot be one stays a text, and is refused as such."""
    found: dict[str, Any] = {}
    for place, each in enumerate(form_fields(schema)):
        value = _typed(each, key_of(place), typed)
        found[each.name] = value if each.kind == "choices" else _value(each, value)
    return found


def _value(each: FormField, text: str) -> Any:
    match each.kind:
        case "boolean":
            return {"true": True, "false": False}.get(text, text)
        case "integer" | "number":
            return _number(text.strip())
        case "date-time":
            return _moment(text.strip())
    return text.replace("\r\n", "\n")


def _number(text: str) -> int | float | str:
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text


def _moment(text: str) -> str:
    """Return the moment with the zone that the page was in, where none was typed; a text that is no moment stays as it
    is."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return text
    return (timezone.make_aware(moment) if timezone.is_naive(moment) else moment).isoformat()
