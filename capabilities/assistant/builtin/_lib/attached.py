"""Files that the member attached to messages of the session, read by the tools that read the workspace.

They are no files of the workspace itself, which all members of the organisation share: a session's files are its own,
and go with it.
"""

from __future__ import annotations

from capabilities.assistant.builtin._lib.workspace import READ_LIMIT, Content, read_file
from capabilities.contract.context import ToolContext
from capabilities.running.attachments import attached_content


def content_of(context: ToolContext, path: str) -> bytes | None:
    """The content of an attached file of the call's session; None where there is none at this path. It is text from
    outside. One query at most."""
    content = attached_content(context.session_id, path) if context.session_id is not None else None
    if content is not None:
        context.untrusted.set()
    return content


def read(context: ToolContext, path: str) -> Content:
    """An attached file, or else a regular file of the workspace, up to READ_LIMIT bytes of it. Raises ToolError."""
    content = content_of(context, path)
    return read_file(context.workspace, path) if content is None else Content(content[:READ_LIMIT], len(content))
