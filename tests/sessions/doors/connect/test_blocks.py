"""What is copied from the page: each block is read by the parser of its language, and names what it should."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import tomllib
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from pytest_django import Settings

from sessions.doors.connect.blocks import MAX_SERVER, NO_TOKEN, Connection
from sessions.doors.connect.clients import BY_KEY, CLIENTS, LLM, Client, Protocol
from sessions.doors.connect.queries import Target
from tests.paths import ROOT
from toolhub.tenants.access import TOKEN_PREFIX

ORIGIN = "https://tools.example.org:8443"
TOKEN = TOKEN_PREFIX + "aB3-_" * 8
AGENT = Target("day-to-day", "Day to day")
TOOLKIT = Target("toolkit/Dev_ops-2", "Dev_ops-2")


def parsed_by(*command: str) -> Callable[[str], None]:
    def parse(text: str) -> None:
        if shutil.which(command[0]) is None:
            pytest.skip(f"{command[0]} is not installed")
        result = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60)
        assert (result.returncode, result.stderr) == (0, "")

    return parse


#: How each language is parsed; raises for what cannot be.
PARSERS: dict[str, Callable[[str], Any]] = {
    "bash": parsed_by("bash", "-n"),
    "javascript": parsed_by("node", "--input-type=module", "--check", "-"),
    "json": json.loads,
    "python": ast.parse,
    "text": str,
    "toml": tomllib.loads,
    "yaml": yaml.safe_load,
}


def targets_of(client: Client) -> list[Target]:
    return [AGENT, TOOLKIT] if client.protocol is Protocol.MCP else [AGENT]


EVERY = [(client.key, target) for client in CLIENTS for target in targets_of(client)]


@pytest.mark.parametrize(("key", "target"), EVERY)
@pytest.mark.parametrize("token", ["", TOKEN])
def test_every_block_is_valid_in_its_language(key: str, target: Target, token: str) -> None:
    for block in Connection(BY_KEY[key], target, ORIGIN, token).blocks:
        PARSERS[block.language](block.text)
        assert not re.search(r"<[a-z0-9]+>", block.text), block.title


@pytest.mark.parametrize(("key", "target"), EVERY)
def test_the_blocks_of_a_client_name_the_address_the_target_and_the_token(key: str, target: Target) -> None:
    client = BY_KEY[key]
    connection = Connection(client, target, ORIGIN, TOKEN)
    whole = "\n".join(block.text for block in connection.blocks)
    address = f"{ORIGIN}/mcp/{target.address}" if client.protocol is Protocol.MCP else f"{ORIGIN}/v1"

    assert connection.address == address
    assert address in whole
    assert TOKEN in whole
    assert target.short_name in whole or key == "open-webui"  # it asks for the agents itself
    assert NO_TOKEN in "\n".join(block.text for block in Connection(client, target, ORIGIN).blocks)
    assert connection.pitfalls


def test_the_parsers_refuse_what_is_wrong() -> None:
    for language, wrong in {
        "bash": "echo 'a",
        "javascript": "const = 1",
        "toml": "a = ",
        "yaml": "a: [",
        "json": "{",
    }.items():
        with pytest.raises((AssertionError, ValueError, yaml.YAMLError)):
            PARSERS[language](wrong)


def values_of(key: str, target: Target) -> list[Any]:
    blocks = Connection(BY_KEY[key], target, ORIGIN, TOKEN).blocks
    return [PARSERS[block.language](block.text) for block in blocks if block.language in ("json", "toml", "yaml")]


def test_what_the_files_say_is_what_their_clients_read() -> None:
    mcp = f"{ORIGIN}/mcp/toolkit/Dev_ops-2"
    bearer = {"Authorization": f"Bearer {TOKEN}"}

    assert values_of("codex", TOOLKIT) == [
        {
            "mcp_servers": {
                "toolhub-Dev_ops-2": {"url": mcp, "bearer_token_env_var": "TOOLHUB_TOKEN", "tool_timeout_sec": 300}
            }
        }
    ]
    assert values_of("codex-model", AGENT) == [
        {
            "model": "day-to-day",
            "model_provider": "toolhub",
            "web_search": "disabled",
            "agents": {"enabled": False},
            "features": {"goals": False},
            "model_providers": {
                "toolhub": {
                    "name": "toolhub",
                    "base_url": f"{ORIGIN}/v1",
                    "env_key": "TOOLHUB_TOKEN",
                    "wire_api": "responses",
                }
            },
        }
    ]
    assert values_of("cursor", TOOLKIT) == [{"mcpServers": {"toolhub-Dev_ops-2": {"url": mcp, "headers": bearer}}}]
    (vs_code,) = values_of("vs-code", TOOLKIT)
    assert vs_code["servers"] == {
        "toolhub-Dev_ops-2": {
            "type": "http",
            "url": mcp,
            "headers": {"Authorization": "Bearer ${input:toolhub-token}"},
        }
    }
    assert [each["id"] for each in vs_code["inputs"]] == ["toolhub-token"]
    assert values_of("llm", AGENT) == [
        [
            {
                "model_id": "toolhub-day-to-day",
                "model_name": "day-to-day",
                "api_base": f"{ORIGIN}/v1",
                "api_key_name": "toolhub",
            }
        ]
    ]


def test_the_name_of_a_server_leaves_room_for_names_of_tools() -> None:
    connection = Connection(BY_KEY["claude-code"], Target("toolkit/" + "long-" * 12, ""), ORIGIN)

    assert len(connection.server) <= MAX_SERVER
    assert len(f"mcp__{connection.server}__" + "t" * 64) <= 128
    assert re.fullmatch(r"[A-Za-z0-9_-]*[A-Za-z0-9]", connection.server)


def test_an_agent_called_like_a_model_of_openai_is_pointed_out() -> None:
    named = Connection(LLM, Target("gpt-helper", "Helper"), ORIGIN).pitfalls

    assert len(named) == len(LLM.pitfalls) + 1
    assert "gpt-" in named[-1]


def test_clients_of_mcp_are_told_how_many_tools_are_listed(settings: Settings) -> None:
    settings.TOOLHUB_MCP_TOOLS = 17

    assert "more than 17 tools" in Connection(BY_KEY["codex"], AGENT, ORIGIN).pitfalls[-1]
    assert "search_tools" not in "".join(Connection(BY_KEY["codex-model"], AGENT, ORIGIN).pitfalls)


def test_each_client_has_its_own_key_and_the_ones_that_were_asked_for_are_there() -> None:
    wanted = {"openai", "langchain", "pydantic-ai", "vercel", "llm", "open-webui", "curl"}
    wanted |= {"claude-code", "codex", "codex-model", "vs-code", "cursor"}

    assert set(BY_KEY) == wanted
    assert len(BY_KEY) == len(CLIENTS)
    assert {block.language for client in CLIENTS for block in client.blocks} <= set(PARSERS)


def test_the_script_that_copies_is_ours_and_nothing_is_inline() -> None:
    templates = ROOT / "templates"
    text = (templates / "sessions/doors/connect/connect.html").read_text() + (templates / "_copy.html").read_text()

    assert "onclick" not in text
    assert "<script" not in text
