"""Processes of MCP servers end with the worker that started them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from celery import signals

from capabilities.running.mcp_client.server_addresses import ServerAddress
from sessions.worker import process as worker
from tests.capabilities.running.mcp_client.scripted import wait_until
from tests.capabilities.running.mcp_client.test_client import SCRIPT, pid_of, text_of


def test_no_process_of_a_server_outlives_its_worker(request: pytest.FixtureRequest) -> None:
    address = ServerAddress("stdio", request.node.nodeid, argv=(sys.executable, str(SCRIPT)))
    text_of(address, "a")
    pid = pid_of(address)

    worker.close_servers()

    assert wait_until(lambda: not Path(f"/proc/{pid}").exists())
    assert worker.close_servers in [receiver() for _, receiver in signals.worker_shutdown.receivers]
