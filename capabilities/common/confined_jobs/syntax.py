"""Syntax check of Python, JSON, TOML or YAML. Parses and never runs, loads or imports what it reads."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from typing import Any, Final

#: Characters of one line: `a.a.a.a` as a key takes the square of its length in time.
TOML_LINE = 20_000
#: Lists and mappings inside one another: what is deeper costs the square of it in time.
YAML_DEPTH = 100

#: The first thing wrong with a text: `message`, and `line` and `column`, counted from 1, where they are known.
Flaw = dict[str, Any]


def run(language: str, text: str) -> Flaw | None:
    """Return the flaw of the text, or None. The language is a key of CHECKS."""
    try:
        return CHECKS[language](text)
    except ValueError as error:
        return {"message": str(error)[:500]}


def python_flaw(text: str) -> Flaw | None:
    try:
        # The whole compiler and not the parser alone, which takes a `return` outside a function.
        compile(text, "<file>", "exec", dont_inherit=True)
    except SyntaxError as error:
        return {"message": error.msg, "line": error.lineno, "column": error.offset}
    return None


def json_flaw(text: str) -> Flaw | None:
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return {"message": error.msg, "line": error.lineno, "column": error.colno}
    return None


def toml_flaw(text: str) -> Flaw | None:
    for number, line in enumerate(text.split("\n"), start=1):
        if len(line) > TOML_LINE:
            return {"message": "too long a line to check", "line": number}
    tomllib.loads(text)
    return None


def yaml_flaw(text: str) -> Flaw | None:
    """Return the first flaw of a YAML text, None for a sound one. Events only: no value is built, so aliases that
    multiply cost nothing. Raises RecursionError beyond YAML_DEPTH."""
    import yaml  # noqa: PLC0415 -- leaf

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    depth = 0
    try:
        for event in yaml.parse(text, Loader=loader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > YAML_DEPTH:
                raise RecursionError
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        position = {"line": mark.line + 1, "column": mark.column + 1} if mark else {}
        return {"message": error.problem or "not YAML"} | position
    except yaml.YAMLError as error:
        return {"message": str(error).splitlines()[0]}
    return None


CHECKS: Final[dict[str, Callable[[str], Flaw | None]]] = {
    "python": python_flaw,
    "json": json_flaw,
    "toml": toml_flaw,
    "yaml": yaml_flaw,
}
