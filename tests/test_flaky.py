"""What continuous integration says of tests that fail beside others and pass alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT

ONCE = """
from pathlib import Path

def test_fails_once():
    seen = Path("seen")
    first = not seen.exists()
    seen.touch()
    assert not first

def test_fails_once_in_a_part_of_it(subtests):
    seen = Path("seen-too")
    first = not seen.exists()
    seen.touch()
    with subtests.test("a part"):
        assert not first
"""
GOOD = "def test_good(): pass\n"
BAD = "def test_bad(): assert False\n"
STOPS = "def test_stops(): raise KeyboardInterrupt\n"


def run(folder: Path, **tests: str) -> subprocess.CompletedProcess[str]:
    for name, text in tests.items():
        (folder / f"test_{name}.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\n")
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "DJANGO_"))}
    env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # quick
    return subprocess.run(
        [sys.executable, ROOT / ".ci/flaky.py", sys.executable, "-m", "pytest", "-q"],
        cwd=folder, env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_a_test_that_passes_alone_is_named_as_flaky(tmp_path: Path) -> None:
    ran = run(tmp_path, good=GOOD, once=ONCE)

    assert ran.returncode == 0, ran.stdout
    head, *names = ran.stdout.splitlines()[-3:]
    assert head.startswith("FLAKY: 2 failed")
    assert names == ["  test_once.py::test_fails_once", "  test_once.py::test_fails_once_in_a_part_of_it"]


def test_what_fails_again_has_failed_and_is_not_called_flaky(tmp_path: Path) -> None:
    ran = run(tmp_path, bad=BAD, once=ONCE)

    assert ran.returncode == 1
    assert ran.stdout.splitlines()[-3].startswith("FLAKY: 2 failed")
    assert "test_bad" not in ran.stdout.partition("FLAKY")[2]


@pytest.mark.parametrize(("tests", "status"), [({"good": GOOD}, 0), ({"stops": STOPS, "once": ONCE}, 2), ({}, 5)])
def test_nothing_is_tried_again_where_all_passed_or_not_all_ran(
    tmp_path: Path, tests: dict[str, str], status: int
) -> None:
    ran = run(tmp_path, **tests)

    assert ran.returncode == status
    assert "FLAKY" not in ran.stdout


def test_an_old_failure_is_not_taken_for_one_of_this_run(tmp_path: Path) -> None:
    cache = tmp_path / ".pytest_cache/v/cache"
    cache.mkdir(parents=True)
    (cache / "lastfailed").write_text('{"test_good.py::test_good": true}')

    ran = run(tmp_path, good=GOOD, bad=BAD)

    assert ran.returncode == 1
    assert "FLAKY" not in ran.stdout
