"""The arguments of a call as they take effect, for tools of every kind: what rules, hooks and people look at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from capabilities.contract.effective import Effective, effective_for, plain_numbers
from capabilities.contract.spec import BUILTIN, ToolSpec
from capabilities.running.registry import BuiltinTool, registry


def effective_arguments(spec: ToolSpec, arguments: Mapping[str, Any]) -> Effective:
    """Return the arguments as they take effect. With a tool of this service: as its function gets them, without what is
    left out and nothing then. With one from outside: as its schema says, and which of them nobody here knows. No
    query."""
    tool = registry.tools.get(spec.name) if spec.kind == BUILTIN else None
    if tool is None or tool.parameters_text != spec.parameters_text:
        return effective_for(spec.parameters_text, arguments)
    taken = _as_taken(tool, arguments)
    return Effective({name: value for name, value in taken.items() if name in arguments or not _is_nothing(value)})


def _is_nothing(value: Any) -> bool:
    """Return whether an argument left out is nothing then: no value, or an empty one. False and 0 are values."""
    return value is None or value in ("", [], {})


def _as_taken(tool: BuiltinTool, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments as the tool's function gets them; those that it would refuse, with its defaults."""
    try:
        values = tool.arguments.model_validate(dict(arguments))
        return dict(plain_numbers(values.model_dump(mode="json")))
    except (ValidationError, PydanticSerializationError, ValueError):
        fields = tool.arguments.model_fields.items()
        return {name: field.default for name, field in fields if not field.is_required()} | dict(arguments)
