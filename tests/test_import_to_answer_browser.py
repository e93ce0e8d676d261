"""The way of tools from outside into an answer, in a real browser: an API, an MCP server and a Python tool, each from
Home to the answer of a chat, by links and buttons of the pages alone."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser import LOCAL, complaints, menu, service
from tests.paths import ROOT
from tests.scripted_openai import Say, ScriptedOpenAI, call
from tests.test_doors_browser import join, link_on, profile
from tests.test_jobs_browser import Hand, at_home
from tests.test_newcomer import TURN_MS, say
from tests.test_streaming import rest
from tests.test_up import Up

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

#: An MCP server of the tests, which runs as a process of its own.
SCRIPTED_MCP = ROOT / "tests/capabilities/running/mcp_client/scripted.py"
CODE = """def run(name: str) -> dict:
    return {"initials": "".join(part[0].upper() for part in name.split())}
"""
SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


class Library(BaseHTTPRequestHandler):
    """An API of one operation, and its OpenAPI document."""

    def do_GET(self) -> None:
        body = self.document() if self.path == "/openapi.json" else {"title": "Flatland", "asked": self.path}
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def document(self) -> dict[str, object]:
        number = {"name": "number", "in": "path", "required": True, "schema": {"type": "integer"}}
        operation = {
            "operationId": "get_book",
            "summary": "One book of the library.",
            "parameters": [number],
            "responses": {"200": {"description": "The book"}},
        }
        return {
            "openapi": "3.1.0",
            "info": {"title": "Library", "version": "1"},
            "servers": [{"url": f"http://{self.headers['Host']}"}],
            "paths": {"/books/{number}": {"get": operation}},
        }

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def library() -> Iterator[str]:
    """The address of the API's document."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Library)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/openapi.json"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def provider() -> Iterator[ScriptedOpenAI]:
    running = ScriptedOpenAI().start()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory, empty_database: Path | None, provider: ScriptedOpenAI) -> Iterator[Up]:
    folder = tmp_path_factory.mktemp("to-answer")
    processes = folder / "mcp.json"
    entry = {"command": sys.executable, "args": [str(SCRIPTED_MCP)], "organisations": ["acme"]}
    processes.write_text(json.dumps({"mcpServers": {"echoes": entry}}))
    env = {"TOOLHUB_PRIVATE_HOSTS": LOCAL, "TOOLHUB_MCP_STDIO": str(processes)}
    with service(folder, empty_database, **env) as running:
        rest(running, "providers", {"slug": "scripted", "name": "Scripted", "base_url": provider.url})
        rest(running, "models", {"provider": "scripted", "name": "scripted", "dialect": "chat"})
        changed = {"provider": "scripted", "model": "scripted"}
        rest(running, "agents/assistant", changed, method="PATCH")
        rest(running, "agents/admin", changed, method="PATCH")
        yield running


@pytest.fixture
def alice(browser: Browser, up: Up) -> Page:
    """An admin at Home, who chose no address."""
    return at_home(browser, up)


def add(hand: Hand, kind: str) -> None:
    """What the button Add of the tools offers."""
    hand.entry("Tools")
    hand.click(hand.page.locator("summary").filter(has_text="Add"))
    hand.click(hand.page.get_by_role("link", name=kind, exact=True))


def accept_all_for(hand: Hand, agent: str) -> None:
    """In a review: what was found goes to a new category of the source's name and to the agent, as the preview says."""
    page = hand.page
    page.get_by_role("heading", name="Who gets").or_(page.get_by_text("Who gets them")).first.wait_for()
    hand.tick(agent)
    hand.button("Accept all")
    page.get_by_text("What will change").wait_for()
    assert agent in page.locator("#impact").inner_text()
    hand.button("Save these changes")


def answer_in_a_chat(hand: Hand, provider: ScriptedOpenAI, agent: str, tool: str, arguments: object, want: str) -> None:
    """From the next step that the page offers to an answer that holds the tool's result."""
    page = hand.page
    hand.button(f"in a chat with {agent}")
    page.wait_for_url("**/sessions/**")

    def answer(body: dict[str, object]) -> Say:
        text = json.dumps(body["messages"])
        return Say(f"The tool says {want}.") if want in text else Say("The tool said nothing of it.")

    provider.enqueue(Say(calls=[call(tool, arguments)]), answer)
    say(page, "Use the new tool.")
    turn = page.locator("article.turn").first
    turn.locator(".answer.prose").last.wait_for(timeout=TURN_MS)
    assert f"The tool says {want}." in turn.inner_text()


def test_an_api_comes_from_its_document_to_an_answer(alice: Page, library: str, provider: ScriptedOpenAI) -> None:
    wrong, hand = complaints(alice), Hand(alice)
    add(hand, "OpenAPI document")
    hand.fill("Address of the document", library)
    hand.button("Read it")
    accept_all_for(hand, "Assistant")
    answer_in_a_chat(hand, provider, "Assistant", "get_book", {"number": 7}, "Flatland")

    assert hand.done == (8, 1)
    assert wrong == []


def test_a_server_comes_from_its_process_to_an_answer(alice: Page, provider: ScriptedOpenAI) -> None:
    wrong, hand = complaints(alice), Hand(alice)
    add(hand, "MCP server")
    hand.fill("Name", "echoes")
    hand.tick("Process of this installation")
    hand.choose("Process", "echoes")
    hand.button("Add the server")
    accept_all_for(hand, "Assistant")
    answer_in_a_chat(hand, provider, "Assistant", "mcp__echoes__echo", {"text": "halibut"}, "halibut")

    assert hand.done == (10, 1)
    assert wrong == []


def test_a_python_tool_comes_from_its_code_to_an_answer(
    alice: Page, browser: Browser, up: Up, provider: ScriptedOpenAI
) -> None:
    wrong, hand = complaints(alice), Hand(alice)
    add(hand, "Python tool")
    hand.fill("Name", "initials")
    hand.choose("Category", "Utility")
    hand.fill("Description", "The initials of a name.")
    hand.fill("Arguments, as JSON Schema", json.dumps(SCHEMA))
    hand.fill("Code", CODE)
    hand.fill("Arguments of one call to try", "")
    hand.button("Submit for approval")
    alice.get_by_text("waits for approval").first.wait_for()
    dora = Hand(approver(browser, up, alice))
    dora.entry("Inbox", "Tool versions")
    dora.link("initials")
    dora.tick("Assistant")
    dora.button("Approve version 1")
    dora.page.get_by_text("What will change").wait_for()
    dora.button("Save these changes")
    answer_in_a_chat(dora, provider, "Assistant", "initials", {"name": "Grace Hopper"}, "GH")

    assert (hand.done, dora.done) == ((5, 5), (7, 0))
    assert wrong == []


def approver(browser: Browser, up: Up, alice: Page) -> Page:
    """Another admin at Home, whom Alice invited."""
    menu(alice, "People", "Members")
    alice.get_by_role("link", name="Invite").first.click()
    alice.get_by_label("E-mail address").fill("dora@example.com")
    alice.locator("[name=access]").select_option("admin")
    alice.get_by_role("checkbox", name="Everything").check()
    alice.locator("main button[type=submit]").click()
    page = profile(browser, up)
    page.set_viewport_size({"width": 1280, "height": 900})
    join(page, link_on(alice), "Dora")
    page.wait_for_url("**/o/acme/")
    return page
