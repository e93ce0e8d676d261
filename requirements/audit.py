"""Looks up known vulnerabilities of every locked package: `python requirements/audit.py`, a part of `make check`.

Ends with 1 where a package has one. Where the database of advisories is out of reach, it says so and ends with 0: a
machine without a network can still run the checks, and the next one with a network looks them up.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

#: Holds every package of run.txt as well.
LOCKED = Path(__file__).with_name("dev.txt")
#: Seconds for all look-ups.
SECONDS = 120


@dataclass(frozen=True)
class Finding:
    """What a run of pip-audit came to: a line for each vulnerability, and how many packages were looked up."""

    vulnerabilities: tuple[str, ...]
    looked_up: int
    packages: int

    @property
    def sentence(self) -> str:
        if self.vulnerabilities:
            return "Packages with known vulnerabilities:\n" + "\n".join(self.vulnerabilities)
        if not self.looked_up:
            return "The advisories could not be read: the packages were not checked for known vulnerabilities."
        left = self.packages - self.looked_up
        rest = f", {left} could not be looked up" if left else ""
        return f"Packages without a known vulnerability: {self.looked_up}{rest}."


def finding(report: str) -> Finding:
    """Read what pip-audit printed as JSON; nothing that can be read means that nothing was looked up."""
    try:
        packages = json.loads(report)["dependencies"]
    except (ValueError, KeyError, TypeError):
        return Finding((), 0, 0)
    found = [
        f"{package['name']} {package['version']}: {each['id']}, fixed in {' or '.join(each['fix_versions']) or '-'}"
        for package in packages
        for each in package.get("vulns", ())
    ]
    return Finding(tuple(found), sum("skip_reason" not in package for package in packages), len(packages))


def main() -> int:
    command = [sys.executable, "-m", "pip_audit", "--disable-pip", "--require-hashes", "--progress-spinner", "off"]
    command += ["--format", "json", "--requirement", str(LOCKED)]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        found = finding(run.stdout)
    except subprocess.TimeoutExpired:
        found = Finding((), 0, 0)
    print(found.sentence)
    return 1 if found.vulnerabilities else 0


if __name__ == "__main__":
    sys.exit(main())
