"""Toolkits as files: what is exported, and what stays at home."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from django.core.management import call_command

from capabilities.agents.sharing.exports import toolkit_file
from capabilities.contract.toolkit_file import read_toolkit_file
from tests.cast import make_tool, make_toolkit
from toolhub.tenants.models import Organisation
from toolhub.tenants.rows.scope import organisation_scope


def test_a_toolkit_of_built_in_tools_is_a_file_that_is_read_again(acme: Organisation) -> None:
    toolkit = make_toolkit(acme, "two", make_tool(acme, "calculator"), make_tool(acme, "uuid"))
    with organisation_scope(acme):
        exported = toolkit_file(toolkit, reader=None)

    document = read_toolkit_file(exported.text)
    assert [each["name"] for each in document["tools"]] == ["calculator", "uuid"]
    assert document["sha256"] == exported.sha256


def test_the_command_writes_the_file(acme: Organisation, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_toolkit(acme, "two", make_tool(acme, "calculator"), make_tool(acme, "uuid"))
    path = tmp_path / "two.json"

    call_command("export_toolkit", "two", organisation="acme", output=str(path))

    assert "2 tools, SHA-256" in capsys.readouterr().out
    assert json.loads(path.read_text())["toolkit"]["name"] == "two"
