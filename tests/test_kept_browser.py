"""What a person typed is kept in a real browser: over a login that ended or was renewed, and when it is too long."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from django.template.loader import render_to_string

from tests.browser import EMAIL, sign_in
from tests.paths import ROOT
from tests.test_doors_browser import profile
from tests.test_streaming import picture, rest
from tests.test_up import Up

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

TEXT = "a long message that nobody wants to type twice"
#: Pages with a form that is sent as browsers send them, and the field that something is typed into.
FORMS = {"agents/new/": "prompt", "toolkits/new/": "description", "python-tools/new/": "description"}
#: Dispatched as Chromium does for an Enter that ends a composition: in two ways, by its version.
COMPOSING = """([field, init]) => field.dispatchEvent(
    Object.defineProperty(new KeyboardEvent("keydown", {key: "Enter", bubbles: true, cancelable: true, ...init}),
    "keyCode", {value: init.code_}))"""


@pytest.fixture
def page(browser: Browser, up: Up) -> Iterator[Page]:
    """Signed in, at nothing yet."""
    page = profile(browser, up)
    page.goto("/accounts/login/")
    sign_in(page, EMAIL)
    page.wait_for_url("**/o/acme/**")
    yield page
    page.context.close()


@pytest.fixture
def chat(page: Page, up: Up) -> str:
    """The address of a new session's page, which is open."""
    agent = rest(up, "agents")["results"][0]["slug"]
    address = f"/o/acme/sessions/{rest(up, 'sessions', {'agent': agent})['id']}/"
    page.goto(address)
    return address


def composer(page: Page) -> Locator:
    return page.get_by_role("textbox", name="Message")


def notice(page: Page) -> Locator:
    return page.locator("#connection")


def sign_out_elsewhere(page: Page, *, whole: bool) -> None:
    """The login ends, as when it expires, or every cookie goes."""
    page.context.clear_cookies(**({} if whole else {"name": "sessionid"}))


# -- Tools off in a session -------------------------------------------------------------------------------------------


def test_the_tools_switch_stays_over_messages_and_reloads_and_keeps_typed_text(page: Page, chat: str) -> None:
    bolt = page.get_by_role("button", name="Tools in this session")
    assert bolt.get_attribute("aria-pressed") == "true"
    composer(page).fill(TEXT)

    bolt.click()

    page.locator("#tools-switch[aria-pressed=false]").wait_for()
    page.locator("#session-chip").get_by_text("tools off").wait_for()
    assert (composer(page).input_value(), page.url.endswith(chat)) == (TEXT, True)
    picture(page, "tools-off")
    composer(page).press("Enter")
    page.get_by_text("Sent without tools").wait_for()
    page.locator("#tools-switch[aria-pressed=false]").wait_for()
    page.reload()
    assert bolt.get_attribute("aria-pressed") == "false"
    bolt.focus()
    page.keyboard.press("Enter")
    page.locator("#tools-switch[aria-pressed=true]").wait_for()
    assert page.evaluate("document.activeElement.id") == "tools-switch"


# -- Signed out while a page is open ---------------------------------------------------------------------------------


@pytest.mark.parametrize("whole", [False, True], ids=["the login ended", "no cookie is left"])
def test_a_message_is_kept_when_the_login_has_ended_and_over_the_next_one(page: Page, chat: str, whole: bool) -> None:
    composer(page).fill(TEXT)
    sign_out_elsewhere(page, whole=whole)

    composer(page).press("Enter")

    notice(page).get_by_text("You are signed out").wait_for()
    picture(page, "signed-out")
    assert composer(page).input_value() == TEXT
    assert page.locator("#turns article").count() == 0
    notice(page).get_by_role("link", name="Sign in").click()
    sign_in(page, EMAIL)
    page.wait_for_url(f"**{chat}")
    assert composer(page).input_value() == TEXT
    composer(page).press("Enter")
    page.locator("#turns").get_by_text(TEXT).first.wait_for()


def test_a_chat_that_only_waits_says_that_one_is_signed_out_and_nothing_else(page: Page, chat: str) -> None:
    composer(page).fill(TEXT)
    sign_out_elsewhere(page, whole=False)

    notice(page).get_by_text("You are signed out").wait_for(timeout=20_000)

    assert composer(page).input_value() == TEXT
    assert not re.search(r"\bnull\b", page.locator("main").inner_text())


@pytest.mark.parametrize("path", FORMS)
@pytest.mark.parametrize("whole", [False, True], ids=["the login ended", "no cookie is left"])
def test_a_form_of_any_page_is_filled_in_again_after_the_login(page: Page, path: str, whole: bool) -> None:
    page.goto(f"/o/acme/{path}")
    field = page.locator(f"main [name={FORMS[path]}]")
    field.fill(TEXT)
    page.locator("main [name=name]").fill("kept")
    sign_out_elsewhere(page, whole=whole)

    page.locator("main form[method=post]").first.evaluate("form => { form.noValidate = true; form.requestSubmit(); }")
    page.wait_for_load_state()
    if whole:  # the form had expired before anybody was asked to sign in
        page.get_by_role("link", name="Back to the form").click()
    sign_in(page, EMAIL)

    page.wait_for_url(f"**/o/acme/{path}")
    assert field.input_value() == TEXT
    assert page.locator("main [name=name]").input_value() == "kept"


def test_a_form_that_was_sent_is_not_filled_in_again(page: Page) -> None:
    page.goto("/o/acme/toolkits/new/")
    page.locator("main [name=name]").fill("sent once")
    page.locator("main form[method=post]").first.evaluate("form => form.requestSubmit()")
    page.wait_for_load_state()

    page.goto("/o/acme/toolkits/new/")

    assert page.locator("main [name=name]").input_value() == ""


# -- A login that was renewed in another tab -------------------------------------------------------------------------


def renewed_elsewhere(page: Page) -> None:
    other = page.context.new_page()
    page.context.clear_cookies()
    other.goto("/accounts/login/")
    sign_in(other, EMAIL)
    other.wait_for_url("**/o/acme/**")
    other.close()


def test_a_message_is_sent_after_the_login_was_renewed_in_another_tab(page: Page, chat: str) -> None:
    composer(page).fill(TEXT)
    renewed_elsewhere(page)

    composer(page).press("Enter")

    page.locator("#turns").get_by_text(TEXT).first.wait_for()
    assert composer(page).input_value() == ""
    composer(page).fill("and another")
    composer(page).press("Enter")
    page.locator("#turns").get_by_text("and another").first.wait_for()
    assert notice(page).count() == 0


def test_a_form_is_kept_when_the_login_was_renewed_in_another_tab(page: Page) -> None:
    page.goto("/o/acme/agents/new/")
    page.locator("main [name=prompt]").fill(TEXT)
    renewed_elsewhere(page)

    page.locator("main form[method=post]").first.evaluate("form => { form.noValidate = true; form.requestSubmit(); }")
    page.get_by_role("link", name="Back to the form").click()

    page.wait_for_url("**/o/acme/agents/new/")
    assert page.locator("main [name=prompt]").input_value() == TEXT


@pytest.mark.parametrize("status", [500, 503])
def test_a_form_is_kept_when_the_server_failed(page: Page, status: int) -> None:
    page.goto("/o/acme/agents/new/")
    served = page.locator("script[src*=kept]").get_attribute("src") or ""
    failed = render_to_string(f"{status}.html").replace("/static/kept.js", served)
    page.locator("main [name=prompt]").fill(TEXT)
    page.route(
        "**/o/acme/**",
        lambda route: (
            route.fulfill(status=status, content_type="text/html", body=failed)
            if route.request.method == "POST"
            else route.fallback()
        ),
    )

    page.locator("main form[method=post]").first.evaluate("form => { form.noValidate = true; form.requestSubmit(); }")
    page.get_by_role("link", name="Back to the form").click()

    page.wait_for_url("**/o/acme/agents/new/")
    assert page.locator("main [name=prompt]").input_value() == TEXT


# -- A server that is away -------------------------------------------------------------------------------------------


def test_a_chat_says_that_the_server_is_away_and_goes_on_when_it_is_back(page: Page, chat: str) -> None:
    composer(page).fill(TEXT)
    page.route("**/notices/**", lambda route: route.abort())
    notice(page).get_by_text("cannot be reached").wait_for(timeout=20_000)
    picture(page, "away")
    assert notice(page).count() == 1

    page.unroute("**/notices/**")

    notice(page).wait_for(state="detached", timeout=20_000)
    assert composer(page).input_value() == TEXT


@pytest.mark.parametrize("status", [500, 502, 503])
def test_a_page_that_polls_says_it_once_and_goes_on(page: Page, status: int) -> None:
    page.goto("/o/acme/budgets/?live=1")
    page.evaluate("""() => {
        document.querySelector("main").insertAdjacentHTML("beforeend",
            '<div id="poll" hx-get="/o/acme/budgets/mine/" hx-trigger="every 1s" hx-swap="none"></div>');
        htmx.process(document.querySelector("#poll"));
    }""")
    page.route("**/budgets/mine/**", lambda route: route.fulfill(status=status, body="<h1>Bad gateway</h1>"))

    notice(page).get_by_text("cannot be reached").wait_for(timeout=20_000)
    page.wait_for_timeout(2_500)
    assert page.locator(".toast-card").count() == 1
    page.unroute("**/budgets/mine/**")

    notice(page).wait_for(state="detached", timeout=20_000)


# -- Too long a text -------------------------------------------------------------------------------------------------


def paste(field: Locator, text: str) -> None:
    field.focus()
    field.page.keyboard.insert_text(text)


def test_a_paste_over_the_limit_stays_whole_and_says_so(page: Page, chat: str) -> None:
    paste(composer(page), "x" * 150_000)

    page.get_by_text("This has 150,000 characters, and at most 100,000 are taken.").wait_for()
    picture(page, "too-long")
    assert len(composer(page).input_value()) == 150_000
    composer(page).press("Enter")
    page.wait_for_timeout(300)
    assert (len(composer(page).input_value()), page.locator("#turns article").count()) == (150_000, 0)

    composer(page).fill("short")
    assert page.get_by_text("are taken.").count() == 0
    composer(page).press("Enter")
    page.locator("#turns").get_by_text("short").first.wait_for()


def test_every_field_with_a_limit_keeps_what_is_pasted(page: Page) -> None:
    for path in FORMS:
        page.goto(f"/o/acme/{path}")
        assert page.locator("main textarea[maxlength], main input[maxlength]").count() == 0
        limited = page.locator("main [name=description]")
        most = int(limited.get_attribute("data-most") or 0)
        paste(limited, "é" * (most + 1))
        assert len(limited.input_value()) > most
        page.get_by_text(f"at most {most:,} are taken.").wait_for()


# -- Input methods ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("init", [{"isComposing": True, "code_": 13}, {"code_": 229}], ids=["composing", "229"])
def test_enter_that_ends_a_composition_sends_nothing(page: Page, chat: str, init: dict[str, object]) -> None:
    composer(page).fill("にほん")

    page.evaluate(COMPOSING, [composer(page).element_handle(), init])

    page.wait_for_timeout(300)
    assert (composer(page).input_value(), page.locator("#turns article").count()) == ("にほん", 0)


@pytest.mark.parametrize("init", [{"isComposing": True, "code_": 13}, {"code_": 229}], ids=["composing", "229"])
def test_enter_that_ends_a_composition_is_left_alone_in_every_field(page: Page, init: dict[str, object]) -> None:
    """`dispatchEvent` returns false where a script took the key for itself."""
    page.goto("/o/acme/")
    page.evaluate("""() => document.querySelector("main").insertAdjacentHTML("beforeend",
        "<input data-pick-search id='a'><input data-narrow='main' id='b'>")""")
    for field in ("#a", "#b"):
        assert page.evaluate(COMPOSING, [page.locator(field).element_handle(), init]) is True
        assert page.evaluate(COMPOSING, [page.locator(field).element_handle(), {"code_": 13}]) is False


def test_no_script_listens_for_enter_by_itself() -> None:
    for path in (ROOT / "static").glob("*.js"):
        found = re.findall(r'.*"Enter".*', path.read_text())
        assert [line for line in found if "isComposing" not in line or "229" not in line] == [], path.name
