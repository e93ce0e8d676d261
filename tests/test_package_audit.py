"""What `make check` makes of a look-up of vulnerabilities. The look-up itself needs the internet, and no test does."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent

CLEAN = {"name": "django", "version": "5.2.19", "vulns": []}
VULNERABLE = {
    "name": "old",
    "version": "1.0",
    "vulns": [{"id": "PYSEC-2026-1", "fix_versions": ["1.1", "2.0"], "aliases": [], "description": "..."}],
}
SKIPPED = {"name": "ours", "skip_reason": "Dependency not found on PyPI and could not be audited: ours (1.0)"}


@pytest.fixture
def audit(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("package_audit", ROOT / "requirements" / "audit.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "package_audit", module)
    spec.loader.exec_module(module)
    return module


def answered(audit: ModuleType, monkeypatch: pytest.MonkeyPatch, stdout: str, code: int = 0) -> int:
    run = subprocess.CompletedProcess([], code, stdout, "")
    monkeypatch.setattr(audit.subprocess, "run", lambda *args, **kwargs: run)
    result: int = audit.main()
    return result


@pytest.mark.parametrize(
    ("packages", "code", "sentence"),
    [
        ([CLEAN, CLEAN], 0, "Packages without a known vulnerability: 2.\n"),
        ([CLEAN, SKIPPED], 0, "Packages without a known vulnerability: 1, 1 could not be looked up.\n"),
        (
            [CLEAN, VULNERABLE],
            1,
            "Packages with known vulnerabilities:\nold 1.0: PYSEC-2026-1, fixed in 1.1 or 2.0\n",
        ),
        (
            [SKIPPED],
            0,
            "The advisories could not be read: the packages were not checked for known vulnerabilities.\n",
        ),
    ],
)
def test_a_known_vulnerability_fails_and_a_missing_network_does_not(
    audit: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    packages: list[dict[str, Any]],
    code: int,
    sentence: str,
) -> None:
    assert answered(audit, monkeypatch, json.dumps({"dependencies": packages, "fixes": []}), code) == code
    assert capsys.readouterr().out == sentence


def test_an_answer_that_cannot_be_read_is_no_failure(
    audit: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert answered(audit, monkeypatch, "Traceback (most recent call last): ...", 1) == 0
    assert "not checked" in capsys.readouterr().out


def test_every_package_of_the_service_is_among_those_that_are_looked_up(audit: ModuleType) -> None:
    def pins(path: Path) -> set[str]:
        return {line.split(" ")[0] for line in path.read_text().splitlines() if "==" in line and line[0].isalpha()}

    assert pins(ROOT / "requirements" / "run.txt") <= pins(audit.LOCKED)
    assert pins(ROOT / "requirements" / "otel.txt") <= pins(audit.LOCKED)


def test_make_check_looks_them_up() -> None:
    command = ["make", "--dry-run", "check", "VENV=/nowhere/venv"]
    plan = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout

    assert "/nowhere/venv/bin/python requirements/audit.py" in plan.splitlines()
