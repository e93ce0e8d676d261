"""The page of a session in a real browser: answers and code that are copied and coloured, what is folded, drafts, and
messages that are written anew."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser import EMAIL, LOCAL, complaints, service, sign_in
from tests.pictures import png
from tests.scripted_openai import Say, ScriptedOpenAI, call
from tests.test_agents_tool_browser import ask
from tests.test_doors_browser import profile
from tests.test_newcomer import TURN_MS, say
from tests.test_streaming import picture, rest
from tests.test_up import Up

if TYPE_CHECKING:
    from playwright.sync_api import Browser, FilePayload, Page

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

ANSWER = """So it is **done**:

```python
def area(radius: float) -> float:
    return 3.14 * radius**2  # roughly
```

- [x] measure
- [ ] cut, where $a_1 * b_1$ is

```
plain
```
"""


@pytest.fixture(scope="module")
def provider() -> Iterator[ScriptedOpenAI]:
    running = ScriptedOpenAI().start()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory, empty_database: Path | None, provider: ScriptedOpenAI) -> Iterator[Up]:
    with service(tmp_path_factory.mktemp("chat"), empty_database, TOOLHUB_PRIVATE_HOSTS=LOCAL) as running:
        rest(running, "providers", {"slug": "scripted", "name": "Scripted", "base_url": provider.url})
        rest(running, "models", {"provider": "scripted", "name": "scripted", "dialect": "chat", "takes_images": True})
        changed = {"provider": "scripted", "model": "scripted", "routing_mode": "off", "tools": ["calculator"]}
        rest(running, "agents/everyday", changed, method="PATCH")
        yield running


@pytest.fixture(params=[1280, 400], ids=["1280", "400"])
def page(request: pytest.FixtureRequest, browser: Browser, up: Up) -> Iterator[Page]:
    """The page of a new session."""
    page = profile(browser, up)
    page.set_viewport_size({"width": request.param, "height": 800})
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto("/accounts/login/")
    sign_in(page, EMAIL)
    page.wait_for_url("**/o/acme/**")
    session = rest(up, "sessions", {"agent": "everyday"})["id"]
    page.goto(f"/o/acme/sessions/{session}/")
    yield page
    page.context.close()


def clipboard(page: Page) -> str:
    return str(page.evaluate("navigator.clipboard.readText()"))


def test_an_answer_and_its_code_are_copied_and_coloured_where_the_language_is_known(
    page: Page, provider: ScriptedOpenAI
) -> None:
    heard = complaints(page)
    turn = ask(page, provider, "How large is it?", Say(ANSWER))
    blocks = turn.locator(".code-block")

    assert blocks.locator(".code-head > span").all_inner_texts() == ["python", ""]
    assert turn.locator("code .hljs-keyword").all_inner_texts() == ["def", "return"]
    assert [box.is_checked() for box in turn.get_by_role("checkbox").all()] == [True, False]
    assert turn.locator(".formula").inner_text() == "$a_1 * b_1$"
    turn.get_by_role("button", name="Copy the code, python").click()
    blocks.first.get_by_text("Copied").wait_for()
    assert clipboard(page) == ANSWER.split("```")[1].removeprefix("python\n")
    turn.get_by_role("button", name="Copy the answer").click()
    turn.locator(".turn-acts").get_by_text("Copied").wait_for()
    assert clipboard(page).strip() == ANSWER.strip()
    picture(page, "chat-code-light")
    page.evaluate("document.documentElement.dataset.bsTheme = 'dark'")
    picture(page, "chat-code-dark")
    page.reload()
    assert turn.locator("code .hljs-keyword").count() == 2
    assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
    assert heard == []


def test_code_is_copied_where_the_clipboard_is_closed_to_pages(page: Page, provider: ScriptedOpenAI) -> None:
    turn = ask(page, provider, "Again", Say(ANSWER))
    page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('closed')); }")

    turn.get_by_role("button", name="Copy the answer").click()

    turn.locator(".turn-acts").get_by_text("Copied").wait_for()
    assert clipboard(page).strip() == ANSWER.strip()


@pytest.mark.parametrize("is_read", [False, True], ids=["nobody reads the step", "somebody reads the step"])
def test_a_turn_folds_when_it_has_its_answer_unless_somebody_reads_in_it(
    page: Page, provider: ScriptedOpenAI, is_read: bool
) -> None:
    provider.enqueue(Say(calls=[call("calculator", {"expression": "6*7"})]), Say("It is 42.", delay=3))
    say(page, "How much is 6*7?")
    step = page.locator("li.step:not(.step-model) summary")
    step.wait_for(timeout=TURN_MS)
    if is_read:
        step.click()

    page.get_by_text("It is 42.").wait_for(timeout=TURN_MS)

    line = page.locator(".work > summary")
    assert "2 rounds · 1 call · " in line.inner_text()
    assert step.is_visible() == is_read
    line.click()
    assert step.is_visible() != is_read
    picture(page, f"chat-folded-{is_read}")


def test_a_draft_stays_with_its_session_until_it_is_sent_and_up_brings_back_what_was_sent(
    page: Page, provider: ScriptedOpenAI, up: Up
) -> None:
    address, field = page.url, page.get_by_role("textbox", name="Message")
    for number in (1, 2):
        ask(page, provider, f"Question {number}\nof two", Say("Yes."))
    field.fill("half a thought")
    page.reload()
    assert field.input_value() == "half a thought"
    page.goto(f"/o/acme/sessions/{rest(up, 'sessions', {'agent': 'everyday'})['id']}/")
    assert field.input_value() == ""
    page.goto(address)
    assert field.input_value() == "half a thought"
    field.press("ArrowUp")
    assert field.input_value() == "half a thought"
    field.fill("")

    seen = []
    for key in ("ArrowUp", "ArrowUp", "ArrowUp", "ArrowDown", "ArrowDown"):
        field.press(key)
        seen.append(field.input_value().partition("\n")[0])

    assert seen == ["Question 2", "Question 1", "Question 1", "Question 2", ""]
    field.press("ArrowUp")
    provider.enqueue(Say("Sent."))
    field.press("Enter")
    page.locator("article.turn").nth(2).get_by_text("Sent.").wait_for(timeout=TURN_MS)
    page.reload()
    assert field.input_value() == ""


def ended(page: Page) -> None:
    """Wait until no turn runs: the last one is as it stays."""
    page.locator(".turn-state").wait_for(state="detached", timeout=TURN_MS)


def test_a_message_is_written_anew_and_an_answer_asked_for_again_in_their_places(
    page: Page, provider: ScriptedOpenAI
) -> None:
    heard = complaints(page)
    ask(page, provider, "What is red?", Say("A rose."))
    ask(page, provider, "And blue?", Say("The sea."))
    provider.enqueue(Say("A cherry."))
    page.locator("article.turn").first.get_by_role("link", name="Edit the message").click()
    field = page.get_by_role("textbox", name="Message")
    assert field.input_value() == "What is red?"
    picture(page, "chat-edit")
    field.fill("What is small and red?")

    field.press("Enter")

    page.locator(".replaced > summary").wait_for(timeout=TURN_MS)
    page.get_by_text("A cherry.").wait_for(timeout=TURN_MS)
    assert page.locator(".replaced > summary").all_inner_texts()[0].startswith("2 turns replaced")
    assert not page.get_by_text("A rose.").is_visible()
    ended(page)
    provider.enqueue(Say("A ladybird."))
    page.get_by_role("button", name="Regenerate").filter(visible=True).click()
    page.get_by_text("3 turns replaced").wait_for(timeout=TURN_MS)
    page.get_by_text("A ladybird.").wait_for(timeout=TURN_MS)
    said = [message["content"] for message in provider.requests[-1]["messages"] if message["role"] != "system"]
    assert said == ["What is small and red?"]
    ended(page)
    picture(page, "chat-replaced")
    page.reload()
    assert not page.get_by_text("The sea.").is_visible()
    page.evaluate("document.documentElement.dataset.bsTheme = 'dark'")
    page.locator(".replaced > summary").first.click()
    picture(page, "chat-replaced-dark")
    assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
    page.locator("article.turn").nth(1).get_by_role("link", name="Go on from here").click()
    provider.enqueue(Say("Grass."))
    field.fill("And green?")
    picture(page, "chat-go-on")
    field.press("Enter")
    page.get_by_text("Grass.").wait_for(timeout=TURN_MS)
    said = [message["content"] for message in provider.requests[-1]["messages"] if message["role"] != "system"]
    assert said == ["What is red?", "A rose.", "And blue?", "The sea.", "And green?"]
    assert page.get_by_text("The sea.").is_visible()
    assert page.locator(".replaced > summary").all_inner_texts()[0].startswith("2 turns replaced")
    assert heard == []


def test_a_conversation_is_downloaded_from_its_head(page: Page, provider: ScriptedOpenAI) -> None:
    heard = complaints(page)
    ask(page, provider, "What is red?", Say("A rose."))
    ended(page)
    page.locator(".chat-export > summary").click()
    picture(page, "chat-export")
    page.get_by_role("button", name="Copy the link").click()
    page.locator(".chat-export").get_by_text("Copied").wait_for()
    assert clipboard(page) == page.url.partition("#")[0]

    with page.expect_download() as started:
        page.get_by_role("link", name="Markdown").click()

    text = Path(started.value.path()).read_text()
    assert started.value.suggested_filename == "what-is-red.md"
    assert ("What is red?" in text, "A rose." in text) == (True, True)
    assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
    assert heard == []


PASTE = """([base64, name]) => {
  const bytes = Uint8Array.from(atob(base64), (each) => each.charCodeAt(0));
  const data = new DataTransfer();
  data.items.add(new File([bytes], name, { type: "image/png" }));
  const field = document.querySelector("#composer textarea");
  const paste = new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true });
  const drop = new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true });
  field.dispatchEvent(name.startsWith("pasted") ? paste : drop);
}"""


def choose(page: Page, *files: tuple[str, bytes]) -> None:
    chosen: list[FilePayload] = [{"name": name, "mimeType": "", "buffer": content} for name, content in files]
    page.locator("#id_files").set_input_files(chosen)


def test_files_are_chosen_pasted_dropped_removed_and_sent(page: Page, provider: ScriptedOpenAI) -> None:
    heard = complaints(page)
    chips = page.locator("#chosen-files > li")
    page.get_by_role("textbox", name="Message").fill("Which colour?")
    choose(page, ("red.png", png(60, 40)), ("notes.md", b"# Red"))
    page.evaluate(PASTE, [b64encode(png(8, 8)).decode(), "pasted.png"])
    page.evaluate(PASTE, [b64encode(png(9, 9)).decode(), "dropped.png"])
    names = ("red.png", "notes.md", "pasted.png", "dropped.png")
    assert [text.partition(",")[0] for text in chips.all_inner_texts()] == [*names]
    page.get_by_role("button", name="Remove pasted.png").click()
    assert chips.count() == 3
    picture(page, "chat-files-chosen")

    turn = ask(page, provider, "Which colour?", Say("Red."))

    assert chips.count() == 0
    links = turn.locator(".said-files a[download]")
    assert links.all_inner_texts() == ["red.png", "notes.md", "dropped.png"]
    shown = turn.get_by_role("img", name="red.png")
    assert shown.evaluate("each => each.decode().then(() => each.naturalWidth)") == 60
    (content,) = [each["content"] for each in provider.requests[-1]["messages"] if each["role"] == "user"]
    assert [part["type"] for part in content] == ["text", "image_url", "image_url"]
    page.reload()
    assert links.count() == 3
    picture(page, "chat-files-sent")
    page.evaluate("document.documentElement.dataset.bsTheme = 'dark'")
    picture(page, "chat-files-sent-dark")
    assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
    assert heard == []


def test_a_refused_file_stays_with_its_draft_until_it_is_removed(page: Page, provider: ScriptedOpenAI) -> None:
    field, error = page.get_by_role("textbox", name="Message"), page.locator("#files-error")
    field.fill("Look at this")
    choose(page, ("red.png", png(4, 4)), ("a.svg", b"<svg/>"))
    field.press("Enter")
    error.get_by_text("not taken").wait_for()
    assert field.input_value() == "Look at this"
    picture(page, "chat-file-refused")
    # What is too large never leaves the browser.
    choose(page, ("large.txt", b"a" * 3_000_001))
    error.get_by_text("at most").wait_for()
    page.get_by_role("button", name="Remove a.svg").click()
    assert not error.is_visible()

    turn = ask(page, provider, "Look at this", Say("Seen."))

    assert turn.locator(".said-files a[download]").all_inner_texts() == ["red.png"]


def test_an_edited_message_offers_the_files_it_had(page: Page, provider: ScriptedOpenAI) -> None:
    choose(page, ("red.png", png(4, 4)), ("a.txt", b"a"))
    turn = ask(page, provider, "Look", Say("Red."))
    ended(page)
    turn.get_by_role("link", name="Edit the message").click()
    picture(page, "chat-files-edit")
    page.get_by_label("a.txt").uncheck()
    provider.enqueue(Say("Still red."))

    page.get_by_role("textbox", name="Message").press("Enter")

    page.get_by_text("Still red.").wait_for(timeout=TURN_MS)
    last = page.locator("article.turn").filter(has_text="Still red.")
    assert last.locator(".said-files a[download]").all_inner_texts() == ["red.png"]
