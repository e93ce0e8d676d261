"""The operations of an OpenAPI document, as plain JSON."""

from __future__ import annotations

from typing import Any

from capabilities.contract.documents import DocumentRefused, read_document
from capabilities.contract.openapi import read_openapi
from capabilities.contract.openapi.part import Part
from capabilities.contract.openapi.reading import DocumentIsNone


def run(text: str, url: str, part: dict[str, Any]) -> dict[str, Any]:
    """Return the result of `read_openapi`; or `refused` with a sentence."""
    try:
        return read_openapi(read_document(text), url, Part.of(part))
    except (DocumentRefused, DocumentIsNone) as error:
        return {"refused": str(error)}
