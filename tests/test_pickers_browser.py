"""The picker of a form in a real browser: with the keyboard, search after search, and while a search is under way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser import EMAIL, chromium, complaints, service, sign_in

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, empty_database: Path | None) -> Iterator[Page]:
    """An admin's, with the tools of the starter."""
    with service(tmp_path_factory.mktemp("pickers"), empty_database) as up, chromium() as browser:
        page = browser.new_context(base_url=f"http://localhost:{up.port}").new_page()
        page.goto("/accounts/login/")
        sign_in(page, EMAIL)
        page.wait_for_url("**/o/acme/")
        yield page


def box(name: str, part: str = "") -> str:
    """The checkbox of a tool; in the list of those that are ticked (ol) or found (ul)."""
    return f"#pick-tools {part} input[name=tools][value={name}]"


def search(page: Page, words: str, finds: str) -> None:
    page.locator("#tools-q").fill(words)
    page.wait_for_selector(box(finds, "ul"))


def test_ticks_of_several_searches_are_saved_together(page: Page) -> None:
    from playwright.sync_api import Error

    wrong = complaints(page)
    page.goto("/o/acme/agents/new/")
    page.get_by_label("Name", exact=True).fill("Picker")
    assert "Search, or choose a category" in page.locator("#pick-tools").inner_text()

    # With the keyboard alone: from the words over category and button to the first that is found.
    search(page, "web_search", "web_search")
    page.locator("#tools-q").focus()
    for _ in range(3):
        page.keyboard.press("Tab")
    page.keyboard.press("Space")
    assert page.locator(box("web_search")).is_checked()

    # Enter searches, and saves nothing.
    page.locator("#tools-q").fill("file_read")
    page.locator("#tools-q").press("Enter")
    page.wait_for_selector(box("web_search", "ol"))
    assert page.url.endswith("/agents/new/")
    page.locator(box("file_read")).check()

    # A tick while the next search is under way.
    search(page, "file", "file_write")
    held: list[Route] = []

    def hold(route: Route) -> None:
        """The first one waits; the others go on at once."""
        held.append(route)
        if len(held) > 1:
            route.continue_()

    page.route("**/agents/new/", hold)
    page.locator("#tools-q").press_sequentially("_")
    page.wait_for_selector("#pick-tools.htmx-request")
    page.locator(box("file_write")).check()
    with suppress(Error):  # it was given up for the second one
        held[0].continue_()
    page.wait_for_selector(box("file_write", "ol"))
    page.unroute("**/agents/new/")

    page.get_by_role("button", name="Add the agent").click()
    page.wait_for_url("**/agents/picker/")
    page.goto("/o/acme/agents/picker/edit/")
    ticked = page.locator("#pick-tools ol input[name=tools]").evaluate_all("boxes => boxes.map(each => each.value)")
    assert sorted(ticked) == ["file_read", "file_write", "web_search"]
    assert [text for text in wrong if not text.startswith("htmx:")] == [], "htmx says what was given up"


def test_a_preview_takes_the_errors_of_the_form_before_away(page: Page) -> None:
    page.goto("/o/acme/agents/assistant/edit/")
    page.get_by_label("Name", exact=True).fill("")
    page.get_by_role("button", name="Save the agent").last.click()
    page.wait_for_selector(".field-error")

    page.get_by_label("Name", exact=True).fill("Helper")
    page.locator("#pick-tools ol input[name=tools]").first.uncheck()
    page.get_by_role("button", name="Preview").click()

    page.wait_for_selector("#impact :text('Nothing is saved yet')")
    assert page.locator(".field-error, .is-invalid, main .notice.is-error").count() == 0


def test_the_preview_of_a_form_that_is_wrong_says_so(page: Page) -> None:
    page.goto("/o/acme/agents/assistant/edit/")
    page.get_by_label("Name", exact=True).fill("")
    page.get_by_role("button", name="Preview").click()

    page.wait_for_selector(".field-error")
    assert page.locator("main").count() == page.locator("#agent-form").count() == 1


def test_a_thing_is_found_and_opened_by_keyboard_alone_misspelt_too(page: Page) -> None:
    found = complaints(page)
    for width, word, address in (
        (1280, "calender", "/tools/calendar_list/"),
        (400, "invit a member", "/members/invite/"),
    ):
        page.set_viewport_size({"width": width, "height": 860})
        page.goto("/o/acme/")
        page.keyboard.press("/")
        page.keyboard.type(word)
        page.locator("#found").wait_for(state="visible")
        options = page.locator("#found [role=option]")
        wanted = options.filter(has=page.locator(f"xpath=self::a[contains(@href, '{address}')]"))
        for _ in range(options.count()):
            if wanted.get_attribute("aria-selected") == "true":
                break
            page.keyboard.press("ArrowDown")
        assert page.locator("[data-search]").get_attribute("aria-activedescendant") == wanted.get_attribute("id")
        assert page.evaluate("document.documentElement.scrollWidth") == width
        page.keyboard.press("Enter")
        page.wait_for_url(f"**{address}")

    page.keyboard.press("/")
    page.keyboard.type("mail")
    page.locator("#found").wait_for(state="visible")
    page.keyboard.press("Escape")
    assert page.locator("#found").is_hidden()
    assert found == []


def test_the_cost_of_a_round_follows_what_is_edited(page: Page) -> None:
    wrong = complaints(page)
    page.goto("/o/acme/agents/everyday/edit/")
    cost, sending = page.locator("#round-cost .cost-sum"), page.locator("#summary-sending")
    before, routed = cost.inner_text(), sending.inner_text()

    page.locator("[name=prompt]").fill("Answer in one short sentence. " * 50)
    page.wait_for_function("before => document.querySelector('.cost-sum').innerText !== before", arg=before)
    longer = cost.inner_text()
    assert "tokens: “Answer in one short" in page.locator("#summary-prompt").inner_text()

    page.locator("[name=routing_mode][value=off]").check()
    page.wait_for_function("before => document.querySelector('.cost-sum').innerText !== before", arg=longer)
    assert sending.inner_text() != routed
    assert page.locator("[name=prompt]").input_value().startswith("Answer in one short sentence.")

    page.goto("/o/acme/agents/everyday/")
    assert page.locator("#round-cost .cost-sum").inner_text() == before
    assert wrong == []
