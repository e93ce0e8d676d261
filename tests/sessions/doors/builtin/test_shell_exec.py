"""The tool shell_exec: off by default in the installation and in each organisation, and what it lets through."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from capabilities.contract.context import ToolContext, ToolError
from capabilities.contract.envelope import Envelope
from capabilities.running.registry import registry
from capabilities.running.sandbox.bubblewrap import shell
from tests.capabilities.assistant.builtin.conftest import NOW
from tests.isolation import need_isolation

OWN = Envelope("never", 20.0, 40_000)


def context(workspace: Path, **knobs: Any) -> ToolContext:
    return ToolContext(
        organisation_id=1,
        membership_id=1,
        agent="assistant",
        workspace=workspace,
        now=lambda: NOW,
        timeout=20.0,
        envelope=replace(OWN, **knobs),
    )


def refused(context: ToolContext, command: str) -> str:
    with pytest.raises(ToolError) as told:
        registry.tools["shell_exec"].call(context, {"command": command})
    return str(told.value)


def test_cx_23_commands_are_denied_until_an_organisation_allows_them(tmp_path: Path) -> None:
    assert "Commands are not allowed here" in refused(context(tmp_path), "ls")


def test_cx_23_a_program_that_is_not_listed_does_not_run(tmp_path: Path) -> None:
    listed = context(tmp_path, security="allow-list", safe_bins=("ls",))

    assert "rm is not on the list" in refused(listed, "rm -r .")


def test_cx_23_without_the_operator_s_word_nothing_runs(tmp_path: Path, settings: Any) -> None:
    settings.TOOLHUB_SHELL = False

    assert "TOOLHUB_SHELL=1" in refused(context(tmp_path, security="full"), "ls")
    assert not registry.services["sandbox"].is_available


@pytest.mark.processes
def test_cx_23_a_listed_command_runs_in_the_workspace(tmp_path: Path, settings: Any) -> None:
    settings.TOOLHUB_SHELL = True
    need_isolation(shell.why_unavailable())
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    listed = context(tmp_path, security="allow-list", safe_bins=("grep", "sort"))

    assert registry.tools["shell_exec"].call(listed, {"command": "grep -h o a.txt | sort -r"}) == {
        "status": 0,
        "output": "two\none\n",
    }
    assert registry.tools["shell_exec"].call(
        replace(listed, envelope=replace(OWN, security="full")), {"command": "sleep 30", "timeout_seconds": 1}
    ) == {"ended": "It was ended after 1 s.", "output": ""}
