"""The settings that Claude Code reads in the workspace: which folders it may work in. Knows that one file, no rows."""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import Field

from capabilities.assistant.builtin._lib import workspace
from capabilities.contract.context import ToolContext, ToolError
from capabilities.running.registry import CategorySpec, tool
from toolhub.bounded_json import load_json

CATEGORY = CategorySpec(
    name="claude",
    title="Claude Code",
    description="Folders of the workspace that Claude Code may work in.",
    keywords=("claude", "allow directory", "permissions", "claude allow", "claude directory"),
)

SETTINGS = ".claude/settings.json"
#: Folders that the settings can name.
FOLDERS = 100


# A folder that is named already stays named once, so a crash may be followed by another try.
@tool(
    category="claude",
    effect="write",
    on_crash="retry",
    in_untrusted="refuse",
    human_format="Allowing the directory {path}",
)
def claude_allow_dir(
    context: ToolContext, path: Annotated[str, Field(description="A folder of the workspace.", max_length=1_000)]
) -> dict[str, Any]:
    """Let Claude Code work in a folder: adds it to permissions.additionalDirectories of .claude/settings.json."""
    folder = "/".join(workspace.parts_of(path))
    if not folder:
        raise ToolError("The workspace itself is allowed anyway: name a folder in it.")
    if workspace.kind_of(workspace.status_of(context.workspace, folder)) != "folder":
        raise ToolError(f"{path} is no folder.")
    allowed: list[str] = []

    def change(before: bytes | None) -> bytes:
        settings = _settings(before)
        allowed[:] = _add(settings, folder)
        return (json.dumps(settings, indent=2, ensure_ascii=False) + "\n").encode()

    workspace.write_file(context.workspace, SETTINGS, change)
    return {"settings": SETTINGS, "additionalDirectories": allowed}


def _settings(before: bytes | None) -> dict[str, Any]:
    """Return the settings of the file. Raises ToolError rather than write over what it cannot read."""
    if before is None or not before.strip():
        return {}
    try:
        settings = load_json(before)
    except ValueError:
        raise ToolError(f"{SETTINGS} is not valid JSON: mend it first.") from None
    if not isinstance(settings, dict):
        raise ToolError(f"{SETTINGS} holds no JSON object: mend it first.")
    return settings


def _add(settings: dict[str, Any], folder: str) -> list[str]:
    """Name the folder in the settings, beside all that is there; answers the folders named."""
    permissions = settings.setdefault("permissions", {})
    folders = permissions.setdefault("additionalDirectories", []) if isinstance(permissions, dict) else None
    if not isinstance(folders, list) or not all(isinstance(each, str) for each in folders):
        raise ToolError(f"{SETTINGS} has other permissions than lists of folders: mend it first.")
    if folder not in {each.rstrip("/").removeprefix("./") for each in folders}:
        if len(folders) >= FOLDERS:
            raise ToolError(f"{SETTINGS} names {FOLDERS} folders already.")
        folders.append(folder)
    return list(folders)
