"""Questions that a server may ask a member: a flat form, or to open an address. Pure.

Sampling (a reply of a model of ours) and roots (folders of ours) are never offered; a server that asks for them all the
same is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from capabilities.running.mcp_client.words import readable

#: Fields of one form, choices of one field, characters of what is asked.
MAX_FIELDS = 40
MAX_CHOICES = 200
MAX_MESSAGE = 2_000
MAX_LABEL = 300
PRIMITIVES = ("string", "number", "integer", "boolean")
FORMATS = ("email", "uri", "date", "date-time")


class QuestionRefused(ValueError):
    """Question that cannot be put to a member; the message is the end of a sentence."""


@dataclass(frozen=True)
class Form:
    """A form to fill in. `schema` is an object of strings, numbers, booleans and choices, and has nothing else."""

    message: str
    schema: Mapping[str, Any]


@dataclass(frozen=True)
class Link:
    """An address to open; the host is shown."""

    message: str
    url: str


def question_of(request: Any) -> Form | Link:
    """The question in words and parts that are known. Raises QuestionRefused."""
    method = request.get("method") if isinstance(request, Mapping) else None
    params = request.get("params") if isinstance(request, Mapping) else None
    if method != "elicitation/create" or not isinstance(params, Mapping):
        raise QuestionRefused(f"it asks for {_word(method) or 'something unknown'}, which is not offered here")
    message = _word(params.get("message"), MAX_MESSAGE) or "The server asks for more."
    if params.get("mode", "form") == "url":
        return Link(message, _address(params.get("url")))
    if params.get("mode", "form") != "form":
        raise QuestionRefused("it asks in a way that is not known here")
    return Form(message, form_schema(params.get("requestedSchema")))


def form_schema(schema: Any) -> dict[str, Any]:
    """The schema with what a form can show, and nothing else. Raises QuestionRefused where it is not flat."""
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        raise QuestionRefused("its form is no object")
    fields = schema.get("properties", {})
    if not isinstance(fields, Mapping) or len(fields) > MAX_FIELDS:
        raise QuestionRefused(f"its form has no fields, or more than {MAX_FIELDS}")
    required = schema.get("required", [])
    return {
        "type": "object",
        "properties": {_name(name): _field(name, each) for name, each in fields.items()},
        "required": [name for name in required if name in fields] if isinstance(required, list) else [],
    }


def _name(name: Any) -> str:
    if not isinstance(name, str) or not name or len(name) > 200 or readable(name)[1]:
        raise QuestionRefused("a field of its form has no name that can be shown")
    return name


def _field(name: str, asked: Any) -> dict[str, Any]:
    """Return one field of a server's form as it is shown. Raises QuestionRefused for a nested one."""
    if not isinstance(asked, Mapping):
        raise QuestionRefused(f"the field {name} of its form is not flat")
    kind = asked.get("type")
    shown: dict[str, Any] = {}
    for word in ("title", "description"):
        if text := _word(asked.get(word)):
            shown[word] = text
    if kind == "array":
        items = asked.get("items")
        if not isinstance(items, Mapping) or not (choices := _choices(items, "anyOf")):
            raise QuestionRefused(f"the field {name} of its form is a list of something else than choices")
        shown |= {"type": "array", "items": {"type": "string", **choices}, "uniqueItems": True}
        shown |= _numbers(asked, "minItems", "maxItems")
        return shown
    if kind not in PRIMITIVES:
        raise QuestionRefused(f"the field {name} of its form is not flat")
    shown["type"] = kind
    if kind == "string":
        shown |= _choices(asked, "oneOf") | _numbers(asked, "minLength", "maxLength")
        if asked.get("format") in FORMATS:
            shown["format"] = asked["format"]
    elif kind != "boolean":
        shown |= _numbers(asked, "minimum", "maximum")
    default = asked.get("default")
    if isinstance(default, str | int | float | bool):
        shown["default"] = default
    return shown


def _choices(asked: Mapping[str, Any], word: str) -> dict[str, Any]:
    """{"enum": [...]} with titles in "enumNames", or nothing."""
    titled = asked.get(word)
    if isinstance(titled, list) and titled:
        pairs = [(each.get("const"), each.get("title")) for each in titled if isinstance(each, Mapping)]
        values, names = [value for value, _ in pairs], [_word(title) or str(value) for value, title in pairs]
    else:
        values = asked["enum"] if isinstance(asked.get("enum"), list) else []
        given = asked.get("enumNames")
        is_named = isinstance(given, list) and len(given) == len(values)
        names = [_word(each) for each in given] if is_named and given else []
    if not values:
        return {}
    if len(values) > MAX_CHOICES or not all(isinstance(value, str) for value in values):
        raise QuestionRefused(f"a field of its form has choices that are no texts, or more than {MAX_CHOICES}")
    return {"enum": list(values), **({"enumNames": names} if names else {})}


def _numbers(asked: Mapping[str, Any], *words: str) -> dict[str, Any]:
    found = {word: asked.get(word) for word in words}
    return {word: number for word, number in found.items() if isinstance(number, int | float) and number is not True}


def _address(url: Any) -> str:
    try:
        parts = urlsplit(url) if isinstance(url, str) else None
    except ValueError:
        parts = None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname or len(url) > 2_000:
        raise QuestionRefused("the address that it asks to open is no http or https address")
    if parts.username or parts.password or not url.isascii() or not url.isprintable():
        raise QuestionRefused("the address that it asks to open cannot be shown as it is")
    return str(url)


def _word(value: Any, limit: int = MAX_LABEL) -> str:
    return readable(value)[0].strip()[:limit] if isinstance(value, str) else ""
