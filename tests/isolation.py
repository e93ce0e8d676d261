"""Whether this machine can keep full Python and commands apart. Tests of them are never skipped in silence.

`python -m tests.isolation` ends well where bubblewrap can make namespaces here, and says why not elsewhere.
"""

from __future__ import annotations

import os
import subprocess
import sys

import django
import pytest

#: What the reasons of skipped tests begin with; conftest.py counts them.
NOT_ISOLATED = "not isolated: "


def need_isolation(reason: str) -> None:
    """Skip the test for this reason; none: go on. Where TOOLHUB_REQUIRE_ISOLATION says that it must run, fail it."""
    if not reason:
        return
    if os.environ.get("TOOLHUB_REQUIRE_ISOLATION"):
        pytest.fail(f"This machine can make namespaces, but: {reason}")
    pytest.skip(NOT_ISOLATED + reason)


def why_no_namespaces() -> str:
    """Why bubblewrap makes no namespaces on this machine; empty where it does. Asked of the program itself."""
    from capabilities.running.sandbox.bubblewrap.program import MISSING, program

    bwrap = program()
    if bwrap is None:
        return MISSING
    command = [bwrap, "--unshare-all", "--unshare-user", "--disable-userns", "--ro-bind", "/", "/", "--", "true"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return "" if ran.returncode == 0 else (ran.stderr.strip() or f"bubblewrap ended with status {ran.returncode}")


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    sys.exit(why_no_namespaces() or None)
