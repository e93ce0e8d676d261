"""Clients that only npm has, or that need an environment of their own: what runs them, and tests that need them.

`make clients` installs them. Tests of them are never skipped in silence: see the end of a run.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent
PYTHON = FOLDER / ".venv/bin/python"
NODE = FOLDER / ".venv/bin/node"
PACKAGES = FOLDER / "node_modules"
#: Made when all of it is there.
INSTALLED = FOLDER / ".venv/.installed"
#: What the reasons of skipped tests begin with; conftest.py counts them.
NOT_INSTALLED = "client not installed: "


def need_clients() -> None:
    """Where they are missing, skip the test, or fail it where TOOLHUB_REQUIRE_CLIENTS says that it must run."""
    if INSTALLED.exists():
        return
    missing = "`make clients` installs what they need."
    if os.environ.get("TOOLHUB_REQUIRE_CLIENTS"):
        pytest.fail(missing)
    pytest.skip(NOT_INSTALLED + missing)
