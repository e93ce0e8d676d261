"""Texts of the offline model about tools: what they do, results made readable, questions for what is missing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from capabilities.choosing.routing.words import words_of
from capabilities.contract.argument_fields import ArgumentField
from toolhub.bounded_json import load_json
from toolhub.embedded.offline_model.tools import Tool

SIGNATURE = "(Offline model: a matcher of words, not an LLM. Configure a provider for real answers.)"
ASKING = "I still need"
WHICH = "Which one do you mean? Say its number or more of its words."
NO_TOOLS = "I was sent no tools, so there is nothing that I can look up or do. Say it in other words."
DID_YOU_MEAN = "Did you mean"
MOST_LINES, MOST_CHARACTERS = 30, 4_000


def offered(tools: Sequence[tuple[str, str]], first: str, most: int = MOST_LINES) -> str:
    """Tools that can be asked for, as names with descriptions, behind a first line: a line for each thing that they are
    about, in their order, for tools whose names begin alike."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for name, description in tools:
        groups.setdefault(words_of(name)[0] if words_of(name) else name, []).append((name, description))
    if not groups:
        return NO_TOOLS
    lines = [
        f"- {each[0][0] if len(each) == 1 else name}: {'; '.join(_first_sentence(text) for _, text in each)}"
        for name, each in groups.items()
    ]
    return "\n".join([first, *lines[:most], *(["", f"And {len(lines) - most} more."] if len(lines) > most else [])])


def ask_for(tool: Tool, missing: Iterable[ArgumentField]) -> str:
    """The question for the values of these fields."""
    wanted = [each.name + (f" ({_first_sentence(each.description)})" if each.description else "") for each in missing]
    return f"To use {tool.name} {ASKING}: {', '.join(wanted)}."


def which(rows: Sequence[Mapping[str, Any]]) -> str:
    """The question for one of these rows."""
    return "\n".join(["It may be:", *(f"- {_row(each)}" for each in rows[:MOST_LINES]), WHICH])


def _first_sentence(text: str) -> str:
    first = re.split(r"\. |;", " ".join(text.split()))[0].rstrip(".")
    first = first.replace("the user's", "your").replace("the user has", "you have").replace("the user", "you")
    return first[:160] or "no description"


def readable(content: str) -> str:
    """A result for people: JSON as a Markdown list, an error as a sentence, any other text as it is."""
    try:
        value = load_json(content)
    except ValueError:
        value = content.strip() or "Done; the tool gave back nothing."
    if isinstance(value, Mapping) and (error := value.get("error")):
        error = error.get("message") or error.get("code") if isinstance(error, Mapping) else error
        value = f"That did not work: {_plain(error)}"
    [inner] = value.values() if isinstance(value, Mapping) and len(value) == 1 else [None]
    if isinstance(inner, (list, Mapping)):  # rows without the label around them: of {"tasks": [...]} the list
        value = inner if isinstance(inner, list) else [inner]
    if isinstance(value, Mapping) and set(value) == {"result", "message"}:
        value = value["message"]
    lines = _lines(value) or ["Nothing was found."]
    if isinstance(value, Mapping) and any(each == [] for each in value.values()):  # beside a time zone, say
        lines.append("Nothing was found.")
    more = [f"... and {len(lines) - MOST_LINES} more lines."] if len(lines) > MOST_LINES else []
    return "\n".join([*lines[:MOST_LINES], *more])[:MOST_CHARACTERS]


def _lines(value: Any) -> list[str]:
    if isinstance(value, list):
        return [f"- {_row(each)}" for each in value]
    if not isinstance(value, Mapping):
        return _plain(value).splitlines()
    lines = []
    for name, child in _labelled(value):
        is_nested = isinstance(child, (list, Mapping))
        lines.append(f"- {name}:" if is_nested else f"- {name}: {_plain(child)}")
        lines += [f"  {line}" for line in _lines(child)] if is_nested else []
    return lines


def _row(item: Any) -> str:
    """One row of a list in one line: what it is called, then the rest in brackets."""
    rest = dict(_labelled(item)) if isinstance(item, Mapping) else {"text": item}
    head = next((str(rest.pop(name)) for name in ("title", "name", "text") if name in rest), "")
    others = ", ".join(f"{name}: {_plain(value)}" for name, value in rest.items())
    return f"{head} ({others})" if head and others else head or others


def _labelled(item: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(name.replace("_", " "), value) for name, value in item.items() if value not in (None, "", [], {})]


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (list, Mapping)) else str(value)
