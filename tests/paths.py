"""Where the project lies: tests name its files from here, wherever they lie themselves."""

from __future__ import annotations

import fnmatch
import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: Documents and lists of tools that others wrote, beside the project where they are at hand.
SHARED_DATA = Path(os.environ.get("TOOLHUB_SHARED_DATA") or ROOT.parent / "shared" / "data")


def own_files(folder: str, pattern: str) -> list[Path]:
    """Files of the folder, without what `make clients` installs."""
    found: list[Path] = []
    for here, folders, files in os.walk(ROOT / folder):
        folders[:] = [each for each in folders if each not in (".venv", "node_modules")]
        found += [Path(here, name) for name in fnmatch.filter(files, pattern)]
    return found
