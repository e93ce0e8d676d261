"""Edits of a call's result by hooks: a note behind it, a field set in it."""

from __future__ import annotations

import json
from typing import Any

from capabilities.contract.hooks import Failure, HookFailed
from toolhub.bounded_json import load_json


def with_note(result: str, text: str) -> str:
    """The result with a text of ours behind it: in a JSON object as its field `note`, so that it stays one."""
    value = _json_object(result)
    if value is None:
        return f"{result}\n\n{text}"
    known = value.get("note")
    value["note"] = f"{known}\n{text}" if isinstance(known, str) and known else text
    return json.dumps(value, ensure_ascii=False)


def set_field(result: str, path: str, value: Any) -> str:
    """The result, a JSON object, with this field set; missing objects on the way are made. Raises HookFailed."""
    whole = _json_object(result)
    if whole is None:
        raise HookFailed(Failure.MALFORMED, "The result is no JSON object: it has no fields.")
    parent = whole
    *way, last = path.split(".")
    for name in way:
        inner = parent.setdefault(name, {})
        if not isinstance(inner, dict):
            raise HookFailed(Failure.MALFORMED, f"{name} of the result is no object.")
        parent = inner
    parent[last] = value
    return json.dumps(whole, ensure_ascii=False)


def _json_object(text: str) -> dict[str, Any] | None:
    if not text.lstrip().startswith("{"):
        return None
    try:
        value = load_json(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
