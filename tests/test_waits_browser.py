"""Calls that wait in the chat (a form, a link, a long task), and tools of other kinds run by hand, in a real browser.

The real service with its worker; an MCP server and a web server of the test's."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mcp_types as types
import pytest

from tests.browser import EMAIL, LOCAL, chromium, complaints, service, sign_in
from tests.capabilities.running.mcp_client.over_http import raw_server
from tests.processes import wait_for
from tests.scripted_openai import Say, ScriptedOpenAI, call
from tests.serving import serving
from tests.test_doors_browser import profile
from tests.test_newcomer import TURN_MS, say
from tests.test_streaming import picture, rest
from tests.test_up import Up

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.timeout(400)]

#: One red pixel.
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8Dwn4EIwDiqkL4KAQCfJQMB1yAx1wAAAABJRU5ErkJggg=="
SEAT = {"type": "object", "properties": {"seat": {"type": "string", "title": "Seat"}}, "required": ["seat"]}
NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}}
TASK = {"resultType": "task", "taskId": "t1", "status": "working", "ttlMs": None, "pollIntervalMs": 1000}


@dataclass
class Far:
    """What the MCP server says of its task from now on; and the calls that it got."""

    says: str = "Looking for seats."
    is_done: bool = False
    calls: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)

    def called(self, message: dict[str, Any]) -> dict[str, Any]:
        params = message["params"]
        self.calls.append(params["name"])
        return dict(getattr(self, params["name"])(params))

    def seat(self, params: dict[str, Any]) -> dict[str, Any]:
        if "inputResponses" not in params:
            form = types.ElicitRequestFormParams(message="Which seat?", requested_schema=SEAT)
            return asked(types.ElicitRequest(params=form))
        return text(f"Booked {params['inputResponses']['asked']['content']['seat']}.")

    def agree(self, params: dict[str, Any]) -> dict[str, Any]:
        if "inputResponses" not in params:
            link = types.ElicitRequestURLParams(
                message="Agree there.", url="https://far.example/agree", elicitation_id="e1"
            )
            return asked(types.ElicitRequest(params=link))
        return text("Agreed.")

    def search(self, params: dict[str, Any]) -> dict[str, Any]:
        return TASK | {"statusMessage": self.says}

    def paint(self, params: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "image", "data": PNG, "mimeType": "image/png"}]}

    def fail(self, params: dict[str, Any]) -> dict[str, Any]:
        return text("There is no such seat.") | {"isError": True}

    def looked_at(self, message: dict[str, Any]) -> dict[str, Any]:
        if self.is_done:
            return TASK | {"resultType": "complete", "status": "completed", "result": text("Found seat 4a.")}
        return TASK | {"resultType": "complete", "statusMessage": self.says}

    def stopped(self, message: dict[str, Any]) -> dict[str, Any]:
        self.cancelled.append(message["params"]["taskId"])
        return {}


TOOLS = ("seat", "agree", "search", "paint", "fail")


def asked(request: types.ElicitRequest) -> dict[str, Any]:
    found = types.InputRequiredResult(input_requests={"asked": request}, request_state="s")
    return dict(found.model_dump(by_alias=True, mode="json", exclude_none=True))


def text(said: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": said}]}


@contextmanager
def web() -> Iterator[str]:
    """A web server: /seats answers with JSON, /plan.png with a picture, anything else with 404."""

    answers = {"/seats": (b"application/json", b'{"free": 3}'), "/plan.png": (b"image/png", base64.b64decode(PNG))}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        media_type, body = answers.get(scope["path"], (b"text/plain", b"No such page."))
        status = 200 if scope["path"] in answers else 404
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", media_type)]})
        await send({"type": "http.response.body", "body": body})

    with serving(app) as origin:
        yield origin


@dataclass
class Side:
    up: Up
    far: Far
    provider: ScriptedOpenAI


@pytest.fixture(scope="module")
def side(tmp_path_factory: pytest.TempPathFactory, empty_database: Path | None) -> Iterator[Side]:
    """The service with the tools of both servers, which its agent has."""
    far, provider = Far(), ScriptedOpenAI().start()
    listed = [{"name": name, "description": f"Does {name}.", "inputSchema": NO_ARGUMENTS} for name in TOOLS]
    answers = {
        "tools/list": lambda _: {"tools": listed, "ttlMs": 3_600_000, "cacheScope": "private"},
        "tools/call": far.called,
        "tasks/get": far.looked_at,
        "tasks/cancel": far.stopped,
    }
    folder = tmp_path_factory.mktemp("waits")
    with (
        raw_server(answers) as url,
        web() as origin,
        service(folder, empty_database, TOOLHUB_PRIVATE_HOSTS=LOCAL) as up,
    ):
        rest(up, "mcp-servers", {"name": "far", "url": url})
        found = rest(up, "mcp-servers/far/read", {})["id"]
        wait_for(lambda: rest(up, f"imports/{found}")["status"] not in ("queued", "running"), 60)
        rest(up, f"imports/{found}/accept", {"new_category": "Far"})
        for name, path in (("seats", "seats"), ("plan", "plan.png"), ("nowhere", "nowhere")):
            request = {"method": "GET", "url": f"{origin}/{path}", "arguments": {}}
            content = {"description": f"Reads {name}.", "parameters": NO_ARGUMENTS, "implementation": request}
            rest(up, "http-tools", {"name": name, "category": "far", **content})
        rest(up, "providers", {"slug": "scripted", "name": "Scripted", "base_url": provider.url})
        rest(up, "models", {"provider": "scripted", "name": "scripted", "dialect": "chat"})
        tools = [f"mcp__far__{name}" for name in TOOLS]
        changed = {"provider": "scripted", "model": "scripted", "routing_mode": "off", "tools": tools}
        rest(up, "agents/everyday", changed, method="PATCH")
        yield Side(up, far, provider)
    provider.stop()


@pytest.fixture(scope="module")
def window(side: Side) -> Iterator[Page]:
    with chromium() as browser:
        page = profile(browser, side.up)
        page.set_viewport_size({"width": 1280, "height": 800})
        page.goto("/accounts/login/")
        sign_in(page, EMAIL)
        page.wait_for_url("**/o/acme/")
        yield page


@pytest.fixture
def page(window: Page, side: Side) -> Page:
    """An empty session. The far side works on its task again."""
    side.far.says, side.far.is_done = "Looking for seats.", False
    window.goto("/o/acme/")
    window.get_by_role("button", name="New session").first.click()
    window.get_by_role("textbox", name="Message").wait_for()
    return window


def begin(page: Page, side: Side, name: str, answer: str = "Done.") -> None:
    side.provider.script.clear()
    side.provider.enqueue(Say(calls=[call(f"mcp__far__{name}")]), Say(answer))
    say(page, "Do it.")


def ended(page: Page, words: str) -> None:
    page.locator("article.turn .answer.prose").last.get_by_text(words).wait_for(timeout=TURN_MS)
    page.locator(".turn-state").wait_for(state="detached", timeout=TURN_MS)


def stop(page: Page) -> None:
    page.locator(".turn-state button").click()
    page.locator(".turn-ended").wait_for(timeout=TURN_MS)


def test_a_form_in_the_chat_survives_a_reload_and_goes_on(page: Page, side: Side) -> None:
    heard = complaints(page)
    begin(page, side, "seat", "You sit on 4a.")
    page.get_by_role("textbox", name="Seat").wait_for(timeout=TURN_MS)
    picture(page, "wait-form")

    page.reload()
    page.get_by_role("textbox", name="Seat").fill("4a")
    page.get_by_role("button", name="Send", exact=True).first.click()

    ended(page, "You sit on 4a.")
    assert "Booked 4a." in str(side.provider.requests[-1]["messages"])
    assert heard == []


@pytest.mark.parametrize("name", ["seat", "agree", "search"])
def test_what_waits_is_stopped_in_the_middle(page: Page, side: Side, name: str) -> None:
    begin(page, side, name)
    words = {"seat": "Which seat?", "agree": "Agree there.", "search": "Looking for seats."}[name]
    page.get_by_text(words).first.wait_for(timeout=TURN_MS)

    stop(page)

    assert "stopped" in page.locator(".turn-ended").inner_text().lower()
    assert page.get_by_role("textbox", name="Seat").count() == 0
    assert page.get_by_text("Looking for seats.").count() == 0
    if name == "search":
        wait_for(lambda: bool(side.far.cancelled), 30)  # the far side is told
    begin(page, side, "fail", "It goes on.")
    ended(page, "It goes on.")


def test_a_link_in_the_chat_shows_its_host_survives_a_reload_and_goes_on(page: Page, side: Side) -> None:
    begin(page, side, "agree", "Agreed, then.")
    page.get_by_text("far.example").first.wait_for(timeout=TURN_MS)
    picture(page, "wait-link")

    page.reload()
    page.get_by_text("far.example").first.wait_for()
    page.locator(".approval.is-pending button[value=accept]").click()

    ended(page, "Agreed, then.")


def test_a_long_task_says_how_far_it_is_until_it_ends(page: Page, side: Side) -> None:
    begin(page, side, "search", "Seat 4a is free.")
    page.get_by_text("Looking for seats.").wait_for(timeout=TURN_MS)
    picture(page, "wait-task")

    side.far.says = "Two of three rows are done."
    page.get_by_text("Two of three rows are done.").wait_for(timeout=TURN_MS)
    assert page.get_by_text("Looking for seats.").count() == 0
    page.reload()
    page.get_by_text("Two of three rows are done.").wait_for(timeout=TURN_MS)
    side.far.is_done = True

    ended(page, "Seat 4a is free.")
    assert page.get_by_text("Two of three rows are done.").count() == 0


def test_an_import_is_decided_by_group_one_by_one_and_closed(window: Page, side: Side) -> None:
    heard = complaints(window)
    paths = {
        f"/{group}/{number}": {
            "get": {"operationId": f"{group}_{number}", "tags": [group], "summary": f"Reads {group} {number}."}
        }
        for group in ("trains", "buses")
        for number in range(3)
    }
    document: dict[str, Any] = {"openapi": "3.1.0", "info": {"title": "Rides", "version": "1"}, "paths": paths}
    document["servers"] = [{"url": "https://rides.example.org"}]
    found = rest(side.up, "imports", {"source": "openapi", "document": json.dumps(document)})["id"]
    wait_for(lambda: rest(side.up, f"imports/{found}")["status"] not in ("queued", "running"), 60)
    window.goto(f"/o/acme/imports/{found}/?group=trains")

    window.locator("#decide [name=category]").select_option("far")
    window.get_by_role("button", name="Accept all 3 that match").click()
    window.get_by_text("Accepted: 3 new tools").wait_for()
    window.goto(f"/o/acme/imports/{found}/?q=buses_1")
    window.locator("#decide [name=category]").select_option("far")
    window.locator("[name=tools]").first.check()
    window.get_by_role("button", name="Accept the ticked").click()
    window.get_by_text("Accepted: 1 new tool").wait_for()
    window.goto(f"/o/acme/imports/{found}/?q=buses_2")
    window.locator("[name=tools]").first.check()
    window.get_by_role("button", name="Dismiss the ticked").click()
    window.get_by_text("Dismissed: 1 definition").wait_for()
    picture(window, "import-decided")
    window.goto(f"/o/acme/imports/{found}/")
    window.get_by_text("Close this import").click()
    window.get_by_role("button", name="Close the import").click()
    window.get_by_text("is closed").first.wait_for()

    names = {each["name"] for each in rest(side.up, "tools?category=far&limit=100")["results"]}
    assert {each for each in names if each.startswith(("trains", "buses"))} == {
        "trains_0",
        "trains_1",
        "trains_2",
        "buses_1",
    }
    assert heard == []


@pytest.mark.parametrize(
    ("tool", "state", "result"),
    [
        ("mcp__far__paint", "Done", "image-1.png"),
        ("mcp__far__fail", "Failed", "There is no such seat."),
        ("seats", "Done", '"free": 3'),
        ("plan", "Done", "plan.png"),
        ("nowhere", "Failed", "404"),
    ],
)
def test_tools_of_other_kinds_are_run_by_hand(window: Page, side: Side, tool: str, state: str, result: str) -> None:
    heard = complaints(window)
    window.goto(f"/o/acme/tools/{tool}/try/")

    if window.locator("[name=confirm]").count():
        window.locator("[name=confirm]").check()
    window.get_by_role("button", name=f"Run {tool}").click()
    run = window.locator(".try-run")
    run.locator("pre").wait_for(timeout=TURN_MS)
    picture(window, f"try-{tool}")

    assert state in run.inner_text()
    assert result in run.inner_text(), json.dumps(run.inner_text())
    assert heard == []
