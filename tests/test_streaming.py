"""A streamed answer in a real browser: reloaded in the middle, stopped in the middle, followed to its end, and turns
that others post."""

from __future__ import annotations

import http.client
import json
import os
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser import TOKEN, complaints, service, sign_in
from tests.test_newcomer import TURN_MS, say
from tests.test_up import Up

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

#: A message that no tool fits: the offline model tells what it can use, in a hundred words or so.
MESSAGE = "Gibberish, twaddle and hogwash"
#: Seconds between two of its words: the answer takes about ten seconds.
WORD_SECONDS = 0.12
WIDE, NARROW = {"width": 1280, "height": 800}, {"width": 400, "height": 800}


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory, empty_database: Path | None) -> Iterator[Up]:
    env = {"TOOLHUB_OFFLINE_WORD_SECONDS": str(WORD_SECONDS), "TOOLHUB_STREAMS_PER_MEMBER": "10"}
    with service(tmp_path_factory.mktemp("streaming"), empty_database, **env) as running:
        # The answer tells of each tool that was sent: of all of them, so that it is long.
        rest(running, "agents/everyday", {"routing_mode": "off"}, method="PATCH")
        yield running


@pytest.fixture(params=[WIDE, NARROW], ids=["1280", "400"])
def page(request: pytest.FixtureRequest, browser: Browser, up: Up) -> Iterator[Page]:
    """An empty session, in a window of 1280 and of 400 px."""
    context = browser.new_context(base_url=f"http://localhost:{up.port}", viewport=request.param)
    page = context.new_page()
    page.goto("/")
    sign_in(page)
    page.get_by_role("button", name="New session").first.click()
    page.get_by_role("textbox", name="Message").wait_for()
    yield page
    context.close()


def picture(page: Page, name: str) -> None:
    """A picture to look at, where a folder for them is named."""
    if folder := os.environ.get("PICTURES"):
        page.screenshot(path=f"{folder}/{name}-{page.viewport_size['width'] if page.viewport_size else 0}.png")


def rest(up: Up, path: str, body: Any = None, *, method: str | None = None) -> Any:
    request = urllib.request.Request(
        f"http://localhost:{up.port}/api/v1/{path}",
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"},
        method=method,
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.load(answer)


def open_stream(up: Up, turn: str) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection("localhost", up.port, timeout=60)
    connection.request("GET", f"/api/v1/turns/{turn}/events", headers={"Authorization": f"Bearer {TOKEN}"})
    assert connection.getresponse().status == 200
    return connection


@contextmanager
def asked_by_client(up: Up, message: str) -> Iterator[http.client.HTTPResponse]:
    """The stream that a client of OpenAI's API gets, from its first byte on."""
    connection = http.client.HTTPConnection("localhost", up.port, timeout=60)
    body = {"model": "everyday", "stream": True, "messages": [{"role": "user", "content": message}]}
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
    with closing(connection), connection.getresponse() as answer:
        yield answer


def session_of(page: Page) -> str:
    return page.url.rstrip("/").split("/")[-1].partition("?")[0]


def live(page: Page) -> str:
    """What the page shows of the answer that is being written."""
    return str(page.evaluate("[...document.querySelectorAll('.answer-live')].at(-1)?.textContent ?? ''"))


def wait_until_written(page: Page, chars: int) -> str:
    page.wait_for_function(
        "chars => (document.querySelector('.answer-live')?.textContent ?? '').length >= chars",
        arg=chars,
        timeout=TURN_MS,
    )
    return live(page)


def in_sight(page: Page, selector: str) -> bool:
    """Whether the thing is in the window, and nothing lies over its middle."""
    return bool(
        page.evaluate(
            """selector => {
              const element = document.querySelector(selector);
              if (!element) return false;
              const box = element.getBoundingClientRect();
              const there = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
              return box.top >= 0 && box.bottom <= innerHeight && element.contains(there);
            }""",
            selector,
        )
    )


def behind(page: Page) -> float:
    """How far the end of the chat is below the window."""
    return float(page.evaluate("document.querySelector('#end').getBoundingClientRect().bottom - innerHeight"))


STOP = ".turn-state.is-now button"


def test_an_answer_reloaded_in_the_middle_is_there_from_its_first_word_to_its_last(up: Up, page: Page) -> None:
    say(page, MESSAGE)
    before = wait_until_written(page, 150)

    page.reload()
    page.locator(".answer-live").wait_for()
    first = live(page)
    picture(page, "reloaded")
    whole = ""
    while page.locator(".answer-live").count():
        whole = live(page) or whole
        page.wait_for_timeout(60)
    page.locator(".answer.prose").wait_for(timeout=TURN_MS)

    turn = rest(up, f"sessions/{session_of(page)}/turns")["results"][-1]
    assert len(first) > 100
    assert turn["answer"].startswith(before)
    assert turn["answer"].startswith(first)
    assert turn["answer"].startswith(whole)  # nothing twice, nothing left out
    assert len(whole) > len(turn["answer"]) - 60
    assert page.locator("article.turn").count() == 1


def test_words_that_come_at_once_behind_a_new_state_are_not_lost(page: Page) -> None:
    state = '<div class="answer answer-live" sse-swap="delta" hx-swap="beforeend">I match </div>'
    stream = f"event: turn\ndata: {state}\n\nevent: delta\ndata: <span>the words</span>\n\n"
    page.route("**/turns/*/stream", lambda route: route.fulfill(content_type="text/event-stream", body=stream))

    say(page, MESSAGE)
    page.wait_for_function("() => document.querySelector('.answer-live')?.textContent.startsWith('I match ')")
    page.wait_for_timeout(200)

    assert live(page) == "I match the words"
    page.unroute_all()


def test_an_answer_stopped_in_the_middle_stays_with_what_it_cost(up: Up, page: Page) -> None:
    say(page, MESSAGE)
    before = wait_until_written(page, 150)

    page.locator(STOP).click()
    page.locator(".turn-ended").wait_for(timeout=TURN_MS)
    picture(page, "stopped")

    turn = rest(up, f"sessions/{session_of(page)}/turns")["results"][-1]
    assert turn["status"] == "cancelled"
    assert turn["answer"].startswith(before)
    assert turn["usage"]["output_tokens"] > 10
    assert turn["usage"]["estimated"] is True
    page.locator(".work > summary").click()
    shown = page.locator("article.turn").inner_text()
    assert before.split()[5] in shown
    assert f"{turn['usage']['output_tokens']:,} out" in shown
    assert "estimated" in shown
    page.reload()
    assert page.locator("article.turn .answer.prose").inner_text().split() != []
    say(page, MESSAGE)
    wait_until_written(page, 20)


def test_the_page_follows_an_answer_to_its_end_and_stop_stays_in_sight(page: Page) -> None:
    for _ in range(2):
        say(page, MESSAGE)
        page.locator(STOP).click()
        page.locator(".turn-state").wait_for(state="detached", timeout=TURN_MS)
    say(page, MESSAGE)
    wait_until_written(page, 60)
    picture(page, "followed")
    while page.locator(".answer-live").count():
        if page.locator(STOP).count():
            assert behind(page) < 2
        assert in_sight(page, STOP) or not page.locator(STOP).count()
        page.wait_for_timeout(150)
    page.locator("article.turn").last.locator(".answer.prose").wait_for(timeout=TURN_MS)
    page.wait_for_timeout(100)

    assert behind(page) < 2
    picture(page, "followed-to-the-end")
    page.reload()
    page.wait_for_timeout(300)
    assert behind(page) < 2  # it opens at the end


def test_a_reader_who_scrolls_up_is_left_there_and_still_sees_stop(page: Page) -> None:
    for _ in range(3):
        say(page, MESSAGE)
        wait_until_written(page, 300)
        page.locator(STOP).click()
        page.locator(".turn-state").wait_for(state="detached", timeout=TURN_MS)
    say(page, MESSAGE)
    wait_until_written(page, 60)

    page.mouse.move(200, 300)
    page.mouse.wheel(0, -600)
    page.wait_for_timeout(200)
    top = page.evaluate("scrollY")
    wait_until_written(page, 250)
    picture(page, "scrolled-away")

    assert page.evaluate("scrollY") == top
    assert behind(page) > 80
    assert in_sight(page, STOP)


def test_a_turn_posted_over_rest_appears_in_an_open_chat(up: Up, page: Page) -> None:
    say(page, MESSAGE)
    page.locator(STOP).click()
    page.locator(".turn-ended").wait_for(timeout=TURN_MS)

    rest(up, f"sessions/{session_of(page)}/turns", {"message": "Balderdash over REST"})
    page.get_by_text("Balderdash over REST").wait_for(timeout=8_000)
    wait_until_written(page, 30)
    picture(page, "over-rest")

    assert page.locator("article.turn").count() == 2
    assert behind(page) < 2
    say(page, "From the page itself")
    page.wait_for_timeout(6_000)
    assert page.locator("article.turn").count() == 3


def test_a_page_that_gets_no_stream_shows_the_answer_all_the_same(up: Up, page: Page) -> None:
    agent = rest(up, "agents")["results"][0]["slug"]
    session = rest(up, "sessions", {"agent": agent})["id"]
    turns = [rest(up, f"sessions/{session}/turns", {"message": MESSAGE})["id"] for _ in range(3)]
    held = [open_stream(up, turns[-1]) for _ in range(10)]  # all that one member may have, for as long as three turns

    say(page, MESSAGE)
    before = wait_until_written(page, 60)
    picture(page, "polled")
    after = wait_until_written(page, len(before) + 60)

    assert page.locator(".turn-live[sse-connect]").count() == 0
    assert after.startswith(before)
    assert page.locator("#toasts .toast-card").count() == 0
    page.locator(STOP).click()
    page.locator(".turn-ended").wait_for(timeout=TURN_MS)
    for each in held:
        each.close()
    for turn in turns:
        rest(up, f"turns/{turn}/cancel", {})


def test_an_answer_to_a_client_is_watched_reloaded_and_stopped_in_the_browser(up: Up, page: Page) -> None:
    with asked_by_client(up, MESSAGE) as answer:
        page.goto(f"/o/acme/sessions/{answer.headers['X-Toolhub-Session']}/")
        before = wait_until_written(page, 100)
        page.reload()
        after = wait_until_written(page, len(before) + 30)
        picture(page, "of-a-client")
        page.locator(STOP).click()
        page.locator(".turn-ended").wait_for(timeout=TURN_MS)
        told = answer.read().decode()

    assert after.startswith(before)
    assert '"message":"Stopped."' in told
    assert page.locator("article.turn").count() == 1


def test_what_a_client_sent_unfolds_where_the_reader_looks(up: Up, page: Page) -> None:
    wrong = complaints(page)
    with asked_by_client(up, MESSAGE + " " + "long " * 600) as answer:
        page.goto(f"/o/acme/sessions/{answer.headers['X-Toolhub-Session']}/")
        wait_until_written(page, 60)
        page.locator(STOP).click()
        page.locator(".turn-ended").wait_for(timeout=TURN_MS)
    summary = page.get_by_text("what it sent")
    assert behind(page) < 2
    top = page.evaluate("scrollY")

    summary.click()
    page.get_by_text("None: the message begins the conversation.").wait_for()
    page.wait_for_timeout(200)

    assert page.evaluate("scrollY") == top
    picture(page, "what-it-sent")
    summary.click()
    page.get_by_text("None: the message begins the conversation.").wait_for(state="hidden")
    assert wrong == []
