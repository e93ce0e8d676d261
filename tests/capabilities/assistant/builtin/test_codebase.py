from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from capabilities.assistant.builtin import codebase
from capabilities.contract.context import ToolContext, ToolError
from tests.capabilities.assistant.builtin.conftest import Call

PYTHON = '''
import os

class Cat(Animal):
    """A cat."""

    async def purr(self) -> None:
        def inner(): ...

    class Tail:
        pass

if os.name == "nt":
    def drive():
        pass
'''


@pytest.fixture
def source(context: ToolContext) -> Path:
    """A folder with sources, and with what is not looked at."""
    root = context.workspace
    for path, text in {
        "app/cat.py": PYTHON,
        "app/dog.ts": "export class Dog {}\nconst catalogue = 1 // cat\n",
        "README.md": "Cats.\n",
        "node_modules/cat/index.js": "cat\n",
        ".git/config": "cat\n",
        "app/__pycache__/cat.py": "cat\n",
        "app/cat.bin": "cat\0",
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def places(answer: dict[str, Any]) -> list[str]:
    return [f"{match['file']}:{match['line']}" for match in answer["matches"]]


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({"query": "cat"}, ["README.md:1", "app/cat.py:4", "app/cat.py:5", "app/dog.ts:2"]),
        ({"query": "cat", "ignore_case": False}, ["app/cat.py:5", "app/dog.ts:2"]),
        ({"query": "cat", "extensions": ["ts", ".MD"]}, ["README.md:1", "app/dog.ts:2"]),
        ({"query": "cat", "path": "app/dog.ts"}, ["app/dog.ts:2"]),
        ({"query": r"class \w+ \{", "regex": True}, ["app/dog.ts:1"]),
    ],
)
def test_code_is_searched_and_nothing_else(
    call: Call, source: Path, arguments: dict[str, Any], found: list[str]
) -> None:
    assert places(call("code_search", **arguments)) == found


def test_many_matches_are_cut(call: Call, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codebase, "MATCH_LIMIT", 1)

    answer = call("code_search", query="cat")

    assert (len(answer["matches"]), answer["notes"]) == (1, ["There are more matches."])


def test_python_is_outlined_by_its_syntax(call: Call, source: Path) -> None:
    assert call("code_outline", path="app/cat.py") == {
        "path": "app/cat.py",
        "lines": 15,
        "outline": [
            {"kind": "class", "name": "Cat", "lines": "4-11"},
            {"kind": "method", "name": "Cat.purr", "lines": "7-8"},
            {"kind": "class", "name": "Cat.Tail", "lines": "10-11"},
            {"kind": "function", "name": "drive", "lines": "14-15"},
        ],
    }


@pytest.mark.parametrize(
    ("line", "declared"),
    [
        ("export default class Dog extends Animal {", ("class", "Dog")),
        ("export const bark = async (a, b) => {", ("function", "bark")),
        ("async function* walk() {", ("function", "walk")),
        ("export type Id = string", ("type", "Id")),
        ("type Dog struct {", ("type", "Dog")),
        ("func (d *Dog) Bark() {", ("function", "Bark")),
        ("pub async fn bark() -> u8 {", ("function", "bark")),
        ("public static final class Dog {", ("class", "Dog")),
        ("fun bark() = 1", ("function", "bark")),
        ("  def self.bark?", ("function", "self.bark?")),
        ("module Dogs", ("module", "Dogs")),
        ("return function_of(x)", None),
        ("classes = 1", None),
        ("// class of its own", None),
    ],
)
def test_other_languages_are_outlined_line_by_line(
    call: Call, source: Path, line: str, declared: tuple[str, str] | None
) -> None:
    (source / "a.txt").write_text(f"\n{line}\n")

    outline = call("code_outline", path="a.txt")["outline"]

    assert outline == ([{"kind": declared[0], "name": declared[1], "line": 2}] if declared else [])


def test_python_that_is_none_is_outlined_line_by_line(call: Call, source: Path) -> None:
    (source / "a.py").write_text("def broken(:\n")
    (source / "deep.py").write_text("(" * 5_000)

    answer = call("code_outline", path="a.py")

    assert answer["outline"] == [{"kind": "function", "name": "broken", "line": 1}]
    assert "no valid Python" in answer["note"]
    assert call("code_outline", path="deep.py")["outline"] == []


def test_a_long_outline_is_cut_and_says_how_much_is_left(
    call: Call, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codebase, "OUTLINE_LIMIT", 1)

    answer = call("code_outline", path="app/cat.py")

    assert (len(answer["outline"]), answer["more"]) == (1, 3)


def test_no_line_takes_time_without_bound(call: Call, source: Path) -> None:
    hostile = ["function " + " " * 5_000, "const a = " + "(" * 5_000, "async " * 5_000, "def (" + " " * 5_000]
    (source / "a.js").write_text("\n".join(hostile * 50))
    started = time.monotonic()

    call("code_outline", path="a.js")

    assert time.monotonic() - started < 5


def test_uses_of_a_name_are_whole_words_and_tell_the_declaration(call: Call, source: Path) -> None:
    (source / "use.ts").write_text("const cat = () => 1\ncat()\nconcat()\n$cat\nmy.cat\ncats\n")

    answer = call("code_references", name="cat", extensions=["ts"])

    assert answer["matches"] == [
        {"file": "app/dog.ts", "line": 2, "text": "const catalogue = 1 // cat"},
        {"file": "use.ts", "line": 1, "text": "const cat = () => 1", "declares": True},
        {"file": "use.ts", "line": 2, "text": "cat()"},
        {"file": "use.ts", "line": 5, "text": "my.cat"},
    ]


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        ("code_search", {"query": "("} | {"regex": True}, "The regular expression is malformed"),
        ("code_search", {"query": "x", "path": "../x"}, "A path never leads out"),
        ("code_outline", {"path": "none.py"}, "There is no none.py in the workspace"),
        ("code_outline", {"path": "app/cat.bin"}, "app/cat.bin is no UTF-8 text"),
        ("code_outline", {"path": "app"}, "app is a folder"),
        ("code_references", {"name": "a b"}, "name: String should match"),
    ],
)
def test_invalid_arguments_are_refused_with_a_message(
    call: Call, source: Path, name: str, arguments: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ToolError, match=sentence):
        call(name, **arguments)


def test_without_a_workspace_nothing_is_found(call: Call) -> None:
    assert call("code_search", query="x") == {"matches": []}
