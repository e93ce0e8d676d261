"""Whether a text is well-formed Python, JSON, TOML or YAML. Parses and never runs, loads or imports what it reads."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

try:
    import yaml
except ImportError:  # pragma: no cover -- it comes with the web server's extras, and is not asked for by name
    yaml = None  # type: ignore[assignment]

#: Lists and mappings inside one another.
YAML_DEPTH = 100
#: Characters of one line: `a.a.a.a` as a key takes the square of its length in time.
TOML_LINE = 20_000


@dataclass(frozen=True)
class Flaw:
    """The first thing wrong with a text; line and column count from 1, where they are known."""

    message: str
    line: int | None = None
    column: int | None = None


def python_flaw(text: str) -> Flaw | None:
    try:
        # The whole compiler and not the parser alone, which takes a `return` outside a function.
        compile(text, "<file>", "exec", dont_inherit=True)
    except SyntaxError as error:
        return Flaw(error.msg, error.lineno, error.offset)
    return None


def json_flaw(text: str) -> Flaw | None:
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return Flaw(error.msg, error.lineno, error.colno)
    return None


def toml_flaw(text: str) -> Flaw | None:
    for number, line in enumerate(text.split("\n"), start=1):
        if len(line) > TOML_LINE:
            return Flaw("too long a line to check", number)
    tomllib.loads(text)
    return None


def yaml_flaw(text: str) -> Flaw | None:
    """Events only: no value is built, so aliases that multiply cost nothing. Depth is bounded, for it costs the square
    of it in time."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    depth = 0
    try:
        for event in yaml.parse(text, Loader=loader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > YAML_DEPTH:
                raise RecursionError
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = (mark.line + 1, mark.column + 1) if mark else (None, None)
        return Flaw(error.problem or "not YAML", *place)
    except yaml.YAMLError as error:
        return Flaw(str(error).splitlines()[0])
    return None


CHECKS: Final[dict[str, Callable[[str], Flaw | None]]] = {
    "python": python_flaw,
    "json": json_flaw,
    "toml": toml_flaw,
}
if yaml is not None:
    CHECKS["yaml"] = yaml_flaw

SUFFIXES: Final = {".py": "python", ".pyi": "python", ".json": "json", ".toml": "toml", ".yaml": "yaml", ".yml": "yaml"}


def first_flaw(language: str, text: str) -> Flaw | None:
    """What is wrong with the text, or None. The language is a key of CHECKS."""
    try:
        return CHECKS[language](text)
    except (RecursionError, MemoryError):
        return Flaw("too deeply nested to check")
    except ValueError as error:
        return Flaw(str(error))
