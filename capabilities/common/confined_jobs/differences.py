"""Differences between two lists of lines, as a unified diff."""

from __future__ import annotations

import difflib


def run(before: list[str], after: list[str], before_name: str, after_name: str) -> str:
    return "\n".join(difflib.unified_diff(before, after, before_name, after_name, lineterm=""))
