"""Pages, web addresses and a search engine, read only. Where a request may go is up to capabilities.running.egress."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from django.conf import settings
from pydantic import Field

from capabilities.assistant.builtin._lib.page_cache import keep_page, kept_page
from capabilities.assistant.builtin._lib.remote import dicts, filled, remote, short
from capabilities.contract.context import ToolContext, ToolError
from capabilities.contract.envelope import Envelope
from capabilities.running.egress import MAX_REDIRECTS, EgressError, Fetched, fetch
from capabilities.running.egress.answers import allowed_headers, cut_text, is_text, media_type, readable
from capabilities.running.registry import CategorySpec, ServiceField, ServiceSpec, tool

CATEGORY = CategorySpec(
    name="web",
    title="Web",
    description="Search the web, read pages and call addresses.",
    keywords=(
        "search",
        "google",
        "look up",
        "find",
        "find on",
        "what is",
        "who is",
        "weather",
        "forecast",
        "temperature",
        "news",
        "article",
        "website",
        "research",
    ),
    is_core=True,
)

SEARXNG = ServiceSpec(
    name="searxng",
    title="SearXNG",
    description="The search engine behind web_search: an instance of SearXNG that answers in JSON.",
    fields=(
        ServiceField("base_url", "Address", "Such as https://search.example.org; `json` must be in search.formats."),
    ),
    test=lambda context: web_search(context, "weather", 1),
)
SERVICES = (SEARXNG,)

SHOWN_HEADERS = ("content-length", "date", "etag", "last-modified", "link", "location", "retry-after")

Url = Annotated[str, Field(description="With http:// or https://.", max_length=2_000)]


@tool(
    category="web",
    effect="read",
    service="searxng",
    timeout=20.0,
    untrusted=True,
    human_format="Searching the web: {query}",
)
def web_search(
    context: ToolContext,
    query: Annotated[str, Field(min_length=1, max_length=400)],
    count: Annotated[int, Field(ge=1, le=20)] = 8,
) -> dict[str, Any]:
    """Search the web: titles, addresses and excerpts. Read a page that was found with web_read."""
    engine = remote(context, SEARXNG)
    answer = engine.ask("GET", "search", query={"q": query, "format": "json"}, headers={"accept": "application/json"})
    if answer.status == 403:
        raise ToolError("SearXNG gives no JSON: an administrator must add json to search.formats in its settings.")
    found = engine.parsed(engine.good(answer), dict)
    rows = [_search_result(row) for row in dicts(found.get("results"))]
    shown = [row for row in rows if row.get("url", "").startswith(("http://", "https://"))][:count]
    direct = found.get("answers")
    answers = [_direct_answer(each) for each in direct[:3]] if isinstance(direct, list) else []
    return filled({"answers": [each for each in answers if each]}) | {"results": shown}


def _search_result(row: Mapping[str, Any]) -> dict[str, Any]:
    return filled(
        {
            "title": short(row.get("title"), 200),
            "url": short(row.get("url"), 1_000),
            "text": short(row.get("content"), 400),
            "date": short(row.get("publishedDate"))[:10],
        }
    )


def _direct_answer(value: Any) -> str:
    """Older versions answer with a text, newer ones with an object."""
    return short(value.get("answer") if isinstance(value, dict) else value, 500)


@tool(category="web", effect="read", on_crash="retry", timeout=30.0, untrusted=True, human_format="Reading {url}")
def web_read(context: ToolContext, url: Url) -> dict[str, Any]:
    """Read a web page as plain text: title and text without markup. For APIs and raw bodies use http_fetch."""
    knobs = context.envelope or Envelope("retry", context.timeout, 40_000, cache_ttl_sec=0)
    asked = {
        "url": url,
        "main": knobs.readability,
        "redirects": knobs.max_redirects,
        "private_hosts": sorted(settings.TOOLHUB_PRIVATE_HOSTS),  # what was reachable then may not be any more
    }
    if (kept := kept_page(context.organisation_id, asked, knobs.cache_ttl_sec)) is not None:
        page, age = kept
        return page | {"read_seconds_ago": age}
    read, may_keep = _read_page(context, url, knobs)
    if may_keep:
        keep_page(context.organisation_id, asked, read, knobs.cache_ttl_sec)
    return read


def _read_page(context: ToolContext, url: str, knobs: Envelope) -> tuple[dict[str, Any], bool]:
    """The page, and whether its server lets it be kept."""
    until = time.monotonic() + context.timeout * 0.95
    page = _fetched(context, "GET", url, {"accept": "text/html, text/plain;q=0.9, */*;q=0.1"}, knobs.max_redirects)
    if page.status >= 400:
        raise ToolError(f"{page.url} answered with status {page.status}.")
    kind = media_type(page)
    if kind in {"text/html", "application/xhtml+xml", ""}:
        title, text, whole = readable(context, page.text, main=knobs.readability, until=until)
    elif is_text(kind):
        title, text, whole = "", page.text, True
    else:
        raise ToolError(f"{page.url} is no page but {kind}, which cannot be read as text.")
    read = {"url": page.url, "title": title} | cut_text("text", text, whole=whole and not page.truncated)
    control = page.headers.get("cache-control", "").lower()
    return read, "no-store" not in control and "private" not in control


@tool(category="web", effect="read", on_crash="retry", timeout=30.0, untrusted=True, human_format="{method} {url}")
def http_fetch(
    context: ToolContext,
    url: Url,
    method: Literal["GET", "HEAD"] = "GET",
    headers: Annotated[
        dict[str, str] | None, Field(description="Not Authorization, Cookie or Host.", max_length=20)
    ] = None,
) -> dict[str, Any]:
    """Fetch an address and return status, headers and raw body: for JSON APIs and files. For pages use web_read."""
    limit = context.envelope.max_redirects if context.envelope else MAX_REDIRECTS
    answer = _fetched(context, method, url, allowed_headers(headers or {}), limit)
    result = {
        "url": answer.url,
        "status": answer.status,
        "content_type": answer.headers.get("content-type", ""),
        "headers": {name: answer.headers[name] for name in SHOWN_HEADERS if name in answer.headers},
    }
    if method == "HEAD":
        return result
    if not is_text(media_type(answer)) and b"\0" in answer.body:
        return result | {"body": "", "note": f"A binary body of {len(answer.body)} bytes is not shown."}
    return result | cut_text("body", answer.text, whole=not answer.truncated)


def _fetched(context: ToolContext, method: str, url: str, headers: Mapping[str, str], max_redirects: int) -> Fetched:
    try:
        return fetch(method, url, headers=headers, timeout=context.timeout * 0.9, max_redirects=max_redirects)
    except EgressError as error:
        raise ToolError(str(error), nothing_came=not error.is_after_redirect) from error
