"""The operator's file of processes: its form, and who may use an entry."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from capabilities.running.mcp_client.server_addresses import EntriesRefused, ServerAddress, read_entries
from tests.paths import ROOT


def test_an_entry_is_what_the_file_says_and_open_to_whom_it_names() -> None:
    entry = {"command": "/opt/time", "args": ["--zone", "UTC"], "env": {"A": "b"}, "cwd": "/srv"}
    everybody = {"command": "npx", "organisations": ["*"]}
    servers = {"time": entry | {"organisations": ["acme"]}, "all": everybody, "nobody": entry}
    found = read_entries(json.dumps({"mcpServers": servers}))

    time = found["time"]
    assert (time.argv, dict(time.env), time.folder) == (("/opt/time", "--zone", "UTC"), {"A": "b"}, "/srv")
    assert [time.is_open_to("acme"), time.is_open_to("globex")] == [True, False]
    assert [found["all"].is_open_to("globex"), found["nobody"].is_open_to("acme")] == [True, False]
    assert "b" not in repr(time)


@pytest.mark.parametrize(
    ("servers", "sentence"),
    [
        ("{", "it is not valid JSON"),
        ("[]", "it must be"),
        ({"a": []}, "a must be an object"),
        ({"a b": {"command": "x"}}, "'a b' is no name"),
        ({"a": {}}, "a must have a command"),
        ({"a": {"command": "x\0"}}, "a must have a command"),
        ({"a": {"command": "x", "args": "y"}}, "the args of a"),
        ({"a": {"command": "x", "env": {"A": 1}}}, "the env of a"),
        ({"a": {"command": "x", "cwd": "relative"}}, "the cwd of a"),
        ({"a": {"command": "x", "organisations": "*"}}, "the organisations of a"),
        ({"a": {"command": "x", "url": "http://x"}}, "a has 'url'"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_in_a_sentence(servers: Any, sentence: str) -> None:
    text = servers if isinstance(servers, str) else json.dumps({"mcpServers": servers})

    with pytest.raises(EntriesRefused, match=sentence):
        read_entries(text)


@pytest.mark.parametrize(
    ("content", "sentence"), [(None, "which cannot be read"), ("{}", "which cannot be used: it must be")]
)
def test_the_service_does_not_start_with_such_a_file(content: str | None, sentence: str, tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    if content is not None:
        file.write_text(content)
    environment = os.environ | {"TOOLHUB_MCP_STDIO": str(file), "TOOLHUB_DATA_DIR": str(tmp_path)}
    command = [sys.executable, "-c", "import toolhub.settings"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 1
    assert f"TOOLHUB_MCP_STDIO names {file}, {sentence}" in done.stderr


def test_two_processes_are_one_place_where_all_is_the_same() -> None:
    one = ServerAddress("stdio", "1", argv=("a", "b"), env={"X": "1", "Y": "2"})
    same = ServerAddress("stdio", "2", argv=("a", "b"), env={"Y": "2", "X": "1"})
    other = ServerAddress("stdio", "1", argv=("a", "b"), env={"X": "1", "Y": "3"})

    assert one.place == same.place != other.place
    assert one.key != same.key
