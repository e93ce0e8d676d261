"""The value of a run, read as limited JSON: what the sandbox wrote is text from outside, whatever it claims to be."""

from __future__ import annotations

from typing import Any

from toolhub.bounded_json import JsonRefused, TooMuchJson, load_json

#: Lists and objects inside one another.
MAX_DEPTH = 50
#: Values in all.
MAX_VALUES = 100_000


class NotJson(ValueError):
    """Result that is not plain JSON of bounded size; the message says what to return instead."""


def limited_json(text: str | bytes, limit: int) -> Any:
    """The value of this JSON text. Raises NotJson, also for NaN, for a name that comes twice and for deep nesting."""
    try:
        return load_json(text, most_bytes=limit, most_values=MAX_VALUES, most_depth=MAX_DEPTH, unique_names=True)
    except TooMuchJson as error:
        raise NotJson(f"The result {error}: return less, such as a count or the first rows.") from error
    except JsonRefused as error:
        raise NotJson(
            f"The result {error}. Return text, numbers, true or false, None, lists and dicts, and a number that is too"
            " large as text."
        ) from error
