from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from capabilities.assistant.builtin import git as git_tools
from capabilities.assistant.builtin._lib import repository as _repository
from capabilities.contract.context import ToolContext, ToolError
from tests.capabilities.assistant.builtin.conftest import Call

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")

ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.com",
    "GIT_AUTHOR_DATE": "2026-11-18T09:30:00Z",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.com",
    "GIT_COMMITTER_DATE": "2026-11-18T09:30:00Z",
}
#: Every tool, in the ways that make git look at contents.
EVERY_WAY: list[tuple[str, dict[str, Any]]] = [
    ("git_status", {}),
    ("git_log", {}),
    ("git_log", {"path": "a.txt", "search": "first"}),
    ("git_diff", {}),
    ("git_diff", {"staged": True}),
    ("git_diff", {"base": "HEAD"}),
    ("git_diff", {"base": "HEAD~1", "target": "HEAD"}),
]


def git(folder: Path, *arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.run(command, cwd=folder, env=ENVIRONMENT, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repo(context: ToolContext) -> Path:
    """Two commits, and a change that is not staged."""
    root = context.workspace / "project"
    root.mkdir(parents=True)
    git(root, "init", "-q", "-b", "main")
    for subject, text in (("first", "one\n"), ('second; € \\ "x"', "one\ntwo\n")):
        (root / "a.txt").write_text(text)
        git(root, "add", "a.txt")
        git(root, "commit", "-q", "-m", subject)
    (root / "a.txt").write_text("one\nzwei\n")
    return root


@pytest.fixture
def trap(tmp_path: Path) -> tuple[Path, str]:
    """A file that is there once a command was run, and the command."""
    sprung = tmp_path / "sprung"
    script = tmp_path / "trap.sh"
    script.write_text(f"#!/bin/sh\ntouch {sprung}\ncat\n")
    script.chmod(0o755)
    return sprung, str(script)


def ask_every_way(call: Call, repository: str = "project") -> None:
    for name, arguments in EVERY_WAY:
        try:
            call(name, repository=repository, **arguments)
        except ToolError:
            continue


def test_the_status_tells_branch_commit_and_files(call: Call, repo: Path) -> None:
    (repo / "neu ü.txt").write_text("x")
    (repo / "b.txt").write_text("x")
    git(repo, "add", "b.txt")

    answer = call("git_status", repository="project")

    assert answer.pop("last_commit")["subject"] == 'second; € \\ "x"'
    assert answer == {
        "branch": "main",
        "files": [
            {"path": "a.txt", "unstaged": "modified"},
            {"path": "b.txt", "staged": "added"},
            {"path": "neu ü.txt", "untracked": True},
        ],
    }


def test_a_clean_repository_is_clean(call: Call, repo: Path) -> None:
    git(repo, "checkout", "-q", "--", "a.txt")

    assert call("git_status", repository="project")["clean"] is True


def test_a_repository_without_commits_has_a_status(call: Call, context: ToolContext) -> None:
    context.workspace.mkdir()
    git(context.workspace, "init", "-q", "-b", "main")

    assert call("git_status") == {"branch": "main", "clean": True}


def test_a_long_status_is_cut_and_says_how_much_is_left(
    call: Call, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git_tools, "FILES", 1)
    (repo / "b").write_text("x")

    assert call("git_status", repository="project")["more"] == 1


def test_the_log_lists_commits_the_latest_first(call: Call, repo: Path) -> None:
    commits = call("git_log", repository="project")["commits"]

    assert [(each["author"], each["at"], each["subject"]) for each in commits] == [
        ("Ada", "2026-11-18T09:30:00+00:00", 'second; € \\ "x"'),
        ("Ada", "2026-11-18T09:30:00+00:00", "first"),
    ]
    assert commits[0]["commit"] == git(repo, "rev-parse", "--short", "HEAD").strip()


@pytest.mark.parametrize(
    ("arguments", "subjects"),
    [
        ({"limit": 1}, ['second; € \\ "x"']),
        ({"revision": "HEAD~1"}, ["first"]),
        ({"revision": "v1"}, ["first"]),
        ({"search": "FIRST"}, ["first"]),
        ({"path": "a.txt", "limit": 1}, ['second; € \\ "x"']),
        ({"path": "none"}, []),
    ],
)
def test_the_log_is_narrowed(call: Call, repo: Path, arguments: dict[str, Any], subjects: list[str]) -> None:
    git(repo, "tag", "v1", "HEAD~1")

    commits = call("git_log", repository="project", **arguments)["commits"]

    assert [each["subject"] for each in commits] == subjects


def test_branches_are_known_loose_and_packed(call: Call, repo: Path) -> None:
    git(repo, "branch", "old/one", "HEAD~1")
    git(repo, "pack-refs", "--all")
    git(repo, "branch", "new")
    git(repo, "gc", "-q")

    for branch, count in (("old/one", 1), ("new", 2), ("main", 2)):
        assert len(call("git_log", repository="project", revision=branch)["commits"]) == count


@pytest.mark.parametrize(
    ("arguments", "removed", "added"),
    [
        ({}, "-two", "+zwei"),
        ({"base": "HEAD~1"}, None, "+zwei"),
        ({"base": "HEAD~1", "target": "HEAD"}, None, "+two"),
        ({"base": "HEAD", "target": "HEAD~1"}, "-two", None),
        ({"path": "a.txt"}, "-two", "+zwei"),
    ],
)
def test_a_diff_shows_what_changed(
    call: Call, repo: Path, arguments: dict[str, Any], removed: str | None, added: str | None
) -> None:
    lines = call("git_diff", repository="project", **arguments)["diff"].splitlines()[4:]

    assert [line for line in lines if line.startswith("-")] == ([removed] if removed else [])
    assert [line for line in lines if line.startswith("+")] == ([added] if added else [])


def test_what_is_staged_is_shown_apart(call: Call, repo: Path) -> None:
    assert call("git_diff", repository="project", staged=True) == {"diff": "No differences."}

    git(repo, "add", "a.txt")

    assert "+zwei" in call("git_diff", repository="project", staged=True)["diff"]
    assert call("git_diff", repository="project") == {"diff": "No differences."}


def test_a_long_diff_is_cut_and_says_so(call: Call, repo: Path) -> None:
    (repo / "a.txt").write_text("x" * 79 + "\n" + "€ line\n" * 90_000)

    answer = call("git_diff", repository="project")

    assert len(answer["diff"]) == 100_000
    assert "first 100000 characters" in answer["note"]


def test_the_repository_is_left_as_it_was(call: Call, repo: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in repo.rglob("*")}

    ask_every_way(call)

    assert {path: path.stat().st_mtime_ns for path in repo.rglob("*")} == before


HOSTILE = {
    "fsmonitor": '[core]\n\tfsmonitor = "{trap}"\n',
    "hooks": '[core]\n\thooksPath = "{folder}"\n',
    "external diff": '[diff]\n\texternal = "{trap}"\n',
    "diff driver": '[diff "evil"]\n\tcommand = "{trap}"\n',
    "textconv": '[diff "evil"]\n\ttextconv = "{trap}"\n\tcachetextconv = true\n',
    "clean filter": '[filter "evil"]\n\tclean = "{trap}"\n\tsmudge = "{trap}"\n\trequired = true\n',
    "process filter": '[filter "evil"]\n\tprocess = "{trap}"\n',
    "ssh": '[core]\n\tsshCommand = "{trap}"\n[remote "origin"]\n\turl = ssh://x/y\n\tpromisor = true\n',
    "alias": '[alias]\n\tstatus = "!{trap}"\n\tlog = "!{trap}"\n\tdiff = "!{trap}"\n',
    "pager": '[core]\n\tpager = "{trap}"\n[pager]\n\tlog = "{trap}"\n\tdiff = true\n',
    "signing": '[gpg]\n\tprogram = "{trap}"\n[log]\n\tshowSignature = true\n',
    "editor": '[core]\n\teditor = "{trap}"\n\taskPass = "{trap}"\n[credential]\n\thelper = "!{trap}"\n',
    "include": '[include]\n\tpath = "{include}"\n',
    "include if": '[includeIf "gitdir:**"]\n\tpath = "{include}"\n',
    "submodule": "[submodule]\n\trecurse = true\n[status]\n\tsubmoduleSummary = true\n[diff]\n\tsubmodule = log\n",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_configuration_runs_nothing(
    call: Call, repo: Path, tmp_path: Path, trap: tuple[Path, str], kind: str
) -> None:
    sprung, script = trap
    include = tmp_path / "included"
    include.write_text(f'[core]\n\tfsmonitor = "{script}"\n[diff]\n\texternal = "{script}"\n')
    for hook in ("post-index-change", "fsmonitor-watchman", "pre-auto-gc", "reference-transaction"):
        for folder in (tmp_path, repo / ".git" / "hooks"):
            folder.mkdir(exist_ok=True)
            shutil.copy(script, folder / hook)
    with (repo / ".git" / "config").open("a") as config:
        config.write(HOSTILE[kind].format(trap=script, folder=tmp_path, include=include))
    (repo / ".gitattributes").write_text("* filter=evil diff=evil\n")
    (repo / ".git" / "info" / "attributes").write_text("* filter=evil diff=evil\n")

    ask_every_way(call)

    assert not sprung.exists()
    assert call("git_status", repository="project")["files"][0] == {"path": "a.txt", "unstaged": "modified"}


@pytest.mark.parametrize("kind", ["fsmonitor", "external diff", "clean filter", "textconv", "alias", "include"])
def test_the_trap_is_a_trap_for_plain_git(repo: Path, tmp_path: Path, trap: tuple[Path, str], kind: str) -> None:
    """Else the test above would show nothing. (git refuses an alias that hides a command of its own.)"""
    sprung, script = trap
    include = tmp_path / "included"
    include.write_text(f'[core]\n\tfsmonitor = "{script}"\n')
    with (repo / ".git" / "config").open("a") as config:
        config.write(HOSTILE[kind].format(trap=script, folder=tmp_path, include=include))
    (repo / ".gitattributes").write_text("* filter=evil diff=evil\n")

    for command in ("status", "diff"):
        subprocess.run(["git", command], cwd=repo, env=ENVIRONMENT, check=False, capture_output=True)

    assert sprung.exists() == (kind != "alias")


def test_a_submodule_with_a_hostile_configuration_runs_nothing(call: Call, repo: Path, trap: tuple[Path, str]) -> None:
    sprung, script = trap
    inner = repo / "inner"
    inner.mkdir()
    git(inner, "init", "-q")
    git(inner, "commit", "-q", "--allow-empty", "-m", "x")
    git(repo, "add", "inner")
    (repo / ".gitmodules").write_text('[submodule "inner"]\n\tpath = inner\n\turl = ./inner\n\tignore = none\n')
    with (inner / ".git" / "config").open("a") as config:
        config.write(f'[core]\n\tfsmonitor = "{script}"\n')
    (inner / "new").write_text("x")

    ask_every_way(call)

    assert not sprung.exists()


def test_this_processs_own_surroundings_are_not_handed_on(
    call: Call, repo: Path, trap: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sprung, script = trap
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", script)
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.fsmonitor")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", script)
    monkeypatch.setenv("GIT_DIR", "/nonexistent")

    assert "+zwei" in call("git_diff", repository="project")["diff"]

    assert not sprung.exists()


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """Another organisation's repository, with a secret in its history."""
    root = tmp_path / "foreign"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    git(root, "commit", "-q", "--allow-empty", "-m", "secret")
    return root


def test_a_git_file_or_link_that_leads_outside_is_refused(call: Call, context: ToolContext, foreign: Path) -> None:
    for name in ("file", "link"):
        (context.workspace / name).mkdir(parents=True)
    (context.workspace / "file" / ".git").write_text(f"gitdir: {foreign}/.git\n")
    (context.workspace / "link" / ".git").symlink_to(foreign / ".git")
    (context.workspace / "tree").symlink_to(foreign)

    for name, kind in (("file", "file"), ("link", "link")):
        with pytest.raises(ToolError, match=f"The .git of {name} is a {kind} that leads elsewhere"):
            call("git_log", repository=name)
    with pytest.raises(ToolError, match="There is no git repository in tree"):
        call("git_log", repository="tree")


@pytest.mark.parametrize("way", ["alternates", "objects", "fan-out", "pack", "worktree", "commondir", "ref", "HEAD"])
def test_no_way_leads_to_another_repositorys_objects(call: Call, repo: Path, foreign: Path, way: str) -> None:
    secret = git(foreign, "rev-parse", "HEAD").strip()
    inner, theirs = repo / ".git", foreign / ".git"
    if way == "alternates":
        (inner / "objects" / "info").mkdir(exist_ok=True)
        (inner / "objects" / "info" / "alternates").write_text(f"{theirs}/objects\n")
    elif way == "objects":
        shutil.rmtree(inner / "objects")
        (inner / "objects").symlink_to(theirs / "objects")
    elif way == "fan-out":
        for folder in (theirs / "objects").glob("??"):
            shutil.rmtree(inner / "objects" / folder.name, ignore_errors=True)
            (inner / "objects" / folder.name).symlink_to(folder)
    elif way == "pack":
        for loose in (theirs / "objects").glob("??/*"):
            (inner / "objects" / loose.parent.name).mkdir(exist_ok=True)
            (inner / "objects" / loose.parent.name / loose.name).symlink_to(loose)
    elif way == "worktree":
        (inner / "config").write_text(f"[core]\n\tworktree = {foreign}\n\trepositoryformatversion = 0\n")
    elif way == "commondir":
        (inner / "commondir").write_text(f"{theirs}\n")
    elif way == "ref":
        (inner / "refs" / "heads" / "stolen").symlink_to(theirs / "refs" / "heads" / "main")
    else:
        (inner / "HEAD").unlink()
        (inner / "HEAD").symlink_to(theirs / "HEAD")

    told = []
    for revision in ("HEAD", "stolen", secret):
        try:
            told.append(str(call("git_log", repository="project", revision=revision)))
        except ToolError as error:
            told.append(str(error))

    assert "'subject': 'secret'" not in " ".join(told)


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        ("git_status", {"repository": "none"}, "There is no git repository in none"),
        ("git_status", {"repository": "../x"}, "A path never leads out"),
        ("git_status", {"repository": "/etc"}, "Paths are relative to the workspace"),
        ("git_log", {"revision": "none"}, "git could not do that"),
        ("git_log", {"revision": "--output=x"}, "'--output=x' is no revision"),
        ("git_log", {"revision": "a..b"}, "is no revision"),
        ("git_log", {"path": "../x"}, "A path never leads out"),
        ("git_diff", {"base": "-O/etc/passwd"}, "is no revision"),
        ("git_diff", {"target": "HEAD"}, "name the older revision as base"),
        ("git_diff", {"base": "HEAD", "target": "HEAD", "staged": True}, "leave target out"),
    ],
)
def test_invalid_arguments_are_refused_with_a_message(
    call: Call, repo: Path, name: str, arguments: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ToolError, match=sentence):
        call(name, **({"repository": "project"} | arguments))


def test_a_damaged_repository_is_answered_with_a_sentence(call: Call, repo: Path) -> None:
    (repo / ".git" / "index").write_bytes(b"DIRC\0\0\0\2garbage")
    with pytest.raises(ToolError, match="git could not do that"):
        call("git_status", repository="project")

    (repo / ".git" / "HEAD").write_text("ref: ../../etc/passwd\n")
    with pytest.raises(ToolError, match="HEAD is damaged"):
        call("git_status", repository="project")


def test_a_missing_git_binary_is_reported(call: Call, repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)

    with pytest.raises(ToolError, match=r"^git is not installed on this server\.$"):
        call("git_status", repository="project")


def test_what_takes_too_long_is_ended(call: Call, repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = tmp_path / "git"
    slow.write_text("#!/bin/sh\nsleep 60 &\necho $! > " + str(tmp_path / "child") + "\nwait\n")
    slow.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda name: str(slow))
    monkeypatch.setattr(_repository, "SECONDS", 0.5)
    started = time.monotonic()

    with pytest.raises(ToolError, match="git took too long"):
        call("git_status", repository="project")

    assert time.monotonic() - started < 5
    child = int((tmp_path / "child").read_text())
    deadline = time.monotonic() + 5
    while Path(f"/proc/{child}").exists() and "Z" not in Path(f"/proc/{child}/stat").read_text().split()[2]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
