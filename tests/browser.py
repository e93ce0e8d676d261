"""Chromium, and the whole service as `make run` starts it, for tests of what only a real browser does."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.test_up import Up
from toolhub.embedded.supervisor import free_port

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

EMAIL, PASSWORD = "admin@example.com", "a-password-of-the-test"
#: This machine, open to all that a service asks.
LOCAL = "provider:127.0.0.1,tool:127.0.0.1,mcp:127.0.0.1"
TOKEN = "a-token-of-the-test-that-is-long-enough"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
#: The same engine without windows and notifications takes two thirds of the CPU time.
SHELL = "chromium-headless-shell"
MISSING = "Chromium is not installed: `apt-get install chromium` (or your system's package) lets this test run."
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@contextmanager
def chromium(*, shows_notifications: bool = False) -> Iterator[Browser]:
    """Chromium, or its headless shell where that is installed and will do.

    Skips the test where there is none, and fails it where TOOLHUB_REQUIRE_BROWSER says that there must be one.
    """
    names = BROWSERS if shows_notifications else (SHELL, *BROWSERS)
    program = next(filter(None, map(shutil.which, names)), None)
    if program is None:
        if os.environ.get("TOOLHUB_REQUIRE_BROWSER"):
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def service(folder: Path, database: Path | None, **env: str) -> Iterator[Up]:
    """`manage.py up` on a data folder in `folder`, ready, with EMAIL, PASSWORD and TOKEN.

    Its data begin with a copy of `database`, the fixture `empty_database`: to migrate takes longer than the rest.
    """
    env |= {"TOOLHUB_BOOTSTRAP_PASSWORD": PASSWORD, "TOOLHUB_BOOTSTRAP_TOKEN": TOKEN}
    running = Up(folder / "data", free_port(), database=database, **env)
    try:
        running.wait_ready()
        yield running
    finally:
        running.interrupt()


def sign_in(page: Page, email: str = EMAIL, password: str = PASSWORD) -> None:
    """On the login page, or where a page sent to it."""
    page.get_by_label("E-mail").fill(email)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in", exact=True).click()


def menu(page: Page, entry: str, tab: str = "") -> None:
    """An entry of the menu, and one of its tabs."""
    page.get_by_role("navigation", name="Main", exact=True).get_by_role("link", name=entry).click()
    if tab:
        page.get_by_role("navigation", name=f"Pages of {entry}").get_by_role("link", name=tab).click()


def complaints(page: Page) -> list[str]:
    """What the page's console says of errors, refused content and broken scripts, as it comes."""
    found: list[str] = []
    page.on("console", lambda message: found.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: found.append(str(error)))
    return found
