"""A call of an MCP client that a person must allow, from the client to the page and back, with a real browser.

The real service with its worker and its Valkey; the SDK's own client in a thread, in both protocols.
"""

from __future__ import annotations

import asyncio
import json
import queue
import re
import sqlite3
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mcp_types as types
import pytest
from mcp.client import Client

from tests.browser import EMAIL, TOKEN, complaints, service, sign_in
from tests.sessions.doors.mcp_server.gateway import ask, text_of
from tests.test_doors_browser import profile
from tests.test_streaming import picture, rest
from tests.test_up import Up

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.browser, pytest.mark.timeout(400)]

SECONDS = 60.0
APPROVAL = re.compile(r"http://\S+/approvals/[0-9a-f-]{36}/")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("approvals")


@pytest.fixture(scope="module")
def up(folder: Path, empty_database: Path | None) -> Iterator[Up]:
    """The service; each call of `calculator` is asked for."""
    with service(folder, empty_database) as running:
        rest(running, "approval-rules", {"name": "sums", "tool_pattern": "calculator"})
        yield running


@pytest.fixture
def page(browser: Browser, up: Up) -> Iterator[Page]:
    """Of a browser in which nobody is signed in."""
    found = profile(browser, up)
    yield found
    found.context.close()


@dataclass
class Asking:
    """A client that makes one call in a thread, and shows its user the pages that it is asked to."""

    up: Up
    shown: queue.Queue[str] = field(default_factory=queue.Queue)
    answers: queue.Queue[str] = field(default_factory=queue.Queue)
    threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))

    def called(self, mode: str, **more: Any) -> types.CallToolResult:
        asked = partial(Client.call_tool, name="calculator", arguments={"expression": "6*7"})
        result: types.CallToolResult = ask(f"http://localhost:{self.up.port}/mcp/everyday", TOKEN, asked, mode, **more)
        return result

    async def show(self, context: Any, params: Any) -> types.ElicitResult:
        self.shown.put(params.url)
        action: Any = await asyncio.to_thread(self.answers.get, timeout=SECONDS)
        return types.ElicitResult(action=action)

    def call(self) -> types.CallToolResult:
        """As a client of the older protocol, which shows no pages."""
        return self.threads.submit(self.called, "legacy").result(SECONDS)

    def begin(self) -> tuple[Future[types.CallToolResult], str]:
        """Make the call; returns its result to come, and the page that the user is shown."""
        coming = self.threads.submit(self.called, "auto", elicitation_callback=self.show)
        return coming, self.shown.get(timeout=SECONDS)


@pytest.fixture
def client(up: Up) -> Iterator[Asking]:
    found = Asking(up)
    yield found
    found.answers.put("cancel")  # where a test failed before
    found.threads.shutdown()


def signed_in(page: Page, url: str) -> None:
    """Open the page of the approval, over the login page in between."""
    page.goto(url)
    page.wait_for_url("**/accounts/login/**")
    sign_in(page, EMAIL)
    page.wait_for_url(url)


def has_run(result: types.CallToolResult) -> bool:
    return not result.is_error and json.loads(text_of(result))["result"] == 42


def test_mr_42_the_user_of_a_client_signs_in_allows_the_call_and_the_client_has_its_result(
    page: Page, client: Asking
) -> None:
    heard = complaints(page)
    coming, url = client.begin()

    signed_in(page, url)
    assert "6*7" in page.locator(".approval.is-pending pre").first.inner_text()
    picture(page, "mcp-approval")
    page.get_by_role("button", name="Approve once").click()
    page.locator(".approval.is-approved").wait_for()
    client.answers.put("accept")
    result = coming.result(SECONDS)

    assert has_run(result)
    assert "This call was approved by" in text_of(result)
    assert (client.shown.empty(), heard) == (True, [])


def test_mr_42_a_client_that_comes_back_early_is_kept_waiting_for_the_person(page: Page, client: Asking) -> None:
    coming, url = client.begin()
    client.answers.put("accept")

    signed_in(page, url)
    assert not coming.done()
    page.get_by_role("button", name="Approve once").click()

    assert has_run(coming.result(SECONDS))
    assert client.shown.empty()


def test_mr_42_a_client_reads_that_the_call_was_denied_and_what_to_do_instead(page: Page, client: Asking) -> None:
    coming, url = client.begin()
    client.answers.put("accept")

    signed_in(page, url)
    page.get_by_text("More answers").click()
    page.get_by_label("What the agent should do instead").fill("Count on your fingers.")
    page.get_by_role("button", name="Deny with this proposal").click()
    page.locator(".approval.is-denied").wait_for()
    result = coming.result(SECONDS)

    said = json.loads(text_of(result))
    assert (result.is_error, said["proposal"]) == (True, "Count on your fingers.")
    assert said["error"].startswith("Denied by ")


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_mr_42_a_user_who_will_not_open_the_page_stops_the_call(page: Page, client: Asking, action: str) -> None:
    coming, url = client.begin()
    client.answers.put(action)

    result = coming.result(SECONDS)
    signed_in(page, url)

    assert (result.is_error, "Stopped by" in text_of(result)) == (True, True)
    page.locator(".approval.is-void").wait_for()
    assert page.get_by_role("button", name="Approve once").count() == 0


def test_mr_42_nobody_answers_in_time(page: Page, client: Asking, folder: Path) -> None:
    coming, url = client.begin()
    client.answers.put("accept")

    with closing(sqlite3.connect(folder / "data" / "toolhub.sqlite3", timeout=20)) as database, database:
        over = "UPDATE toolhub_sessions_approval SET expires_at = created_at WHERE status = 'pending'"
        assert database.execute(over).rowcount == 1
    result = coming.result(SECONDS)
    signed_in(page, url)

    assert (result.is_error, "nobody approved it" in text_of(result)) == (True, True)
    page.locator(".approval.is-expired").wait_for()
    assert page.get_by_role("button", name="Approve once").count() == 0


def test_mr_42_a_client_that_shows_no_pages_reads_the_address_and_calls_again(page: Page, client: Asking) -> None:
    first = client.call()
    (url,) = APPROVAL.findall(text_of(first))
    still = client.call()
    assert (first.is_error, still.is_error, APPROVAL.findall(text_of(still))) == (True, True, [url])

    signed_in(page, url)
    page.get_by_role("button", name="Approve once").click()
    page.locator(".approval.is-approved").wait_for()
    again, once_more = client.call(), client.call()

    assert has_run(again)
    assert (once_more.is_error, APPROVAL.findall(text_of(once_more)) != [url]) == (True, True)
