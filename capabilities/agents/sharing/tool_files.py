"""One file of a folder as the content of a tool: a Python file whose function `run` is the tool.

    \"\"\"Adds two numbers.\"\"\"                     what the model reads

    HUMAN_FORMAT = "Adding {a} and {b}"         a call in one line for people
    CATEGORY = "utility"                        where it lives; else where the command says
    TESTS = [{"name": "small", "arguments": {"a": 1, "b": 2}, "expected": 3}]

    def run(a: float, b: float = 0) -> float:   the arguments, by their types; or PARAMETERS, a JSON Schema
        return a + b

The file's name is the tool's. It is parsed in a child process, and run nowhere but in the sandbox.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from capabilities.catalogue.tools.writes import Definition
from capabilities.common.confined import run
from capabilities.contract.warnings import normalised, normalised_value
from capabilities.contract.wire import TOOL_NAME

#: Characters of one file.
MAX_FILE = 100_000
EFFECTS = ("read", "write", "external")
CRASHES = ("retry", "retry_with_key", "never")


class FileBroken(ValueError):
    """The file is no tool. The message is a sentence; `line` is where, or None."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(f"Line {line}: {message}" if line else message)
        self.line = line


@dataclass(frozen=True)
class SavedCase:
    """Call of the tool with its expected outcome: a value, or a part of an error."""

    name: str
    arguments: Mapping[str, Any]
    expected: Any
    expects_error: bool


@dataclass(frozen=True)
class ToolFile:
    """Content of a file: the tool's definition, its category (empty for the command's), and its saved tests."""

    definition: Definition
    category: str
    tests: Sequence[SavedCase]


def read_tool_file(path: str, text: str, organisation_id: int) -> ToolFile:
    """The tool in a file at this path. Raises FileBroken, and ConfinedError where it takes too long to parse."""
    name = PurePosixPath(path).stem
    if not TOOL_NAME.match(name):
        raise FileBroken(f"The file's name is the tool's: {name} is none (1 to 64 of a-z, A-Z, 0-9, _ and -).")
    if len(text) > MAX_FILE:
        raise FileBroken(f"The file has {len(text):,} characters; {MAX_FILE:,} are the most.")
    found: dict[str, Any] = run("tool_file", {"text": text}, organisation_id)
    if "error" in found:
        raise FileBroken(found["error"], found.get("line"))
    effect, on_crash = found.get("effect", "external"), found.get("on_crash", "never")
    _one_of("EFFECT", effect, EFFECTS)
    _one_of("ON_CRASH", on_crash, CRASHES)
    runtime = found.get("runtime", "monty")
    _one_of("RUNTIME", runtime, ("monty", "full"))
    definition = Definition(
        name=name,
        description=normalised(found["description"]),
        parameters=normalised_value(found["parameters"]),
        effect=effect,
        on_crash=on_crash,
        timeout=float(found.get("timeout", 20.0)),
        instructions=normalised(found.get("instructions", "")),
        implementation={"runtime": runtime, "code": text, "helpers": found.get("helpers", {})},
        human_format=normalised(found.get("human_format", "")),
    )
    return ToolFile(definition, found.get("category", ""), [_case(*each) for each in enumerate(found.get("tests", []))])


def _one_of(name: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise FileBroken(f"{name} must be one of {', '.join(known)}.")


def _case(number: int, raw: Any) -> SavedCase:
    where = f"Test {number + 1} of TESTS"
    if not isinstance(raw, dict) or not isinstance(raw.get("arguments", {}), dict):
        raise FileBroken(f'{where} must look like {{"name": "...", "arguments": {{...}}, "expected": ...}}.')
    if ("expected" in raw) == ("error" in raw):
        raise FileBroken(f"{where} needs either expected, the result, or error, a part of the error's text.")
    name = str(raw.get("name") or f"Test {number + 1}")[:100]
    return SavedCase(name, raw.get("arguments", {}), raw.get("expected", raw.get("error")), "error" in raw)
