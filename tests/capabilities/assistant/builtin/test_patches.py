"""`apply_patch`: what a unified diff makes of texts, and of the workspace's files."""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capabilities.assistant.builtin._lib import workspace as files
from capabilities.assistant.builtin._lib.patches import read_patch
from capabilities.contract.context import ToolContext, ToolError
from tests.capabilities.assistant.builtin.conftest import Call

SONG = "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\n"


@pytest.fixture
def workspace(context: ToolContext) -> Path:
    context.workspace.mkdir()
    return context.workspace


def diff(before: str, after: str, name: str = "a.txt") -> str:
    """As git writes it."""
    lines: list[str] = []
    for line in difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{name}", f"b/{name}"
    ):
        lines += [line] if line.endswith("\n") else [line + "\n", "\\ No newline at end of file\n"]
    return "".join(lines)


def applied(patch: str, before: str | None) -> str | None:
    (file,) = read_patch(patch)
    return file.applied(before)


plain_lines = st.lists(st.sampled_from(["", "a", "b", "  c", "-- d", "+e", "@@ f", "\\ g", "é 中"]), max_size=12)
texts = st.builds(lambda lines, end: "\n".join(lines) + end, plain_lines, st.sampled_from(["", "\n"]))


@given(texts, texts)
def test_a_diff_of_two_texts_makes_the_second_of_the_first(before: str, after: str) -> None:
    patch = diff(before, after)

    if patch:
        assert applied(patch, before) == after


@given(texts)
def test_any_text_is_a_patch_or_refused_with_a_sentence(text: str) -> None:
    try:
        found = read_patch("--- a/x\n+++ b/x\n" + text)
    except ToolError as error:
        found, why = [], str(error)
    else:
        why = "."

    assert [each.path for each in found] in (["x"], [])
    assert why.endswith(".")


@pytest.mark.parametrize(
    "patch",
    [
        "--- a/a.txt\n+++ b/a.txt\n@@ -2,3 +2,3 @@ head\n two\n-three\n+THREE\n four\n",
        "--- a.txt\t2026-11-22 10:00\n+++ a.txt\t2026-11-22 11:00\n@@ -2,3 +2,3 @@\n two\n-three\n+THREE\n four\n",
        "diff --git a/a.txt b/a.txt\nindex 1..2 100644\n--- a/a.txt\n+++ b/a.txt\n@@ -3 +3 @@\n-three\n+THREE\n",
        "--- a/a.txt\n+++ b/a.txt\n@@ -200,9 +7,1 @@\n two\n-three\n+THREE\n four\n",  # numbers that are wrong
        "--- a/a.txt\n+++ b/a.txt\n@@ @@\n two\n-three\n+THREE\n four\n",  # and none
        "--- a/a.txt\r\n+++ b/a.txt\r\n@@ -3 +3 @@\r\n-three\r\n+THREE\r\n",
    ],
    ids=["git's", "diff's", "with a head", "wrong numbers", "no numbers", "other line ends"],
)
def test_a_hunk_is_put_where_its_lines_are(patch: str) -> None:
    assert applied(patch, SONG) == SONG.replace("three", "THREE")


def test_a_file_keeps_its_own_line_ends() -> None:
    patch = "--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,3 @@\n one\n+and a half\n two\n"

    assert applied(patch, "one\r\ntwo\r\n") == "one\r\nand a half\r\ntwo\r\n"


@pytest.mark.parametrize(
    ("hunks", "words"),
    [
        ("@@ -2,2 +2,2 @@\n two\n-drei\n+THREE\n", "Hunk 1 of a.txt does not match: line 3 of the file is 'three'"),
        ("@@ -1 +1 @@\n-one\n+ONE\n@@ -2 +2 @@\n-one\n+ONE\n", "Hunk 2 of a.txt does not match"),
        ("@@ @@\n-nine\n+NINE\n", "Hunk 1 of a.txt does not match: its lines are not in the file"),
        ("@@ @@\n+nine\n", "Hunk 1 of a.txt does not say where its lines go"),
        ("@@ -90,0 +91 @@\n+nine\n", "Hunk 1 of a.txt does not say where its lines go"),
        ("@@ -1 +1 @@\n one\n", "Hunk 1 of a.txt changes nothing."),
        ("@@ -1,2 +1,2 @@\n-one\n?two\n", "Hunk 1 of a.txt has the line '?two': each begins with"),
        ("rename to b.txt\n", "nothing that changes"),
        ("", "nothing that changes"),
    ],
)  # fmt: skip
def test_what_does_not_match_is_refused_with_the_hunk(hunks: str, words: str) -> None:
    with pytest.raises(ToolError) as refused:
        applied("--- a/a.txt\n+++ b/a.txt\n" + hunks, SONG)

    assert words in str(refused.value)


def test_a_hunk_that_fits_in_two_places_but_not_where_it_says_is_refused() -> None:
    patch = "--- a/a.txt\n+++ b/a.txt\n@@ -{} +1 @@\n-same\n+other\n"

    assert applied(patch.format(3), "same\nx\nsame\n") == "same\nx\nother\n"
    with pytest.raises(ToolError, match=r"Hunk 1 of a\.txt matches at lines 1 and 3 of the file, and maybe more"):
        applied(patch.format(2), "same\nx\nsame\n")


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        ("", "This is no unified diff"),
        ("*** Begin Patch\n*** Update File: a.txt\n", "This is no unified diff"),
        ("--- a/a.txt\n+++ b/b.txt\n@@ -1 +1 @@\n-a\n+b\n", "The patch renames a.txt to b.txt: delete the one"),
        ("diff --git a/a b/b\nrename from a\n", "Line 2 of the patch is a rename"),
        ("diff --git a/a b/a\nold mode 100644\n", "Line 2 of the patch is a change of mode"),
        ("GIT binary patch\n", "a change of a binary file"),
        ("--- /dev/null\n+++ /dev/null\n", "names no file"),
        ('--- "a/a"\n+++ "b/a"\n@@ -1 +1 @@\n-a\n+b\n', "without quotation marks"),
        ("--- a/a\n+++ b/a\n@@ -1 +1 @@\n-a\n+b\n" * 2, "a stands in the patch twice"),
        ("".join(f"--- a/{n}\n+++ b/{n}\n@@ -1 +1 @@\n-a\n+b\n" for n in range(101)), "at most 100 files"),
    ],
)
def test_what_is_no_patch_of_text_files_is_refused(patch: str, words: str) -> None:
    with pytest.raises(ToolError) as refused:
        read_patch(patch)

    assert words in str(refused.value)


def test_many_lines_that_are_alike_take_no_longer_than_their_number() -> None:
    many = "\n" * 400_000 + "end\n"
    hunks = "@@ @@\n" + " \n" * 1_000 + "-end\n+END\n"

    assert applied("--- a/a\n+++ b/a\n" + hunks, many) == "\n" * 400_000 + "END\n"


# -- In the workspace -------------------------------------------------------------------------------------------------

CREATE = "--- /dev/null\n+++ b/new/deep/b.txt\n@@ -0,0 +1,2 @@\n+first\n+second\n"
CHANGE = "--- a/a.txt\n+++ b/a.txt\n@@ -2,2 +2,2 @@\n two\n-three\n+THREE\n"
DELETE = "--- a/old.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-gone\n"


def make_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def tree(root: Path) -> dict[str, str]:
    return {str(path.relative_to(root)): path.read_text() if path.is_file() else "" for path in root.rglob("*")}


def test_several_files_are_created_changed_and_deleted(call: Call, workspace: Path) -> None:
    (workspace / "a.txt").write_text(SONG)
    (workspace / "old.txt").write_text("gone\n")

    told = call("apply_patch", patch=CREATE + CHANGE + DELETE)

    assert told == {
        "files": [
            {"path": "new/deep/b.txt", "change": "created", "added": 2, "removed": 0},
            {"path": "a.txt", "change": "changed", "added": 1, "removed": 1},
            {"path": "old.txt", "change": "deleted", "added": 0, "removed": 1},
        ]
    }
    assert tree(workspace) == {
        "a.txt": SONG.replace("three", "THREE"),
        "new": "",
        "new/deep": "",
        "new/deep/b.txt": "first\nsecond\n",
    }


def test_in_a_workspace_that_is_not_there_yet_a_file_is_created(call: Call, context: ToolContext) -> None:
    call("apply_patch", patch=CREATE)

    assert (context.workspace / "new/deep/b.txt").read_text() == "first\nsecond\n"


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda root: (root / "a.txt").write_text("else\n"), "Hunk 1 of a.txt does not match"),
        (lambda root: (root / "a.txt").unlink(), "There is no a.txt in the workspace."),
        (lambda root: (root / "a.txt").write_bytes(b"\xff\xfe"), "a.txt is no UTF-8 text."),
        (lambda root: (root / "old.txt").write_text("gone\nmore\n"), "old.txt has lines that the patch does not take"),
        (lambda root: (root / "new").write_text("a file"), "new/deep"),
        (lambda root: (root / "new").symlink_to(root.parent), "leads through a link"),
        (lambda root: ((root / "a.txt").unlink(), (root / "a.txt").symlink_to(root / "old.txt")), "a.txt is a link"),
        (lambda root: ((root / "a.txt").unlink(), (root / "a.txt").mkdir()), "a.txt is a folder."),
        (lambda root: make_pipe(root / "old.txt"), "old.txt is no regular file."),
    ],
)  # fmt: skip
def test_where_one_file_does_not_fit_none_is_changed(call: Call, workspace: Path, spoil: Any, words: str) -> None:
    (workspace / "a.txt").write_text(SONG)
    (workspace / "old.txt").write_text("gone\n")
    spoil(workspace)
    before = {path: path.lstat().st_mtime_ns for path in workspace.rglob("*")}

    with pytest.raises(ToolError) as refused:
        call("apply_patch", patch=CREATE + CHANGE + DELETE)

    assert words in str(refused.value)
    assert {path: path.lstat().st_mtime_ns for path in workspace.rglob("*")} == before


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_where_the_disk_fails_in_between_what_was_done_is_taken_back(
    call: Call, workspace: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    (workspace / "a.txt").write_text(SONG)
    (workspace / "old.txt").write_text("gone\n")
    put, count = files._put, iter(range(9))

    def fails_once(folder: int, name: str, data: bytes | None) -> None:
        if next(count) == failing:
            raise OSError(28, "No space left on device")
        put(folder, name, data)

    monkeypatch.setattr(files, "_put", fails_once)

    with pytest.raises(ToolError, match="The disk is full"):
        call("apply_patch", patch=CREATE + CHANGE + DELETE)

    assert tree(workspace) == {"a.txt": SONG, "old.txt": "gone\n"}


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/../../x", "new/../../../x", "x\x00y"])
def test_nothing_outside_of_the_workspace_is_named(call: Call, workspace: Path, name: str) -> None:
    with pytest.raises(ToolError):
        call("apply_patch", patch=f"--- /dev/null\n+++ b/{name}\n@@ -0,0 +1 @@\n+text\n")

    assert tree(workspace.parent) == {"workspace": ""}


def test_the_same_file_under_two_names_is_refused(call: Call, workspace: Path) -> None:
    one = "--- /dev/null\n+++ b/{}\n@@ -0,0 +1 @@\n+text\n"

    with pytest.raises(ToolError, match="The same file is named twice"):
        call("apply_patch", patch=one.format("x.txt") + one.format("./x.txt"))

    assert tree(workspace) == {}


def test_a_file_and_a_folder_of_one_name_are_not_both_made(call: Call, workspace: Path) -> None:
    one = "--- /dev/null\n+++ b/{}\n@@ -0,0 +1 @@\n+text\n"

    with pytest.raises(ToolError, match="x is a folder"):
        call("apply_patch", patch=one.format("x") + one.format("x/y"))

    assert tree(workspace) == {}


def test_a_new_file_that_is_there_already_stays(call: Call, workspace: Path) -> None:
    (workspace / "x").write_text("mine\n")

    with pytest.raises(ToolError, match="x exists already: the patch says that it is new"):
        call("apply_patch", patch="--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+text\n")

    assert tree(workspace) == {"x": "mine\n"}
