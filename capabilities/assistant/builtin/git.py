"""Read-only git on repositories in the workspace. `_lib/repository` keeps git from running anything."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import Field

from capabilities.assistant.builtin._lib import workspace
from capabilities.assistant.builtin._lib.repository import Repository, opened
from capabilities.contract.context import ToolContext, ToolError
from capabilities.running.registry import CategorySpec, tool

CATEGORY = CategorySpec(
    name="git",
    title="Git",
    description="Status, history and differences of repositories in the organisation's workspace.",
    keywords=("git", "commit", "branch", "pulled", "pushed", "merge", "merged", "repo", "repository"),
)

#: Files of one status, and characters of one diff.
FILES = 300
DIFF_CHARS = 100_000

STATES = {
    "M": "modified",
    "A": "added",
    "D": "deleted",
    "R": "renamed",
    "C": "copied",
    "T": "type changed",
    "U": "conflict",
}
#: A name of a branch, a tag or a commit, with steps back; never an option.
REVISION = re.compile(r"[A-Za-z0-9][\w./~^-]{0,199}", re.ASCII)

Folder = Annotated[str, Field(description="The repository's folder in the workspace.", max_length=1_000)]
File = Annotated[str, Field(description="Only this file or folder, as seen from the repository.", max_length=1_000)]
Revision = Annotated[str, Field(description="Branch, tag or commit.", max_length=200)]


@tool(category="git", effect="read", human_format="Looking at the git status")
def git_status(context: ToolContext, repository: Folder = ".") -> dict[str, Any]:
    """Tell branch, last commit, and changed, staged and untracked files of a git repository in the workspace."""
    with opened(context, repository) as repo:
        options = (
            "--porcelain=v1",
            "-z",
            "--branch",
            "--untracked-files=normal",
            "--ignore-submodules=all",
            "--no-renames",
        )
        output = repo.run(context, "status", *options)
        commits = _commits(context, repo, ["--max-count=1", "HEAD"]) if "No commits yet" not in output.text else []
    head, *rows = [row for row in output.text.split("\0") if row]
    files = [_file(row) for row in rows]
    answer: dict[str, Any] = {"branch": head.removeprefix("## ").removeprefix("No commits yet on ")}
    answer |= {"last_commit": commits[0]} if commits else {}
    answer |= {"clean": True} if not files else {"files": files[:FILES]}
    return answer | ({"more": len(files) - FILES} if len(files) > FILES else {})


@tool(category="git", effect="read", human_format="Reading the git log")
def git_log(
    context: ToolContext,
    repository: Folder = ".",
    revision: Revision = "HEAD",
    path: File = "",
    limit: Annotated[int, Field(ge=1, le=100)] = 20,
    search: Annotated[str, Field(description="Only commits whose message holds this.", max_length=200)] = "",
) -> dict[str, Any]:
    """List commits of a git repository in the workspace, the latest first."""
    options = [f"--max-count={limit}"]
    if search:
        options += ["--fixed-strings", "--regexp-ignore-case", f"--grep={search}"]
    with opened(context, repository) as repo:
        return {
            "commits": _commits(context, repo, [*options, "--end-of-options", _revision(revision), "--", *_path(path)])
        }


@tool(category="git", effect="read", human_format="Reading a git diff")
def git_diff(
    context: ToolContext,
    repository: Folder = ".",
    base: Annotated[str, Field(description="Older revision; empty for the staged state.", max_length=200)] = "",
    target: Annotated[str, Field(description="Newer revision; empty for the files as they are.", max_length=200)] = "",
    staged: Annotated[bool, Field(description="What is staged, compared with base or HEAD.")] = False,
    path: File = "",
) -> dict[str, Any]:
    """Show what changed in a git repository in the workspace: unstaged by default, staged, or between revisions."""
    if target and not base:
        raise ToolError("To compare with target, name the older revision as base.")
    if staged and target:
        raise ToolError("Staged changes are compared with base alone: leave target out.")
    options = ["--no-color", "--no-ext-diff", "--no-textconv", "--ignore-submodules=all", "--submodule=short"]
    options += ["--cached"] if staged else []
    revisions = [_revision(each) for each in (base, target) if each]
    with opened(context, repository) as repo:
        output = repo.run(context, "diff", *options, "--end-of-options", *revisions, "--", *_path(path))
    whole = output.whole and len(output.text) <= DIFF_CHARS
    note = {} if whole else {"note": f"Only the first {DIFF_CHARS} characters are shown: name a path."}
    return {"diff": output.text[:DIFF_CHARS] or "No differences."} | note


def _commits(context: ToolContext, repo: Repository, arguments: list[str]) -> list[dict[str, str]]:
    options = ["--no-color", "--no-show-signature", "--no-mailmap", "--no-decorate", "--no-notes"]
    output = repo.run(context, "log", *options, "-z", "--format=%h%x1f%an%x1f%aI%x1f%s", *arguments)
    rows = [row.split("\x1f", 3) for row in output.text.split("\0")]
    return [
        {"commit": row[0], "author": row[1], "at": row[2], "subject": row[3][:300]} for row in rows if len(row) == 4
    ]


def _file(row: str) -> dict[str, Any]:
    """One file of `git status --porcelain`: two letters for what is staged and what is not, then its path."""
    staged, unstaged, path = row[0], row[1], row[3:]
    if staged == "?":
        return {"path": path, "untracked": True}
    if "U" in row[:2] or row[:2] in {"AA", "DD"}:
        return {"path": path, "conflict": True}
    states = {"staged": STATES.get(staged, ""), "unstaged": STATES.get(unstaged, "")}
    return {"path": path} | {key: state for key, state in states.items() if state}


def _revision(text: str) -> str:
    name = text.strip()
    if not REVISION.fullmatch(name) or ".." in name:
        raise ToolError(f"{text!r} is no revision: name a branch, a tag or a commit.")
    return name


def _path(path: str) -> list[str]:
    parts = workspace.parts_of(path)
    return ["/".join(parts)] if parts else []
