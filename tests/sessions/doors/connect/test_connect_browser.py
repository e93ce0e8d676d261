"""The page that connects a client in a real browser: another target, a token, and what its buttons copy, run."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

import pytest
from openai import OpenAI

from sessions.doors.connect.clients import CLIENTS
from tests.browser import EMAIL, chromium, complaints, service, sign_in
from tests.clients.installed import FOLDER, NODE, PACKAGES, need_clients
from tests.sessions.doors.mcp_server.gateway import names_at

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

pytestmark = [pytest.mark.browser, pytest.mark.timeout(400)]

AGENT, TOOLKIT = "assistant", "toolkit/devops"
#: What the model says that answers without a provider.
ANSWER = "Offline model"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory, empty_database: Path | None) -> Iterator[BrowserContext]:
    with service(tmp_path_factory.mktemp("up"), empty_database) as up, chromium() as started:
        origin = f"http://localhost:{up.port}"
        context = started.new_context(base_url=origin)
        context.grant_permissions(["clipboard-read", "clipboard-write"], origin=origin)
        page = context.new_page()
        page.goto("/accounts/login/")
        sign_in(page, EMAIL)
        page.wait_for_url("**/o/acme/")
        page.close()
        yield context


@pytest.fixture
def page(browser: BrowserContext) -> Iterator[Page]:
    page = browser.new_page()
    wrong = complaints(page)
    yield page
    page.close()
    assert [each for each in wrong if "422" not in each] == []  # a wrong form


def copied(page: Page, number: int) -> str:
    button = page.locator("[data-copy]").nth(number - 1)
    button.click()
    button.get_by_text("Copied", exact=True).wait_for()
    text: str = page.evaluate("navigator.clipboard.readText()")
    return text


def make_token(page: Page) -> None:
    page.get_by_role("button", name="Create a token").click()
    page.get_by_text("The new token is in the blocks below").wait_for()


def blocks_of(page: Page, client: str, to: str = AGENT) -> list[str]:
    """What the buttons copy for this client, with a token that was made in place."""
    page.goto(f"/o/acme/connect/?client={client}&to={to}")
    make_token(page)
    blocks = [copied(page, number) for number in range(1, page.locator("[data-copy]").count() + 1)]
    assert "YOUR_TOKEN" not in "".join(blocks)
    return blocks


def test_the_button_copies_a_block_with_the_token_that_was_just_made(page: Page) -> None:
    page.goto("/o/acme/connect/?client=cursor")
    page.get_by_label("Connect to").select_option(TOOLKIT)
    page.wait_for_url("**to=toolkit%2Fdevops*")

    make_token(page)
    server = json.loads(copied(page, 1))["mcpServers"]["toolhub-devops"]

    assert server["url"].endswith("/mcp/toolkit/devops")
    assert server["headers"]["Authorization"].startswith("Bearer thub_")
    page.get_by_text("Copy", exact=True).wait_for()  # again, after two seconds

    page.goto("/o/acme/connect/?client=cursor")
    assert "YOUR_TOKEN" in copied(page, 1)
    page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    page.get_by_text("Copy", exact=True).click()
    page.get_by_text("Copied", exact=True).wait_for()
    assert "YOUR_TOKEN" in page.evaluate("getSelection().toString()")


def tokens_of(page: Page) -> int:
    """How many tokens the member has, asked in another tab."""
    other = page.context.new_page()
    other.goto("/o/acme/tokens/")
    count = other.locator("tr[id^=token-]").count()
    other.close()
    return count


@pytest.mark.parametrize(
    ("address", "button"), [("connect/?client=codex", "Create a token"), ("tokens/", "Create the token")]
)
def test_a_reload_shows_no_token_and_makes_none(page: Page, address: str, button: str) -> None:
    page.goto(f"/o/acme/{address}")
    before = tokens_of(page)
    page.get_by_label("Name", exact=True).fill("")
    page.get_by_role("button", name=button).click()
    page.get_by_text("This field is required.").first.wait_for()
    page.get_by_label("Name", exact=True).fill("Reloaded")

    page.get_by_role("button", name=button).click()
    page.get_by_text("it is not stored, and not shown again").wait_for()
    page.wait_for_function("() => document.activeElement.matches('.notice')")
    assert copied(page, 1).partition("thub_")[2].rstrip('"') in page.locator("main").inner_text()
    assert tokens_of(page) == before + 1

    page.reload()
    page.get_by_role("button", name=button).wait_for()
    assert not re.search(r"thub_\w{20}", page.locator("main").inner_text())
    assert tokens_of(page) == before + 1


# -- What is copied works ---------------------------------------------------------------------------------------------


def ran(*command: str | Path, folder: Path, **env: str) -> str:
    """What the command printed, in a folder that is its home too."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    result = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env={"PATH": path, "HOME": str(folder), "NO_PROXY": "localhost", **env},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def in_bash(block: str, folder: Path, **env: str) -> str:
    return ran("bash", "-euo", "pipefail", "-c", block, folder=folder, **env)


def written(folder: Path, name: str, block: str) -> Path:
    (folder / name).write_text(block)
    return folder / name


def test_each_client_is_run_or_read_here() -> None:
    tested = {"vercel", "llm", "curl", "open-webui", "codex-model", *PYTHON, *MCP}

    assert tested == {client.key for client in CLIENTS}


PYTHON = ("openai", "langchain", "pydantic-ai")


@pytest.mark.parametrize("client", PYTHON)
def test_the_python_block_answers(page: Page, tmp_path: Path, client: str) -> None:
    install, program = blocks_of(page, client)

    assert ANSWER in ran(sys.executable, written(tmp_path, "ask.py", program), folder=tmp_path)
    (package,) = re.findall(r'\Apip install "?([a-z-]+)(?:\[openai\])?"?\Z', install)
    assert version(package)


def test_the_block_of_the_ai_sdk_answers(page: Page, tmp_path: Path) -> None:
    need_clients()
    (tmp_path / "node_modules").symlink_to(PACKAGES)

    install, program = blocks_of(page, "vercel")

    assert ANSWER in ran(NODE, written(tmp_path, "ask.mjs", program), folder=tmp_path)
    packages = json.loads((FOLDER / "package.json").read_text())["dependencies"]
    assert install.startswith("npm install ")
    assert set(install.split()[2:]) <= set(packages)


def test_the_blocks_of_llm_answer(page: Page, tmp_path: Path) -> None:
    keep, find, models, ask = blocks_of(page, "llm")
    own = {"LLM_USER_PATH": str(tmp_path / "of llm")}

    in_bash(keep, tmp_path, **own)
    folder = Path(in_bash(find, tmp_path, **own).strip())
    written(folder, "extra-openai-models.yaml", models)

    assert folder == tmp_path / "of llm"
    assert ANSWER in in_bash(ask, tmp_path, **own)


def test_the_blocks_of_curl_answer(page: Page, tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")

    ask, models = blocks_of(page, "curl")

    events = in_bash(ask, tmp_path)
    assert events.startswith("data: {")
    assert events.rstrip().endswith("data: [DONE]")
    assert AGENT in [each["id"] for each in json.loads(in_bash(models, tmp_path))["data"]]


def test_what_open_webui_is_told_lists_the_agents(page: Page, tmp_path: Path) -> None:
    url, key, environment = blocks_of(page, "open-webui")

    with urlopen(Request(f"{url}/models", headers={"Authorization": f"Bearer {key}"}), timeout=30) as answer:
        assert AGENT in [each["id"] for each in json.load(answer)["data"]]
    told = in_bash(f'{environment}\necho "$OPENAI_API_BASE_URL $OPENAI_API_KEY"', tmp_path)
    assert told.split() == [url, key]


def test_what_codex_is_told_answers_what_it_sends(page: Page, tmp_path: Path) -> None:
    """As version 0.169.0 asks with these lines in its file; with the three that turn something off left out, it sends
    tools that are no functions, and `/v1` refuses."""
    export, file, start = blocks_of(page, "codex-model")
    told = tomllib.loads(file)
    provider = told["model_providers"][told["model_provider"]]
    token = in_bash(f'{export}\necho "${provider["env_key"]}"', tmp_path).strip()
    said = {"type": "message", "id": "msg_1", "role": "developer", "content": [{"type": "input_text", "text": "Code."}]}
    sent: dict[str, Any] = {
        "model": told["model"],
        "input": [said, said | {"role": "user", "content": [{"type": "input_text", "text": "What can you do?"}]}],
        "tools": [{"type": "function", "name": "exec_command", "strict": False, "parameters": {"type": "object"}}],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning": {"summary": "auto"},
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "01a20ecb-50eb-71b3-80d0-5ef45f4fac42",
        "extra_body": {"client_metadata": {"thread_id": "01a20ecb-50eb-71b3-80d0-5ef45f4fac42"}},
        "extra_headers": {"session-id": "01a20ecb-50eb-71b3-80d0-5ef45f4fac42"},
    }

    answer = OpenAI(base_url=provider["base_url"], api_key=token, max_retries=0).responses.create(**sent)

    assert ANSWER in answer.output_text
    assert (told["web_search"], told["agents"], told["features"]) == ("disabled", {"enabled": False}, {"goals": False})
    assert (start, provider["wire_api"]) == ("codex --profile toolhub", "responses")


MCP = ("claude-code", "codex", "vs-code", "cursor")


def server_in(blocks: list[str], client: str, folder: Path) -> tuple[str, str]:
    """The address and the header `Authorization` that the client reads from these blocks."""
    if client == "claude-code":
        assert blocks[1] == "claude mcp list"
        words = in_bash(f'claude() {{ printf "%s\\n" "$@"; }}\n{blocks[0]}', folder).splitlines()
        *begin, _, url, option, header = words
        assert (begin, option) == (["mcp", "add", "--transport", "http"], "--header")
        return url, header.removeprefix("Authorization: ")
    if client == "codex":
        (told,) = tomllib.loads(blocks[1])["mcp_servers"].values()
        token = in_bash(f'{blocks[0]}\necho "${told["bearer_token_env_var"]}"', folder).strip()
        return told["url"], f"Bearer {token}"
    (told,) = json.loads(blocks[0])["servers" if client == "vs-code" else "mcpServers"].values()
    header = told["headers"]["Authorization"]
    return told["url"], header.replace("${input:toolhub-token}", blocks[-1])


@pytest.mark.parametrize("to", [AGENT, TOOLKIT])
@pytest.mark.parametrize("client", MCP)
def test_a_client_of_mcp_gets_the_tools_with_what_it_is_told(page: Page, tmp_path: Path, client: str, to: str) -> None:
    url, header = server_in(blocks_of(page, client, to), client, tmp_path)

    assert url.endswith(f"/mcp/{to}")
    assert header.startswith("Bearer thub_")
    with ThreadPoolExecutor(1) as thread:  # this one runs the loop of the browser
        listed = thread.submit(names_at, url, header.removeprefix("Bearer ")).result()
    assert "github" in listed
