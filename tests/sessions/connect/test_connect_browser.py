"""The page that connects a client in a real browser: another target, a token, and what the button copies."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser import EMAIL, chromium, complaints, service, sign_in

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser


@pytest.fixture
def page(tmp_path: Path, empty_database: Path | None) -> Iterator[Page]:
    with service(tmp_path, empty_database) as up, chromium() as browser:
        origin = f"http://localhost:{up.port}"
        context = browser.new_context(base_url=origin)
        context.grant_permissions(["clipboard-read", "clipboard-write"], origin=origin)
        page = context.new_page()
        page.goto("/accounts/login/")
        sign_in(page, EMAIL)
        page.wait_for_url("**/o/acme/")
        yield page


def copied(page: Page, number: int) -> str:
    page.locator("[data-copy]").nth(number - 1).click()
    page.get_by_text("Copied", exact=True).wait_for()
    text: str = page.evaluate("navigator.clipboard.readText()")
    return text


def test_the_button_copies_a_block_with_the_token_that_was_just_made(page: Page) -> None:
    wrong = complaints(page)
    page.goto("/o/acme/connect/?client=cursor")
    page.get_by_label("Connect to").select_option("toolkit/devops")
    page.wait_for_url("**to=toolkit%2Fdevops*")

    page.get_by_role("button", name="Create a token").click()
    page.get_by_text("The new token is in the blocks below").wait_for()
    server = json.loads(copied(page, 1))["mcpServers"]["toolhub-devops"]

    assert server["url"].endswith("/mcp/toolkit/devops")
    assert server["headers"]["Authorization"].startswith("Bearer thub_")
    page.get_by_text("Copy", exact=True).wait_for()  # again, after two seconds

    page.goto("/o/acme/connect/?client=cursor")
    assert "YOUR_TOKEN" in copied(page, 1)
    page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    page.get_by_text("Copy", exact=True).click()
    page.get_by_text("Copied", exact=True).wait_for()
    assert "YOUR_TOKEN" in page.evaluate("getSelection().toString()")
    assert wrong == []
