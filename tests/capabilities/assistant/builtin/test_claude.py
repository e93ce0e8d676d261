from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from capabilities.assistant.builtin import claude
from capabilities.contract.context import ToolContext, ToolError
from tests.capabilities.assistant.builtin.conftest import Call


@pytest.fixture
def workspace(context: ToolContext) -> Path:
    (context.workspace / "docs" / "api").mkdir(parents=True)
    (context.workspace / "file").write_text("x")
    return context.workspace


def settings_of(workspace: Path) -> Any:
    return json.loads((workspace / ".claude" / "settings.json").read_text())


def write_settings(workspace: Path, text: str) -> Path:
    (workspace / ".claude").mkdir()
    path = workspace / ".claude" / "settings.json"
    path.write_text(text)
    return path


def test_a_folder_is_allowed_in_new_settings(call: Call, workspace: Path) -> None:
    answer = call("claude_allow_dir", path="docs/api/")

    assert answer == {"settings": ".claude/settings.json", "additionalDirectories": ["docs/api"]}
    assert settings_of(workspace) == {"permissions": {"additionalDirectories": ["docs/api"]}}


def test_everything_else_in_the_settings_stays(call: Call, workspace: Path) -> None:
    before = {"model": "é", "permissions": {"allow": ["Read"], "additionalDirectories": ["../other"]}, "z": [1, None]}
    write_settings(workspace, json.dumps(before))

    call("claude_allow_dir", path="docs")

    before["permissions"]["additionalDirectories"].append("docs")  # type: ignore[index]
    assert settings_of(workspace) == before
    assert list(settings_of(workspace)) == ["model", "permissions", "z"]


@pytest.mark.parametrize("named", ["docs", "./docs", "docs/"])
def test_a_folder_that_is_allowed_is_not_named_twice(call: Call, workspace: Path, named: str) -> None:
    write_settings(workspace, json.dumps({"permissions": {"additionalDirectories": [named]}}))

    assert call("claude_allow_dir", path="docs")["additionalDirectories"] == [named]


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("none", "There is no none in the workspace"),
        ("file", "file is no folder"),
        (".", "The workspace itself is allowed anyway"),
        ("../x", "A path never leads out"),
        ("/etc", "Paths are relative to the workspace"),
        ("link", "link is no folder"),
        ("link/x", "link/x leads through a link"),
    ],
)
def test_only_folders_of_the_workspace_are_allowed(call: Call, workspace: Path, path: str, sentence: str) -> None:
    (workspace / "link").symlink_to("/etc")

    with pytest.raises(ToolError, match=sentence):
        call("claude_allow_dir", path=path)
    assert not (workspace / ".claude").exists()


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"permissions": []}', '{"permissions": {"additionalDirectories": [1]}}', "[" * 100_000]
)
def test_settings_that_cannot_be_read_are_left_alone(call: Call, workspace: Path, text: str) -> None:
    path = write_settings(workspace, text)

    with pytest.raises(ToolError, match="mend it first"):
        call("claude_allow_dir", path="docs")
    assert path.read_text() == text


def test_settings_behind_a_link_are_left_alone(call: Call, workspace: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.json"
    outside.write_text("{}")
    (workspace / ".claude").mkdir()
    (workspace / ".claude" / "settings.json").symlink_to(outside)

    with pytest.raises(ToolError, match="is a link"):
        call("claude_allow_dir", path="docs")
    assert outside.read_text() == "{}"


def test_folders_are_limited(call: Call, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claude, "FOLDERS", 1)
    call("claude_allow_dir", path="docs")

    with pytest.raises(ToolError, match="names 1 folders already"):
        call("claude_allow_dir", path="docs/api")
