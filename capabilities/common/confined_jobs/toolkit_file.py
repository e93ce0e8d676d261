"""A toolkit file as plain JSON, checked: its form, its types and its hash."""

from __future__ import annotations

from typing import Any

from capabilities.contract.toolkit_file import ToolkitFileRefused, read_toolkit_file


def run(text: str) -> dict[str, Any]:
    """Return `document`; or `refused` with a sentence."""
    try:
        return {"document": read_toolkit_file(text)}
    except ToolkitFileRefused as error:
        return {"refused": str(error)}
