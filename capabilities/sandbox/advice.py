"""What to write instead, for errors of a run."""

from __future__ import annotations

import re

from capabilities.sandbox.values import RunError

#: In the order in which they are tried: the kind and a part of the message -> what to write instead.
OF_MONTY: tuple[tuple[str, str, str], ...] = ()


def advice_for(error: RunError, runtime: str) -> str:
    """A sentence that says what to write instead, or empty."""
    for kind, pattern, advice in OF_MONTY if runtime == "monty" else ():
        if (not kind or kind == error.kind) and re.search(pattern, error.message):
            return advice
    return ""
