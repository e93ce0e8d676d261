"""Real MCP servers, where they are installed: in the folder that TOOLHUB_TEST_MCP names, or on the PATH.

How to have them: `pip install mcp-server-time` and `mcp-server-git`, each in a venv of its own, and of npm
`@modelcontextprotocol/server-everything`, `server-filesystem` and `server-memory`.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from capabilities.running.mcp_client import client
from capabilities.running.mcp_client.errors import McpError, ServerLost, ServerSilent
from capabilities.running.mcp_client.results import result_of
from capabilities.running.mcp_client.server_addresses import ServerAddress
from tests.capabilities.running.mcp_client.test_client import pid_of

Start = Callable[..., ServerAddress]


@pytest.fixture
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Start]:
    """A function of a program's name and arguments that says where that server is; skips where it is not installed."""

    def address_of(program: str, *arguments: str, **env: str) -> ServerAddress:
        folder = os.environ.get("TOOLHUB_TEST_MCP", "")
        path = shutil.which(program, path=os.pathsep.join([folder, os.environ.get("PATH", "")]))
        if path is None:
            pytest.skip(f"{program} is not installed")
        principal = str(request.node.nodeid)
        env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)} | env
        argv = (path, *arguments)
        return ServerAddress("stdio", principal, title=program, argv=argv, env=env, folder=str(tmp_path))

    yield address_of
    client.close()


def text_of(address: ServerAddress, name: str, **arguments: Any) -> str:
    answer = client.call_tool(address, name, arguments, timeout=30)
    assert answer.result is not None
    return result_of(answer.result).text


def test_time(start: Start) -> None:
    address = start("mcp-server-time", "--local-timezone", "UTC")
    listing = client.list_tools(address)

    assert {tool.name for tool in listing.tools} == {"get_current_time", "convert_time"}
    said = text_of(address, "convert_time", source_timezone="UTC", time="12:00", target_timezone="Asia/Tokyo")
    assert "21:00" in said
    wrong = client.call_tool(address, "get_current_time", {"timezone": "Nowhere/Town"}, timeout=30)
    assert wrong.result is not None
    assert wrong.result["isError"] is True


def test_git(start: Start, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    address = start("mcp-server-git", "--repository", str(repository))
    for command in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "First"]):
        identity = ["-c", "user.name=Test", "-c", "user.email=test@example.com"]
        repository.mkdir(exist_ok=True)
        subprocess.run(["git", "-C", str(repository), *identity, *command], check=True)

    assert len(client.list_tools(address).tools) >= 10
    assert "First" in text_of(address, "git_log", repo_path=str(repository))


def test_everything(start: Start) -> None:
    address = start("mcp-server-everything", "stdio")
    listing = client.list_tools(address)
    names = {tool.name for tool in listing.tools}

    assert listing.protocol == "2025-11-25"
    assert "Echo: hello" in text_of(address, "echo", message="hello")
    image = client.call_tool(address, "get-tiny-image", {}, timeout=30)
    assert image.result is not None
    (file,) = result_of(image.result).files
    assert (file.media_type, file.content[1:4]) == ("image/png", b"PNG")
    structured = client.call_tool(address, "get-structured-content", {"location": "New York"}, timeout=30)
    assert structured.result is not None
    assert result_of(structured.result).structured
    assert "trigger-sampling-request" not in names


def test_everything_asks_a_form_in_the_middle_of_a_call(start: Start) -> None:
    address = start("mcp-server-everything", "stdio")
    names = {tool.name for tool in client.list_tools(address).tools}
    if "trigger-elicitation-request" not in names:
        pytest.skip("this version of the server asks nothing")

    asked = client.call_tool(address, "trigger-elicitation-request", {}, timeout=30)

    assert asked.questions is not None
    assert asked.is_asked_in_session
    answers = {key: {"action": "decline"} for key in asked.questions}
    declined = client.call_tool(address, "trigger-elicitation-request", {}, timeout=30, answers=answers)
    assert declined.result is not None
    assert "declined" in result_of(declined.result).text


def test_everything_runs_a_task(start: Start) -> None:
    address = start("mcp-server-everything", "stdio")
    tools = {tool.name: tool for tool in client.list_tools(address).tools}
    if "simulate-research-query" not in tools:
        pytest.skip("this version of the server has no task")

    begun = client.call_tool(address, "simulate-research-query", {"topic": "bees"}, timeout=30, as_task=True)

    assert begun.task is not None
    assert begun.is_old_task
    task_id = begun.task["taskId"]
    until = time.monotonic() + 60
    task = client.look_at_task(address, task_id, timeout=30, is_old=True)
    while task["status"] == "working" and time.monotonic() < until:
        time.sleep(0.5)
        task = client.look_at_task(address, task_id, timeout=30, is_old=True)
    assert task["status"] == "completed"
    assert "bees" in result_of(task["result"]).text


def test_filesystem_and_memory(start: Start, tmp_path: Path) -> None:
    shown = tmp_path / "shown"
    shown.mkdir()
    (shown / "note.txt").write_text("water the plants")
    files = start("mcp-server-filesystem", str(shown))

    assert len(client.list_tools(files).tools) >= 10
    assert "water the plants" in text_of(files, "read_text_file", path=str(shown / "note.txt"))
    outside = client.call_tool(files, "read_text_file", {"path": "/etc/hostname"}, timeout=30)
    assert outside.result is not None
    assert outside.result["isError"] is True
    memory = start("mcp-server-memory", MEMORY_FILE_PATH=str(tmp_path / "memory.jsonl"))
    entity = {"name": "Bee", "entityType": "insect", "observations": ["flies"]}
    text_of(memory, "create_entities", entities=[entity])
    assert "Bee" in text_of(memory, "read_graph")


@pytest.mark.parametrize("program", ["mcp-server-time", "mcp-server-memory"])
def test_killed_between_and_during_calls(start: Start, program: str, tmp_path: Path) -> None:
    address = start(program, MEMORY_FILE_PATH=str(tmp_path / "memory.jsonl"))
    name, arguments = ("read_graph", {}) if "memory" in program else ("get_current_time", {"timezone": "UTC"})
    text_of(address, name, **arguments)
    pid = pid_of(address)
    os.kill(pid, signal.SIGSTOP)  # it hangs, in the middle of the call
    caught: list[Exception] = []
    began = 0.0

    def ask() -> None:
        try:
            text_of(address, name, **arguments)
        except McpError as error:
            caught.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    time.sleep(0.5)
    began = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    thread.join(20)

    assert isinstance(caught[0], ServerLost)
    assert time.monotonic() - began < 10
    assert text_of(address, name, **arguments)
    os.kill(pid_of(address), signal.SIGKILL)
    time.sleep(0.5)
    assert text_of(address, name, **arguments)


def test_one_that_hangs_holds_up_nobody(start: Start) -> None:
    hanging = start("mcp-server-time")
    other = start("mcp-server-memory")
    text_of(hanging, "get_current_time", timezone="UTC")
    text_of(other, "read_graph")
    pid = pid_of(hanging)
    os.kill(pid, signal.SIGSTOP)

    def ask() -> None:
        with pytest.raises(ServerSilent):
            client.call_tool(hanging, "get_current_time", {"timezone": "UTC"}, timeout=4)

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    began = time.monotonic()
    for _ in range(10):
        text_of(other, "read_graph")
    took = time.monotonic() - began
    for thread in threads:
        thread.join()
    os.kill(pid, signal.SIGCONT)

    assert took < 4
    assert "UTC" in text_of(hanging, "get_current_time", timezone="UTC")


def test_all_over_http(start: Start, tmp_path: Path) -> None:
    """The same server behind its own HTTP door, which keeps sessions of protocol 2025-11-25."""
    program = start("mcp-server-everything").argv[0]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = tmp_path / "log"
    with log.open("w") as file:
        server = subprocess.Popen(
            [program, "streamableHttp"], env=os.environ | {"PORT": str(port)}, stdout=file, stderr=file
        )
    try:
        until = time.monotonic() + 30
        while time.monotonic() < until:
            with socket.socket() as trial:
                if trial.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        address = ServerAddress("http", str(tmp_path), title="Everything", url=f"http://127.0.0.1:{port}/mcp")
        assert client.list_tools(address).protocol == "2025-11-25"
        assert "Echo: hello" in text_of(address, "echo", message="hello")
    finally:
        server.terminate()
        server.wait(10)
    with pytest.raises(McpError):
        text_of(address, "echo", message="gone")
