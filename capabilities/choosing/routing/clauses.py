"""The steps of a request that asks for several things."""

from __future__ import annotations

import re

#: Clauses of one message that are ranked by themselves.
MAX_CLAUSES = 6
#: Characters of a message in which clauses are looked for.
MAX_CHARACTERS = 4_000
MIN_WORDS = 2

_BOUNDARY = re.compile(
    r"(?<=[.!?;])\s+|\n+|\b(?:and then|then|also|additionally|furthermore|moreover|finally|lastly|next|after that"
    r"|afterwards|as well as|followed by|außerdem|danach|anschließend|además|después|también|ensuite|puis|également)"
    r"\b[,:]?",
    re.IGNORECASE,
)


def clauses_of(text: str) -> list[str]:
    """The steps of a text; nothing where it has one only."""
    parts = [part.strip(" ,.;:'\"") for part in _BOUNDARY.split(text[:MAX_CHARACTERS])]
    parts = [part for part in parts if part.count(" ") + 1 >= MIN_WORDS]
    return list(dict.fromkeys(parts))[:MAX_CLAUSES] if len(parts) > 1 else []
