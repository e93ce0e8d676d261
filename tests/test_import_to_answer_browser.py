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

from tests.browser import EMAIL, LOCAL, complaints, menu, service, sign_in
from tests.paths import ROOT
from tests.scripted_openai import Say, ScriptedOpenAI, call
from tests.test_doors_browser import join, link_on, profile
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
    page = profile(browser, up)
    page.set_viewport_size({"width": 1280, "height": 900})
    page.goto("/")
    sign_in(page, EMAIL)
    page.wait_for_url("**/o/acme/")
    return page


def add(page: Page, kind: str) -> None:
    """What the button Add of the tools offers."""
    page.locator("summary").filter(has_text="Add").click()
    page.get_by_role("link", name=kind).click()


def accept_all_for(page: Page, agent: str, category: str) -> None:
    """In a review: what was found goes to a new category and to the agent, as the preview says."""
    page.get_by_role("heading", name="Who gets").or_(page.get_by_text("Who gets them")).first.wait_for()
    page.get_by_label("Or a new category").fill(category)
    page.get_by_role("checkbox", name=agent, exact=True).check()
    page.get_by_role("button", name="Accept all").click()
    page.get_by_text("What will change").wait_for()
    assert agent in page.locator("#impact").inner_text()
    page.get_by_role("button", name="Save these changes").click()


def answer_in_a_chat(page: Page, provider: ScriptedOpenAI, agent: str, tool: str, arguments: object, want: str) -> None:
    """From the next step that the page offers to an answer that holds the tool's result."""
    page.get_by_role("button", name=f"in a chat with {agent}").click()
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
    wrong = complaints(alice)
    menu(alice, "Tools")
    add(alice, "OpenAPI document")
    alice.get_by_label("Address of the document").fill(library)
    alice.get_by_role("button", name="Read it").click()
    accept_all_for(alice, "Assistant", "Library")
    answer_in_a_chat(alice, provider, "Assistant", "get_book", {"number": 7}, "Flatland")

    assert wrong == []


def test_a_server_comes_from_its_process_to_an_answer(alice: Page, provider: ScriptedOpenAI) -> None:
    wrong = complaints(alice)
    menu(alice, "Tools", "MCP servers")
    alice.get_by_role("link", name="Add a server").first.click()
    alice.get_by_label("Name", exact=True).fill("echoes")
    alice.get_by_role("radio", name="Process of this installation").check()
    alice.get_by_role("combobox", name="Process").select_option("echoes")
    alice.get_by_role("button", name="Add the server").click()
    alice.get_by_role("button", name="Read tools").click()
    accept_all_for(alice, "Assistant", "Echoes")
    answer_in_a_chat(alice, provider, "Assistant", "mcp__echoes__echo", {"text": "halibut"}, "halibut")

    assert wrong == []


def test_a_python_tool_comes_from_its_code_to_an_answer(
    alice: Page, browser: Browser, up: Up, provider: ScriptedOpenAI
) -> None:
    wrong = complaints(alice)
    menu(alice, "Tools")
    add(alice, "Python tool")
    alice.locator("[name=name]").fill("initials")
    alice.locator("[name=category]").select_option("utility")
    alice.locator("[name=description]").fill("The initials of a name.")
    alice.locator("[name=parameters]").fill(json.dumps(SCHEMA))
    alice.locator("[name=code]").fill(CODE)
    alice.locator("[name=example]").fill("")
    alice.get_by_role("button", name="Submit for approval").click()
    alice.get_by_text("waits for approval").first.wait_for()
    dora = approver(browser, up, alice)
    menu(dora, "Inbox", "Tool versions")
    dora.get_by_role("link", name="initials").first.click()
    dora.get_by_role("checkbox", name="Assistant", exact=True).check()
    dora.get_by_role("button", name="Approve version 1").click()
    dora.get_by_text("What will change").wait_for()
    dora.get_by_role("button", name="Save these changes").click()
    answer_in_a_chat(dora, provider, "Assistant", "initials", {"name": "Grace Hopper"}, "GH")

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
