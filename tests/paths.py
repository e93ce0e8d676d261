"""Where the project lies: tests name its files from here, wherever they lie themselves."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: Documents and lists of tools that others wrote, beside the project where they are at hand.
SHARED_DATA = Path(os.environ.get("TOOLHUB_SHARED_DATA") or ROOT.parent / "shared" / "data")
