"""Sending to an address on the web, such as a webhook. Reading is in web.py."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any

from pydantic import Field

from capabilities.contract.context import ToolContext, ToolError
from capabilities.running.egress import EgressError, fetch
from capabilities.running.egress.answers import allowed_headers, cut_text, is_text, media_type
from capabilities.running.registry import CategorySpec, tool

CATEGORY = CategorySpec(
    name="web_post",
    title="Web posts",
    description="Send data to an address on the web.",
    keywords=("post to", "send to", "webhook", "trigger", "trigger webhook", "notify"),
)

#: Bytes that are sent, and characters of the answer that are shown.
BODY_LIMIT = 200_000
ANSWER_LIMIT = 10_000
#: Headers that carry a credential under a name of their own. A credential belongs into a service's set-up.
CREDENTIAL = re.compile(r"auth|token|cookie|secret|passw|session|api-?key|access-?key|signature", re.IGNORECASE)


@tool(
    category="web_post",
    effect="external",
    on_crash="never",
    timeout=30.0,
    untrusted=True,
    in_untrusted="ask",
    human_format="Posting to {url}",
)
def http_post(
    context: ToolContext,
    url: Annotated[str, Field(description="With http:// or https://.", max_length=2_000)],
    body: Annotated[dict[str, Any] | str, Field(description="An object is sent as JSON, a text as it is.")],
    headers: Annotated[dict[str, str] | None, Field(description="None with credentials.", max_length=20)] = None,
) -> dict[str, Any]:
    """Send an HTTP POST, such as to a webhook; returns status and body. Redirects are not followed."""
    content, kind = _encoded(body)
    asked = _without_credentials(headers or {})
    given = {name.lower() for name in asked}
    defaults = {"Content-Type": kind, "Idempotency-Key": context.idempotency_key}
    asked |= {name: value for name, value in defaults.items() if value and name.lower() not in given}
    try:
        answer = fetch("POST", url, headers=asked, content=content, timeout=context.timeout * 0.9, max_redirects=0)
    except EgressError as error:
        raise ToolError(f"{error}{error.doubt('POST')}", nothing_came=not error.is_after_redirect) from error
    result = {"url": answer.url, "status": answer.status, "content_type": answer.headers.get("content-type", "")}
    if answer.doubt:
        result["outcome"] = answer.doubt.strip()
    if not is_text(media_type(answer)) and b"\0" in answer.body:
        return result | {"body": "", "note": f"A binary body of {len(answer.body)} bytes is not shown."}
    return result | cut_text("body", answer.text, whole=not answer.truncated, limit=ANSWER_LIMIT)


def _encoded(body: dict[str, Any] | str) -> tuple[bytes, str]:
    is_plain = isinstance(body, str)
    content = (body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)).encode("utf-8", "replace")
    if len(content) > BODY_LIMIT:
        raise ToolError(f"The body has {len(content):,} bytes; at most {BODY_LIMIT:,} are sent.")
    return content, "text/plain; charset=utf-8" if is_plain else "application/json"


def _without_credentials(headers: dict[str, str]) -> dict[str, str]:
    for name in headers:
        if CREDENTIAL.search(name):
            raise ToolError(f"The header {name} may carry a credential: leave it out.")
    return allowed_headers(headers)
