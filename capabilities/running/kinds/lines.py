"""A call in one line for people, for tools of every kind."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from capabilities.common.visible import in_reading_order
from capabilities.contract.spec import BUILTIN, ToolSpec
from capabilities.running.registry import registry

#: Characters of a line, and of one argument in it.
MAX_LINE = 300
#: Arguments that a refusal lists.
NAMED = 12
#: `{name}` stands for an argument, and so does `${input.name}`, as tools written for other systems say it; `{{` and
#: `}}` stand for the braces themselves. Nothing else of either format language: a line of a tenant's tool may neither
#: look into a value nor blow it up.
_PLACES = re.compile(r"\{\{|\}\}|\$\{input\.([^{}]*)\}|\{([^{}]*)\}")
#: Keywords of a schema that may bring arguments which its own `properties` do not name.
_ELSEWHERE = frozenset({"$ref", "allOf", "anyOf", "oneOf", "patternProperties"})


def display(name: str, spec: ToolSpec | None, arguments: Mapping[str, Any]) -> str:
    """The call in one line, as its tool wants it; the bare name where arguments and defaults do not fill the line, or
    there is none. A tool of this service itself needs no spec."""
    if spec is not None and spec.kind != BUILTIN:
        if not spec.human_format:
            return name
        return filled_line(spec.human_format, {**_defaults(spec), **arguments}) or name
    tool = registry.tools.get(name)
    return name if tool is None else filled_line(tool.human_format, {**tool.defaults, **arguments}) or name


def filled_line(line: str, arguments: Mapping[str, Any]) -> str:
    """The line with the arguments in their places; empty where one is missing."""

    def put(placeholder: re.Match[str]) -> str:
        name = _named(placeholder)
        return placeholder[0][0] if name is None else _shown(arguments[name])

    try:
        filled = _PLACES.sub(put, line)
    except KeyError:
        return ""
    return " ".join(in_reading_order(filled).split())[:MAX_LINE]


def why_never_filled(line: str, parameters: Mapping[str, Any]) -> str:
    """Return why a line can never be filled: it names something else than arguments of this schema; "" where it can."""
    properties = parameters.get("properties")
    known = list(properties) if isinstance(properties, dict) else []
    if _ELSEWHERE & parameters.keys():
        return ""
    for placeholder in _PLACES.finditer(line):
        name = _named(placeholder)
        if name is not None and name not in known:
            there_are = f"Its arguments are: {', '.join(known[:NAMED])}." if known else "It takes no argument."
            return f"{placeholder[0][:80]} stands for no argument of the tool. {there_are}"
    return ""


def _named(placeholder: re.Match[str]) -> str | None:
    """The argument that stands in this place; None where it is a brace."""
    name: str | None = placeholder[1] if placeholder[1] is not None else placeholder[2]
    return None if name is None else name.strip()


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text[:MAX_LINE]


def _defaults(spec: ToolSpec) -> dict[str, Any]:
    """Return the values of arguments that were left out, by name, as the schema says."""
    properties = spec.definition["function"]["parameters"].get("properties", {})
    found = properties.items() if isinstance(properties, dict) else ()
    return {name: node["default"] for name, node in found if isinstance(node, dict) and "default" in node}
