"""Answers of the offline model: small talk, results made readable, questions for what is missing, that it is no LLM."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolhub.bounded_json import load_json
from toolhub.embedded.offline_model.tools import Parameter, Tool

SIGNATURE = "(Offline model: a matcher of words, not an LLM. Configure a provider for real answers.)"
ASKING = "I still need"
MOST_LINES = 30
MOST_CHARACTERS = 4_000
_HELLO = r"(?:hi|hello|hey|good (?:morning|afternoon|evening|day))(?: there| all| again)?"
#: Small talk. The whole message has to be one of these, courtesies aside; the first that fits counts.
SMALL_TALK = (
    (_HELLO, "Hello! What can I do for you?"),
    (
        rf"(?:{_HELLO} )?(?:how are you|how is it going|how's it going|what's up)(?: today| doing)?",
        "I am ready to work, thank you. What can I do for you?",
    ),
    (
        r"(?:ok )?(?:thanks|thank you|thx)(?: a lot| so much| very much)?(?: that(?: is|'s| was) (?:all|it|great))?",
        "You are welcome.",
    ),
    (r"good ?night|good ?bye|bye|see you(?: later| soon| tomorrow)?", "Goodbye!"),
    (
        r"(?:who|what) are you|are you (?:an? )?(?:ai|llm|bot|robot|human|person|real)|what(?: is|'s) your name",
        "I am the offline model: I match the words of a message with the tools at hand.",
    ),
    (r"(?:tell me|do you know)(?: a| another)? (?:joke|story)", "I know none: I only match words with tools."),
    (
        r"(?:(?:that|this) is |that's |you are |you're )?(?:great|nice|cool|good|perfect|well done)",
        "Good. What is next?",
    ),
    (r"ok(?:ay)?|yes|no|sure|fine|alright|i see|got it|never mind", "All right."),
)
_HELP = r"(?:what (?:can|could|do) you (?:do|offer)|what can i (?:ask|do|say)|how can you help|help)(?: me)?(?: here)?"
_NAMES = ("title", "name", "label", "subject", "text", "key")


@dataclass(frozen=True)
class Result:
    """Result of a call. `display` says the call in a line for people, where the request says it."""

    name: str
    content: str
    display: str = ""


def signed(text: str) -> str:
    return f"{text}\n\n{SIGNATURE}"


def small_talk(text: str) -> str:
    """The sentence that answers this message, or nothing where it is about something."""
    said = _bare_words(text)
    return next((answer for pattern, answer in SMALL_TALK if re.fullmatch(pattern, said)), "")


def asks_for_help(text: str) -> bool:
    """Return whether the message asks for help: what can be asked."""
    return re.fullmatch(_HELP, _bare_words(text)) is not None


def _bare_words(text: str) -> str:
    words = re.sub(r"[^\w\s']+", " ", text[:200].replace("’", "'").lower())
    return " ".join(re.sub(r"\b(?:please|toolhub|my friend)\b", " ", words).split())


def no_match(tools: Sequence[Tool], *, wanted: bool = True) -> str:
    """List the tools of this request that can be asked for, the likeliest first. `wanted`: a message fitted none of
    them."""
    if not tools:
        return "I was sent no tools, so there is nothing that I can look up or do."
    lines = [f"- {tool.name}: {_first_sentence(tool.description)}" for tool in tools[:6]]
    more = ["", f"And {len(tools) - 6} more."] if len(tools) > 6 else []
    first = "I match the words of a message with tools, and none fits well enough. I could:" if wanted else "I can use:"
    return "\n".join([first, *lines, *more])


def ask_for(tool: Tool, missing: Iterable[Parameter]) -> str:
    wanted = (
        f"{each.name} ({_first_sentence(each.description)})" if each.description else each.name for each in missing
    )
    return f"To use {tool.name} {ASKING}: {', '.join(wanted)}."


def _first_sentence(text: str) -> str:
    return " ".join(text.split()).partition(". ")[0].rstrip(".")[:160] or "no description"


# -- Results ---------------------------------------------------------------------------------------------------------


def from_results(results: Sequence[Result]) -> str:
    """An answer from the results, each under the line that says its call."""
    if len(results) == 1 and not results[0].display:
        return _readable(results[0].content)
    return "\n\n".join(f"{each.display or each.name}:\n{_readable(each.content)}" for each in results)


def _readable(content: str) -> str:
    """A result for people: JSON as a Markdown list, an error as a sentence, any other text as it is."""
    try:
        value = load_json(content)
    except ValueError:
        value = content
    error = _error(value)
    if error:
        return f"That did not work{'.' if isinstance(value, str) else ':'} {error}"[:MOST_CHARACTERS]
    if isinstance(value, str):
        return _cut(value.strip() or "Done; the tool gave back nothing.")
    return _cut("\n".join(_lines(_rows(value))))


def _error(value: Any) -> str:
    if isinstance(value, str):
        return value.strip() if value.lower().lstrip().startswith("error") else ""
    error = value.get("error") if isinstance(value, Mapping) else None
    if isinstance(error, Mapping):
        return str(error.get("message") or error.get("code") or _plain(error))
    return _plain(error) if error else ""


def _rows(value: Any) -> Any:
    """Rows without the label around them: {"tasks": [...]} as the list, {"task": {...}} as a list of one."""
    if isinstance(value, Mapping) and len(value) == 1:
        [inner] = value.values()
        if isinstance(inner, list) and any(isinstance(each, Mapping) for each in inner):
            return inner
        if isinstance(inner, Mapping) and inner and not any(isinstance(each, Mapping) for each in inner.values()):
            return [inner]
    return value


def _cut(text: str) -> str:
    lines = text.splitlines()
    if len(lines) > MOST_LINES:
        lines = [*lines[:MOST_LINES], f"... and {len(lines) - MOST_LINES} more lines."]
    text = "\n".join(lines)
    return text if len(text) <= MOST_CHARACTERS else text[:MOST_CHARACTERS] + "..."


def _lines(value: Any, depth: int = 0) -> list[str]:
    indent = "  " * depth
    if value in ([], {}):
        return [f"{indent}Nothing was found."]
    if isinstance(value, list):
        return [f"{indent}- {_row(item)}" for item in value]
    if not isinstance(value, Mapping):
        return [f"{indent}{_plain(value)}"]
    lines = []
    for name, child in value.items():
        if child in (None, "", {}):
            continue
        if child and isinstance(child, (list, Mapping)) and depth < 4:
            lines += [f"{indent}- {_label(name)}:", *_lines(child, depth + 1)]
        else:
            lines.append(f"{indent}- {_label(name)}: {_plain(child)}")
    return lines


def _row(item: Any) -> str:
    """One row of a list in one line: what it is called, then the rest in brackets."""
    if not isinstance(item, Mapping):
        return ", ".join(_plain(each) for each in item) if isinstance(item, list) else _plain(item)
    rest = {name: value for name, value in item.items() if value not in (None, "", [], {})}
    head = next((name for name in _NAMES if isinstance(rest.get(name), str)), None)
    said = ", ".join(f"{_label(name)}: {_plain(value)}" for name, value in rest.items() if name != head)
    if head is None:
        return said
    return f"{rest[head]} ({said})" if said else str(rest[head])


def _label(name: str) -> str:
    return name.replace("_", " ")


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value in (None, []):
        return "none"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (list, Mapping)) else str(value)
