"""A form that a far side asks a member to fill in, by its flat JSON Schema, and what was filled in. Pure.

Flat means: an object of strings, numbers, booleans, choices and lists of choices, as MCP's elicitation has it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Literal
from urllib.parse import urlsplit

from capabilities.contract.wire import is_whole

#: Fields of a form, choices of a field, and characters of what stands beside a field and of what is written in one.
MAX_FIELDS = 40
MAX_CHOICES = 200
MAX_WORDS = 2_000
MAX_TEXT = 10_000

FieldKind = Literal["text", "email", "uri", "date", "date-time", "integer", "number", "boolean", "choice", "choices"]
_FORMATS: dict[str, FieldKind] = {"email": "email", "uri": "uri", "date": "date", "date-time": "date-time"}
_EMAIL = re.compile(r"[^@\s]{1,64}@[^@\s]{1,255}")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


@dataclass(frozen=True)
class FormField:
    """One field. `choices` are pairs of a value and what stands for it; the bounds are of a number, of a text's length,
    or of how many choices are taken."""

    name: str
    kind: FieldKind
    title: str = ""
    description: str = ""
    is_required: bool = False
    default: Any = None
    choices: tuple[tuple[str, str], ...] = ()
    minimum: float | None = None
    maximum: float | None = None

    @property
    def label(self) -> str:
        return self.title or self.name


def form_fields(schema: Mapping[str, Any]) -> tuple[FormField, ...]:
    """The fields in their order. Raises ValueError for what no flat form is."""
    properties = schema.get("properties", {})
    if schema.get("type", "object") != "object" or not isinstance(properties, Mapping):
        raise ValueError("The schema is not that of an object.")
    if len(properties) > MAX_FIELDS:
        raise ValueError(f"The form has {len(properties)} fields; {MAX_FIELDS} can be asked for at once.")
    required = schema.get("required", [])
    names = required if isinstance(required, list) else []
    return tuple(_field(str(name), node, name in names) for name, node in properties.items())


def _field(name: str, node: Any, is_required: bool) -> FormField:
    if not isinstance(node, Mapping):
        raise ValueError(f"The field {name[:100]} has no schema.")
    kind, choices = _kind(name, node)
    if len(choices) > MAX_CHOICES:
        raise ValueError(f"The field {name[:100]} has more than {MAX_CHOICES} choices.")
    words = {"choices": ("minItems", "maxItems"), "integer": ("minimum", "maximum"), "number": ("minimum", "maximum")}
    low, high = words.get(kind, ("minLength", "maxLength"))
    return FormField(
        name=name,
        kind=kind,
        title=_words(node.get("title")),
        description=_words(node.get("description")),
        is_required=is_required,
        default=node.get("default"),
        choices=choices,
        minimum=_number(node.get(low)),
        maximum=_number(node.get(high)),
    )


def _kind(name: str, node: Mapping[str, Any]) -> tuple[FieldKind, tuple[tuple[str, str], ...]]:
    match node.get("type", "string"):
        case "string":
            choices = _choices(node, "oneOf")
            return ("choice", choices) if choices else (_FORMATS.get(str(node.get("format")), "text"), ())
        case "integer" | "number" | "boolean" as plain:
            return plain, ()
        case "array":
            items = node.get("items")
            choices = _choices(items, "anyOf") if isinstance(items, Mapping) else ()
            if choices:
                return "choices", choices
    raise ValueError(f"The field {name[:100]} is none that a form can have.")


def _choices(node: Mapping[str, Any], titled: str) -> tuple[tuple[str, str], ...]:
    """The values with their titles, in each way in which a schema can say them."""
    values = node.get("enum")
    if isinstance(values, list):
        titles = node.get("enumNames")
        given = titles if isinstance(titles, list) and len(titles) == len(values) else values
        return tuple((str(value), _words(title)) for value, title in zip(values, given, strict=True))
    pairs = node.get(titled)
    found = [each for each in pairs if isinstance(each, Mapping) and "const" in each] if isinstance(pairs, list) else []
    return tuple((str(each["const"]), _words(each.get("title")) or str(each["const"])) for each in found)


def _words(value: Any) -> str:
    return value[:MAX_WORDS] if isinstance(value, str) else ""


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


# -- What was filled in -----------------------------------------------------------------------------------------------


def read_content(fields: Sequence[FormField], given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the form's content, and the errors, both by the name of the field. A field without a value is left out; a
    name that the form does not have is an error."""
    known = {field.name: field for field in fields}
    wrong = {str(name)[:100]: "The form has no such field." for name in given if name not in known}
    content: dict[str, Any] = {}
    for field in fields:
        value = given.get(field.name)
        if value is None or value == "" or value == []:
            if field.is_required:
                wrong[field.name] = "Fill this in." if field.kind != "boolean" else "Choose yes or no."
            continue
        if message := _CHECKS[field.kind](field, value):
            wrong[field.name] = message
        else:
            content[field.name] = value
    return content, wrong


def _check_text(field: FormField, value: Any) -> str:
    if not isinstance(value, str) or not is_whole(value):
        return "Give a text."
    if field.minimum is not None and len(value) < field.minimum:
        return f"Give at least {field.minimum:g} characters."
    if len(value) > min(MAX_TEXT, field.maximum if field.maximum is not None else MAX_TEXT):
        return f"Give at most {min(MAX_TEXT, field.maximum or MAX_TEXT):g} characters."
    return ""


def _check_email(field: FormField, value: Any) -> str:
    return _check_text(field, value) or ("" if _EMAIL.fullmatch(value) else "Give an email address.")


def _check_uri(field: FormField, value: Any) -> str:
    return _check_text(field, value) or ("" if _is_uri(value) else "Give an address such as https://example.org.")


def _is_uri(value: str) -> bool:
    try:
        parts = urlsplit(value)
    except ValueError:
        return False
    return bool(parts.scheme and (parts.netloc or parts.path)) and not re.search(r"\s", value)


def _check_date(field: FormField, value: Any) -> str:
    wrong = _check_text(field, value)
    return wrong or ("" if _DATE.fullmatch(value) and _reads(date.fromisoformat, value) else "Give a date.")


def _check_moment(field: FormField, value: Any) -> str:
    wrong = _check_text(field, value)
    return wrong or ("" if _reads(datetime.fromisoformat, value) and "T" in value else "Give a date with a time.")


def _reads(read: Callable[[str], Any], value: str) -> bool:
    try:
        read(value)
    except ValueError:
        return False
    return True


def _check_number(field: FormField, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return "Give a number."
    if field.kind == "integer" and value != int(value):
        return "Give a whole number."
    if field.minimum is not None and value < field.minimum:
        return f"Give at least {field.minimum:g}."
    if field.maximum is not None and value > field.maximum:
        return f"Give at most {field.maximum:g}."
    return ""


def _check_boolean(field: FormField, value: Any) -> str:
    return "" if isinstance(value, bool) else "Choose yes or no."


def _check_choice(field: FormField, value: Any) -> str:
    return "" if isinstance(value, str) and value in dict(field.choices) else "Choose one of these."


def _check_choices(field: FormField, value: Any) -> str:
    if not isinstance(value, list) or any(_check_choice(field, each) for each in value) or len(set(value)) < len(value):
        return "Choose some of these, each once."
    if field.minimum is not None and len(value) < field.minimum:
        return f"Choose at least {field.minimum:g}."
    if field.maximum is not None and len(value) > field.maximum:
        return f"Choose at most {field.maximum:g}."
    return ""


_CHECKS: dict[FieldKind, Callable[[FormField, Any], str]] = {
    "text": _check_text,
    "email": _check_email,
    "uri": _check_uri,
    "date": _check_date,
    "date-time": _check_moment,
    "integer": _check_number,
    "number": _check_number,
    "boolean": _check_boolean,
    "choice": _check_choice,
    "choices": _check_choices,
}
