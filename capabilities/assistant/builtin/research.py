"""Papers, encyclopedia and instant answers: what arXiv, Wikipedia and DuckDuckGo offer to anybody."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from typing import Annotated, Any, Literal

from pydantic import Field

from capabilities.assistant.builtin._lib.remote import a_dict, dicts, filled, remote, short
from capabilities.common.confined import TooComplex, run_in_context
from capabilities.contract.context import ToolContext, ToolError
from capabilities.running.egress.answers import cut_text
from capabilities.running.registry import CategorySpec, ServiceField, ServiceSpec, tool

CATEGORY = CategorySpec(
    name="research",
    title="Research",
    description="Papers, encyclopedia articles and instant answers.",
    keywords=(
        "paper",
        "arxiv",
        "preprint",
        "wikipedia",
        "encyclopedia",
        "duckduckgo",
        "research",
        "study",
        "publication",
        "literature",
    ),
)
ARXIV = ServiceSpec(
    name="arxiv",
    title="arXiv",
    description="Preprints. It works without set-up.",
    fields=(ServiceField("base_url", "Address", default="https://export.arxiv.org"),),
    test=lambda context: arxiv(context, "electron", 1),
)
WIKIPEDIA = ServiceSpec(
    name="wikipedia",
    title="Wikipedia",
    description="The encyclopedia, or another MediaWiki. It works without set-up.",
    fields=(
        ServiceField(
            "base_url",
            "Address",
            "{language} stands for the language that is asked for.",
            default="https://{language}.wikipedia.org",
        ),
    ),
    test=lambda context: wikipedia(context, "Earth", count=1),
)
DUCKDUCKGO = ServiceSpec(
    name="duckduckgo",
    title="DuckDuckGo",
    description="Instant answers. It works without set-up.",
    fields=(ServiceField("base_url", "Address", default="https://api.duckduckgo.com"),),
    test=lambda context: duckduckgo(context, "Earth", 1),
)
SERVICES = (ARXIV, WIKIPEDIA, DUCKDUCKGO)

#: Number of a paper in arXiv: 2401.01234v2, or the older hep-th/9901001; a query that names its fields itself.
PAPER_ID = re.compile(r"(?:arxiv:)?(\d{4}\.\d{4,5}|[a-z-]+(?:\.[A-Z]{2})?/\d{7})(v\d+)?", re.IGNORECASE)
FIELDED = re.compile(r"\b(ti|au|abs|co|jr|cat|rn|id|all):")
ARTICLE_LIMIT = 20_000

Count = Annotated[int, Field(ge=1, le=20)]
QueryText = Annotated[str, Field(min_length=1, max_length=300)]


@tool(
    category="research",
    effect="read",
    service="arxiv",
    timeout=30.0,
    untrusted=True,
    human_format="Searching arXiv: {query}",
)
def arxiv(
    context: ToolContext,
    query: Annotated[QueryText, Field(description="Words, an arXiv id, or fields such as au:hinton AND ti:capsule.")],
    count: Count = 5,
    sort: Literal["relevance", "newest"] = "relevance",
) -> dict[str, Any]:
    """Search scientific papers on arXiv: titles, authors, abstracts, links."""
    library = remote(context, ARXIV)
    order = {"sortBy": "relevance" if sort == "relevance" else "submittedDate", "sortOrder": "descending"}
    answer = library.good(
        library.ask("GET", "api", "query", query=_arxiv_query(query) | order | {"max_results": count})
    )
    papers = [_paper(entry) for entry in _entries(context, answer.body, count)]
    if any("/api/errors" in paper.get("url", "") for paper in papers):
        raise ToolError(f"arXiv refuses the query: {papers[0].get('abstract', '')[:300].rstrip('.')}.")
    return {"papers": papers}


def _entries(context: ToolContext, document: bytes, count: int) -> list[dict[str, Any]]:
    """Read in a child process: whoever sets the service's address decides what answers there."""
    try:
        found = run_in_context("atom", context, document=document.decode("latin-1"), most=count)
    except TooComplex:
        found = None
    if found is None:
        raise ToolError("arXiv answered with something that is no Atom feed: is its address right?")
    return list(found)


def _arxiv_query(query: str) -> dict[str, str | int | float | None]:
    text = " ".join(query.split())
    if number := PAPER_ID.fullmatch(text):
        return {"id_list": number[1] + (number[2] or "")}
    if FIELDED.search(text):
        return {"search_query": text}
    words = re.findall(r"\"[^\"]+\"|[^\s\"()]+", text)
    if not words:
        raise ToolError("Say what to search for.")
    return {"search_query": " AND ".join(f"all:{word}" for word in words)}


def _paper(entry: dict[str, Any]) -> dict[str, Any]:
    authors = [short(author, 100) for author in entry["authors"]]
    return filled(
        {
            "title": short(entry["title"], 300),
            "authors": authors[:10] + (["…"] if len(authors) > 10 else []),
            "published": entry["published"][:10],
            "category": short(entry["category"], 30),
            "url": short(entry["id"], 200),
            "pdf": short(entry["links"].get("pdf", ""), 200),
            "abstract": short(entry["summary"], 1_500),
        }
    )


@tool(
    category="research", effect="read", service="wikipedia", untrusted=True, human_format="Wikipedia: {action} {query}"
)
def wikipedia(
    context: ToolContext,
    query: Annotated[QueryText, Field(description="Words for search, an exact title for summary and page.")],
    action: Literal["search", "summary", "page"] = "search",
    language: Annotated[str, Field(pattern=r"^[a-z]{2,3}(-[a-z]{2,10}){0,2}$")] = "en",
    count: Count = 5,
) -> dict[str, Any]:
    """Search Wikipedia, or read the summary or whole text of an article."""
    if action == "search":
        asked: dict[str, str | int | float | None] = {"list": "search", "srsearch": query, "srlimit": count}
        found = dicts(_wikipedia(context, language, asked).get("search"))[:count]
        rows = [{"title": short(row.get("title"), 255), "text": _plain(row.get("snippet"))} for row in found]
        return {"articles": [filled(row) for row in rows]}
    asked = {"prop": "extracts|info", "inprop": "url", "explaintext": 1, "redirects": 1, "titles": query}
    if action == "summary":
        asked["exintro"] = 1
    page = next(iter(dicts(_wikipedia(context, language, asked).get("pages"))), {})
    text = page.get("extract")
    if page.get("missing") or not isinstance(text, str) or not text.strip():
        raise ToolError(f"There is no article {query[:100]}: find its exact title with search.")
    shown = {"title": short(page.get("title"), 255), "url": short(page.get("fullurl"), 1_000)}
    return filled(shown) | cut_text("text", text, whole=True, limit=ARTICLE_LIMIT)


def _wikipedia(context: ToolContext, language: str, asked: dict[str, str | int | float | None]) -> dict[str, Any]:
    """One query of the MediaWiki API. The language is letters and hyphens: it cannot leave the domain it stands in."""
    address = context.service.get("base_url", "").replace("{language}", language)
    encyclopedia = replace(remote(context, WIKIPEDIA), base_url=address)
    query = asked | {"action": "query", "format": "json", "formatversion": 2}
    found = encyclopedia.json("GET", "w", "api.php", shape=dict, query=query)
    if "error" in found:
        complaint = short(a_dict(found["error"]).get("info"), 300).rstrip(".")
        raise ToolError(f"Wikipedia refuses the query: {complaint or 'it does not say why'}.")
    return a_dict(found.get("query"))


def _plain(snippet: Any) -> str:
    """A snippet without its marks."""
    return short(unescape(re.sub(r"<[^>]{0,200}>", "", snippet[:5_000]))) if isinstance(snippet, str) else ""


@tool(
    category="research", effect="read", service="duckduckgo", untrusted=True, human_format="Asking DuckDuckGo: {query}"
)
def duckduckgo(context: ToolContext, query: QueryText, count: Count = 5) -> dict[str, Any]:
    """Instant answers of DuckDuckGo: a definition, a fact, a calculation, related topics. Not a full web search."""
    asked: dict[str, str | int | float | None] = {"q": query, "format": "json", "no_html": 1, "no_redirect": 1}
    found = remote(context, DUCKDUCKGO).json("GET", shape=dict, query=asked)
    topics = [*_topics(found.get("Results")), *_topics(found.get("RelatedTopics"))][:count]
    fields = filled(
        {
            "answer": short(found.get("Answer"), 500),
            "heading": short(found.get("Heading"), 200),
            "text": short(found.get("AbstractText") or found.get("Definition"), 2_000),
            "source": short(found.get("AbstractSource") or found.get("DefinitionSource"), 100),
            "url": short(found.get("AbstractURL") or found.get("DefinitionURL"), 1_000),
            "related": topics,
        }
    )
    return fields or {"note": "There is no instant answer: search the web instead."}


def _topics(found: Any) -> Iterator[dict[str, Any]]:
    """Topics of a list, and those of the groups in it."""
    for row in dicts(found):
        inner = [row] if "Text" in row else dicts(row.get("Topics"))
        for topic in inner:
            if text := short(topic.get("Text"), 300):
                yield filled({"text": text, "url": short(topic.get("FirstURL"), 1_000)})
