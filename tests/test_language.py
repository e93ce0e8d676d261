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
        ("told = 1\n", "told"),
        ("def a(said):\n    pass\n", "said"),
        ("def a():\n    return [meant for meant in []]\n", "meant"),
        ("class A:\n    def a(self):\n        self._said = 1\n", "said"),
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


REFUSES = {
    "raise": "def change(row):\n    if row:\n        raise ValueError\n",
    "require": "def change(row):\n    require(row)\n",
    "rank": "def change(row):\n    with row:\n        check_rank(row)\n",
    "404": "def change(row):\n    return role_or_404(row)\n",
}


@pytest.mark.parametrize("text", REFUSES.values(), ids=REFUSES)
def test_a_write_that_does_not_say_that_it_raises_is_found(tmp_path: Path, text: str) -> None:
    [found] = check(written(tmp_path, writes=text, queries=text))

    assert found.startswith("house/wing/writes.py:1: ")
    assert "change" in found


def test_writes_that_raise_nothing_or_say_so_pass(tmp_path: Path) -> None:
    text = (
        'def a():\n    """Raises ValueError."""\n    raise ValueError\n\n\n'
        "def _private():\n    raise ValueError\n\n\n"
        "def b():\n    def inside():\n        raise ValueError\n    return inside\n\n\n"
        "def c():\n    try:\n        return 1\n    except ValueError:\n        raise\n\n\n"
        "def provided():\n    raise NotImplementedError\n"
    )

    assert check(written(tmp_path, writes=text)) == []


def test_plain_words_pass(tmp_path: Path) -> None:
    text = '"""Rows of a page."""\n\n\ndef soldier(untold):\n    """Return whatever holds. Official."""\n'

    assert check(written(tmp_path, one=text)) == []
