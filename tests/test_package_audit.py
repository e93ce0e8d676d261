"""What `make check` makes of a look-up of vulnerabilities. The look-up itself needs the internet, and no test does."""

from __future__ import annotations

import gzip
import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import Any

import pytest

from tests.clients.installed import NODE, need_clients
from tests.paths import ROOT

CLEAN = {"name": "django", "version": "5.2.19", "vulns": []}
VULNERABLE = {
    "name": "old",
    "version": "1.0",
    "vulns": [{"id": "PYSEC-2026-1", "fix_versions": ["1.1", "2.0"], "aliases": [], "description": "..."}],
}
SKIPPED = {"name": "ours", "skip_reason": "Dependency not found on PyPI and could not be audited: ours (1.0)"}
ADVISORY = {
    "name": "inspector",
    "title": "Runs what a page says",
    "url": "https://github.com/advisories/GHSA-1",
    "severity": "high",
    "range": "<0.16.6",
}
#: What npm answers, as JSON, where the registry does not.
REFUSED_BY_REGISTRY = {"message": "405 Method Not Allowed", "statusCode": 405, "body": "", "error": {"summary": ""}}
UNREAD = "the advisories could not be read, so its packages were not checked for known vulnerabilities."


def of_pypi(*packages: dict[str, Any]) -> str:
    return json.dumps({"dependencies": packages, "fixes": []})


def of_npm(**packages: Any) -> str:
    vulnerable = {name: {"name": name, "via": via} for name, via in packages.items()}
    return json.dumps({"vulnerabilities": vulnerable, "metadata": {"dependencies": {"total": 300}}})


@pytest.fixture
def audit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The script, where `make clients` has installed a Node."""
    spec = importlib.util.spec_from_file_location("package_audit", ROOT / "requirements" / "audit.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "package_audit", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "NODE", tmp_path)
    return module


@pytest.fixture
def answered(
    audit: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, dict[str, str]]]:
    """Its exit status, and what it says of each lock file, where the look-ups print these texts in turn; None for one
    that takes too long."""

    def run(*printed: str | None) -> tuple[int, dict[str, str]]:
        left = list(printed)

        def answer(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
            told = left.pop(0)
            if told is None:
                raise subprocess.TimeoutExpired(command, options["timeout"])
            return subprocess.CompletedProcess(command, 1, told, "")

        monkeypatch.setattr(audit.subprocess, "run", answer)
        status: int = audit.main()
        _, *told = re.split(r"^(\S+\.(?:txt|json)): ", capsys.readouterr().out, flags=re.MULTILINE)
        return status, {lock: sentence.rstrip("\n") for lock, sentence in zip(told[::2], told[1::2], strict=True)}

    return run


@pytest.mark.parametrize(
    ("packages", "code", "sentence"),
    [
        ([CLEAN, CLEAN], 0, "2 packages without a known vulnerability."),
        ([CLEAN, SKIPPED], 0, "1 packages without a known vulnerability, 1 could not be looked up."),
        (
            [CLEAN, VULNERABLE],
            1,
            "packages with known vulnerabilities:\nold 1.0: PYSEC-2026-1, fixed in 1.1 or 2.0",
        ),
        ([SKIPPED], 0, UNREAD),
    ],
)
@pytest.mark.parametrize("is_of_clients", [False, True])
def test_a_known_vulnerability_fails_and_a_missing_network_does_not(
    answered: Callable[..., tuple[int, dict[str, str]]],
    packages: list[dict[str, Any]],
    code: int,
    sentence: str,
    is_of_clients: bool,
) -> None:
    found, clean = of_pypi(*packages), of_pypi(CLEAN)

    status, told = answered(*((clean, found) if is_of_clients else (found, clean)), of_npm())

    assert status == code
    fine = "1 packages without a known vulnerability."
    of_npm_packages = told.pop("tests/clients/package-lock.json")
    assert of_npm_packages.startswith("300 packages without")
    assert told == {
        "requirements/dev.txt": fine if is_of_clients else sentence,
        "tests/clients/requirements.txt": sentence if is_of_clients else fine,
    }


@pytest.mark.parametrize(
    ("printed", "code", "sentence"),
    [
        (
            of_npm(inspector=[ADVISORY], needs_it=["inspector"]),
            1,
            "packages with known vulnerabilities:\ninspector <0.16.6: " + ADVISORY["url"] + ", Runs what a page says",
        ),
        (json.dumps(REFUSED_BY_REGISTRY), 0, UNREAD),
        (json.dumps([]), 0, UNREAD),
        ("npm error", 0, UNREAD),
        (None, 0, UNREAD),
    ],
)
def test_packages_of_npm_are_looked_up_too(
    answered: Callable[..., tuple[int, dict[str, str]]], printed: str | None, code: int, sentence: str
) -> None:
    status, told = answered(of_pypi(CLEAN), of_pypi(CLEAN), printed)

    assert (status, told["tests/clients/package-lock.json"]) == (code, sentence)


def test_without_npm_it_says_what_was_not_looked_up(
    answered: Callable[..., tuple[int, dict[str, str]]], audit: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "NODE", ROOT / "nowhere")

    status, told = answered(of_pypi(CLEAN), of_pypi(CLEAN))

    assert status == 0
    assert told["tests/clients/package-lock.json"].startswith("not checked, `make clients`")


@pytest.mark.parametrize("printed", ["Traceback (most recent call last): ...", "[]", None])
def test_an_answer_that_cannot_be_read_is_no_failure(
    answered: Callable[..., tuple[int, dict[str, str]]], printed: str | None
) -> None:
    status, told = answered(printed, printed, of_npm())

    assert status == 0
    assert [told["requirements/dev.txt"], told["tests/clients/requirements.txt"]] == [UNREAD, UNREAD]


# -- npm itself -------------------------------------------------------------------------------------------------------


class Registry:
    """As npm's, with an advisory for one package; or without advisories, as some mirrors are."""

    def __init__(self, vulnerable: str) -> None:
        #: The versions of each package that it was asked for.
        self.asked: dict[str, list[str]] = {}
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                is_packed = self.headers.get("Content-Encoding") == "gzip"
                registry.asked = json.loads(gzip.decompress(body) if is_packed else body)
                advisory = {**ADVISORY, "id": 1, "vulnerable_versions": "<1000"}
                del advisory["name"], advisory["range"]
                self.answer(200 if vulnerable else 405, {vulnerable: [advisory]})

            def do_GET(self) -> None:
                self.answer(404, {})

            def answer(self, status: int, body: object) -> None:
                told = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(told)))
                self.end_headers()
                self.wfile.write(told)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = Thread(target=self.server.serve_forever)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture(params=["zod", ""], ids=["with advisories", "without"])
def registry(
    request: pytest.FixtureRequest, audit: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Registry]:
    """The one that npm asks."""
    need_clients()
    monkeypatch.setattr(audit, "NODE", NODE)
    found = Registry(request.param)
    monkeypatch.setenv("npm_config_registry", f"http://127.0.0.1:{found.server.server_port}/")
    monkeypatch.setenv("npm_config_cache", str(tmp_path))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    yield found
    found.close()


@pytest.mark.processes
def test_npm_asks_for_every_package_and_is_understood(
    audit: ModuleType, registry: Registry, request: pytest.FixtureRequest
) -> None:
    finding = audit.by_npm()

    packages = json.loads(audit.LOCKED_OF_NPM.read_text())["packages"]
    assert {path.rpartition("node_modules/")[2] for path in packages if path} == registry.asked.keys()
    if request.node.callspec.params["registry"]:
        told = "zod <1000: https://github.com/advisories/GHSA-1, Runs what a page says"
        assert (finding.vulnerabilities, finding.looked_up) == ((told,), len(packages) - 1)
    else:
        assert finding == audit.Finding()


# -- What is looked up ------------------------------------------------------------------------------------------------


def test_every_package_of_the_service_is_among_those_that_are_looked_up(audit: ModuleType) -> None:
    def pins(path: Path) -> set[str]:
        return {line.split(" ")[0] for line in path.read_text().splitlines() if "==" in line and line[0].isalpha()}

    assert pins(ROOT / "requirements" / "run.txt") <= pins(audit.LOCKED[0])
    assert pins(ROOT / "requirements" / "otel.txt") <= pins(audit.LOCKED[0])


def test_make_check_looks_them_up() -> None:
    command = ["make", "--dry-run", "check", "VENV=/nowhere/venv"]
    plan = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout

    assert "/nowhere/venv/bin/python requirements/audit.py" in plan.splitlines()


def test_every_lock_file_is_looked_up(audit: ModuleType) -> None:
    found = {path for pattern in ("requirements/*.txt", "tests/clients/*.txt") for path in ROOT.glob(pattern)}
    within_another = {ROOT / "requirements/run.txt", ROOT / "requirements/otel.txt"}

    assert found - within_another == set(audit.LOCKED)
    assert [*ROOT.glob("tests/clients/package-lock.json")] == [audit.LOCKED_OF_NPM]
