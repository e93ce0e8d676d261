"""Common parts of tools that send requests: headers that a model may set, and text that it gets to see."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from capabilities.common import confined
from capabilities.common.confined_jobs.page import HTML_LIMIT
from capabilities.contract.context import ToolContext, ToolError
from capabilities.contract.http_tool import HEADER_NAME, HEADER_VALUE, REFUSED_HEADERS
from capabilities.running.egress import Fetched

#: Characters of a page or a body that are returned.
TEXT_LIMIT = 50_000
#: Seconds that taking a page apart may last: what was read by then is the answer. Its child process has more.
PARSE_SECONDS = confined.SECONDS - 1.5


def allowed_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers that a caller may set. Raises ToolError for one that is malformed, or that only the service
    sets."""
    for name, value in headers.items():
        if not HEADER_NAME.fullmatch(name) or not HEADER_VALUE.fullmatch(value):
            raise ToolError(f"{name!r} is no valid header: use a plain name and one line of text.")
        if name.lower() in REFUSED_HEADERS:
            raise ToolError(f"The header {name} cannot be set here: leave it out.")
    return dict(headers)


def media_type(answer: Fetched) -> str:
    return answer.headers.get("content-type", "").partition(";")[0].strip().lower()


def is_text(kind: str) -> bool:
    return kind.startswith("text/") or kind.endswith(("json", "xml", "javascript", "yaml", "csv", "urlencoded"))


def cut_text(name: str, text: str, *, whole: bool, limit: int = TEXT_LIMIT) -> dict[str, Any]:
    """The text, with a mark where the page was longer than what is shown."""
    shown: dict[str, Any] = {name: text[:limit]}
    if not whole or len(text) > limit:
        shown["truncated"] = True
    return shown


def readable(
    context: ToolContext, html: str, *, main: bool, until: float, limit: int = TEXT_LIMIT
) -> tuple[str, str, bool]:
    """Return title and text of a page, and whether they are all of it. Raises ToolError."""
    try:
        found = confined.run(
            "page",
            {"html": html[: HTML_LIMIT + 1], "most": limit, "seconds": PARSE_SECONDS, "main": main},
            context.organisation_id,
            wait=until - time.monotonic(),
            stopped=context.stopped,
        )
    except confined.TooComplex as error:
        raise ToolError("The page is too complex to read.") from error
    return found["title"], found["text"], found["whole"]
