"""What tools that send requests have in common: headers that a model may set, and text that it gets to see."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from capabilities.contract.context import ToolError
from capabilities.egress import Fetched

#: Characters of a page or a body that are returned.
TEXT_LIMIT = 50_000

#: Headers that would speak for somebody, or change where and how a request goes.
REFUSED_HEADERS = frozenset(
    "authorization cookie host proxy-authorization connection content-length transfer-encoding upgrade te trailer"  # noqa: SIM905 -- one a line would fill a page
    " keep-alive proxy-connection expect forwarded x-forwarded-for x-forwarded-host x-real-ip".split()
)
HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
HEADER_VALUE = re.compile(r"[\t\x20-\x7e]{0,2000}")


def allowed_headers(headers: Mapping[str, str]) -> dict[str, str]:
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
