"""What runtime settings make of reading the web: pages that are kept, redirects, main text; and of reading a file."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from django.core.cache import cache

from capabilities.assistant.builtin._lib import page_cache
from capabilities.common.confined_jobs.page import readable
from capabilities.contract.context import ToolContext, ToolError
from capabilities.contract.envelope import Envelope
from capabilities.running.registry import registry
from tests.capabilities.running.egress.servers import Server, say

OWN = Envelope("retry", 20.0, 40_000)
MENU = "<nav><ul>" + "<li><a href=/>somewhere else</a>" * 20 + "</ul></nav>"
MAIN = "<main><h1>Rivers</h1><p>" + "Water runs down. " * 60 + "</p></main>"
PAGE = f"<title>T</title><body>{MENU}{MAIN}<footer>Imprint</footer></body>"


@pytest.fixture
def site(settings: Any) -> Iterator[Server]:
    settings.TOOLHUB_PRIVATE_HOSTS = ["tool:127.0.0.1"]
    cache.clear()
    server = Server()
    thread = threading.Thread(target=server.http.serve_forever)
    thread.start()
    server.answers["/"] = say(PAGE.encode(), content_type="text/html")
    yield server
    server.http.shutdown()
    server.http.server_close()
    thread.join()
    cache.clear()


def read(context: ToolContext, url: str, *, organisation: int = 1, tool: str = "web_read", **knobs: Any) -> Any:
    under = replace(context, organisation_id=organisation, envelope=replace(OWN, **knobs))
    return registry.tools[tool].call(under, {"url": url})


def test_zs_14_a_page_is_kept_for_its_time_and_says_how_old_it_is(context: ToolContext, site: Server) -> None:
    first = read(context, site.url + "/")
    second = read(context, site.url + "/")

    assert len(site.requests) == 1
    assert second == first | {"read_seconds_ago": second["read_seconds_ago"]}


def test_zs_14_with_no_time_to_keep_it_is_asked_for_again(context: ToolContext, site: Server) -> None:
    for _ in range(2):
        assert "read_seconds_ago" not in read(context, site.url + "/", cache_ttl_sec=0)

    assert len(site.requests) == 2


def test_a_kept_page_that_is_too_old_for_this_call_is_asked_for_again(
    context: ToolContext, site: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    read(context, site.url + "/", cache_ttl_sec=3_600)
    later = time.time() + 60
    monkeypatch.setattr(time, "time", lambda: later)

    assert "read_seconds_ago" in read(context, site.url + "/", cache_ttl_sec=61)
    assert "read_seconds_ago" not in read(context, site.url + "/", cache_ttl_sec=59)


def test_what_acme_read_globex_does_not_get(context: ToolContext, site: Server) -> None:
    read(context, site.url + "/", organisation=1)
    read(context, site.url + "/", organisation=2)

    assert len(site.requests) == 2


@pytest.mark.parametrize("control", ["no-store", "private, max-age=60", "No-Store"])
def test_a_page_whose_server_forbids_it_is_not_kept(context: ToolContext, site: Server, control: str) -> None:
    site.answers["/mine"] = say(b"secret", content_type="text/plain", cache_control=control)
    for _ in range(2):
        read(context, site.url + "/mine")

    assert len(site.requests) == 2


def test_an_error_is_not_kept(context: ToolContext, site: Server) -> None:
    site.answers["/nowhere"] = say(b"", status=404)
    for _ in range(2):
        with pytest.raises(ToolError):
            read(context, site.url + "/nowhere")

    assert len(site.requests) == 2


def test_a_page_that_may_no_longer_be_reached_is_not_read_from_the_cache(
    context: ToolContext, site: Server, settings: Any
) -> None:
    read(context, site.url + "/")
    settings.TOOLHUB_PRIVATE_HOSTS = []

    with pytest.raises(ToolError, match="private address"):
        read(context, site.url + "/")


def test_an_organisation_keeps_only_so_many_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_cache, "SLOTS", 4)
    cache.clear()
    asked = [{"url": f"https://example.org/{number}"} for number in range(100)]

    for each in asked:
        page_cache.keep_page(1, each, {"text": each["url"]}, 60)

    kept = [found for each in asked if (found := page_cache.kept_page(1, each, 60))]
    assert len(kept) <= 4
    assert page_cache.kept_page(1, asked[-1], 60) == ({"text": asked[-1]["url"]}, 0)
    cache.clear()


def test_a_cache_that_is_away_costs_no_answer(
    context: ToolContext, site: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any, **__: Any) -> None:
        raise ConnectionError("away")

    monkeypatch.setattr(cache, "get", away)
    monkeypatch.setattr(cache, "set", away)

    assert read(context, site.url + "/")["title"] == "T"


@pytest.mark.parametrize("tool", ["web_read", "http_fetch"])
def test_zs_14_redirects_are_followed_as_often_as_is_set(context: ToolContext, site: Server, tool: str) -> None:
    for step in range(1, 7):
        site.redirect(f"/{step}", f"/{step - 1}" if step > 1 else "/")

    assert read(context, f"{site.url}/5", tool=tool, max_redirects=5)["url"] == site.url + "/"
    with pytest.raises(ToolError, match="more than 5 redirects"):
        read(context, f"{site.url}/6", tool=tool, max_redirects=5)
    with pytest.raises(ToolError, match="redirects elsewhere"):
        read(context, f"{site.url}/1", tool=tool, max_redirects=0)


def test_a_page_that_was_kept_is_no_way_around_the_limit_of_redirects(context: ToolContext, site: Server) -> None:
    site.redirect("/moved", "/")
    read(context, f"{site.url}/moved", max_redirects=3)

    with pytest.raises(ToolError, match="redirects elsewhere"):
        read(context, f"{site.url}/moved", max_redirects=0)


def test_zs_14_readability_leaves_menus_and_footers_out(context: ToolContext, site: Server) -> None:
    main = read(context, site.url + "/")["text"]
    whole = read(context, site.url + "/", readability=False)["text"]

    assert main.startswith("Rivers\nWater runs down.")
    assert ("somewhere else" in main, "Imprint" in main) == (False, False)
    assert ("somewhere else" in whole, "Imprint" in whole, "Rivers" in whole) == (True, True, True)


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<nav>All of it", "All of it"),  # a menu that is never closed
        ("<nav>A long menu of many words</nav><p>hi", "A long menu of many words\nhi"),
        ("<p>Main text</p><nav>menu</nav>", "Main text"),
        ("<p>Main text</p><nav>a<nav>b</nav>c</nav> end", "Main text\nc\nend"),
        ("<p>Main text</p></nav>more", "Main text\nmore"),
        ("", ""),
    ],
)
def test_main_text_of_a_page(html: str, text: str) -> None:
    assert readable(html, main=True)[1] == text


def test_menus_within_menus_take_time_that_grows_with_their_length_only() -> None:
    title, text, whole = readable("<nav>" * 90_000 + "</aside>" * 60_000 + "end", main=True)

    assert (title, text, whole) == ("", "end", True)


def test_zs_15_a_file_is_read_up_to_the_limit_of_its_input(context: ToolContext) -> None:
    context.workspace.mkdir()
    (context.workspace / "a.txt").write_text("one\ntwo\nthree\n")
    under = replace(context, envelope=replace(OWN, max_input_chars=6))

    found = registry.tools["file_read"].call(under, {"path": "a.txt"})

    note = found.pop("truncated")
    assert "first 6 characters" in note
    assert found == {"path": "a.txt", "text": "one\ntw", "total_lines": 2}
