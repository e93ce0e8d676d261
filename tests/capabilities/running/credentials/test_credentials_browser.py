"""Credentials and accounts in a real browser: typed, and by signing in at a real authorization server."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.authorization_server import AuthorizationServer
from tests.browser import EMAIL, LOCAL, chromium, complaints, service, sign_in

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, empty_database: Path | None) -> Iterator[Page]:
    """An admin's."""
    folder = tmp_path_factory.mktemp("credentials")
    with (
        service(folder, empty_database, TOOLHUB_PRIVATE_HOSTS=LOCAL) as up,
        chromium() as browser,
    ):
        page = browser.new_context(base_url=f"http://localhost:{up.port}").new_page()
        page.goto("/accounts/login/")
        sign_in(page, EMAIL)
        page.wait_for_url("**/o/acme/")
        yield page


@pytest.fixture
def server() -> Iterator[AuthorizationServer]:
    with AuthorizationServer(consent="ask") as running:
        yield running


def test_a_credential_is_typed_changed_and_deleted(page: Page) -> None:
    wrong = complaints(page)

    typed_walk(page)

    # A form that is shown again with its errors comes with the status 422, which the console tells.
    assert [each for each in wrong if "422" not in each] == []


def test_a_member_signs_in_at_the_service_and_disconnects(page: Page, server: AuthorizationServer) -> None:
    wrong = complaints(page)

    sign_in_walk(page, server)
    until = time.monotonic() + 60
    while not server.revoked and time.monotonic() < until:
        time.sleep(0.1)

    assert [each.path for each in server.requests if each.method == "POST"] == [
        "/register",
        "/authorize",
        "/token",
        "/revoke",
    ]
    assert wrong == []


def test_a_denied_consent_is_shown_on_the_page(page: Page, server: AuthorizationServer) -> None:
    server.consent = "deny"
    add_oauth(page, server, "Refusing notes")
    page.goto("/o/acme/accounts/refusing-notes/")

    page.get_by_role("button", name="Sign in", exact=True).click()
    page.get_by_role("link", name="Go on to").click()

    page.get_by_text("you did not agree there").wait_for()


def typed_walk(page: Page, seen: Callable[[str], None] = lambda name: None) -> None:
    """`seen` is called at each page worth looking at."""
    page.goto("/o/acme/credentials/")
    seen("list_empty")
    page.get_by_role("main").get_by_role("link", name="Add a credential").first.click()
    seen("choose")
    page.get_by_role("link", name="Header A header").click()
    page.get_by_label("Title").fill("Weather service")
    page.get_by_label("Short name").fill("weather")
    page.get_by_label("Name of the header").fill("X-Api-Key")
    page.get_by_label("Where it may be sent").fill("http://weather.example.org")
    page.get_by_label("Secret", exact=False).last.fill("sk-weather-1234")
    page.get_by_role("button", name="Save").click()
    page.get_by_text("secrets are sent by https only").first.wait_for()
    seen("form_wrong")
    assert "sk-weather-1234" not in page.content()
    page.get_by_label("Where it may be sent").fill("https://weather.example.org")
    page.get_by_label("Secret", exact=False).last.fill("sk-weather-1234")
    page.get_by_role("button", name="Save").click()
    page.get_by_text("Weather service is saved").wait_for()
    seen("detail_header")
    assert "sk-weather-1234" not in page.content()
    page.get_by_role("link", name="Change").click()
    page.get_by_label("Where it may be sent").fill("https://other.example.org")
    page.get_by_role("button", name="Save").click()
    page.get_by_text("type the secret again").first.wait_for()
    seen("form_again")
    page.goto("/o/acme/credentials/weather/")
    page.get_by_text("Delete the secret").first.click()
    page.get_by_role("button", name="Delete the secret").click()
    page.get_by_text("The secret is deleted").wait_for()
    page.get_by_text("Delete this credential").click()
    page.get_by_role("button", name="Delete the credential").click()
    page.get_by_text("Weather service is deleted").wait_for()


def add_oauth(page: Page, server: AuthorizationServer, title: str) -> None:
    page.goto("/o/acme/credentials/new/?kind=oauth")
    page.get_by_label("Title").fill(title)
    page.get_by_label("Short name").fill(title.lower().replace(" ", "-"))
    page.get_by_label("Each member connects an own account").check()
    page.get_by_label("Address of the service").fill(server.resource)
    page.get_by_role("button", name="Save").click()
    page.get_by_text(f"{title} is saved").wait_for()


def sign_in_walk(page: Page, server: AuthorizationServer, seen: Callable[[str], None] = lambda name: None) -> None:
    page.goto("/o/acme/credentials/new/?kind=oauth")
    seen("form_oauth")
    add_oauth(page, server, "Far notes")
    page.goto("/o/acme/accounts/")
    seen("accounts_before")
    page.get_by_role("link", name="Connect", exact=True).click()
    seen("connect")
    page.get_by_role("button", name="Sign in", exact=True).click()
    page.get_by_text("Type a password there only if you know that host").wait_for()
    seen("go_on")
    page.get_by_role("link", name="Go on to").click()
    page.get_by_role("button", name="Agree").click()
    page.get_by_text("Far notes is connected as someone@far.example").wait_for()
    assert re.search(r"/o/acme/accounts/$", page.url)
    seen("accounts_after")
    page.goto("/o/acme/credentials/far-notes/")
    seen("detail_oauth")
    page.goto("/o/acme/accounts/")
    page.get_by_role("button", name="Disconnect").click()
    page.get_by_text("its sign-in is being revoked at").wait_for()
