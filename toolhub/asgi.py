"""The web server's door: `uvicorn toolhub.asgi:application`."""

from __future__ import annotations

import os

import django
from django.conf import settings

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "toolhub.settings")
django.setup(set_prefix=False)

from toolhub.web.handler import Handler  # noqa: E402 -- apps ready
from toolhub.web.intake import ClientAddress, LimitedBodies  # noqa: E402 -- apps ready
from toolhub.web.mcp_door import McpDoor  # noqa: E402 -- apps ready
from toolhub.web.static_files import ServedFiles  # noqa: E402 -- apps ready

application = ClientAddress(LimitedBodies(ServedFiles(McpDoor(Handler()))), settings.TOOLHUB_TRUSTED_PROXIES)
