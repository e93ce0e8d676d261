"""Advice on errors that the interpreter raises in a run: what to write instead."""

from __future__ import annotations

import re

from capabilities.running.sandbox.monty import gaps
from capabilities.running.sandbox.values import RunError

#: A part of the message -> what to write instead.
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


def advice_for(error: RunError) -> str:
    """A sentence that says what to write instead, or empty."""
    absent = re.search(r"No module named '([\w.]+)'", error.message)
    if absent:
        return f"{gaps.module_advice(absent[1])} {gaps.in_full(absent[1])}".strip()
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
