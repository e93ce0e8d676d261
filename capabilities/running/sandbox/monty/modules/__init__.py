"""Parts of Python's own library that the interpreter does not have, and that a line of a tool cannot replace: nothing
writes CSV without `io.StringIO`, or a form without `urllib.parse`.

Each has only what does the same as the original; what is left out is not there, and the check says so. They are read as
text and run inside of the sandbox, within the limits of the tool. The service itself imports none of them.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent

#: By the name that code imports them by; submodules of `urllib` are attributes of it.
NAMES = ("io", "statistics")
#: A package with one module.
PACKAGES = {"urllib": "parse"}


@cache
def source(name: str) -> str:
    """The code of one module: `statistics`, `urllib.parse`."""
    return (FOLDER / f"{name.replace('.', '_')}.py").read_text()
