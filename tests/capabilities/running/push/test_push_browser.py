"""Notifications turned on in a real browser, and one that is shown. No push service is reached: what it would give the
browser, and what it would deliver, comes from the test."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser import EMAIL, chromium, complaints, service, sign_in
from tests.test_tenancy_routes import BROWSER

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

#: In place of the browser maker's push service.
SUBSCRIBE = """
PushManager.prototype.subscribe = async (options) => {
  window.asked = {visible: options.userVisibleOnly, key: options.applicationServerKey.length};
  const {endpoint, p256dh, auth} = BROWSER;
  return {toJSON: () => ({endpoint, keys: {p256dh, auth}})};
};
"""
SHOWN = """async () => {
  const registration = await navigator.serviceWorker.getRegistration("/o/acme/");
  return (await registration.getNotifications()).map(({title, body, data}) => ({title, body, url: data.url}));
}"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, empty_database: Path | None) -> Iterator[Page]:
    with (
        service(tmp_path_factory.mktemp("push"), empty_database) as up,
        chromium(shows_notifications=True) as browser,
    ):
        context = browser.new_context(base_url=f"http://localhost:{up.port}", permissions=["notifications"])
        page = context.new_page()
        page.goto("/accounts/login/")
        sign_in(page, EMAIL)
        page.wait_for_url("**/o/acme/")
        yield page


def test_cx_23_notifications_are_turned_on_shown_and_turned_off(page: Page) -> None:
    wrong = complaints(page)
    page.add_init_script(SUBSCRIBE.replace("BROWSER", json.dumps(BROWSER)))
    page.goto("/o/acme/notifications/")
    page.get_by_label("Name of this browser").fill("laptop at work")
    page.get_by_role("button", name="Turn on in this browser").click()

    page.get_by_text("Notifications for you are shown in laptop at work from now on.").wait_for()
    assert page.locator("main").get_by_text("by push.example").count() == 1

    deliver(page, {"title": "Done", "body": "<b>All</b> green", "url": "/o/acme/"})
    page.wait_for_function(f"async () => (await ({SHOWN})()).length > 0")
    assert page.evaluate(SHOWN) == [{"title": "Done", "body": "<b>All</b> green", "url": "/o/acme/"}]

    page.get_by_role("button", name="Turn off").click()
    page.get_by_text("Nothing is shown in laptop at work any more.").wait_for()
    assert wrong == []


def deliver(page: Page, message: dict[str, str]) -> None:
    """As a push service does, past the network: to the worker of the organisation's pages."""
    devtools = page.context.new_cdp_session(page)
    found: list[dict[str, Any]] = []
    devtools.on("ServiceWorker.workerRegistrationUpdated", lambda event: found.extend(event["registrations"]))
    devtools.send("ServiceWorker.enable")
    page.wait_for_function("async () => Boolean((await navigator.serviceWorker.ready).active)")
    while not found:
        page.wait_for_timeout(50)
    (registration,) = [each for each in found if each["scopeURL"].endswith("/o/acme/")][-1:]
    origin = page.evaluate("location.origin")
    devtools.send(
        "ServiceWorker.deliverPushMessage",
        {"origin": origin, "registrationId": registration["registrationId"], "data": json.dumps(message)},
    )


def test_a_browser_without_permission_says_what_to_do(page: Page) -> None:
    other = page.context.browser.new_context(base_url=page.url.split("/o/")[0], permissions=[])  # type: ignore[union-attr]
    other.add_cookies(page.context.cookies())  # type: ignore[arg-type]
    blocked = other.new_page()
    blocked.goto("/o/acme/notifications/")
    blocked.get_by_role("button", name="Turn on in this browser").click()

    blocked.get_by_text("The browser does not allow notifications of this site.").wait_for()
    other.close()
