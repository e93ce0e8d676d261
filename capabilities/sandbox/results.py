"""The value of a run, read as limited JSON: what the sandbox wrote is text from outside, whatever it claims to be."""

from __future__ import annotations

import json
import math
from typing import Any

#: Lists and objects inside one another.
MAX_DEPTH = 50
#: Values in all.
MAX_VALUES = 100_000


class NotJson(ValueError):
    """The result is not plain JSON of bounded size; the message says what to return instead."""


def limited_json(text: str | bytes, limit: int) -> Any:
    """The value of this JSON text. Raises NotJson, also for NaN, for a name that comes twice and for deep nesting."""
    if len(text) > limit:
        raise NotJson(f"The result is longer than {limit:,} bytes: return less, such as a count or the first rows.")
    try:
        value = json.loads(
            text, parse_constant=_no_constant, object_pairs_hook=_once, parse_int=_integer, parse_float=_finite
        )
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotJson("The result is not JSON: return text, numbers, true or false, None, lists and dicts.") from error
    _check_size(value)
    return value


def _check_size(value: Any) -> None:
    """Raise NotJson where it nests deeper, or holds more values, than is taken."""
    level, count = [value], 0
    for _ in range(MAX_DEPTH + 1):
        count += len(level)
        if count > MAX_VALUES:
            raise NotJson(f"The result has more than {MAX_VALUES:,} values: return less.")
        level = [
            child
            for node in level
            if isinstance(node, dict | list)
            for child in (node.values() if isinstance(node, dict) else node)
        ]
        if not level:
            return
    raise NotJson(f"The result is nested more than {MAX_DEPTH} deep: return a flatter one.")


def _no_constant(name: str) -> Any:
    raise NotJson(f"The result holds {name}, which JSON does not have: return None in its place.")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise NotJson("The result has the same name twice in one object.")
    return found


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise NotJson("The result holds a number that is too large: return it as text.")
    return number


def _integer(digits: str) -> int:
    if len(digits) > 1000:
        raise NotJson("The result holds a whole number of more than 1,000 digits: return it as text.")
    return int(digits)
