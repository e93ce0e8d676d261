"""Runs the tests as its arguments say (`flaky.py python -m pytest ...`), and once more what failed, by itself.

What fails beside others and passes alone is flaky. It ends nobody's work, so the exit status is 0 for it; but its names
are the last words of the output: each is a defect to mend. What fails again has failed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

#: Where pytest keeps the names of what failed.
FAILED = Path(".pytest_cache/v/cache/lastfailed")
#: pytest's exit status when all tests ran and some failed. With another one (interrupted, a wrong option) not all did.
SOME_FAILED = 1


def main(command: list[str]) -> int:
    """The exit status: of the first run where nothing is to be tried again, else of the second."""
    FAILED.unlink(missing_ok=True)
    status = subprocess.run(command, check=False).returncode
    before = failed()
    if status != SOME_FAILED or not before:
        return status
    alone = [sys.executable, "-m", "pytest", "-q", "--last-failed", "--last-failed-no-failures", "none"]
    status = subprocess.run(alone, check=False).returncode
    flaky = sorted(before - failed())
    if status in (0, SOME_FAILED) and flaky:
        print(f"\nFLAKY: {len(flaky)} failed beside others and passed alone. Each is a defect to mend:")
        print(*(f"  {name}" for name in flaky), sep="\n", flush=True)
    return status


def failed() -> set[str]:
    return set(json.loads(FAILED.read_text())) if FAILED.exists() else set()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
