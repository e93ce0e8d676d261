from __future__ import annotations

from collections.abc import Iterator

import pytest

from capabilities.contract.context import ToolContext
from tests.capabilities.assistant.builtin.fakes.searxng import SearXNG
from tests.capabilities.assistant.builtin.remote import call_with, check_credential_stays, check_failures, refused


@pytest.fixture(name="engine")
def searxng() -> Iterator[SearXNG]:
    with SearXNG() as engine:
        yield engine


def test_a_search_gives_titles_addresses_and_excerpts(context: ToolContext, engine: SearXNG) -> None:
    found = call_with(context, "web_search", {"base_url": engine.url}, {"query": "löwen & co", "count": 2})

    text = "About löwen & co" + " x" * 400
    assert found == {
        "answers": ["42 is the answer"],
        "results": [
            {"title": "Result 1", "url": "https://example.org/1", "text": text[:399] + "…", "date": "2026-05-04"},
            {"title": "Result 2", "url": "https://example.org/2", "text": text[:399] + "…"},
        ],
    }
    assert engine.last.query == {"q": "löwen & co", "format": "json"}


def test_a_base_address_may_have_a_path(context: ToolContext, engine: SearXNG) -> None:
    refused(context, "web_search", {"base_url": f"{engine.url}/engine/"}, {"query": "x"})

    assert engine.last.path == "/engine/search"


def test_an_engine_without_json_says_what_to_do(context: ToolContext, engine: SearXNG) -> None:
    engine.json_is_on = False

    told = refused(context, "web_search", {"base_url": engine.url}, {"query": "x"})

    assert "add json to search.formats" in told


@pytest.mark.parametrize(
    ("base_url", "told"),
    [
        ("", "SearXNG is not set up: an administrator must enter its address."),
        ("http://127.0.0.1:9/?a=b", "The address of SearXNG is not valid: an administrator must leave out ? and #."),
        ("file:///etc/passwd", "SearXNG: Only http and https addresses can be reached."),
    ],
)
def test_an_address_that_is_none_is_told(context: ToolContext, base_url: str, told: str) -> None:
    assert refused(context, "web_search", {"base_url": base_url}, {"query": "x"}) == told


@pytest.mark.parametrize("arguments", [{"query": ""}, {"query": "x", "count": 21}, {"query": "x", "page": 2}])
def test_what_cannot_be_asked_is_refused(context: ToolContext, engine: SearXNG, arguments: dict[str, object]) -> None:
    refused(context, "web_search", {"base_url": engine.url}, arguments)

    assert engine.asked == []


def test_failures_are_sentences(context: ToolContext, engine: SearXNG) -> None:
    check_failures(context, engine, "web_search", {"base_url": engine.url}, {"query": "x"})
    check_credential_stays(context, engine, "web_search", {"base_url": engine.url}, {"query": "x"})
