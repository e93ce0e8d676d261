from __future__ import annotations

import os
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from capabilities.assistant.builtin._lib import search as _search
from capabilities.contract.context import ToolContext, ToolError
from tests.capabilities.assistant.builtin.conftest import NOW, Call


@pytest.fixture
def workspace(context: ToolContext) -> Path:
    context.workspace.mkdir()
    return context.workspace


def test_a_written_file_is_read_back(call: Call, context: ToolContext) -> None:
    assert call("file_write", path="notes/a.txt", text="eins\nzwei €\n") == {"path": "notes/a.txt", "bytes": 14}

    assert call("file_read", path="notes/a.txt") == {
        "path": "notes/a.txt",
        "text": "eins\nzwei €\n",
        "total_lines": 2,
    }
    assert (context.workspace / "notes/a.txt").read_bytes() == "eins\nzwei €\n".encode()


@pytest.mark.parametrize(
    ("offset", "limit", "text", "lines"),
    [(1, 2, "1\n2\n", "1-2"), (3, 9, "3\n4", "3-4"), (5, 1, "", "none")],
)
def test_some_lines_of_a_file_are_read(
    call: Call, workspace: Path, offset: int, limit: int, text: str, lines: str
) -> None:
    (workspace / "a").write_text("1\n2\n3\n4")

    assert call("file_read", path="a", offset=offset, limit=limit) == {
        "path": "a",
        "text": text,
        "total_lines": 4,
        "lines": lines,
    }


@pytest.mark.parametrize("data", [b"\x89PNG\0\1", b"\xff\xfe\xfd"])
def test_a_binary_file_is_named_and_not_shown(call: Call, workspace: Path, data: bytes) -> None:
    (workspace / "a").write_bytes(data)

    assert call("file_read", path="a") == {"path": "a", "binary": True, "bytes": len(data)}


def test_a_large_file_is_read_up_to_a_whole_character(call: Call, workspace: Path) -> None:
    (workspace / "a").write_text("x" + "€" * 400_000)

    answer = call("file_read", path="a")

    assert answer["text"] == "x" + "€" * 333_333
    assert "1000000 of 1200001 bytes" in answer["truncated"]


@pytest.mark.parametrize(("mode", "text"), [("overwrite", "new"), ("append", "old\nnew")])
def test_a_file_is_written_over_or_added_to(call: Call, workspace: Path, mode: str, text: str) -> None:
    (workspace / "a").write_text("old\n")

    call("file_write", path="a", text="new", mode=mode)

    assert (workspace / "a").read_text() == text


def test_a_file_that_exists_is_not_created(call: Call, workspace: Path) -> None:
    (workspace / "a").write_text("old")

    with pytest.raises(ToolError, match="a exists already: use the mode overwrite or append"):
        call("file_write", path="a", text="new")

    assert (workspace / "a").read_text() == "old"


@pytest.mark.parametrize("name", ["file_read", "file_stat", "file_syntax_check"])
def test_a_missing_file_is_named(call: Call, name: str) -> None:
    with pytest.raises(ToolError) as refused:
        call(name, path="missing.py")

    assert str(refused.value) == "There is no missing.py in the workspace."


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("file_read", {}),
        ("file_list", {}),
        ("file_write", {"text": "x"}),
        ("file_diff", {"other_text": "x"}),
        ("file_grep", {"pattern": "x"}),
        ("file_syntax_check", {"language": "json"}),
        ("file_stat", {}),
    ],
)
@pytest.mark.parametrize("path", ["/etc/passwd", "../outside", "a/../../outside"])
def test_no_tool_leaves_the_workspace(
    call: Call, workspace: Path, name: str, arguments: dict[str, Any], path: str
) -> None:
    with pytest.raises(ToolError, match="workspace"):
        call(name, path=path, **arguments)


def test_a_workspace_not_yet_made_is_empty(call: Call, context: ToolContext) -> None:
    assert call("file_list") == {"entries": []}
    assert call("file_grep", pattern="x") == {"matches": []}
    assert not context.workspace.exists()


@pytest.mark.parametrize(
    ("arguments", "paths"),
    [
        ({}, ["a.py", "docs", "link"]),
        ({"path": "docs"}, ["docs/b.md", "docs/c.py"]),
        ({"recursive": True}, ["a.py", "docs", "docs/b.md", "docs/c.py", "link"]),
        ({"recursive": True, "glob": "*.py"}, ["a.py", "docs/c.py"]),
    ],
)
def test_files_are_listed(call: Call, workspace: Path, arguments: dict[str, Any], paths: list[str]) -> None:
    (workspace / "docs").mkdir()
    for name in ("docs/c.py", "docs/b.md", "a.py"):
        (workspace / name).write_text("x")
    (workspace / "link").symlink_to("/etc")

    assert [entry["path"] for entry in call("file_list", **arguments)["entries"]] == paths


def test_file_list_names_the_type_of_each_entry(call: Call, workspace: Path) -> None:
    (workspace / "folder").mkdir()
    (workspace / "text").write_text("abc")
    os.mkfifo(workspace / "pipe")
    (workspace / os.fsdecode(b"odd\xff")).symlink_to("text")

    assert call("file_list") == {
        "entries": [
            {"path": "folder", "type": "folder"},
            {"path": "odd\ufffd", "type": "link"},
            {"path": "pipe", "type": "special"},
            {"path": "text", "type": "file", "bytes": 3},
        ]
    }


def test_a_long_listing_is_cut_and_says_how_much_is_left(call: Call, workspace: Path) -> None:
    for number in range(503):
        (workspace / f"{number}").touch()

    listing = call("file_list")

    assert (len(listing["entries"]), listing["more"]) == (500, 3)


def test_two_files_are_compared(call: Call, workspace: Path) -> None:
    (workspace / "a").write_text("1\n2\n3\n")
    (workspace / "b").write_text("1\nzwei\n3\n")

    assert call("file_diff", path="a", other_path="b") == "--- a\n+++ b\n@@ -1,3 +1,3 @@\n 1\n-2\n+zwei\n 3"


def test_a_file_is_compared_with_a_text(call: Call, workspace: Path) -> None:
    (workspace / "a").write_text("1\n")

    assert call("file_diff", path="a", other_text="1\n2\n") == "--- a\n+++ text\n@@ -1 +1,2 @@\n 1\n+2"
    assert call("file_diff", path="a", other_text="1\n") == "No differences."


@pytest.mark.parametrize("others", [{}, {"other_path": "a", "other_text": "x"}])
def test_a_comparison_needs_one_other_side(call: Call, others: dict[str, str]) -> None:
    with pytest.raises(ToolError, match="Give either other_path or other_text"):
        call("file_diff", path="a", **others)


def test_a_comparison_of_too_many_lines_is_refused(call: Call, workspace: Path) -> None:
    (workspace / "a").write_text("\n" * 5_001)

    with pytest.raises(ToolError, match="a has 5001 lines; at most 5000 can be compared"):
        call("file_diff", path="a", other_text="x")


@pytest.mark.parametrize(
    ("arguments", "places"),
    [
        ({"pattern": "def "}, [("a.py", 1), ("docs/b.py", 2)]),
        ({"pattern": "DEF"}, []),
        ({"pattern": "DEF", "ignore_case": True}, [("a.py", 1), ("docs/b.py", 2)]),
        ({"pattern": "d.f", "regex": True}, [("a.py", 1), ("docs/b.py", 2)]),
        ({"pattern": "D.F \\w+\\(", "regex": True, "ignore_case": True}, [("a.py", 1), ("docs/b.py", 2)]),
        ({"pattern": "d.f"}, []),
        ({"pattern": "def", "path": "docs"}, [("docs/b.py", 2)]),
        ({"pattern": "def", "path": "a.py"}, [("a.py", 1)]),
        ({"pattern": "def", "glob": "b*"}, [("docs/b.py", 2)]),
        ({"pattern": "pass$", "regex": True}, [("a.py", 1)]),
    ],
)
def test_lines_are_found(call: Call, workspace: Path, arguments: dict[str, Any], places: list[tuple[str, int]]) -> None:
    (workspace / "docs").mkdir()
    (workspace / "a.py").write_text("def a(): pass\r\n")
    (workspace / "docs" / "b.py").write_text("# b\n  def b(): ...\n")
    (workspace / "binary").write_bytes(b"def \0")

    found = call("file_grep", **arguments)

    assert [(match["file"], match["line"]) for match in found["matches"]] == places


@pytest.mark.parametrize("pattern", ["(", "(a)\\1", "(?=a)", "(?:a{1000}){1000}", "(" * 400])
def test_a_pattern_that_cannot_run_in_bounds_is_refused(call: Call, pattern: str) -> None:
    with pytest.raises(ToolError) as refused:
        call("file_grep", pattern=pattern, regex=True)

    assert "regular expression" in str(refused.value)


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "a*a*a*a*a*a*b", "(.*)(.*)(.*)(.*)[^a]"])
def test_no_pattern_takes_time_without_bound(call: Call, workspace: Path, pattern: str) -> None:
    (workspace / "a").write_text(("a" * 1_998 + "!\n") * 50)
    started = time.monotonic()

    call("file_grep", pattern=pattern, regex=True)

    assert time.monotonic() - started < 5


def test_matches_are_capped_and_long_lines_skipped(call: Call, workspace: Path) -> None:
    (workspace / "a").write_text("x" * 2_001 + "\n" + "x\n" * 201)

    found = call("file_grep", pattern="x")

    assert len(found["matches"]) == 200
    assert found["notes"] == ["Lines over 2000 characters were skipped.", "There are more matches."]


def test_a_stopped_search_says_so(call: Call, workspace: Path, context: ToolContext) -> None:
    (workspace / "a").write_text("x")
    context.stopped.set()

    found = call("file_grep", pattern="x")

    assert found["matches"] == []
    assert "stopped before its end" in found["notes"][0]


def test_a_search_ends_when_its_time_is_up(call: Call, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_search, "SEARCH_SECONDS", -1)
    (workspace / "a").write_text("x")

    assert call("file_grep", pattern="x")["matches"] == []


@pytest.mark.parametrize(
    ("name", "text", "flaw"),
    [
        ("a.py", "x = 1\n", None),
        ("a.py", "def f(:\n", {"line": 1, "column": 7, "message": "invalid syntax"}),
        ("a.py", "return 1\n", {"line": 1, "column": 1, "message": "'return' outside function"}),
        ("a.json", '{"a": [1, 2]}', None),
        ("a.json", '{"a": }', {"line": 1, "column": 7, "message": "Expecting value"}),
        ("a.json", "[" * 100_000, {"message": "This is too complex to check."}),
        ("a.toml", "a = 1\n", None),
        ("a.toml", "a = \n", {"message": "Invalid value (at line 1, column 5)"}),
        ("a.toml", "a." * 500_000, {"line": 1, "message": "too long a line to check"}),
        ("a.yaml", "a: [1, 2]\n", None),
        ("a.yml", "a: [1\nb: }", {"line": 2, "column": 2, "message": "did not find expected ',' or ']'"}),
    ],
)
def test_syntax_is_checked(call: Call, workspace: Path, name: str, text: str, flaw: dict[str, Any] | None) -> None:
    (workspace / name).write_text(text)

    answer = call("file_syntax_check", path=name)

    del answer["path"], answer["language"]
    assert answer == ({"ok": True} if flaw is None else {"ok": False} | flaw)


@pytest.mark.parametrize("piece", ["(", "[", "-", "x.", "not ", "f(", "{", "lambda:", "a if b else "])
def test_deep_python_is_checked_without_a_crash(call: Call, workspace: Path, piece: str) -> None:
    (workspace / "a.py").write_text(piece * 50_000 + "x")

    assert call("file_syntax_check", path="a.py")["language"] == "python"


@pytest.mark.parametrize("piece", ["[", "{a: ", "- ", "? ", "&a [*a, "])
def test_deep_yaml_is_checked_without_a_crash(call: Call, workspace: Path, piece: str) -> None:
    (workspace / "a.yaml").write_text(piece * 50_000 + "x")
    started = time.monotonic()

    assert call("file_syntax_check", path="a.yaml")["ok"] is False

    assert time.monotonic() - started < 3


def test_a_check_never_runs_the_file(call: Call, workspace: Path) -> None:
    (workspace / "a.py").write_text(f"open({str(workspace / 'ran')!r}, 'w')\n")

    assert call("file_syntax_check", path="a.py") == {"path": "a.py", "language": "python", "ok": True}

    assert not (workspace / "ran").exists()


def test_an_unknown_language_is_asked_for(call: Call) -> None:
    with pytest.raises(ToolError, match=r"Say the language of a\.txt: python, json, toml, yaml"):
        call("file_syntax_check", path="a.txt")


def test_a_file_is_described(call: Call, workspace: Path) -> None:
    (workspace / "a").write_text("abc")
    os.utime(workspace / "a", (NOW.timestamp(), NOW.timestamp()))

    assert call("file_stat", path="a") == {
        "path": "a",
        "type": "file",
        "bytes": 3,
        "modified": "2026-11-18T09:30:00+00:00",
    }


def test_a_link_and_a_folder_are_described_as_such(call: Call, workspace: Path) -> None:
    (workspace / "link").symlink_to("/etc/passwd")

    assert call("file_stat", path="link")["type"] == "link"
    assert call("file_stat", path=".")["type"] == "folder"
    assert datetime.fromisoformat(call("file_stat", path=".")["modified"]).tzinfo is not None
