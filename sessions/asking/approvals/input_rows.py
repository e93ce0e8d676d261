"""A form that a far side asks for, as the fields of a page, and what was typed into them.

The names and words in it come from outside: fields of the page are named by their place, and nothing of it is markup.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from django.utils import timezone

from capabilities.common.visible import in_reading_order
from sessions.loop.calls.question_forms import FieldKind, FormField, form_fields

#: Texts that may be longer get several lines.
ONE_LINE = 200
INPUT_TYPES: dict[FieldKind, str] = {
    "email": "email",
    "uri": "url",
    "date": "date",
    "date-time": "datetime-local",
    "integer": "number",
    "number": "number",
}


class Typed(Protocol):
    """The fields of a request, as Django reads them."""

    def get(self, key: str, default: str) -> Any: ...
    def getlist(self, key: str) -> list[str]: ...


@dataclass(frozen=True)
class InputRow:
    """One field as a page shows it."""

    key: str
    field: FormField
    value: str = ""
    chosen: Sequence[str] = ()
    error: str = ""

    @property
    def label(self) -> str:
        return in_reading_order(self.field.label)

    @property
    def description(self) -> str:
        return in_reading_order(self.field.description)

    @property
    def input_type(self) -> str:
        return INPUT_TYPES.get(self.field.kind, "text")

    @property
    def is_long(self) -> bool:
        most = self.field.maximum
        return self.field.kind == "text" and (most is None or most > ONE_LINE)

    @property
    def options(self) -> list[tuple[str, str, bool]]:
        """The choices: value, words, and whether it is chosen."""
        pairs = self.field.choices or ((("true", "Yes"), ("false", "No")) if self.field.kind == "boolean" else ())
        return [(value, in_reading_order(words), value in self.chosen) for value, words in pairs]


def rows_of(
    schema: Mapping[str, Any], typed: Typed | None = None, errors: Mapping[str, str] | None = None
) -> list[InputRow]:
    """The rows of the form: as typed, or with what the far side proposes."""
    rows = []
    for place, each in enumerate(form_fields(schema)):
        key = key_of(place)
        if typed is None:
            value, chosen = _proposed(each)
        else:
            value, chosen = str(typed.get(key, "")), typed.getlist(key)
        rows.append(InputRow(key, each, value, chosen, (errors or {}).get(each.name, "")))
    return rows


def key_of(place: int) -> str:
    return f"field-{place}"


def _proposed(each: FormField) -> tuple[str, list[str]]:
    default = each.default
    if isinstance(default, bool):
        return "", [json.dumps(default)]
    if isinstance(default, list):
        return "", [str(one) for one in default]
    value = "" if default is None else str(default)
    return value, [value]


def content_typed(schema: Mapping[str, Any], typed: Typed) -> dict[str, Any]:
    """Return what was typed, as values of the form by name; what cannot be one stays a text, and is refused as such."""
    found: dict[str, Any] = {}
    for place, each in enumerate(form_fields(schema)):
        key = key_of(place)
        found[each.name] = typed.getlist(key) if each.kind == "choices" else _value(each, str(typed.get(key, "")))
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
