"""Check of values against a JSON Schema that came from outside. One function for all callers."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from capabilities.common import confined
from capabilities.contract.schemas import complaints, is_quickly_checked


def complaints_about(
    schema_text: str,
    values: Mapping[str, Any],
    organisation_id: int,
    *,
    wait: float = 2 * confined.SECONDS,
    stopped: threading.Event | None = None,
) -> list[str]:
    """Return the errors in these values, a sentence each; empty where they fit. A schema that could take long is
    read in a child process, for `wait` seconds at most. Raises ConfinedError."""
    if is_quickly_checked(schema_text, values):
        return complaints(schema_text, values)
    wanted = {"schema_text": schema_text, "arguments": values}
    seconds = min(confined.SECONDS, wait)
    found: list[str] = confined.run("schema", wanted, organisation_id, seconds=seconds, wait=wait, stopped=stopped)
    return found
