"""Files that a member attached to messages of a session, for tools. The sessions keep them."""

from __future__ import annotations

from uuid import UUID

from toolhub.tenants.provided import Provided


@Provided
def attached_content(session_id: UUID, path: str) -> bytes | None:
    """Return the content of a file that was attached in a session, by the path that its messages name; None where there
    is none."""
