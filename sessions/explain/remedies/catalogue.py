"""Changes of the catalogue: a tool that is switched on, a service that is set up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from capabilities.catalogue.tools.writes import set_tool_enabled
from capabilities.models import Tool
from capabilities.pipeline.candidates import Row
from capabilities.registry import registry
from capabilities.services.writes import service_title
from sessions.explain.inputs import Inputs
from sessions.explain.remedies.ways import Blocked, Page, Way


def switch_on(blocked: Blocked) -> Iterator[Way]:
    """Switch the tool on."""
    spec = blocked.tool.spec
    yield Way(
        "it is switched on in the catalogue",
        Page("tool_detail", (spec.name,)),
        partial(_with_rows, blocked, lambda row: row.spec.tool_id == spec.tool_id, is_enabled=True),
        lambda actor: set_tool_enabled(_tool(spec.name), True, actor=actor),
    )


def set_up(blocked: Blocked) -> Iterator[Way]:
    """Set up the service that it needs."""
    name = blocked.tool.spec.service
    service = registry.services.get(name)
    if service is not None and service.is_available:
        yield Way(
            f"{service_title(name)} is set up for the organisation",
            Page("service_update", (name,)),
            partial(_with_rows, blocked, lambda row: row.spec.service == name, is_ready=True),
        )


def _with_rows(blocked: Blocked, is_meant: Callable[[Row], bool], **fields: Any) -> Inputs | None:
    """With these facts of some tools; nothing where the tool would not fit in."""
    if not blocked.inputs.has_room_for(blocked.tool.spec):
        return None
    keys = frozenset(key for key, row in blocked.inputs.rows.items() if is_meant(row))
    return blocked.inputs.changed(
        keys, row=lambda row: replace(row, spec=replace(row.spec, **fields)) if is_meant(row) else row
    )


def _tool(name: str) -> Tool:
    return Tool.objects.select_related("category").get(name=name)
