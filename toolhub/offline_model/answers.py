"""What the offline model says: results made readable, questions for what is missing, and that it is no LLM."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolhub.offline_model.matching import Tool
from toolhub.offline_model.schemas import Parameter

SIGNATURE = "(Offline model: a matcher of words, not an LLM. Configure a provider for real answers.)"
ASKING = "I still need"
MOST_LINES = 30
MOST_CHARACTERS = 4_000


def signed(text: str) -> str:
    return f"{text}\n\n{SIGNATURE}"


def no_match(tools: Sequence[Tool], *, wanted: bool = True) -> str:
    """What can be asked, by the tools of this request, the likeliest first. `wanted`: a message fitted none of them."""
    if not tools:
        return "I was sent no tools, so there is nothing that I can look up or do."
    lines = [f"- {tool.name}: {_first_sentence(tool.description)}" for tool in tools[:6]]
    more = ["", f"And {len(tools) - 6} more."] if len(tools) > 6 else []
    first = "I match the words of a message with tools, and none fits well enough. I could:" if wanted else "I can use:"
    return "\n".join([first, *lines, *more])


def ask_for(tool: Tool, missing: Iterable[Parameter]) -> str:
    wanted = [
        f"{each.name} ({_first_sentence(each.description)})" if each.description else each.name for each in missing
    ]
    return f"To use {tool.name} {ASKING}: {', '.join(wanted)}."


def _first_sentence(text: str) -> str:
    return " ".join(text.split()).partition(". ")[0].rstrip(".")[:160] or "no description"


@dataclass(frozen=True)
class Result:
    """What a call gave back. `display` says the call in a line for people, where the request says it."""

    name: str
    content: str
    display: str = ""


def from_results(results: Sequence[Result]) -> str:
    """An answer from the results, each under the line that says its call."""
    if len(results) == 1 and not results[0].display:
        return plain_text(results[0].content)
    return "\n\n".join(f"{each.display or each.name}:\n{plain_text(each.content)}" for each in results)


def plain_text(content: str) -> str:
    """A result for people: JSON as a Markdown list, an error as a sentence, any other text as it is."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        value = content
    if isinstance(value, str):
        text = value.strip() or "Done; the tool gave back nothing."
        return f"That did not work. {text}"[:MOST_CHARACTERS] if text.lower().startswith("error") else _cut(text)
    error = _error(value)
    if error:
        return f"That did not work: {error}"[:MOST_CHARACTERS]
    return _cut("\n".join(_lines(_bare(value))))


def _bare(value: Any) -> Any:
    """Rows without the label around them: {"tasks": [...]} as the list, {"task": {...}} as a list of one."""
    if isinstance(value, Mapping) and len(value) == 1:
        [inner] = value.values()
        if isinstance(inner, list) and any(isinstance(each, Mapping) for each in inner):
            return inner
        if isinstance(inner, Mapping) and inner and not any(isinstance(each, Mapping) for each in inner.values()):
            return [inner]
    return value


def _error(value: Any) -> str:
    if not isinstance(value, Mapping) or not (error := value.get("error")):
        return ""
    if isinstance(error, Mapping):
        return str(error.get("message") or error.get("code") or json.dumps(error, ensure_ascii=False))
    detail = value.get("message") or value.get("detail")
    return f"{error}: {detail}" if isinstance(detail, str) else str(error)


def _cut(text: str) -> str:
    lines = text.splitlines()
    if len(lines) > MOST_LINES:
        lines = [*lines[:MOST_LINES], f"... and {len(lines) - MOST_LINES} more lines."]
    text = "\n".join(lines)
    return text if len(text) <= MOST_CHARACTERS else text[:MOST_CHARACTERS] + "..."


def _lines(value: Any, depth: int = 0) -> list[str]:
    indent = "  " * depth
    if isinstance(value, Mapping):
        return _pairs(value, depth) or [f"{indent}Nothing was found."]
    if isinstance(value, list):
        return [f"{indent}- {_brief(item)}" for item in value] or [f"{indent}Nothing was found."]
    return [f"{indent}{_plain(value)}"]


def _pairs(value: Mapping[str, Any], depth: int) -> list[str]:
    indent, lines = "  " * depth, []
    for name, child in value.items():
        label = str(name).replace("_", " ")
        if child in (None, "") or (isinstance(child, (list, Mapping)) and not child):
            lines += [f"{indent}- {label}: none"] if isinstance(child, list) else []
        elif isinstance(child, (list, Mapping)) and depth < 4:
            lines += [f"{indent}- {label}:", *_lines(child, depth + 1)]
        else:
            lines.append(f"{indent}- {label}: {_plain(child)}")
    return lines


NAMES = ("title", "name", "label", "subject", "text", "key")


def _brief(item: Any) -> str:
    """One row of a list in one line: what it is called, then the rest in brackets."""
    if not isinstance(item, Mapping):
        return ", ".join(_plain(each) for each in item) if isinstance(item, list) else _plain(item)
    rest = {name: value for name, value in item.items() if value not in (None, "", [], {})}
    head = next((name for name in NAMES if isinstance(rest.get(name), str)), None)
    said = [f"{str(name).replace('_', ' ')}: {_plain(value)}" for name, value in rest.items() if name != head]
    if head is None:
        return ", ".join(said)
    return f"{rest[head]} ({', '.join(said)})" if said else str(rest[head])


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, Mapping)):
        return json.dumps(value, ensure_ascii=False)
    return "none" if value is None else str(value)
