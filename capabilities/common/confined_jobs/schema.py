"""Check of arguments against a JSON Schema that a member or a server outside wrote.

References that branch take time that doubles with each of them: fifty would hold the process for years.
"""

from __future__ import annotations

from typing import Any

from capabilities.contract.schemas import complaints


def run(schema_text: str, arguments: dict[str, Any]) -> list[str]:
    return complaints(schema_text, arguments)
