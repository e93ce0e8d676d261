"""Looks up known vulnerabilities of every locked package: `python requirements/audit.py`, a part of `make check`.

Ends with 1 where a package has one. Where advisories are out of reach, or the npm that reads its own is not installed,
it says so for that lock file and goes on: a machine without a network can still run the checks, and the next one with a
network looks them up.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: What is installed of PyPI: all that the service and its tests need, with every package of run.txt and otel.txt; and
#: the clients of `make clients`.
LOCKED = (ROOT / "requirements/dev.txt", ROOT / "tests/clients/requirements.txt")
#: What `make clients` installs of npm, and its Node, which has an npm beside it.
LOCKED_OF_NPM = ROOT / "tests/clients/package-lock.json"
NODE = ROOT / "tests/clients/.venv/bin/node"
NPM = "lib/node_modules/npm/bin/npm-cli.js"
#: Seconds for all look-ups of one lock file.
SECONDS = 120


@dataclass(frozen=True)
class Finding:
    """What the look-up of a lock file came to: a line for each vulnerability, and how many packages were looked up."""

    vulnerabilities: tuple[str, ...] = ()
    looked_up: int = 0
    packages: int = 0

    @property
    def sentence(self) -> str:
        if self.vulnerabilities:
            return "packages with known vulnerabilities:\n" + "\n".join(self.vulnerabilities)
        if not self.looked_up:
            return "the advisories could not be read, so its packages were not checked for known vulnerabilities."
        left = self.packages - self.looked_up
        rest = f", {left} could not be looked up" if left else ""
        return f"{self.looked_up} packages without a known vulnerability{rest}."


def of_pip_audit(report: str) -> Finding:
    """Read what pip-audit printed as JSON; nothing that can be read means that nothing was looked up."""
    try:
        packages = json.loads(report)["dependencies"]
    except (ValueError, KeyError, TypeError):
        return Finding()
    found = [
        f"{package['name']} {package['version']}: {each['id']}, fixed in {' or '.join(each['fix_versions']) or '-'}"
        for package in packages
        for each in package.get("vulns", ())
    ]
    return Finding(tuple(found), sum("skip_reason" not in package for package in packages), len(packages))


def of_npm(report: str) -> Finding:
    """Read what `npm audit` printed as JSON. Where its registry does not answer, that is JSON too, without packages."""
    try:
        told = json.loads(report)
        packages, total = told["vulnerabilities"].values(), told["metadata"]["dependencies"]["total"]
    except (ValueError, KeyError, TypeError, AttributeError):
        return Finding()
    # A package that only needs one with an advisory names it, in place of an advisory of its own.
    advisories = [each for package in packages for each in package["via"] if isinstance(each, dict)]
    found = {f"{each['name']} {each['range']}: {each['url']}, {each['title']}" for each in advisories}
    return Finding(tuple(sorted(found)), total, total)


def looked_up(command: Sequence[str], read: Callable[[str], Finding]) -> Finding:
    try:
        return read(subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False).stdout)
    except subprocess.TimeoutExpired:
        return Finding()


def by_pip_audit(lock: Path) -> Finding:
    command = [sys.executable, "-m", "pip_audit", "--disable-pip", "--require-hashes", "--progress-spinner", "off"]
    return looked_up([*command, "--format", "json", "--requirement", str(lock)], of_pip_audit)


def by_npm() -> Finding:
    npm = [str(NODE), str(NODE.resolve().parent.parent / NPM)]
    return looked_up([*npm, "audit", "--json", "--package-lock-only", "--prefix", str(LOCKED_OF_NPM.parent)], of_npm)


def main() -> int:
    found = {lock: by_pip_audit(lock) for lock in LOCKED}
    if NODE.exists():
        found[LOCKED_OF_NPM] = by_npm()
    for lock, finding in found.items():
        print(f"{lock.relative_to(ROOT)}: {finding.sentence}")
    if LOCKED_OF_NPM not in found:
        print(f"{LOCKED_OF_NPM.relative_to(ROOT)}: not checked, `make clients` installs the npm that can.")
    return 1 if any(finding.vulnerabilities for finding in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
