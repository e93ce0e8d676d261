"""Tools that need a service."""

from __future__ import annotations

from collections.abc import Sequence

from capabilities.models import Tool


def tools_of_service(service: str) -> Sequence[str]:
    """Return the names of the tools that need it. One query."""
    return list(Tool.objects.filter(service=service).order_by("name").values_list("name", flat=True))
