"""Texts of the offline model: small talk, results made readable, questions for what is missing, that it is no LLM."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from capabilities.contract.argument_fields import ArgumentField
from toolhub.bounded_json import load_json
from toolhub.embedded.offline_model.tools import Tool

SIGNATURE = "(Offline model: a matcher of words, not an LLM. Configure a provider for real answers.)"
ASKING = "I still need"
MOST_LINES, MOST_CHARACTERS = 30, 4_000
HELP = r"(?:what (?:can|could|do) you (?:do|offer)|what can i (?:ask|do|say)|how can you help|help)(?: for)?(?: me)?"
_HELLO = r"(?:hi|hello|hey|good (?:morning|afternoon|evening|day))(?: there| all)?"
_WHO = r"(?:who|what) are you|are you (?:an? )?(?:ai|llm|bot|robot|human|real)|what(?: is|'s) your name"
#: Small talk. The whole message has to be one of these; the first that fits counts.
SMALL_TALK = (
    (_HELLO, "Hello! What can I do for you?"),
    (rf"(?:{_HELLO} )?how (?:are you|is it going)(?: today)?", "I am ready to work, thank you. What can I do for you?"),
    (r"(?:ok )?(?:thanks|thank you)(?: a lot| so much| very much)?(?: that(?: is|'s) all)?", "You are welcome."),
    (r"good ?night|good ?bye|bye|see you(?: later| soon| tomorrow)?", "Goodbye!"),
    (_WHO, "I am the offline model: I match the words of a message with the tools at hand."),
    (r"tell me (?:a|another) (?:joke|story)", "I know none: I only match words with tools."),
    (r"(?:(?:that|this) is |that's )?(?:great|nice|cool|good|perfect|well done)", "Good. What is next?"),
    (r"ok(?:ay)?|yes|no|sure|fine|alright|i see|got it|never mind", "All right."),
)


def small_talk(text: str, tools: Sequence[Tool]) -> str:
    """The answer to a message that is about nothing, or asks for help; "" for any other."""
    bare = " ".join(re.sub(r"[^\w\s']+", " ", text[:200].replace("’", "'").lower()).split())
    if re.fullmatch(HELP, bare):
        return offered(tools, "I can use:")
    return next((answer for pattern, answer in SMALL_TALK if re.fullmatch(pattern, bare)), "")


def offered(tools: Sequence[Tool], first: str) -> str:
    """The tools that can be asked for, in their order, behind a first line."""
    if not tools:
        return "I was sent no tools, so there is nothing that I can look up or do."
    lines = [f"- {tool.name}: {_first_sentence(tool.description)}" for tool in tools[:6]]
    return "\n".join([first, *lines, *(["", f"And {len(tools) - 6} more."] if len(tools) > 6 else [])])


def ask_for(tool: Tool, missing: Iterable[ArgumentField]) -> str:
    """The question for the values of these fields."""
    wanted = [each.name + (f" ({_first_sentence(each.description)})" if each.description else "") for each in missing]
    return f"To use {tool.name} {ASKING}: {', '.join(wanted)}."


def _first_sentence(text: str) -> str:
    return " ".join(text.split()).partition(". ")[0].rstrip(".")[:160] or "no description"


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
    lines = _lines(value) or ["Nothing was found."]
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
