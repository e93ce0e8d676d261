"""The doors without a login, as real browsers pass them: they send Origin, Referer and cookies as Django's client does
not. Nothing of a link's secret stays in an address, a Referer or a log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.browser import EMAIL, complaints, sign_in
from tests.test_up import Up

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

NEW = "another-good-password"


def profile(browser: Browser, up: Up, *, script: bool = True) -> Page:
    """A page of a browser that knows nobody here."""
    return browser.new_context(base_url=f"http://localhost:{up.port}", java_script_enabled=script).new_page()


@pytest.fixture(scope="module")
def admin(browser: Browser, up: Up) -> Page:
    page = profile(browser, up)
    page.goto("/accounts/login/")
    sign_in(page, EMAIL)
    page.wait_for_url("**/o/acme/")
    return page


def invite(admin: Page, email: str) -> str:
    admin.goto("/o/acme/members/invite/")
    admin.get_by_label("E-mail address").fill(email)
    admin.locator("main button[type=submit]").click()
    return link_on(admin)


def link_on(admin: Page) -> str:
    return admin.locator("#secret").inner_text()


def join(page: Page, link: str, name: str) -> None:
    page.goto(link)
    page.get_by_label("First name").fill(name)
    page.get_by_label("Password").fill(NEW)
    page.get_by_role("button", name="Join").click()


def sent_by(page: Page) -> list[str]:
    """Address and Referer of every request but the one that opens the link."""
    found: list[str] = []
    page.on("request", lambda each: found.append(each.headers.get("referer", "")))
    page.on("request", lambda each: found.append(each.url) if each.redirected_to or each.method == "POST" else None)
    return found


@pytest.mark.parametrize("script", [True, False], ids=["script", "no script"])
def test_a_second_browser_joins_as_a_newcomer(browser: Browser, admin: Page, up: Up, script: bool) -> None:
    link = invite(admin, f"dana-{script}@example.com".lower())
    page = profile(browser, up, script=script)
    heard, sent = complaints(page), sent_by(page)

    join(page, link, "Dana")
    page.wait_for_url("**/o/acme/")

    secret = link.rstrip("/").rpartition("/")[2]
    assert len(secret) == 43
    assert [each for each in sent if secret in each and each != link] == []
    assert secret not in str(page.context.cookies())
    assert secret not in up.output
    assert heard == []
    page.goto(link)
    assert page.get_by_text("This link does not work").is_visible()


def test_who_has_an_account_signs_in_on_the_way_and_joins(browser: Browser, admin: Page, up: Up) -> None:
    """Removed, and invited again: the account stays."""
    join(profile(browser, up), invite(admin, "erin@example.com"), "Erin")
    admin.goto("/o/acme/members/?q=erin")
    admin.get_by_role("link", name="Erin").first.click()
    admin.get_by_text("Remove Erin…").click()
    admin.get_by_role("button", name="Remove Erin").click()
    admin.wait_for_load_state()
    link = invite(admin, "erin@example.com")
    page = profile(browser, up)
    heard = complaints(page)

    page.goto(link)
    page.get_by_role("link", name="Sign in").click()
    sign_in(page, "erin@example.com", NEW)
    page.get_by_role("button", name="Join").click()
    page.wait_for_url("**/o/acme/")

    assert link.rstrip("/").rpartition("/")[2] not in up.output
    assert heard == []


def test_somebody_else_signs_out_and_goes_on_to_join(browser: Browser, admin: Page, up: Up) -> None:
    page = profile(browser, up)
    join(page, invite(admin, "frank@example.com"), "Frank")
    link = invite(admin, "grace@example.com")

    page.goto(link)
    page.get_by_role("button", name="Sign out and go on").click()
    page.get_by_label("First name").fill("Grace")
    page.get_by_label("Password").fill(NEW)
    page.get_by_role("button", name="Join").click()
    page.wait_for_url("**/o/acme/")


def test_a_lost_password_is_set_anew_and_signs_in(browser: Browser, admin: Page, up: Up) -> None:
    join(profile(browser, up), invite(admin, "heidi@example.com"), "Heidi")
    admin.goto("/o/acme/members/?q=heidi")
    admin.get_by_role("link", name="Heidi").first.click()
    admin.get_by_role("button", name="reset link").click()
    link = link_on(admin)
    page = profile(browser, up)
    heard, sent = complaints(page), sent_by(page)

    page.goto(link)
    page.get_by_label("New password").fill("yet-another-password")
    page.get_by_role("button", name="Set the password").click()
    sign_in(page, "heidi@example.com", "yet-another-password")
    page.wait_for_url("**/o/acme/")

    secret = link.rstrip("/").rpartition("/")[2]
    assert [each for each in sent if secret in each and each != link] == []
    assert secret not in up.output
    assert heard == []


def test_a_form_of_an_earlier_link_is_shown_again_for_the_one_opened_last(
    browser: Browser, admin: Page, up: Up
) -> None:
    """Two invitations in two tabs: nobody joins by the wrong one."""
    page = profile(browser, up)
    page.goto(invite(admin, "ivan@example.com"))
    other = page.context.new_page()
    other.goto(invite(admin, "judy@example.com"))

    page.get_by_label("First name").fill("Ivan")
    page.get_by_label("Password").fill(NEW)
    page.get_by_role("button", name="Join").click()

    assert page.get_by_text("Another link was opened in this browser").is_visible()
    assert page.get_by_text("judy@example.com").is_visible()
