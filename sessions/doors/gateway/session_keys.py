"""Names that a client gives its conversation: in the headers that clients send already, and in the body's metadata.

Whose headers: X-Session-Id of opencode and MindRoom, the vendors' own of Claude Code and others, those of Codex, of
LibreChat, of Open WebUI and of LiteLLM. Names with an underscore never reach a Django view. Neither `user` nor
`prompt_cache_key` names a conversation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from django.http import HttpRequest

#: In the order in which they count.
HEADERS = (
    "X-Toolhub-Session",
    "X-Session-Id",
    "X-OpenWebUI-Chat-Id",
    "X-LibreChat-Conversation-Id",
    "X-Litellm-Session-Id",
    "Conversation-Id",
    "Session-Id",
    "Thread-Id",
)
#: Headers of vendors: x-claude-code-session-id.
OF_VENDOR = re.compile(r"x-[a-z0-9-]{1,60}-session-id\Z", re.IGNORECASE)
#: Characters of a key; a longer one counts by its hash.
MAX_KEY = 200


def session_key(request: HttpRequest, body: Mapping[str, Any]) -> str:
    """The client's name of its conversation; "" where it says none."""
    for name in HEADERS:
        if value := request.headers.get(name, "").strip():
            return named(value)
    for name, value in request.headers.items():
        if OF_VENDOR.match(name) and value.strip():
            return named(value.strip())
    metadata = body.get("metadata")
    session_id = metadata.get("session_id") if isinstance(metadata, Mapping) else None
    return named(session_id.strip()) if isinstance(session_id, str) and session_id.strip() else ""


def named(value: str) -> str:
    """The name as it is kept; "" stays none."""
    return value if len(value) <= MAX_KEY and value.isprintable() else sha256(value.encode()).hexdigest()
