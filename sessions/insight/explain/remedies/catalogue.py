"""Changes of the catalogue: a tool that is switched on or released, a version that is approved, a service set up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from capabilities.catalogue.tools.writes import set_tool_enabled
from capabilities.catalogue.versions.writes import decide_version, release_tool
from capabilities.choosing.pipeline.candidates import Row
from capabilities.contract.knobs import KNOBS
from capabilities.contract.tool_size import KNOB
from capabilities.models import Tool, ToolVersion
from capabilities.running.registry import registry
from capabilities.running.services.writes import service_title
from sessions.insight.explain.inputs import Inputs
from sessions.insight.explain.remedies.ways import Blocked, Page, Way


def switch_on(blocked: Blocked) -> Iterator[Way]:
    """Switch the tool on."""
    spec = blocked.tool.spec
    yield Way(
        "it is switched on in the catalogue",
        Page("tool_detail", (spec.name,)),
        partial(_with_rows, blocked, lambda row: row.spec.tool_id == spec.tool_id, is_enabled=True),
        lambda actor: set_tool_enabled(_tool(spec.name), True, actor=actor),
    )


def release(blocked: Blocked) -> Iterator[Way]:
    """Use the version in force of a tool that is kept back again, unless its server offers another one."""
    spec = blocked.tool.spec
    if spec.quarantine and spec.is_in_force and blocked.tool.listed.is_offered:
        yield Way(
            f"a member with the right approve_code releases {spec.name}",
            Page("tool_detail", (spec.name,)),
            partial(_with_rows, blocked, lambda row: row.spec.tool_id == spec.tool_id, quarantine=""),
            lambda actor: release_tool(_tool(spec.name), actor=actor),
        )


def approve(blocked: Blocked) -> Iterator[Way]:
    """Approve the version that waits."""
    spec, waiting = blocked.tool.spec, blocked.tool.listed.waiting
    if waiting is None:
        return
    but = f" other than {waiting.not_by}, who wrote it," if waiting.not_by else ""
    if spec.is_in_force:
        inputs = partial(_with_rows, blocked, lambda row: row.spec.tool_id == spec.tool_id, quarantine="")
    else:
        inputs = partial(_with_its_row, blocked)
    yield Way(
        f"a member with the right approve_code{but} approves version {waiting.number}",
        Page("tool_version", (spec.name, waiting.number)),
        inputs,
        lambda actor: decide_version(ToolVersion.objects.get(pk=waiting.id), approve=True, actor=actor),
    )


def _with_its_row(blocked: Blocked) -> Inputs | None:
    """Return the inputs with the version that waits in force; None where the agent has no way to the tool, or no
    room."""
    row = blocked.tool.listed.row_then
    if row is None or not blocked.inputs.has_room_for(row.spec):
        return None
    rows = {**blocked.inputs.rows, row.spec.tool_id: row}
    return replace(blocked.inputs, rows=rows).changed(frozenset({row.spec.tool_id}))


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


def raise_definition_limit(blocked: Blocked) -> Iterator[Way]:
    """Let this tool's definition take more tokens than one may."""
    spec = blocked.tool.spec
    own = replace(spec.overrides, more=((KNOB, KNOBS[KNOB].maximum),))
    yield Way(
        f"the largest definition that {spec.name} may have is raised",
        Page("runtime_tool", (spec.name,)),
        partial(_with_rows, blocked, lambda row: row.spec.tool_id == spec.tool_id, overrides=own),
    )


def _with_rows(blocked: Blocked, is_changed: Callable[[Row], bool], **fields: Any) -> Inputs | None:
    """Return the inputs with these facts of some tools; None where the tool would not fit in."""
    if not blocked.inputs.has_room_for(blocked.tool.spec):
        return None
    keys = frozenset(key for key, row in blocked.inputs.rows.items() if is_changed(row))
    return blocked.inputs.changed(
        keys, row=lambda row: replace(row, spec=replace(row.spec, **fields)) if is_changed(row) else row
    )


def _tool(name: str) -> Tool:
    return Tool.objects.select_related("category").get(name=name)
