"""Pages, web addresses and a search engine, read only. Knows HTML and nothing of addresses: capabilities.egress alone
says where a request may go."""

from __future__ import annotations

import time
from collections.abc import Mapping
from html.parser import HTMLParser
from typing import Annotated, Any, Literal

from pydantic import Field

from capabilities.builtin._http import allowed_headers, cut_text, is_text, media_type
from capabilities.builtin._remote import dicts, filled, remote, short
from capabilities.contract.context import ToolContext, ToolError
from capabilities.egress import EgressError, Fetched, fetch
from capabilities.registry import CategorySpec, ServiceField, ServiceSpec, tool

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

#: Characters of HTML that are looked at.
HTML_LIMIT = 1_000_000
#: Seconds that taking a page apart may last, and the characters taken at a time.
PARSE_SECONDS = 5.0
CHUNK = 16_384

SHOWN_HEADERS = ("content-length", "date", "etag", "last-modified", "link", "location", "retry-after")

Url = Annotated[str, Field(description="With http:// or https://.", max_length=2_000)]


@tool(category="web", effect="read", service="searxng", timeout=20.0, human_format="Searching the web: {query}")
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


@tool(category="web", effect="read", on_crash="retry", timeout=30.0, human_format="Reading {url}")
def web_read(context: ToolContext, url: Url) -> dict[str, Any]:
    """Read a web page as plain text: title and text without markup. For APIs and raw bodies use http_fetch."""
    page = _fetched(context, "GET", url, {"accept": "text/html, text/plain;q=0.9, */*;q=0.1"})
    if page.status >= 400:
        raise ToolError(f"{page.url} answered with status {page.status}.")
    kind = media_type(page)
    if kind in {"text/html", "application/xhtml+xml", ""}:
        title, text, whole = readable(page.text, time.monotonic() + PARSE_SECONDS)
    elif is_text(kind):
        title, text, whole = "", page.text, True
    else:
        raise ToolError(f"{page.url} is no page but {kind}, which cannot be read as text.")
    return {"url": page.url, "title": title} | cut_text("text", text, whole=whole and not page.truncated)


@tool(category="web", effect="read", on_crash="retry", timeout=30.0, human_format="{method} {url}")
def http_fetch(
    context: ToolContext,
    url: Url,
    method: Literal["GET", "HEAD"] = "GET",
    headers: Annotated[
        dict[str, str] | None, Field(description="Not Authorization, Cookie or Host.", max_length=20)
    ] = None,
) -> dict[str, Any]:
    """Fetch an address and return status, headers and raw body: for JSON APIs and files. For pages use web_read."""
    answer = _fetched(context, method, url, allowed_headers(headers or {}))
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


def readable(html: str, deadline: float = float("inf")) -> tuple[str, str, bool]:
    """Title and text of a page, and whether it was read to its end: before the deadline (of time.monotonic) and within
    HTML_LIMIT.

    It is fed in pieces and never closed: closing makes the parser try the rest again from each `<`, in quadratic time.
    """
    page = _Page()
    for start in range(0, min(len(html), HTML_LIMIT), CHUNK):
        if time.monotonic() > deadline:
            return page.title, page.text, False
        page.feed(html[start : start + CHUNK])
    return page.title, page.text, len(html) <= HTML_LIMIT


class _Page(HTMLParser):
    """Collects what a reader of the page would see."""

    UNSEEN = frozenset({"script", "style", "noscript", "template", "svg", "iframe", "object"})
    INLINE = frozenset(
        "a abbr b bdi bdo cite code data em font i img ins kbd label mark q s samp small span strong sub sup time tt u"  # noqa: SIM905
        " var wbr".split()
    )
    CELLS = frozenset({"td", "th"})
    #: Stands for a space of a preformatted text, until the others are folded.
    KEPT_SPACE = "\0"

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._pieces: list[str] = []
        self._title: list[str] = []
        self._in_title = False
        self._unseen: list[str] = []
        self._preformatted = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in self.UNSEEN:
            self._unseen.append(tag)
        elif tag == "title" and not self._unseen:
            self._in_title = True
        elif tag == "body":
            self._unseen.clear()  # a head that never closed its tags hides no page
        if tag == "pre":
            self._preformatted = True
        if tag not in self.INLINE | self.CELLS:
            self._pieces.append("\n- " if tag == "li" else "\n")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.INLINE:
            self._pieces.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._unseen:
            del self._unseen[self._unseen.index(tag) :]
        if tag in {"title", "head"}:
            self._in_title = False
        if tag == "pre":
            self._preformatted = False
        if tag in self.CELLS:
            self._pieces.append(" ")
        elif tag not in self.INLINE:
            self._pieces.append("\n")

    def handle_data(self, data: str) -> None:
        if self._unseen:
            return
        if self._in_title:
            self._title.append(data)
        elif self._preformatted:
            self._pieces.append(data.expandtabs(4).replace(" ", self.KEPT_SPACE))
        else:
            self._pieces.append(data.replace("\n", " "))

    @property
    def title(self) -> str:
        return " ".join("".join(self._title).split())[:500]

    @property
    def text(self) -> str:
        lines = (" ".join(line.split()) for line in "".join(self._pieces).split("\n"))
        kept = (line.replace(self.KEPT_SPACE, " ").rstrip() for line in lines)
        return "\n".join(line for line in kept if line not in {"", "-"})


def _fetched(context: ToolContext, method: str, url: str, headers: Mapping[str, str]) -> Fetched:
    try:
        return fetch(method, url, headers=headers, timeout=context.timeout * 0.9)
    except EgressError as error:
        raise ToolError(str(error)) from error
