"""Texts in files for spreadsheets."""

from __future__ import annotations

#: A spreadsheet takes a text that begins so for a formula.
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def as_text(value: str) -> str:
    """Return the text so that no spreadsheet runs it as a formula."""
    return f"'{value}" if value.startswith(FORMULA) else value
