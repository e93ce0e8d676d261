"""The stored rows of what model calls carried."""

from __future__ import annotations

from capabilities.contract.wire import canonical_json, sha256_hex
from capabilities.pipeline.stages import Selection
from sessions.models import ToolSet


def keep_tool_set(selection: Selection, organisation_id: int) -> ToolSet:
    """The stored row of these tool versions under these overrides; made the first time. One or two queries."""
    version_ids = [tool.version_id for tool in selection.tools]
    overrides = selection.overrides
    found, _ = ToolSet.objects.get_or_create(
        organisation_id=organisation_id,
        key=sha256_hex(canonical_json([version_ids, overrides] if overrides else version_ids)),
        defaults={
            "sha256": selection.sha256,
            "wire": selection.wire,
            "tokens": selection.tokens,
            "version_ids": version_ids,
            "overrides": overrides,
            "instructions": selection.instructions,
        },
    )
    return found
