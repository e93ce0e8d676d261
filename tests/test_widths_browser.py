"""The pages that people live in, at three widths and in both themes: nothing is wider than the window.

`PICTURES=docs/images pytest tests/test_widths_browser.py` takes their pictures.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.browser import complaints, sign_in
from tests.test_newcomer import TURN_MS, say
from tests.test_streaming import rest
from tests.test_up import Up

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

pytestmark = [pytest.mark.browser, pytest.mark.processes]

WIDTHS = (1280, 860, 400)
MESSAGES = (
    "Add a task: water the plants on Friday",
    "What is on my list?",
    "What is 15% of 240?",
    "Remind me to call Ann tomorrow at 9",
)
PAGES = {
    "home": "/o/acme/",
    "tools": "/o/acme/tools/",
    "tool": "/o/acme/tools/task_create/",
    "agent": "/o/acme/agents/everyday/",
    "matrix": "/o/acme/roles/matrix/",
    "inbox": "/o/acme/approvals/",
    "organisation": "/o/acme/settings/",
    "usage": "/o/acme/usage/",
    "audit": "/o/acme/audit/",
    "budgets": "/o/acme/budgets/",
}
#: Elements that stick out of the window on the right, and cannot be reached by scrolling a part of the page.
OUTSIDE = """() => {
  const scrolls = element => element && (/auto|scroll|hidden|clip/.test(getComputedStyle(element).overflowX)
    || scrolls(element.parentElement));
  const sticksOut = each => each.getBoundingClientRect().right > innerWidth + 1;
  return [...document.querySelectorAll("body *")]
    .filter(each => sticksOut(each) && each.checkVisibility() && !scrolls(each.parentElement))
    .map(each => each.outerHTML.slice(0, 120));
}"""


@pytest.fixture(scope="module")
def context(browser: Browser, up: Up) -> Iterator[BrowserContext]:
    """An admin whose chat has some turns."""
    context = browser.new_context(base_url=f"http://localhost:{up.port}", reduced_motion="reduce")
    page = context.new_page()
    page.goto("/")
    sign_in(page)
    page.get_by_role("button", name="New session").first.click()
    for number, message in enumerate(MESSAGES):
        say(page, message)
        page.locator("article.turn").nth(number).locator(".answer.prose").wait_for(timeout=TURN_MS)
    yield context
    context.close()


@pytest.mark.parametrize("name", [*PAGES, "chat"])
@pytest.mark.parametrize("width", WIDTHS)
def test_a_page_is_no_wider_than_the_window(context: BrowserContext, up: Up, name: str, width: int) -> None:
    page = context.new_page()
    heard = complaints(page)
    page.set_viewport_size({"width": width, "height": 860})
    sessions = rest(up, "sessions")["results"]
    page.goto(PAGES.get(name) or f"/o/acme/sessions/{sessions[0]['id']}/")
    page.wait_for_load_state("networkidle" if name != "chat" else "load")

    assert page.evaluate(OUTSIDE) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for theme in ("light", "dark"):
        page.evaluate("theme => { document.documentElement.dataset.bsTheme = theme; }", theme)
        if folder := os.environ.get("PICTURES"):
            page.screenshot(path=f"{folder}/page-{name}-{width}-{theme}.png")
    assert heard == []
    page.close()
