"""Tools kept in step with a folder of Python files."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from capabilities.agents.sharing.sync import Folder, Synced, sync_folder
from capabilities.agents.sharing.tool_files import FileBroken, read_tool_file
from capabilities.catalogue.tools.writes import Definition, create_tool
from capabilities.models import SyncedFile, Tool, ToolTestCase, ToolVersion, VersionStatus
from tests.cast import make_category
from toolhub.tenants.models import Access, AuditEntry, Membership, Organisation

ADD = '''"""Adds two numbers."""

HUMAN_FORMAT = "Adding {a} and {b}"
EFFECT = "read"
TESTS = [{"name": "small", "arguments": {"a": 1, "b": 2}, "expected": {"sum": 3}}]


def run(a: float, b: float = 0) -> dict:
    return {"sum": a + b}
'''


@pytest.fixture
def folder(tmp_path: Path, in_acme: Organisation) -> Folder:
    make_category(in_acme, "dynamic")
    path = tmp_path / "tools"
    path.mkdir()
    return Folder(path, in_acme)


def approved(folder: Folder, alice: Membership) -> Folder:
    return Folder(folder.path, folder.organisation, folder.category, alice)


def outcomes(found: list[Synced]) -> dict[str, str]:
    return {each.path: each.outcome for each in found}


def test_tx_03_tx_08_a_file_becomes_a_tool_that_waits_for_approval(folder: Folder) -> None:
    (folder.path / "add.py").write_text(ADD)

    assert sync_folder(folder) == [Synced("add.py", "new")]

    tool = Tool.objects.get(name="add")
    version = tool.versions.get()
    assert (tool.kind, tool.category.name, tool.current_version, tool.source) == (
        "python",
        "dynamic",
        None,
        "File add.py",
    )
    assert (version.status, version.description, version.effect) == ("pending", "Adds two numbers.", "read")
    assert version.human_format == "Adding {a} and {b}"
    assert version.implementation == {"runtime": "monty", "code": ADD, "helpers": {}}
    assert version.parameters == {
        "type": "object",
        "properties": {"a": {"type": "number"}, "b": {"type": "number", "default": 0}},
        "required": ["a"],
        "additionalProperties": False,
    }
    case = ToolTestCase.objects.get(tool=tool)
    assert (case.name, case.arguments, case.expected, case.expects_error) == (
        "small",
        {"a": 1, "b": 2},
        {"sum": 3},
        False,
    )


def test_tx_40_who_answers_for_the_folder_approves_on_record(folder: Folder, alice: Membership) -> None:
    (folder.path / "add.py").write_text(ADD)

    sync_folder(approved(folder, alice))

    version = ToolVersion.objects.get()
    assert (version.status, version.decided_by, version.status_reason) == (
        VersionStatus.APPROVED,
        alice,
        "From the file add.py.",
    )
    assert Tool.objects.get().current_version == version
    assert AuditEntry.objects.filter(action="tool.version_approve", actor=alice).exists()


def test_tx_13_unchanged_content_makes_no_version(folder: Folder, alice: Membership) -> None:
    (folder.path / "add.py").write_text(ADD)
    sync_folder(approved(folder, alice))
    os.utime(folder.path / "add.py", (1, 1))

    assert outcomes(sync_folder(approved(folder, alice))) == {"add.py": "unchanged"}
    assert ToolVersion.objects.count() == 1


def test_tx_12_tx_15_a_changed_file_is_the_next_version(folder: Folder, alice: Membership) -> None:
    (folder.path / "add.py").write_text(ADD)
    sync_folder(approved(folder, alice))
    (folder.path / "add.py").write_text(ADD.replace("a + b", "b + a"))

    assert outcomes(sync_folder(approved(folder, alice))) == {"add.py": "changed"}

    assert list(ToolVersion.objects.order_by("number").values_list("number", "status")) == [
        (1, VersionStatus.RETIRED),
        (2, VersionStatus.APPROVED),
    ]
    assert "b + a" in Tool.objects.get().current_version.implementation["code"]  # type: ignore[union-attr]


def test_a_newer_content_takes_the_place_of_one_that_waits(folder: Folder) -> None:
    (folder.path / "add.py").write_text(ADD)
    sync_folder(folder)
    (folder.path / "add.py").write_text(ADD + "\n# more\n")
    sync_folder(folder)

    assert list(ToolVersion.objects.order_by("number").values_list("number", "status")) == [
        (1, VersionStatus.REJECTED),
        (2, VersionStatus.PENDING),
    ]


def test_tx_17_a_file_that_is_gone_keeps_its_tool_back_until_it_comes_again(folder: Folder, alice: Membership) -> None:
    own = approved(folder, alice)
    (folder.path / "add.py").write_text(ADD)
    sync_folder(own)
    (folder.path / "add.py").unlink()

    assert outcomes(sync_folder(own)) == {"add.py": "gone"}
    assert Tool.objects.get().quarantine == f"Its file add.py is gone from the folder {folder.path}."
    assert sync_folder(own) == []

    (folder.path / "add.py").write_text(ADD)
    assert outcomes(sync_folder(own)) == {"add.py": "changed"}
    assert Tool.objects.get().quarantine == ""
    assert ToolVersion.objects.count() == 1


def test_a_tool_that_is_kept_back_for_another_reason_stays_so(folder: Folder, alice: Membership) -> None:
    own = approved(folder, alice)
    (folder.path / "add.py").write_text(ADD)
    sync_folder(own)
    Tool.objects.update(quarantine="Somebody looks at it.")
    (folder.path / "add.py").write_text(ADD + "\n# more\n")
    sync_folder(Folder(folder.path, folder.organisation))

    assert Tool.objects.get().quarantine == "Somebody looks at it."


RUN = "\n\ndef run() -> int:\n    return 1\n"
BROKEN = {
    "no_syntax.py": ("def run(:\n", "Line 1: This is not valid Python: invalid syntax."),
    "no_run.py": ('"""Words."""\nx = 1\n', "Line 1: The file needs a function named run: def run(...)."),
    "no_words.py": ("def run() -> int:\n    return 1\n", "Say what the tool does in a docstring"),
    "no_type.py": ('"""Words."""\n\ndef run(a):\n    return a\n', "Line 3: Give a a type, such as a: str"),
    "computed.py": (
        '"""Words."""\nCATEGORY = "a" + x' + RUN,
        "Line 2: CATEGORY must be",
    ),
    "no_category.py": (
        '"""Words."""\nCATEGORY = "nowhere"' + RUN,
        "no category nowhere",
    ),
    "odd_effect.py": ('"""Words."""\nEFFECT = "magic"' + RUN, "EFFECT must be one of"),
    "odd_test.py": (
        '"""Words."""\nTESTS = [{"name": "x"}]' + RUN,
        "Test 1 of TESTS needs",
    ),
    "odd name.py": (ADD, "The file's name is the tool's: odd name is none"),
}


def test_tx_18_tx_21_a_broken_file_never_stops_the_others_and_its_error_is_kept(folder: Folder) -> None:
    for name, (text, _) in BROKEN.items():
        (folder.path / name).write_text(text)
    (folder.path / "binary.py").write_bytes(b"\xff\xfe\x00")
    (folder.path / "deep.py").write_text('"""W."""\nx = ' + "[" * 150_000)
    (folder.path / "add.py").write_text(ADD)

    found = {each.path: each for each in sync_folder(folder)}

    assert found["add.py"].outcome == "new"
    assert {path for path, each in found.items() if each.outcome == "broken"} == {*BROKEN, "binary.py", "deep.py"}
    for name, (_, sentence) in BROKEN.items():
        assert sentence in found[name].message, name
        assert SyncedFile.objects.get(path=name).error == found[name].message
    assert found["binary.py"].message == "The file is no UTF-8 text."


def test_tx_23_a_file_that_breaks_leaves_its_tool_as_it_was(folder: Folder, alice: Membership) -> None:
    own = approved(folder, alice)
    (folder.path / "add.py").write_text(ADD)
    sync_folder(own)
    (folder.path / "add.py").write_text(ADD + "\ndef :")

    assert outcomes(sync_folder(own)) == {"add.py": "broken"}
    assert outcomes(sync_folder(own)) == {"add.py": "broken"}

    tool = Tool.objects.get()
    assert (tool.quarantine, tool.current_version.implementation["code"]) == ("", ADD)  # type: ignore[union-attr]


def test_tx_33_a_name_that_another_tool_has_is_refused(folder: Folder) -> None:
    create_tool(make_category(folder.organisation, "web"), Definition("add", "Other.", {"type": "object"}), actor=None)
    (folder.path / "add.py").write_text(ADD)

    (found,) = sync_folder(folder)

    assert "a tool named add already" in found.message
    assert Tool.objects.get(name="add").versions.count() == 1


def test_two_folders_do_not_take_each_other_s_tools(folder: Folder, tmp_path: Path) -> None:
    (folder.path / "add.py").write_text(ADD)
    sync_folder(folder)
    other = tmp_path / "other"
    other.mkdir()
    (other / "add.py").write_text(ADD)

    assert outcomes(sync_folder(Folder(other, folder.organisation))) == {"add.py": "broken"}
    assert outcomes(sync_folder(folder)) == {"add.py": "unchanged"}


def test_a_failing_file_of_ours_does_not_stop_the_folder(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.py", "b.py"):
        (folder.path / name).write_text(ADD)

    def failing(path: str, text: str, organisation_id: int) -> Any:
        if path == "a.py":
            raise RuntimeError("boom")
        return read_tool_file(path, text, organisation_id)

    monkeypatch.setattr("capabilities.agents.sharing.sync.read_tool_file", failing)

    assert outcomes(sync_folder(folder)) == {"a.py": "broken", "b.py": "new"}
    assert "boom" not in SyncedFile.objects.get(path="a.py").error


def test_a_link_that_leads_out_of_the_folder_is_not_read(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "theirs.py").write_text(ADD)
    (folder.path / "linked.py").symlink_to(tmp_path / "theirs.py")
    (folder.path / "add.py").write_text(ADD)
    (folder.path / "again.py").symlink_to("add.py")

    assert outcomes(sync_folder(folder)) == {"add.py": "new", "again.py": "new", "linked.py": "broken"}
    row = SyncedFile.objects.get(path="linked.py")
    assert ("a link" in row.error, row.sha256, row.tool) == (True, "", None)


def test_s50_what_nobody_sees_is_taken_out_of_text_for_models(folder: Folder) -> None:
    hidden = "\U000e0041\u200b\u202e"
    words = f'HUMAN_FORMAT = "Adds{hidden}"\nINSTRUCTIONS = "Use it{hidden}."\n'
    parameters = f'PARAMETERS = {{"type": "object", "properties": {{"a": {{"description": "One{hidden}."}}}}}}\n'
    (folder.path / "add.py").write_text(f'"""Adds{hidden}."""\n{words}{parameters}\ndef run(a=1):\n    return a\n')

    assert outcomes(sync_folder(folder)) == {"add.py": "new"}
    version = ToolVersion.objects.get()
    assert (version.description, version.instructions, version.human_format) == ("Adds.", "Use it.", "Adds")
    assert version.parameters["properties"]["a"]["description"] == "One."


def test_who_lost_the_right_approves_nothing_more(folder: Folder, alice: Membership) -> None:
    own = approved(folder, alice)
    Membership.objects.filter(pk=alice.pk).update(access=Access.MEMBER)
    (folder.path / "add.py").write_text(ADD)

    (found,) = sync_folder(own)

    assert found.outcome == "broken"
    assert not Tool.objects.filter(name="add").exists()


def test_tx_30_other_files_hidden_ones_and_those_that_begin_with_an_underscore_are_no_tools(folder: Folder) -> None:
    (folder.path / "more").mkdir()
    (folder.path / ".git").mkdir()
    for name in ("_shared.py", ".git/x.py", "notes.txt", "more/add.py"):
        (folder.path / name).write_text(ADD)

    assert outcomes(sync_folder(folder)) == {"more/add.py": "new"}


@pytest.mark.parametrize(
    ("annotation", "node"),
    [
        ("str", {"type": "string"}),
        ("list[int]", {"type": "array", "items": {"type": "integer"}}),
        ("dict[str, float]", {"type": "object", "additionalProperties": {"type": "number"}}),
        ("str | None", {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        ("Optional[bool]", {"anyOf": [{"type": "boolean"}, {"type": "null"}]}),
        ('Literal["a", "b"]', {"enum": ["a", "b"]}),
        ("Any", {}),
    ],
)
def test_types_become_a_schema(annotation: str, node: dict[str, Any]) -> None:
    read = read_tool_file("x.py", f'"""W."""\ndef run(a: {annotation}) -> int:\n    return 1\n', 1)

    assert read.definition.parameters["properties"]["a"] == node


@pytest.mark.parametrize("arguments", ["*args", "**more", "a, /", "a: Decimal", "a: tuple[int, int]", "a: int = x"])
def test_arguments_that_say_no_schema_are_refused(arguments: str) -> None:
    with pytest.raises(FileBroken):
        read_tool_file("x.py", f'"""W."""\ndef run({arguments}) -> int:\n    return 1\n', 1)


def test_a_schema_of_its_own_is_taken_in_place_of_the_types() -> None:
    text = '"""W."""\nPARAMETERS = {"type": "object", "properties": {"a": {"minimum": 1}}}\ndef run(a):\n    return a\n'

    assert read_tool_file("x.py", text, 1).definition.parameters["properties"] == {"a": {"minimum": 1}}


# -- The command ------------------------------------------------------------------------------------------------------


def test_the_command_says_what_became_of_each_file(
    folder: Folder, alice: Membership, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder.path / "add.py").write_text(ADD)
    arguments = [str(folder.path), "--organisation", "acme", "--approved-by", "alice@example.com"]

    call_command("sync_tools", *arguments)
    assert capsys.readouterr().out == "+ add.py\n1 file, 0 broken.\n"

    (folder.path / "bad.py").write_text("def")
    with pytest.raises(CommandError, match="1 of the files"):
        call_command("sync_tools", *arguments)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--organisation", "nowhere"], "There is no organisation nowhere."),
        (["--organisation", "acme", "--category", "nowhere"], "There is no category nowhere."),
        (["--organisation", "acme", "--approved-by", "nobody@example.com"], "is no member"),
        (["--organisation", "acme", "--approved-by", "bob@example.com"], "does not have the right approve_code"),
        (["--organisation", "acme", "--approved-by", "charlie@example.com"], "is no member"),
    ],
)
def test_the_command_refuses_what_cannot_be(
    folder: Folder, alice: Membership, bob: Membership, charlie: Membership, arguments: list[str], sentence: str
) -> None:
    with pytest.raises(CommandError, match=sentence):
        call_command("sync_tools", str(folder.path), *arguments)
    with pytest.raises(CommandError, match="is no folder"):
        call_command("sync_tools", str(folder.path / "nowhere"), "--organisation", "acme")


# -- The page ---------------------------------------------------------------------------------------------------------


def test_tx_21_the_page_shows_what_is_wrong(client: Client, folder: Folder, alice: Membership) -> None:
    client.force_login(alice.user)
    assert "sync_tools FOLDER" in client.get("/o/acme/tool-files/").content.decode()
    (folder.path / "add.py").write_text(ADD)
    (folder.path / "bad.py").write_text("def")
    sync_folder(folder)

    page = client.get("/o/acme/tool-files/").content.decode()
    broken = client.get("/o/acme/tool-files/?state=broken").content.decode()

    assert "Line 1: This is not valid Python" in page
    assert "Waiting for approval" in page
    assert ("bad.py" in broken, "add.py" in broken) == (True, False)


def test_the_right_is_needed_for_the_page(client: Client, folder: Folder, bob: Membership) -> None:
    client.force_login(bob.user)

    assert client.get("/o/acme/tool-files/").status_code == 403


@pytest.mark.processes
def test_tx_02_tx_14_tx_22_tx_25_tx_32_a_watched_folder_is_read_once_an_editor_is_done(tmp_path: Path) -> None:
    """The debounce of 300 ms: pieces written 100 ms apart are read once, as a whole."""
    data, tools = tmp_path / "data", tmp_path / "tools"
    tools.mkdir()
    env = {**os.environ, "TOOLHUB_DATA_DIR": str(data), "PYTHONUNBUFFERED": "1"}
    env["DJANGO_SETTINGS_MODULE"] = "toolhub.settings"
    env.pop("DATABASE_URL", None)
    manage = [sys.executable, "manage.py"]
    subprocess.run([*manage, "migrate", "-v", "0"], env=env, check=True, timeout=300)
    subprocess.run([*manage, "bootstrap"], env=env, check=True, timeout=300, capture_output=True)
    command = [*manage, "sync_tools", str(tools), "--organisation", "acme", "--watch"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert [process.stdout.readline() for _ in range(2)] == [
                "0 files, 0 broken.\n",
                f"Watching {tools}. Ctrl+C ends it.\n",
            ]
            time.sleep(1)  # the watch begins behind that line
            half = len(ADD) // 2
            (tools / "add.py").write_text(ADD[:half])
            time.sleep(0.1)
            (tools / "add.py").write_text(ADD)
            assert [process.stdout.readline() for _ in range(2)] == ["+ add.py\n", "1 file, 0 broken.\n"]
            (tools / "add.py").unlink()
            assert [process.stdout.readline() for _ in range(2)] == ["- add.py\n", "1 file, 0 broken.\n"]
        finally:
            process.terminate()
            assert process.wait(timeout=60) == 0
