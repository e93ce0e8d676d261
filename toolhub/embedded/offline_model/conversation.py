"""The messages of a request: what was asked and answered before, what a turn has called, and what "it" is."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from capabilities.contract.loading import META_TOOLS
from toolhub.bounded_json import load_json

Message = Mapping[str, Any]
#: Messages of before that are listed, and characters of each.
MOST_LISTED, MOST_CHARACTERS = 10, 300
_MINE = re.compile(
    r"\b(?:what|which|repeat)\b.*\b(?:did i|have i|was my|were my|(?:is|are) my (?:first|last|"
    r"previous))\b.*\b(?:ask|asked|say|answered|tell|told|write|written|wrote|"
    r"question|questions|message|messages|request|requests)\b",
    re.IGNORECASE,
)
_YOURS = re.compile(
    r"\bwhat (?:did you (?:just |last )?(?:say|answer|reply|tell)|(?:was|were) your)\b|^\W*(?:please |can "
    r"you |could you )*"
    r"(?:repeat (?:that|it|your)|say (?:that|it) again)\b",
    re.IGNORECASE,
)
_COUNTED = re.compile(
    r"\bhow many (?:messages|questions|things)\b.*\b(?:did i|have i|i)\b.*\b(?:ask|sen[dt]|wr\w+|sa\w+)", re.IGNORECASE
)
_IT = re.compile(r"\b(?:it|that one|this one)\b", re.IGNORECASE)


class CallMade(NamedTuple):
    """A call that was made, with its result."""

    name: str
    content: str
    id: str


def text_of(message: Message) -> str:
    """The text of a message, whose content is a string or a list of parts."""
    content = message.get("content")
    parts = [each.get("text") for each in content if isinstance(each, dict)] if isinstance(content, list) else [content]
    return " ".join(part for part in parts if isinstance(part, str))


def calls_of(messages: Sequence[Message]) -> list[CallMade]:
    """The calls among these messages that have a result, in the order of their results."""
    names: dict[str, str] = {}
    found = []
    for message in messages:
        calls = message.get("tool_calls")
        for each in calls if isinstance(calls, list) else []:
            function = each.get("function") if isinstance(each, dict) else None
            if isinstance(function, dict):
                names[str(each.get("id"))] = str(function.get("name"))
        if message.get("role") == "tool":
            key = str(message.get("tool_call_id"))
            found.append(CallMade(names.get(key, ""), text_of(message), key))
    return found


def rows_of(content: str) -> list[dict[str, Any]]:
    """The rows of a result: of {"tasks": [...]} the list, of {"task": {...}} the one."""
    try:
        value = load_json(content)
    except ValueError:
        return []
    parts = list(value.values()) if isinstance(value, dict) else [value]
    listed = next((each for each in parts if isinstance(each, list)), None)
    rows = listed if listed is not None else [each for each in parts if isinstance(each, dict) and len(parts) == 1]
    return [each for each in rows if isinstance(each, dict)]


def count_of(content: str) -> int | None:
    """The number of rows of a listing, with those that it says it left out; None where the result is no listing."""
    try:
        value = load_json(content)
    except ValueError:
        return None
    parts = value if isinstance(value, dict) else {"": value}
    listed = next((each for each in parts.values() if isinstance(each, list)), None)
    more = parts.get("more")
    return None if listed is None else len(listed) + (more if type(more) is int else 0)


def just_made(before: Sequence[Message]) -> tuple[str, dict[str, Any]] | None:
    """The kind and the row of the one thing that the turn before was about: ("event", {"number": 3, ...})."""
    last = max((index for index, each in enumerate(before) if each.get("role") == "user"), default=0)
    made = [call for call in calls_of(before[last:]) if call.name not in META_TOOLS]
    rows = rows_of(made[-1].content) if made else []
    if len(rows) != 1 or "number" not in rows[0]:
        return None
    value = load_json(made[-1].content)
    kind = str(next(iter(value))) if isinstance(value, dict) else ""
    return (kind.removesuffix("s"), rows[0]) if kind and kind != "removed" else None


def with_it_named(text: str, before: Sequence[Message]) -> tuple[str, dict[str, Any] | None]:
    """The text with the kind of the thing spoken of last for "it", and that thing: "move the event to 4pm"."""
    if not re.match(r"(?:\S+ ){0,4}?(?:it|that one|this one)\b", text, re.IGNORECASE):
        return text, None
    last = just_made(before)
    return (_IT.sub(f"the {last[0]}", text, count=1), last[1]) if last else (text, None)


def recalled(text: str, before: Sequence[Message], signature: str) -> str:
    """The answer to a question about the conversation itself; "" for any other message."""
    mine = [" ".join(text_of(each).split()) for each in before if each.get("role") == "user"]
    yours = [text_of(each) for each in before if each.get("role") == "assistant" and text_of(each)]
    answered = [each.replace(signature, "").strip() for each in yours]
    if _COUNTED.search(text):
        return f"{len(mine)} before this one, as far as I was sent the conversation."
    if _YOURS.search(text):
        return (
            (answered[0] if "first" in text.lower() else answered[-1])
            if answered
            else "I have not answered anything yet."
        )
    if not _MINE.search(text):
        return ""
    if not mine:
        return "Nothing yet: this is your first message."
    if re.search(r"\bfirst\b", text, re.IGNORECASE):
        return f"First you wrote: “{mine[0][:MOST_CHARACTERS]}”"
    if re.search(r"\b(?:last|just|previous|before|latest)\b", text, re.IGNORECASE):
        return f"Before this you wrote: “{mine[-1][:MOST_CHARACTERS]}”"
    return "You wrote:\n" + "\n".join(f"- {each[:MOST_CHARACTERS]}" for each in mine[-MOST_LISTED:])
