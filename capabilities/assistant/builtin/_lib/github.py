"""GitHub's REST API as rows for a model. Only reading."""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from capabilities.assistant.builtin._lib.remote import Remote, a_dict, dicts, filled, short
from capabilities.contract.context import ToolError
from capabilities.running.egress.answers import cut_text

FILE_LIMIT = 40_000
REPOSITORY = re.compile(r"[A-Za-z0-9-]{1,39}/[A-Za-z0-9._-]{1,100}")


@dataclass(frozen=True)
class Wanted:
    """Arguments of one call."""

    repo: str
    query: str
    number: int | None
    path: str
    ref: str
    state: str
    count: int

    @property
    def segments(self) -> tuple[str, str, str]:
        """The first segments of the repository's address. Raises ToolError for a name that is not owner/name."""
        if not REPOSITORY.fullmatch(self.repo):
            raise ToolError("Name the repository as owner/name.")
        owner, _, name = self.repo.partition("/")
        return "repos", owner, name

    @property
    def missing(self) -> str:
        return f"There is no {self.repo}, or it cannot be seen with what was set up."


def repository(hub: Remote, wanted: Wanted) -> dict[str, Any]:
    """A repository's description, counts and topics. Raises ToolError where there is none."""
    row = hub.json("GET", *wanted.segments, shape=dict, missing=wanted.missing)
    counts = {name: row.get(name) for name in ("stargazers_count", "forks_count", "open_issues_count")}
    topics = row.get("topics")
    return _repository(row) | filled(
        {name.removesuffix("_count"): count for name, count in counts.items() if isinstance(count, int)}
        | {
            "default_branch": short(row.get("default_branch"), 100),
            "license": short(a_dict(row.get("license")).get("spdx_id"), 40),
            "topics": [short(topic, 50) for topic in topics[:10]] if isinstance(topics, list) else [],
            "pushed": short(row.get("pushed_at"), 30),
            "archived": row.get("archived") is True or None,
        }
    )


def issues(hub: Remote, wanted: Wanted) -> dict[str, Any]:
    """GitHub counts pull requests as issues and lists them among these: they are left out."""
    found = _listed(hub, wanted, "issues", min(100, 3 * wanted.count))
    plain = [row for row in found if "pull_request" not in row]
    return {"issues": [_issue(row) for row in plain[: wanted.count]]}


def pulls(hub: Remote, wanted: Wanted) -> dict[str, Any]:
    return {"pulls": [_issue(row) for row in _listed(hub, wanted, "pulls", wanted.count)[: wanted.count]]}


def issue(hub: Remote, wanted: Wanted) -> dict[str, Any]:
    """An issue or pull request with its text and last comments. Raises ToolError without a number, and for one that is
    not there."""
    if wanted.number is None:
        raise ToolError("Give the number of the issue or pull request.")
    path = (*wanted.segments, "issues", str(wanted.number))
    missing = f"There is no issue {wanted.number} in {wanted.repo}."
    row = hub.json("GET", *path, shape=dict, missing=missing)
    text = row.get("body")
    shown = _issue(row) | ({"text": _cut(text, 8_000)} if isinstance(text, str) and text else {})
    if row.get("comments"):
        comments = dicts(hub.json("GET", *path, "comments", shape=list, query={"per_page": wanted.count}))
        shown["comments"] = [
            {"by": _login(comment), "text": _cut(comment.get("body"), 2_000)} for comment in comments[: wanted.count]
        ]
    return shown


def file(hub: Remote, wanted: Wanted) -> dict[str, Any]:
    """A file's text, or what is in a folder. Raises ToolError for one that is not there, is too large, or came
    damaged."""
    parts = [part for part in wanted.path.split("/") if part]
    path = (*wanted.segments, "contents", *parts)
    missing = f"There is no {wanted.path or 'file'} in {wanted.repo}."
    answer = hub.ask("GET", *path, query={"ref": wanted.ref or None}, headers=ACCEPT, max_bytes=4_000_000)
    found = hub.good(answer, missing)
    if found.text.lstrip().startswith("["):
        rows = dicts(hub.parsed(found, list))
        return {"folder": wanted.path, "entries": [_entry(row) for row in rows[:200]]}
    row = hub.parsed(found, dict)
    if row.get("encoding") != "base64" or not isinstance(row.get("content"), str):
        raise ToolError(f"{wanted.path} is no file that can be shown, or larger than 1 MB.")
    try:
        data = b64decode(row["content"])
    except (binascii.Error, ValueError) as error:
        raise ToolError(f"{wanted.path} came damaged: try again.") from error
    if b"\0" in data:
        return {"path": wanted.path, "note": f"A binary file of {len(data)} bytes is not shown."}
    return {"path": wanted.path} | cut_text("text", data.decode("utf-8", "replace"), whole=True, limit=FILE_LIMIT)


def search(kind: str) -> Callable[[Remote, Wanted], dict[str, Any]]:
    """Return the function that searches in `repositories`, `issues` or `code`. That one raises ToolError without words
    to search for."""
    as_row = {"repositories": _repository, "issues": _issue, "code": _code}[kind]

    def run(hub: Remote, wanted: Wanted) -> dict[str, Any]:
        terms = [wanted.query.strip()]
        if not terms[0]:
            raise ToolError("Say what to search for, in query.")
        if wanted.repo:
            _ = wanted.segments
            terms.append(f"repo:{wanted.repo}")
        query: dict[str, str | int | float | None] = {"q": " ".join(terms), "per_page": wanted.count}
        found = hub.json("GET", "search", kind, shape=dict, query=query)
        total = found.get("total_count")
        rows = [as_row(row) for row in dicts(found.get("items"))[: wanted.count]]
        return {"total": total if isinstance(total, int) else len(rows), "found": rows}

    return run


ACCEPT = {"accept": "application/vnd.github+json"}
ACTIONS: dict[str, Callable[[Remote, Wanted], dict[str, Any]]]


def _listed(hub: Remote, wanted: Wanted, path: str, count: int) -> list[dict[str, Any]]:
    order: dict[str, str | int | float | None] = {"sort": "updated", "direction": "desc"}
    query = order | {"state": wanted.state, "per_page": count}
    return dicts(hub.json("GET", *wanted.segments, path, shape=list, query=query, missing=wanted.missing))


def _repository(row: Mapping[str, Any]) -> dict[str, Any]:
    return filled(
        {
            "repo": short(row.get("full_name"), 140),
            "about": short(row.get("description"), 300),
            "language": short(row.get("language"), 40),
            "url": short(row.get("html_url"), 200),
        }
    )


def _issue(row: Mapping[str, Any]) -> dict[str, Any]:
    number = row.get("number")
    return filled(
        {
            "number": number if isinstance(number, int) else None,
            "title": short(row.get("title"), 300),
            "state": "merged" if row.get("merged_at") else short(row.get("state"), 20),
            "by": _login(row),
            "labels": [short(label.get("name"), 50) for label in dicts(row.get("labels"))[:10]],
            "updated": short(row.get("updated_at"), 30),
            "url": short(row.get("html_url"), 200),
        }
    )


def _code(row: Mapping[str, Any]) -> dict[str, Any]:
    repo = short(a_dict(row.get("repository")).get("full_name"), 140)
    return filled({"repo": repo, "path": short(row.get("path"), 300), "url": short(row.get("html_url"), 400)})


def _entry(row: Mapping[str, Any]) -> dict[str, Any]:
    size = row.get("size")
    shown = {"name": short(row.get("name"), 255), "kind": short(row.get("type"), 20)}
    return shown | ({"size": size} if isinstance(size, int) and size else {})


def _login(row: Mapping[str, Any]) -> str:
    return short(a_dict(row.get("user")).get("login"), 60)


def _cut(text: Any, limit: int) -> str:
    """Text with its lines, cut."""
    shown = text if isinstance(text, str) else ""
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


ACTIONS = {
    "repo": repository,
    "issues": issues,
    "pulls": pulls,
    "issue": issue,
    "file": file,
    "search_repos": search("repositories"),
    "search_issues": search("issues"),
    "search_code": search("code"),
}
