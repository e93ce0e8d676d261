"""Jobs of an administrator, in a real browser: each begins at Home, goes by what the pages offer, and ends with its
result seen, within the clicks and typed fields that docs/pages.md promises."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser import EMAIL, LOCAL, complaints, menu, service, sign_in
from tests.scripted_openai import Say, ScriptedOpenAI, call
from tests.test_doors_browser import join, link_on, profile
from tests.test_newcomer import TURN_MS, say
from tests.test_streaming import picture, rest
from tests.test_up import Up

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

pytestmark = pytest.mark.browser

#: A tool of the agent Everyday's that writes, and a title for it.
TASK, TITLE = "task_create", "water the plants"


class Hand:
    """What a person does on a page: clicks, and fields that are typed or chosen. Both are counted."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.clicks = self.fields = 0

    def click(self, what: Locator) -> None:
        what.click()
        self.clicks += 1

    def entry(self, name: str, tab: str = "") -> None:
        menu(self.page, name, tab)
        self.clicks += 1 + bool(tab)

    def link(self, name: str) -> None:
        self.click(self.page.get_by_role("main").get_by_role("link", name=name).first)

    def button(self, name: str, exact: bool = False) -> None:
        self.click(self.page.get_by_role("main").get_by_role("button", name=name, exact=exact).first)

    def tick(self, name: str) -> None:
        self.click(self.page.get_by_role("main").get_by_label(name, exact=True).first)

    def fill(self, field: str, text: str) -> None:
        self.page.get_by_role("main").get_by_label(field).first.fill(text)
        self.fields += 1

    def choose(self, field: str, choice: str) -> None:
        self.page.get_by_role("main").get_by_label(field, exact=True).first.select_option(label=choice)
        self.clicks += 1

    def press_enter(self, field: str) -> None:
        """In a field that was filled: neither a click nor a field more."""
        self.page.get_by_label(field).first.press("Enter")

    @property
    def done(self) -> tuple[int, int]:
        """Clicks and fields so far."""
        return self.clicks, self.fields


@pytest.fixture(scope="module")
def provider() -> Iterator[ScriptedOpenAI]:
    running = ScriptedOpenAI().start()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory, empty_database: Path | None, provider: ScriptedOpenAI) -> Iterator[Up]:
    with service(tmp_path_factory.mktemp("jobs"), empty_database, TOOLHUB_PRIVATE_HOSTS=LOCAL) as running:
        rest(running, "providers", {"slug": "scripted", "name": "Scripted", "base_url": provider.url})
        rest(running, "models", {"provider": "scripted", "name": "scripted", "dialect": "chat"})
        changed = {"provider": "scripted", "model": "scripted", "routing_mode": "off"}
        rest(running, "agents/everyday", changed, method="PATCH")
        yield running


def at_home(browser: Browser, up: Up, email: str = EMAIL) -> Page:
    page = profile(browser, up)
    page.set_viewport_size({"width": 1280, "height": 900})
    page.goto("/")
    sign_in(page, email)
    page.wait_for_url("**/o/acme/")
    return page


@pytest.fixture
def alice(browser: Browser, up: Up) -> Iterator[Page]:
    """An admin at Home."""
    page = at_home(browser, up)
    wrong = complaints(page)
    yield page
    page.context.close()
    assert wrong == []


def colleague(browser: Browser, up: Up, name: str, *, role: bool = True) -> Page:
    """A member at Home, who was invited."""
    invitation = {"email": f"{name}@example.com", "access": "member", "roles": ["everything"] if role else []}
    link = rest(up, "invitations", invitation)["link"]
    page = profile(browser, up)
    page.set_viewport_size({"width": 1280, "height": 900})
    join(page, link, name.title())
    page.wait_for_url("**/o/acme/")
    return page


def ask(page: Page, message: str = "Do it.") -> Locator:
    """A new session of Everyday with a message: its turn."""
    page.goto("/o/acme/")
    page.get_by_role("main").get_by_label("Agent", exact=True).select_option(label="Everyday")
    page.get_by_role("button", name="New session").first.click()
    say(page, message)
    return page.locator("article.turn").last


def script(provider: ScriptedOpenAI, tool: str, arguments: Any, words: str) -> None:
    """A call, and an answer with the words if its result came back."""
    provider.enqueue(
        Say(calls=[call(tool, arguments)]),
        lambda body: Say(words if '"role": "tool"' in json.dumps(body["messages"]) else "No result."),
    )


def test_a_colleague_is_invited_with_a_role_and_joins(alice: Page, browser: Browser, up: Up) -> None:
    hand = Hand(alice)
    hand.entry("People")
    hand.link("Invite somebody")
    hand.fill("E-mail address", "dora@example.com")
    hand.tick("Everything")
    hand.button("Create the link")
    dora = profile(browser, up)
    join(dora, link_on(alice), "Dora")
    dora.wait_for_url("**/o/acme/")
    alice.goto("/o/acme/roles/everything/")

    assert "dora@example.com" in alice.get_by_role("main").inner_text()
    assert hand.done == (4, 1)
    dora.context.close()


def test_a_provider_is_added_and_all_agents_moved_to_it(alice: Page, provider: ScriptedOpenAI) -> None:
    hand = Hand(alice)
    hand.entry("Agents", "Models")
    hand.link("Add a provider")
    hand.link("vLLM")
    hand.fill("Base URL", provider.url)
    hand.fill("First model", "second")
    hand.button("Tick all agents")
    hand.button("Add the provider")
    row = alice.locator("tr", has_text="second")
    row.get_by_text("Everyday").wait_for()
    provider.enqueue(Say("The second model is here."))
    turn = ask(alice, "Hello.")
    turn.get_by_text("The second model is here.").wait_for(timeout=TURN_MS)

    assert provider.requests[-1]["model"] == "second"
    assert hand.done == (6, 2)


def test_a_rule_asks_and_a_second_browser_answers(
    alice: Page, browser: Browser, up: Up, provider: ScriptedOpenAI
) -> None:
    bob = colleague(browser, up, "bob")
    hand = Hand(alice)
    hand.entry("Rules", "Approval rules")
    hand.link("New rule")
    hand.fill("Tools", TASK)
    hand.button("Save the rule")
    script(provider, TASK, {"title": TITLE}, "It is on the list.")
    turn = ask(bob)
    turn.get_by_text(TASK).first.wait_for(timeout=TURN_MS)
    hand.entry("Inbox")
    alice.get_by_text(TITLE).first.wait_for()
    hand.button("Approve once")
    turn.get_by_text("It is on the list.").wait_for(timeout=TURN_MS)

    assert hand.done == (6, 1)
    bob.context.close()


def test_a_tool_is_stopped_in_the_middle_of_a_turn_with_its_words(
    alice: Page, browser: Browser, up: Up, provider: ScriptedOpenAI
) -> None:
    carl = colleague(browser, up, "carl")
    stopped = threading.Event()

    def again(body: dict[str, Any]) -> Say:
        assert stopped.wait(60)
        return Say(calls=[call("grocery_list", id="call_2")])

    def answer(body: dict[str, Any]) -> Say:
        return Say("I read the words." if "The shop is closed." in json.dumps(body["messages"]) else "Nothing.")

    provider.enqueue(Say(calls=[call("grocery_list", id="call_1")]), again, answer)
    turn = ask(carl)
    turn.get_by_text("grocery_list").first.wait_for(timeout=TURN_MS)
    hand = Hand(alice)
    alice.keyboard.press("/")
    alice.keyboard.type("grocery_list")
    hand.fields += 1
    alice.get_by_role("option").first.wait_for()
    hand.press_enter("Find")
    alice.wait_for_url("**/tools/grocery_list/")
    hand.fill("Stopped now, with a message", "The shop is closed.")
    hand.button("Stop now")
    alice.get_by_text("The shop is closed.").first.wait_for()
    stopped.set()
    turn.get_by_text("I read the words.").wait_for(timeout=TURN_MS)

    assert hand.done == (1, 2)
    carl.context.close()


def test_who_changed_a_tool_is_seen_at_home_and_the_change_taken_back(alice: Page, up: Up) -> None:
    rest(up, "tools/unit_convert", {"is_enabled": False}, method="PATCH")
    alice.reload()
    hand = Hand(alice)
    line = alice.locator(".change-what").filter(has_text="unit_convert").first
    assert re.search("switched .*off", line.inner_text())
    hand.click(line.get_by_role("link", name="unit_convert"))
    hand.button("Switch on")
    alice.get_by_text("unit_convert is on").first.wait_for()

    assert hand.done == (2, 0)


def test_why_a_colleague_has_no_tool_is_explained_and_mended(alice: Page, browser: Browser, up: Up) -> None:
    eve = colleague(browser, up, "eve", role=False)
    hand = Hand(alice)
    hand.entry("People", "Why?")
    hand.fill("Member", "eve@example.com")
    hand.press_enter("Member")
    alice.get_by_text("Eve may use no tool").wait_for()
    picture(alice, "explain-no-role")
    hand.button("Give the role")
    hand.button("Save these changes")
    eve.goto("/o/acme/tools/")
    alice.goto("/o/acme/explain/?member=eve@example.com&agent=everyday&q=task_create")

    assert alice.locator("#explained").get_by_text("Sent", exact=True).count() == 1
    assert hand.done == (4, 1)
    eve.context.close()


def test_a_toolkit_is_made_given_to_an_agent_and_loaded_in_a_chat(alice: Page, provider: ScriptedOpenAI) -> None:
    hand = Hand(alice)
    hand.entry("Tools", "Toolkits")
    hand.link("Add a toolkit")
    hand.fill("Name", "garden")
    hand.tick("Weather")
    hand.button("Add the toolkit")
    alice.get_by_role("main").get_by_label("Agent", exact=True).select_option(label="Everyday")
    hand.clicks += 1
    hand.button("Let it load this")
    alice.get_by_text("may load garden").wait_for()
    hand.button("Try it in a chat with")
    alice.wait_for_url("**/sessions/**")
    provider.enqueue(Say("It is at hand."))
    say(alice, "What is the weather?")
    alice.get_by_text("It is at hand.").wait_for(timeout=TURN_MS)

    assert any("weather" in each["function"]["name"] for each in provider.requests[-1]["tools"])
    assert hand.done == (8, 1)


def test_a_budget_for_a_role_is_used_up_and_topped_up(
    alice: Page, browser: Browser, up: Up, provider: ScriptedOpenAI
) -> None:
    fred = colleague(browser, up, "fred")
    hand = Hand(alice)
    hand.entry("Rules", "Budgets")
    hand.click(alice.get_by_role("main").get_by_role("link", name=re.compile("budget")).first)
    hand.fill("Limit", "50000")
    hand.choose("For", "A role")
    hand.choose("Role", "Everything")
    hand.button("Save the budget")
    provider.enqueue(Say("Done.", usage={"prompt_tokens": 60_000, "completion_tokens": 10, "total_tokens": 60_010}))
    ask(fred).get_by_text("Done.").wait_for(timeout=TURN_MS)
    say(fred, "Once more.")
    fred.get_by_text("is used up").first.wait_for(timeout=TURN_MS)
    alice.reload()
    picture(alice, "budget-used-up")
    hand.fill("Add to this window", "100000")
    hand.button("Top up")
    provider.enqueue(Say("Again."))
    ask(fred).get_by_text("Again.").wait_for(timeout=TURN_MS)

    assert hand.done == (7, 2)
    fred.context.close()
