"""Advice on errors of a run that the check before could not see: what to write instead."""

from __future__ import annotations

import re

from capabilities.running.sandbox.monty import gaps
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
#: Advice for the interpreter: a part of the message -> what to write instead.
OF_MONTY: tuple[tuple[str, str], ...] = (
    (r"class inheritance", "Write plain classes, `@dataclass`, and ValueError in place of exceptions of your own."),
    (r"method decorators", "Write plain methods, and functions outside of the class."),
    (r"yield", "Build a list and return it."),
    (r"'del' statement", "Write `d.pop(key)`, or make a new list without it."),
    (r"callable replacement", "Loop over `re.finditer(pattern, text)` and join the parts."),
    (r"'list' object is not an iterator", "Write `next(iter(items), None)`: `(x for ...)` is a list here."),
    (r"has no len\(\)", "Write a method for the size, and call it."),
    (r"'<' not supported between instances", "Sort with `key=`."),
    (r"does not yet support", "Write it without that, with plain functions, loops, dicts and lists."),
    (r"[Pp]ermission denied|in this environment", "There are no files and no environment: take an argument."),
)  # fmt: skip


def advice_for(error: RunError, runtime: str) -> str:
    """A sentence that says what to write instead, or empty."""
    for pattern, advice in OF_RESULTS:
        if re.search(pattern, error.message):
            return advice
    if error.kind in OF_LIMITS:
        return OF_LIMITS[error.kind]
    if runtime != "monty":
        return _in_full(error)
    absent = re.search(r"No module named '([\w.]+)'", error.message)
    if absent:
        return gaps.module_advice(absent[1])
    name = re.search(r"cannot import name '(\w+)' from '([\w.]+)'", error.message)
    if name:
        return gaps.INSTEAD.get(f"{name[2]}.{name[1]}", "")
    attribute = re.search(r"(?:module|object|type object) '([\w.]+)'.* has no attribute '(\w+)'", error.message)
    if attribute is None:
        attribute = re.search(r"'([\w.]+)' object has no attribute '(\w+)'", error.message)
    if attribute:
        found = gaps.INSTEAD.get(f"{attribute[1]}.{attribute[2]}") or gaps.METHODS_INSTEAD.get(attribute[2])
        if found:
            return found
    undefined = re.search(r"name '(\w+)' is not defined", error.message)
    if undefined:
        return gaps.INSTEAD.get(undefined[1], "")
    return next((advice for pattern, advice in OF_MONTY if re.search(pattern, error.message)), "")


def _in_full(error: RunError) -> str:
    absent = re.search(r"No module named '([\w.]+)'", error.message)
    if absent:
        return gaps.module_advice(absent[1])
    if error.kind == "PermissionError" or "can't start new thread" in error.message:
        return "Programs, processes, threads and the network are not at hand: use a loop, and `http_get`."
    if error.kind in ("FileNotFoundError", "OSError") and "Read-only" in error.message:
        return "Files can be written in /tmp alone."
    return ""
