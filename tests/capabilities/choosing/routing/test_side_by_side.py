"""Threads that route messages at the same time do not stand in each other's way."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from capabilities.choosing.routing import gate
from capabilities.choosing.routing.documents import Document
from capabilities.choosing.routing.index import Index, build_index
from tests.paths import ROOT

ROOMS = ("capabilities", "sessions", "toolhub")


def test_a_matrix_is_multiplied_in_the_thread_that_asks() -> None:
    code = "import os; from capabilities.choosing.routing import index; print(len(os.listdir('/proc/self/task')))"
    env = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}

    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, check=True)

    assert int(ran.stdout) == 1


def test_numpy_is_imported_behind_its_number_of_threads_alone() -> None:
    imports = re.compile(r"^\s*(?:import|from) numpy\b", re.MULTILINE)
    files = [path for room in ROOMS for path in (ROOT / room).rglob("*.py") if imports.search(path.read_text())]

    assert files
    assert {path.parent for path in files} == {ROOT / "capabilities/choosing/routing"}


def test_threads_that_need_the_same_threshold_measure_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = []

    def slow(index: Index, share: float) -> float:
        measured.append(share)
        time.sleep(0.1)
        return 0.5

    monkeypatch.setattr(gate, "_measured", slow)
    index = build_index([Document("note_add", "Adds a note.")])

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda _: gate.threshold(index), range(8)))

    assert (found, len(measured)) == ([0.5] * 8, 1)
