"""The check of plain language finds what it is for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT


def check(folder: Path) -> list[str]:
    ran = subprocess.run(
        [sys.executable, str(ROOT / ".ci/language.py"), "house"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    found = ran.stdout.split("\n")[:-1]
    assert ran.returncode == bool(any(found)), ran.stderr
    return [line for line in found if line]


def written(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / "house" / "wing" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('"""What holds."""\n', "What"),
        ('class A:\n    """Whose it is."""\n', "Whose"),
        ('def a():\n    """The same of b."""\n', "The same"),
        ('async def a():\n    """Of its rows."""\n', "Of"),
        ("def rows_told():\n    pass\n", "rows_told"),
        ("def _said(a):\n    pass\n", "_said"),
    ],
)
def test_vague_openings_and_names_are_found(tmp_path: Path, text: str, word: str) -> None:
    [found] = check(written(tmp_path, one=text))

    assert found.startswith("house/wing/one.py:")
    assert word in found


def test_two_classes_of_a_wing_with_one_name_are_found(tmp_path: Path) -> None:
    [found] = check(written(tmp_path, one="class Row:\n    class Meta:\n        pass\n", two="class Row:\n    pass\n"))

    assert found.startswith("house/wing/two.py:1: ")
    assert "Row" in found


def test_plain_words_pass(tmp_path: Path) -> None:
    text = '"""Rows of a page."""\n\n\ndef soldier(untold):\n    """Return whatever holds. Official."""\n'

    assert check(written(tmp_path, one=text)) == []
