"""Files of the organisation's workspace, as tools. It knows text and lines, `_lib/workspace` knows paths."""

from __future__ import annotations

from datetime import datetime
from fnmatch import fnmatchcase
from functools import partial
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import Field

from capabilities.assistant.builtin._lib import attached, workspace
from capabilities.assistant.builtin._lib.patches import FilePatch, read_patch
from capabilities.assistant.builtin._lib.search import line_matcher, lines_of, searched_lines, text_of
from capabilities.common.confined import TooComplex, run_in_context
from capabilities.common.confined_jobs.syntax import CHECKS
from capabilities.contract.context import ToolContext, ToolError
from capabilities.running.registry import CategorySpec, tool

CATEGORY = CategorySpec(
    name="file",
    title="Files",
    description="Text files in the organisation's workspace.",
    keywords=(
        "read file",
        "show file",
        "open file",
        "list files",
        "list file",
        "directory",
        "grep",
        "find in",
        "search in",
        "diff",
        "compare",
        "syntax check",
    ),
    is_core=True,
)

#: Entries of one listing, and matches of one search.
LIST_LIMIT = 500
MATCH_LIMIT = 200
#: Lines of a text that is compared.
DIFF_LINES = 5_000
#: Characters of a patch; its runtime settings may allow fewer.
PATCH_LIMIT = 1_000_000
#: The language of a file by its ending.
LANGUAGES = {".py": "python", ".pyi": "python", ".json": "json", ".toml": "toml", ".yaml": "yaml", ".yml": "yaml"}

Path = Annotated[str, Field(description="Relative to the workspace.", max_length=1_000)]
Glob = Annotated[str | None, Field(description="Only names like *.py.", max_length=200)]


@tool(category="file", effect="read", human_format="Reading {path}")
def file_read(
    context: ToolContext,
    path: Path,
    offset: Annotated[int, Field(description="First line, from 1.", ge=1)] = 1,
    limit: Annotated[int, Field(description="Lines.", ge=1, le=5_000)] = 1_000,
) -> dict[str, Any]:
    """Read lines of a text file in the workspace."""
    content = attached.read(context, path)
    text = text_of(content)
    if text is None:
        return {"path": path, "binary": True, "bytes": content.size}
    most = context.envelope.max_input_chars if context.envelope else len(text)
    is_cut, text = len(text) > most, text[:most]
    lines = lines_of(text)
    shown = lines[offset - 1 : offset - 1 + limit]
    result: dict[str, Any] = {"path": path, "text": "".join(shown), "total_lines": len(lines)}
    if len(shown) < len(lines):
        result["lines"] = f"{offset}-{offset + len(shown) - 1}" if shown else "none"
    if is_cut:
        result["truncated"] = f"Only the first {most:,} characters of the file were read."
    elif content.truncated:
        result["truncated"] = f"Only the first {len(content.data)} of {content.size} bytes were read."
    return result


@tool(category="file", effect="read", human_format="Listing {path}")
def file_list(context: ToolContext, path: Path = ".", glob: Glob = None, recursive: bool = False) -> dict[str, Any]:
    """List files and folders of a workspace folder, with recursive also those in folders below it."""
    entries: list[dict[str, Any]] = []
    more = 0
    for entry in workspace.walk(context.workspace, path, recursive=recursive):
        if glob and not fnmatchcase(entry.name, glob):
            continue
        if len(entries) == LIST_LIMIT:
            more += 1
            continue
        row: dict[str, Any] = {"path": entry.path, "type": entry.kind}
        if entry.kind == "file":
            row["bytes"] = entry.status.st_size
        entries.append(row)
    return {"entries": entries} | ({"more": more} if more else {})


# No retry after a crash: an append that had been made would be made twice.
@tool(category="file", effect="write", human_format="Writing {path}")
def file_write(
    context: ToolContext,
    path: Path,
    text: Annotated[str, Field(max_length=workspace.WRITE_LIMIT)],
    mode: Literal["create", "overwrite", "append"] = "create",
) -> dict[str, Any]:
    """Write a text file in the workspace; missing folders are made. The mode create refuses a file that exists."""

    def change(before: bytes | None) -> bytes:
        if mode == "create" and before is not None:
            raise ToolError(f"{path} exists already: use the mode overwrite or append.")
        return (before or b"") + text.encode() if mode == "append" else text.encode()

    return {"path": path, "bytes": workspace.write_file(context.workspace, path, change)}


# No retry after a crash: hunks that only add lines would be added twice.
@tool(category="file", effect="write", human_format="Applying a patch")
def apply_patch(
    context: ToolContext, patch: Annotated[str, Field(description="A unified diff.", max_length=PATCH_LIMIT)]
) -> dict[str, Any]:
    """Change, create and delete workspace files by a unified diff of one or more files: all of it or nothing."""
    files = read_patch(patch)

    def change(file: FilePatch) -> workspace.Change:
        def changed(before: bytes | None) -> bytes | None:
            text = None if before is None else text_of(workspace.Content(before, len(before)))
            if before is not None and text is None:
                raise ToolError(f"{file.path} is no UTF-8 text.")
            after = file.applied(text)
            return None if after is None else after.encode()

        return changed

    workspace.change_files(context.workspace, {file.path: change(file) for file in files})
    return {
        "files": [
            {"path": file.path, "change": file.change, "added": file.added, "removed": file.removed} for file in files
        ]
    }


@tool(category="file", effect="read", human_format="Comparing {path}")
def file_diff(
    context: ToolContext,
    path: Path,
    other_path: Annotated[str | None, Field(description="The newer file.", max_length=1_000)] = None,
    other_text: Annotated[
        str | None, Field(description="Or the newer text itself.", max_length=workspace.READ_LIMIT)
    ] = None,
) -> str:
    """Compare a file with another file or with a text, as a unified diff."""
    if (other_path is None) == (other_text is None):
        raise ToolError("Give either other_path or other_text.")
    before = _comparable(path, _whole_text(context, path))
    newer = _whole_text(context, other_path) if other_path is not None else other_text or ""
    after = _comparable(other_path or "The text", newer)
    names = {"before_name": path, "after_name": other_path or "text"}
    text: str = run_in_context("differences", context, before=before, after=after, **names)
    return text or "No differences."


@tool(category="file", effect="read", human_format="Searching for {pattern}")
def file_grep(
    context: ToolContext,
    pattern: Annotated[str, Field(min_length=1, max_length=500)],
    path: Annotated[str, Field(description="File or folder.", max_length=1_000)] = ".",
    glob: Glob = None,
    regex: bool = False,
    ignore_case: bool = False,
) -> dict[str, Any]:
    """Find lines that contain a text, in a file or in all files below a folder.

    With regex the pattern is a regular expression without look-around and back references.
    """
    matches = line_matcher(context, pattern, regex, ignore_case)
    wanted = partial(fnmatchcase, pat=glob or "*")
    return searched_lines(context, path, matches, limit=MATCH_LIMIT, wanted=wanted)


@tool(category="file", effect="read", human_format="Checking the syntax of {path}")
def file_syntax_check(
    context: ToolContext,
    path: Path,
    language: Annotated[
        Literal["python", "json", "toml", "yaml"] | None, Field(description="Default: by the file's ending.")
    ] = None,
) -> dict[str, Any]:
    """Check whether a Python, JSON, TOML or YAML file is well-formed, without running it."""
    kind = language or LANGUAGES.get(PurePosixPath(path).suffix.lower(), "")
    if kind not in CHECKS:
        raise ToolError(f"Say the language of {path}: {', '.join(CHECKS)}.")
    text = _whole_text(context, path)
    try:
        flaw = run_in_context("syntax", context, language=kind, text=text)
    except TooComplex as error:
        flaw = {"message": str(error)}
    if flaw is None:
        return {"path": path, "language": kind, "ok": True}
    known = {name: value for name, value in flaw.items() if value is not None}
    return {"path": path, "language": kind, "ok": False} | known


@tool(category="file", effect="read", human_format="Looking at {path}")
def file_stat(context: ToolContext, path: Path) -> dict[str, Any]:
    """Tell type, size and time of change of a file or folder in the workspace."""
    content = attached.content_of(context, path)
    if content is not None:
        return {"path": path, "type": "file", "bytes": len(content)}
    status = workspace.status_of(context.workspace, path)
    modified = datetime.fromtimestamp(status.st_mtime, tz=context.now().tzinfo)
    row: dict[str, Any] = {"path": path, "type": workspace.kind_of(status)}
    if row["type"] == "file":
        row["bytes"] = status.st_size
    return row | {"modified": modified.isoformat(timespec="seconds")}


def _whole_text(context: ToolContext, path: str) -> str:
    content = attached.read(context, path)
    text = text_of(content)
    if text is None:
        raise ToolError(f"{path} is no UTF-8 text.")
    if content.truncated:
        raise ToolError(f"{path} has {content.size} bytes; at most {workspace.READ_LIMIT} can be taken.")
    return text


def _comparable(name: str, text: str) -> list[str]:
    lines = [line.rstrip("\r\n") for line in lines_of(text)]
    if len(lines) > DIFF_LINES:
        raise ToolError(f"{name} has {len(lines)} lines; at most {DIFF_LINES} can be compared.")
    return lines
