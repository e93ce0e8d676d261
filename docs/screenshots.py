"""Takes a picture of every page, at 1280 and 400 px: `python docs/screenshots.py FOLDER [--dark]`.

Starts the whole service on a folder that is thrown away, signs in, sets a hook, an approval rule, a policy and runtime
settings, has a short conversation in which two calls are asked of a person, and follows every link to a page of a kind
that it has not seen; so a new page is in the set as soon as something links to it. Needs Chromium.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import django
from django.urls import Resolver404, resolve
from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
PASSWORD, TOKEN = "a-password-for-pictures", "a-token-for-pictures-that-is-long-enough"
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]
WIDTHS = {1280: 860, 400: 860}
#: What a rule asks a person for: the first is denied, the second waits in the pictures.
ASKED = ("Remind me tomorrow at 9 to call Ann", "Remind me tomorrow at 10 to call Bob")
SAID = ("Add a task: buy milk tomorrow", "Add a task: call the plumber on Friday", "What is on my list?")


@contextmanager
def service(folder: Path, port: int) -> Iterator[str]:
    """The running service's address."""
    env = os.environ | {
        "TOOLHUB_DATA_DIR": str(folder),
        "PORT": str(port),
        "TOOLHUB_BOOTSTRAP_PASSWORD": PASSWORD,
        "TOOLHUB_BOOTSTRAP_TOKEN": TOKEN,
    }
    process = subprocess.Popen([sys.executable, "manage.py", "up"], cwd=ROOT, env=env, stdout=subprocess.DEVNULL)
    try:
        wait_until_ready(port)
        yield f"http://localhost:{port}"
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)


def wait_until_ready(port: int) -> None:
    from toolhub.probe import is_ready  # noqa: PLC0415 -- leaf

    until = time.monotonic() + 120
    while not is_ready("127.0.0.1", port, ["localhost"]):
        if time.monotonic() > until:
            raise SystemExit("The service did not start.")
        time.sleep(0.3)


def sign_in(page: Page) -> None:
    page.goto("/")
    page.get_by_label("E-mail").fill("admin@example.com")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in", exact=True).click()


def configure(page: Page) -> None:
    """A row on each page of what holds for runs."""
    page.goto("/o/acme/hooks/new/")
    page.get_by_role("link", name="Put text behind the system prompt").click()
    page.get_by_label("Name").fill("short answers")
    page.locator("[name='settings.text']").fill("Answer in one sentence.")
    page.get_by_role("button", name="Add the hook").click()
    page.goto("/o/acme/approval-rules/new/")
    page.locator("[name=tool_pattern]").fill("reminders_*")
    page.locator("[name=message]").fill("Reminders ring aloud.")
    page.get_by_role("button", name="Save the rule").click()
    page.goto("/o/acme/policies/organisation/")
    page.locator("[name=deny]").fill("ae_*")
    page.get_by_role("button", name="Preview").click()
    page.get_by_role("button", name="Save these changes").click()
    page.wait_for_url("**/policies/")
    for layer in ("agents/starter", "providers/offline"):
        page.goto(f"/o/acme/runtime/{layer}/?pattern=web_*")
        page.locator("[name=knob_timeout_sec]").fill("45")
        page.locator("#pattern button[type=submit]").click()


def ask(page: Page) -> None:
    """Two calls that a person is asked for, in the conversation that is open: one is denied, and one waits."""
    for text in ASKED:
        page.get_by_role("textbox", name="Message").fill(text)
        page.get_by_role("textbox", name="Message").press("Enter")
        page.locator(".approval.is-pending").wait_for(timeout=30_000)
        if text == ASKED[0]:
            page.get_by_role("button", name="Deny", exact=True).click()
            page.locator(".approval.is-denied").wait_for(timeout=30_000)
            page.locator("article.turn").nth(len(SAID)).locator(".answer.prose").wait_for(timeout=30_000)


def converse(page: Page) -> None:
    page.goto("/o/acme/")
    page.get_by_role("button", name="New session").first.click()
    for number, text in enumerate(SAID):
        page.get_by_role("textbox", name="Message").fill(text)
        page.get_by_role("textbox", name="Message").press("Enter")
        page.locator("article.turn").nth(number).locator(".answer.prose").wait_for(timeout=30_000)


def kind_of(path: str) -> str | None:
    """The name of the route that a link leads to; None for what is no page of ours."""
    try:
        return resolve(path.partition("?")[0].partition("#")[0]).url_name
    except Resolver404:
        return None


def walk(page: Page) -> dict[str, str]:
    """One address of each kind of page that links lead to, by the name of its route."""
    found: dict[str, str] = {}
    waiting = ["/o/acme/", "/", "/nothing-here/"]
    while waiting:
        path = waiting.pop(0)
        kind = kind_of(path) or "not_found"
        if kind in found or kind in ("account_logout", "api-schema", "turn_stream"):
            continue
        found[kind] = path
        page.goto(path)
        links = page.eval_on_selector_all(
            "a[href]:not([download])", "links => links.map(link => link.getAttribute('href'))"
        )
        waiting += [link for link in links if link.startswith("/") and kind_of(link)]
    return found


def take(browser: Browser, address: str, folder: Path, *, dark: bool) -> int:
    """Pictures of every kind of page in every width; returns how many."""
    look = browser.new_context(base_url=address, color_scheme="dark" if dark else "light")
    page = look.new_page()
    page.goto("/accounts/login/")
    shoot(page, "account_login", folder, dark=dark)
    sign_in(page)
    configure(page)
    converse(page)
    ask(page)
    pages = walk(page)
    for kind, path in pages.items():
        page.goto(path)
        shoot(page, kind, folder, dark=dark)
    return (len(pages) + 1) * len(WIDTHS)


def shoot(page: Page, kind: str, folder: Path, *, dark: bool) -> None:
    for width, height in WIDTHS.items():
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_timeout(250)
        name = re.sub(r"[^a-z0-9_-]", "-", kind)
        page.screenshot(path=folder / f"{name}-{width}{'-dark' if dark else ''}.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--port", type=int, default=8765)
    options = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit("Chromium is not installed: `apt-get install chromium`, or your system's package.")
    options.folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as data,
        service(Path(data) / "data", options.port) as address,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        print(f"{take(browser, address, options.folder, dark=options.dark)} pictures in {options.folder}")
        browser.close()


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "toolhub.settings")
    os.environ.setdefault("TOOLHUB_DATA_DIR", tempfile.mkdtemp(prefix="toolhub-pictures-"))
    django.setup()
    main()
