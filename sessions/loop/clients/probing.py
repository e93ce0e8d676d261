"""Search for the definition of a request that is refused, where the refusal does not say: by requests with some of
them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sessions.loop.clients.errors import ModelBusy, ModelError

Entry = Mapping[str, Any]
#: Requests that one search takes at most: a harmless definition, all of them, seven halves of 128, and the last one.
MOST_PROBES = 11
#: Definition that every model takes that takes tools at all.
HARMLESS: Entry = {
    "type": "function",
    "function": {"name": "ping", "description": "Does nothing.", "parameters": {"type": "object", "properties": {}}},
}


def name_of_entry(entry: Entry) -> str:
    """The name of a function or a namespace in `tools`; empty for what has none."""
    function = entry.get("function")
    return str(function["name"] if isinstance(function, Mapping) else entry.get("name", ""))


def find_refused(entries: Sequence[Entry], is_refused: Callable[[Sequence[Entry]], bool]) -> str:
    """The name of the one definition that is refused by itself; empty where none is, or it is not found within
    MOST_PROBES requests. `is_refused` asks the provider, and raises ModelError where that fails."""
    functions = [each for each in entries if each.get("type") == "function"]
    try:
        return _found(functions, is_refused)
    except ModelBusy:
        raise
    except ModelError:  # it cannot be told: the first refusal stands
        return ""


def _found(entries: list[Entry], is_refused: Callable[[Sequence[Entry]], bool]) -> str:
    if not entries or is_refused([HARMLESS]) or not is_refused(entries):
        return ""
    left = MOST_PROBES - 3
    while len(entries) > 1 and left:
        half, left = entries[: len(entries) // 2], left - 1
        entries = half if is_refused(half) else entries[len(half) :]
    return name_of_entry(entries[0]) if len(entries) == 1 and is_refused(entries) else ""
