"""Parts of the OpenAPI document that all operations have alike."""

from __future__ import annotations

from typing import Any

ERROR = {"$ref": "#/components/schemas/ErrorOut"}


def with_errors(result: dict[str, Any], **context: Any) -> dict[str, Any]:
    """Each operation may answer with an error, whatever its status, in one shape."""
    default = {"description": "Any error.", "content": {"application/json": {"schema": ERROR}}}
    for item in result["paths"].values():
        for operation in item.values():
            operation["responses"].setdefault("default", default)
    return result
