from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from capabilities.assistant.builtin._lib import remote as _remote
from capabilities.common import confined
from capabilities.common.confined_jobs import atom
from capabilities.contract.context import ToolContext
from capabilities.running.egress import EgressFailed
from capabilities.running.registry import registry
from tests.capabilities.assistant.builtin.fakes.http import Reply
from tests.capabilities.assistant.builtin.fakes.research import ArXiv, DuckDuckGo, Wikipedia
from tests.capabilities.assistant.builtin.remote import FAILURES, call_with, check_failures, refused

ATTENTION = {
    "title": "Attention Is All You Need",
    "authors": ["Ashish Vaswani", "Noam Shazeer"],
    "published": "2017-06-12",
    "category": "cs.CL",
    "url": "http://arxiv.org/abs/1706.03762v7",
    "pdf": "http://arxiv.org/pdf/1706.03762v7",
    "abstract": "The dominant sequence transduction models & more.",
}


@pytest.fixture
def library() -> Iterator[ArXiv]:
    with ArXiv() as service:
        yield service


@pytest.fixture
def encyclopedia() -> Iterator[Wikipedia]:
    with Wikipedia() as service:
        yield service


@pytest.fixture
def duck() -> Iterator[DuckDuckGo]:
    with DuckDuckGo() as service:
        yield service


@pytest.mark.parametrize("name", ["arxiv", "wikipedia", "duckduckgo"])
def test_it_works_without_set_up(name: str) -> None:
    assert registry.services[name].works_unset
    assert registry.tools[name].category == "research"


# -- arXiv -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "sent"),
    [
        ("attention need", {"search_query": "all:attention AND all:need"}),
        ("ti:attention AND ti:need", {"search_query": "ti:attention AND ti:need"}),
        ("1706.03762", {"id_list": "1706.03762"}),
        ("arXiv:1706.03762v7", {"id_list": "1706.03762v7"}),
    ],
)
def test_a_paper_is_found(context: ToolContext, library: ArXiv, query: str, sent: dict[str, str]) -> None:
    found = call_with(context, "arxiv", {"base_url": library.url}, {"query": query, "count": 3, "sort": "newest"})

    assert found == {"papers": [ATTENTION]}
    assert library.last.query == sent | {"max_results": "3", "sortBy": "submittedDate", "sortOrder": "descending"}


def test_no_paper_is_an_answer(context: ToolContext, library: ArXiv) -> None:
    assert call_with(context, "arxiv", {"base_url": library.url}, {"query": "unheard"}) == {"papers": []}


def test_a_query_that_arxiv_refuses_is_told(context: ToolContext, library: ArXiv) -> None:
    library.instead = lambda asked: ArXiv.feed(library, [("http://arxiv.org/api/errors#x", "Error", "bad id.")])

    told = refused(context, "arxiv", {"base_url": library.url}, {"query": "x"})

    assert told == "arXiv refuses the query: bad id."


FEED = b'<feed xmlns="http://www.w3.org/2005/Atom">'
BOMB = (
    b'<?xml version="1.0"?><!DOCTYPE f [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;">]>'
    b'<feed xmlns="http://www.w3.org/2005/Atom"><entry><title>&b;</title></entry></feed>'
)
FILE = (
    b'<!DOCTYPE f [<!ENTITY x SYSTEM "file:///etc/passwd">]>'
    b'<feed xmlns="http://www.w3.org/2005/Atom"><entry><title>&x;</title></entry></feed>'
)


@pytest.mark.parametrize(
    "document",
    [
        BOMB,
        FILE,
        BOMB.decode().replace("1.0", "1.0", 1).encode("utf-16"),
        b'<!DOCTYPE feed SYSTEM "http://127.0.0.1/x.dtd"><feed xmlns="http://www.w3.org/2005/Atom"/>',
        b'<feed xmlns="http://www.w3.org/2005/Atom">' + b"<a>" * 100_000,
        b"<feed><entry/></feed>",
        b"<html><body>Sign in</body></html>",
        b'<feed xmlns="http://www.w3.org/2005/Atom"><entry>',
        b"{}",
        b"",
        b"\xff\xfe\x00",
    ],
)
def test_what_is_no_plain_feed_is_refused(context: ToolContext, library: ArXiv, document: bytes) -> None:
    library.instead = lambda asked: Reply(200, document, {"Content-Type": "application/atom+xml"})

    assert atom.run(document.decode("latin-1"), 20) is None
    assert refused(context, "arxiv", {"base_url": library.url}, {"query": "x"}).endswith("is its address right?")


def test_a_feed_is_read_by_a_process_of_its_own(
    context: ToolContext, library: ArXiv, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confined, "MEMORY", 60_000_000)
    assert call_with(context, "arxiv", {"base_url": library.url}, {"query": "attention"}) == {"papers": [ATTENTION]}
    library.instead = lambda asked: Reply(200, FEED + b"<a/>" * 450_000 + b"</feed>", {})

    told = refused(context, "arxiv", {"base_url": library.url}, {"query": "x"})

    assert told.endswith("is its address right?")


@pytest.mark.parametrize(
    ("head", "encoding"),
    [("", "utf-8"), ('<?xml version="1.0" encoding="ISO-8859-1"?>', "latin-1"), ("", "utf-16")],
)
def test_a_feed_says_what_it_is_encoded_in(head: str, encoding: str) -> None:
    title = "<title type='xhtml'><div>Gödel <i>and</i>\n more</div></title>"
    document = f"{head}{FEED.decode()}<entry>{title}</entry><entry/><entry/></feed>".encode(encoding)

    found = atom.run(document.decode("latin-1"), 2)

    nothing = {"id": "", "title": "", "published": "", "summary": "", "category": "", "authors": [], "links": {}}
    assert found == [nothing | {"title": "Gödel and more"}, nothing]


@pytest.mark.parametrize("failure", ["rate", "broken", "unauthorised", "away"])
def test_failures_of_arxiv_are_sentences(context: ToolContext, library: ArXiv, failure: str) -> None:
    library.instead, told = FAILURES[failure]

    assert told in refused(context, "arxiv", {"base_url": library.url}, {"query": "x"})


# -- Wikipedia -------------------------------------------------------------------------------------------------------


def test_articles_are_found(context: ToolContext, encyclopedia: Wikipedia) -> None:
    found = call_with(context, "wikipedia", {"base_url": encyclopedia.url}, {"query": "lion", "count": 1})

    assert found == {"articles": [{"title": "Lion 1", "text": 'The lion "king" & more'}]}


@pytest.mark.parametrize(
    ("action", "text"),
    [("summary", "The lion (Panthera leo) is a large cat."), ("page", Wikipedia.texts["Lion"])],
)
def test_an_article_is_read(context: ToolContext, encyclopedia: Wikipedia, action: str, text: str) -> None:
    arguments = {"query": "Panthera leo", "action": action}

    found = call_with(context, "wikipedia", {"base_url": encyclopedia.url}, arguments)

    assert found == {"title": "Lion", "url": "https://x.test/wiki/Lion", "text": text}


def test_a_missing_article_is_told(context: ToolContext, encyclopedia: Wikipedia) -> None:
    arguments = {"query": "Lyon|Lion", "action": "summary"}

    told = refused(context, "wikipedia", {"base_url": encyclopedia.url}, arguments)

    assert "no article Lyon|Lion" in told


def test_a_query_that_wikipedia_refuses_is_told(context: ToolContext, encyclopedia: Wikipedia) -> None:
    told = refused(context, "wikipedia", {"base_url": encyclopedia.url}, {"query": "bad"})

    assert told.endswith(": Search is broken.")


def test_the_language_chooses_the_host(context: ToolContext, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def fetch(method: str, url: str, **options: Any) -> None:
        asked.append(url.partition("/w/")[0])
        raise EgressFailed("Not today.")

    monkeypatch.setattr(_remote, "fetch", fetch)

    refused(context, "wikipedia", {}, {"query": "lion", "language": "zh-min-nan"})

    assert asked == ["https://zh-min-nan.wikipedia.org"]


@pytest.mark.parametrize("language", ["", "e", "en.evil.org/", "en/../", "EN", "en@evil", "127.0.0.1", "en\n"])
def test_the_language_leads_nowhere_else(context: ToolContext, encyclopedia: Wikipedia, language: str) -> None:
    refused(context, "wikipedia", {"base_url": encyclopedia.url}, {"query": "lion", "language": language})

    assert encyclopedia.asked == []


@pytest.mark.parametrize("action", ["search", "summary"])
def test_failures_of_wikipedia_are_sentences(context: ToolContext, encyclopedia: Wikipedia, action: str) -> None:
    arguments = {"query": "Lion", "action": action}

    check_failures(context, encyclopedia, "wikipedia", {"base_url": encyclopedia.url}, arguments)


# -- DuckDuckGo ------------------------------------------------------------------------------------------------------


def test_an_instant_answer_comes_with_related_topics(context: ToolContext, duck: DuckDuckGo) -> None:
    found = call_with(context, "duckduckgo", {"base_url": duck.url}, {"query": "lion"})

    assert found == {
        "heading": "Lion",
        "text": "A large cat.",
        "source": "Wikipedia",
        "url": "https://en.wikipedia.org/wiki/Lion",
        "related": [
            {"text": "Tiger A cat.", "url": "https://duckduckgo.com/Tiger"},
            {"text": "Lion A film.", "url": "https://duckduckgo.com/Tiger"},
        ],
    }


@pytest.mark.parametrize("query", ["nothing known", "2+2"])
def test_without_an_answer_it_says_so(context: ToolContext, duck: DuckDuckGo, query: str) -> None:
    found = call_with(context, "duckduckgo", {"base_url": duck.url}, {"query": query})

    assert list(found) == ["note"]
    assert "search the web" in found["note"]


def test_failures_of_duckduckgo_are_sentences(context: ToolContext, duck: DuckDuckGo) -> None:
    check_failures(context, duck, "duckduckgo", {"base_url": duck.url}, {"query": "lion"})
