"""Advice on errors of a run that the check before could not see: what to write instead."""

from __future__ import annotations

import re

from capabilities.running.sandbox import monty
from capabilities.running.sandbox.values import RunError

#: Advice for both runtimes: a part of the message -> what to write instead.
OF_RESULTS: tuple[tuple[str, str], ...] = (
    (r"type set is not", "Return a list: `sorted(found)`."),
    (r"type (date|datetime|time) is not", "Return text: `moment.isoformat()`."),
    (r"type Decimal is not", "Return `str(number)` or `float(number)`."),
    (r"type bytes is not", "Return text: `data.decode()`, or `base64.b64encode(data).decode()`."),
    (r"type \w+ is not JSON", "Return a dict of its fields."),
    (r"Out of range float", "Return None in place of NaN and infinity."),
    (r"keys must be str", "Make the keys text: `str(key)`."),
    (r"Circular reference|maximum recursion depth .*JSON", "Return a flatter value, with nothing in itself."),
)
OF_LIMITS = {
    "Timeout": "Do less in one call, such as fewer rows or requests.",
    "Memory": "Hold less at once: work row by row, and keep only what the result needs.",
    "HostCalls": "Ask for less, or for more at once.",
    "RecursionError": "Write a loop in place of the function that calls itself.",
}


def advice_for(error: RunError, runtime: str) -> str:
    """A sentence that says what to write instead, or empty."""
    for pattern, advice in OF_RESULTS:
        if re.search(pattern, error.message):
            return advice
    if error.kind in OF_LIMITS:
        return OF_LIMITS[error.kind]
    return monty.advice_for(error) if runtime == "monty" else _in_full(error)


def _in_full(error: RunError) -> str:
    absent = re.search(r"No module named '([\w.]+)'", error.message)
    if absent:
        return monty.module_advice(absent[1])
    if error.kind == "PermissionError" or "can't start new thread" in error.message:
        return "Programs, processes, threads and the network are not at hand: use a loop, and `http_get`."
    if error.kind in ("FileNotFoundError", "OSError") and "Read-only" in error.message:
        return "Files can be written in /tmp alone."
    return ""
