"""The newcomer's path of the README, on everything that `make run` starts: in a real browser, and with curl."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser import TOKEN, chromium, complaints, sign_in
from tests.paths import ROOT
from tests.test_up import Up

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.processes

#: Milliseconds for a turn of the offline model on a busy machine.
TURN_MS = 60_000


@pytest.fixture
def page(up: Up) -> Iterator[Page]:
    with chromium() as browser:
        yield browser.new_page(base_url=f"http://localhost:{up.port}")


def say(page: Page, text: str) -> None:
    page.get_by_role("textbox", name="Message").fill(text)
    page.get_by_role("textbox", name="Message").press("Enter")


@pytest.mark.browser
def test_a_newcomer_adds_a_task_in_the_browser_and_gets_it_back(page: Page) -> None:
    heard = complaints(page)

    page.goto("/")
    sign_in(page)
    page.get_by_role("button", name="New session").first.click()
    say(page, "Add a task: buy milk tomorrow")
    first = page.locator("article.turn").first
    first.get_by_text("task_create").first.wait_for(timeout=TURN_MS)
    first.locator(".answer.prose").wait_for(timeout=TURN_MS)
    assert "not an LLM" in first.locator(".answer.prose").inner_text()
    say(page, "What is on my list?")
    second = page.locator("article.turn").nth(1)
    second.locator(".answer.prose").wait_for(timeout=TURN_MS)

    assert "buy milk" in second.locator(".answer.prose").inner_text()
    assert "not an LLM" not in second.locator(".answer.prose").inner_text()
    assert heard == []


def test_the_readme_s_curl_lines_finish_a_turn_that_changed_the_database(up: Up) -> None:
    lines = next(
        block for block in re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.S) if "curl" in block
    )
    script = lines.replace("localhost:8000", f"localhost:{up.port}")

    ran = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        env={"PATH": os.environ["PATH"], "TOKEN": TOKEN, "HOME": str(Path.home())},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert "event: done" in ran.stdout
    assert '"tool": "task_create"' in ran.stdout.replace('":"', '": "')
    listed = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script.replace("Add a task: water the plants on Friday", "list my tasks")],
        env={"PATH": os.environ["PATH"], "TOKEN": TOKEN, "HOME": str(Path.home())},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "water the plants" in listed.stdout
