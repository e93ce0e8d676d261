"""The life of a tool that an agent makes, in real browsers: made in a chat, approved by another person, called,
changed, put into quarantine, rolled back. `PICTURES=docs/images` takes the pictures of docs/versions.md anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser import EMAIL, LOCAL, complaints, service, sign_in
from tests.scripted_openai import Say, ScriptedOpenAI, call
from tests.test_doors_browser import join, link_on, profile
from tests.test_newcomer import TURN_MS, say
from tests.test_streaming import picture, rest
from tests.test_up import Up

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

pytestmark = pytest.mark.browser

TOOL = "agent_everyday__initials"
PAGE = f"/o/acme/tools/{TOOL}/"
CODE = """def run(name: str) -> dict:
    parts = [part for part in name.split() if part]
    if not name.replace(" ", "").isalpha():
        raise ValueError("Give a name.")
    return {"initials": "".join(part[0].upper() for part in parts)}
"""
CHANGED = CODE.replace("upper", "lower")
MADE = {
    "name": "initials",
    "description": "The initials of a name.",
    "input_schema": {
        "type": "object",
        "properties": {"name": {"type": "string", "description": "The whole name"}},
        "required": ["name"],
    },
    "implementation": CODE,
    "human_readable_format": "Initials of {name}",
    "example": {"name": "Ada Lovelace"},
}
WHY = "It answers in small letters."


@pytest.fixture
def provider() -> Iterator[ScriptedOpenAI]:
    running = ScriptedOpenAI().start()
    yield running
    running.stop()


@pytest.fixture
def up(tmp_path_factory: pytest.TempPathFactory, empty_database: Path | None, provider: ScriptedOpenAI) -> Iterator[Up]:
    folder = tmp_path_factory.mktemp("agents-tool")
    with service(folder, empty_database, TOOLHUB_PRIVATE_HOSTS=LOCAL) as running:
        rest(running, "providers", {"slug": "scripted", "name": "Scripted", "base_url": provider.url})
        rest(running, "models", {"provider": "scripted", "name": "scripted", "dialect": "chat"})
        tools = ["calculator", "current_time", "create_dynamic_tool"]
        changed = {"provider": "scripted", "model": "scripted", "routing_mode": "off", "tools": tools}
        rest(running, "agents/everyday", changed, method="PATCH")
        yield running


@pytest.fixture
def alice(browser: Browser, up: Up) -> Page:
    """An admin, in the page of a new session."""
    page = profile(browser, up)
    page.set_viewport_size({"width": 1280, "height": 720})
    page.goto("/accounts/login/")
    sign_in(page, EMAIL)
    page.wait_for_url("**/o/acme/")
    return page


@pytest.fixture
def dora(browser: Browser, up: Up, alice: Page) -> Page:
    """Another admin, whom Alice invited."""
    alice.goto("/o/acme/members/invite/")
    alice.get_by_label("E-mail address").fill("dora@example.com")
    alice.locator("[name=access]").select_option("admin")
    alice.locator("main button[type=submit]").click()
    page = profile(browser, up)
    page.set_viewport_size({"width": 1280, "height": 720})
    join(page, link_on(alice), "Dora")
    page.wait_for_url("**/o/acme/")
    return page


def ask(page: Page, provider: ScriptedOpenAI, text: str, *replies: Say) -> Locator:
    """The turn, as the page shows it when it has ended."""
    provider.enqueue(*replies)
    before = page.locator("article.turn").count()
    say(page, text)
    turn = page.locator("article.turn").nth(before)
    turn.locator(".answer.prose").last.wait_for(timeout=TURN_MS)
    page.locator(".turn-state").wait_for(state="detached", timeout=TURN_MS)
    return turn


def initials(page: Page, provider: ScriptedOpenAI, text: str, answer: str) -> str:
    """What the call of the tool shows, opened."""
    turn = ask(page, provider, text, Say(calls=[call(TOOL, {"name": "Grace Hopper"})]), Say(answer))
    step = turn.locator("li.step:not(.step-model) details").first
    step.evaluate("each => { each.open = each.closest('.work').open = true }")
    return str(step.inner_text())


def by_hand(page: Page, name: str) -> str:
    """What the page to try the tool shows."""
    page.goto(f"{PAGE}try/")
    page.locator("[name=arg-name]").fill(name)
    if page.locator("[name=confirm]").count():
        page.locator("[name=confirm]").check()
    page.get_by_role("button", name=f"Run {TOOL}").click()
    page.locator(".try-run pre").wait_for(timeout=TURN_MS)
    return str(page.locator(".try-run").inner_text())


def status_of(up: Up, number: int) -> str:
    return str(rest(up, f"tools/{TOOL}/versions/{number}")["status"])


@pytest.mark.timeout(400)
def test_s48_a_tool_of_an_agents_is_made_approved_called_changed_quarantined_and_rolled_back(
    up: Up, provider: ScriptedOpenAI, alice: Page, dora: Page
) -> None:
    heard = complaints(alice), complaints(dora)
    dora.goto("/o/acme/approval-versions/")
    dora.get_by_role("button", name="Let agents make tools").click()
    dora.get_by_text("Agents may make tools in Python.").wait_for()

    # Made in a chat.
    alice.goto("/o/acme/")
    alice.get_by_role("button", name="New session").first.click()
    made = Say(calls=[call("create_dynamic_tool", MADE)])
    done = Say("I made the tool `initials`. Somebody else has to approve it before I can use it.")
    turn = ask(alice, provider, "I often need the initials of a name. Make yourself a tool for that.", made, done)
    assert turn.locator(".step-why").count() == 0, turn.inner_text()
    picture(alice, "agent-tool-1-made")
    chat = alice.url
    alice.goto(f"{PAGE}versions/1/")
    alice.get_by_text("An agent wrote it in a turn of yours: somebody else has to approve it.").wait_for()
    assert alice.get_by_role("button", name="Approve version 1").count() == 0
    alice.goto(f"/o/acme/explain/?q={TOOL}")
    alice.get_by_text("version 1 waits for approval").first.wait_for()

    # Approved by another person.
    dora.goto("/o/acme/approval-versions/")
    dora.get_by_role("link", name=f"{TOOL} version 1").click()
    dora.get_by_text("Your decision").wait_for()
    picture(dora, "agent-tool-2-approval")
    dora.get_by_role("button", name="Approve version 1").click()
    dora.get_by_text(f"Version 1 of {TOOL} is in force, from the next call on.").wait_for()

    # Called.
    alice.goto(chat)
    assert '"GH"' in initials(alice, provider, "The initials of Grace Hopper?", "GH")
    picture(alice, "agent-tool-3-called")

    # Run by hand: a result, and a failure that says what is wrong.
    assert '"AL"' in by_hand(alice, "Ada Lovelace")
    assert "Give a name." in by_hand(alice, "1815")

    # Changed by its editor, approved, called.
    alice.goto(f"{PAGE}python/")
    alice.locator("[name=code]").fill(CHANGED)
    alice.get_by_role("button", name="Submit for approval").click()
    alice.get_by_text("waits for approval by somebody else").wait_for()
    dora.goto(f"{PAGE}versions/2/")
    dora.get_by_text("What differs from version 1").wait_for()
    picture(dora, "agent-tool-4-change")
    dora.get_by_role("button", name="Approve version 2").click()
    dora.get_by_text(f"Version 2 of {TOOL} is in force").wait_for()
    alice.goto(chat)
    assert '"gh"' in initials(alice, provider, "Once more?", "gh")

    # Put into quarantine: no model gets it, and a call of it is refused.
    dora.goto(PAGE)
    dora.get_by_text("Keep it back until somebody decides").click()
    dora.get_by_label("Reason").fill(WHY)
    dora.get_by_role("button", name="Keep it back").click()
    dora.get_by_text(f"by Dora: {WHY}").wait_for()
    picture(dora, "agent-tool-5-kept-back")
    refused = initials(alice, provider, "And now?", "I have no tool for that now.")
    assert "Unknown or inactive tool" in refused or "kept back" in refused
    assert TOOL not in str(provider.requests[-1].get("tools"))
    alice.goto(f"/o/acme/explain/?q={TOOL}")
    alice.get_by_text(f"kept back until somebody decides: {WHY.rstrip('.')}").first.wait_for()
    picture(alice, "agent-tool-6-explained")
    alice.goto(PAGE)
    alice.get_by_text("You wrote it: somebody else has to approve it.").wait_for()
    assert alice.get_by_role("button", name="Use version 2 again").count() == 0

    # Rolled back, and released.
    dora.goto(f"{PAGE}versions/1/")
    dora.get_by_role("button", name="Roll back to version 1").click()
    dora.get_by_text("The tool stays kept back").wait_for()
    dora.goto(PAGE)
    dora.get_by_role("button", name="Use version 1 again").click()
    dora.get_by_text(f"{TOOL} is used again, from the next call on.").wait_for()
    alice.goto(chat)
    assert '"GH"' in initials(alice, provider, "The initials of Grace Hopper, please?", "GH")
    dora.goto(f"{PAGE}versions/")
    dora.locator("table").nth(1).wait_for()
    picture(dora, "agent-tool-7-versions")

    assert (status_of(up, 1), status_of(up, 2)) == ("approved", "retired")
    assert [each for page in heard for each in page] == []
