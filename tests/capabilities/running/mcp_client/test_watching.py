"""Word of changes: servers that say that their list of tools is another one now."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from capabilities.running.mcp_client import background, client, exchanges
from capabilities.running.mcp_client.server_addresses import ServerAddress
from tests.capabilities.running.mcp_client.over_http import http_server, old_http_server
from tests.capabilities.running.mcp_client.scripted import changing, usual, wait_until
from tests.capabilities.running.mcp_client.test_client import SCRIPT, pid_of


@pytest.fixture(params=["modern", "old", "process"])
def address(request: pytest.FixtureRequest) -> Iterator[ServerAddress]:
    principal = str(request.node.nodeid)
    with ExitStack() as stack:
        if request.param == "process":
            argv = (sys.executable, str(SCRIPT), "changing")
            yield ServerAddress("stdio", principal, argv=argv)
        else:
            server = http_server if request.param == "modern" else old_http_server
            yield ServerAddress("http", principal, url=stack.enter_context(server(changing())))


class Told:
    """Counts how often a server said so."""

    def __init__(self) -> None:
        self.times = 0
        self._lock = threading.Lock()

    def __call__(self) -> None:
        with self._lock:
            self.times += 1


def change(address: ServerAddress) -> None:
    client.call_tool(address, "change", {}, timeout=20)


def changed(address: ServerAddress, told: Told) -> Callable[[], bool]:
    """Whether it was told by now; until then the list changes again and again, since nobody says when it listens."""
    before = told.times

    def look() -> bool:
        change(address)
        return told.times > before

    return look


def test_a_change_is_told_and_the_list_is_another_one(address: ServerAddress) -> None:
    told = Told()
    before = client.list_tools(address)
    watch = client.watch(address, told)
    try:
        assert wait_until(changed(address, told))
        assert wait_until(changed(address, told))
        assert len(client.list_tools(address).tools) > len(before.tools)
        assert client.list_tools(address).tells_changes
        assert watch.is_on
    finally:
        watch.stop()


def test_who_stopped_listening_is_not_told(address: ServerAddress) -> None:
    told = Told()
    watch = client.watch(address, told)
    assert wait_until(changed(address, told))
    watch.stop()
    assert wait_until(lambda: not watch.is_on)
    times = told.times

    change(address)

    assert told.times <= times + 1  # one may have been under way


def test_a_server_that_tells_nothing_is_not_listened_to(request: pytest.FixtureRequest) -> None:
    with http_server(usual()) as url:
        watch = client.watch(ServerAddress("http", request.node.nodeid, url=url), Told())

        assert wait_until(lambda: not watch.is_on)


def test_s49_a_connection_that_ends_is_made_again_and_counts_as_a_change(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("capabilities.running.mcp_client.exchanges.FIRST_BACKOFF", 0.05)
    argv = (sys.executable, str(SCRIPT), "changing")
    address = ServerAddress("stdio", request.node.nodeid, argv=argv)
    told = Told()
    watch = client.watch(address, told)
    assert wait_until(changed(address, told))
    times = told.times

    client.close()  # its process ends

    assert wait_until(lambda: told.times > times)
    assert watch.is_on
    watch.stop()


def test_listening_keeps_no_process_alive_and_begins_again_with_it(
    request: pytest.FixtureRequest, settings: Any
) -> None:
    address = ServerAddress("stdio", request.node.nodeid, argv=(sys.executable, str(SCRIPT), "changing"))
    told = Told()
    watch = client.watch(address, told)
    assert wait_until(changed(address, told))
    pid = pid_of(address)
    settings.TOOLHUB_MCP_IDLE_SECONDS = 0
    assert wait_until(lambda: let_go() and not Path(f"/proc/{pid}").exists())
    settings.TOOLHUB_MCP_IDLE_SECONDS = 300

    assert watch.is_on
    assert wait_until(changed(address, told))
    watch.stop()


def let_go() -> bool:
    async def work() -> None:
        await exchanges.pool().let_go_of_idle()

    background.run(work(), seconds=10)
    return True


def test_listening_takes_at_most_half_of_the_sessions(request: pytest.FixtureRequest, settings: Any) -> None:
    settings.TOOLHUB_MCP_SESSIONS = 2
    client.close()
    with ExitStack() as stack:
        urls = [stack.enter_context(http_server(changing())) for _ in range(2)]
        told = [Told(), Told()]
        addresses = [ServerAddress("http", request.node.nodeid, url=url) for url in urls]
        first = client.watch(addresses[0], told[0])
        assert wait_until(changed(addresses[0], told[0]))
        second = client.watch(addresses[1], told[1])
        for _ in range(3):
            change(addresses[1])
            time.sleep(0.1)

        assert told[1].times == 0
        assert second.is_on
        first.stop()
        assert wait_until(changed(addresses[1], told[1]))
        second.stop()
