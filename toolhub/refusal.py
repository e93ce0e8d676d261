"""End of a start that cannot go on: with one sentence. Imports nothing, for the supervisor's sake."""

from __future__ import annotations

from typing import NoReturn


def refuse(sentence: str) -> NoReturn:
    """Refuse to start, with one sentence. Raises SystemExit."""
    raise SystemExit(f"toolhub cannot start: {sentence}")
