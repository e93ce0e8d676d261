"""Readers of free text: told by the words before or beside it, or simply what is left."""

from __future__ import annotations

import re
from typing import Any

from toolhub.offline_model import words
from toolhub.offline_model.schemas import Parameter
from toolhub.offline_model.sheet import Sheet, front, is_tool_talk, remainder, trimmed
from toolhub.offline_model.values import Found

# Which words lead in what a parameter is about: "from Berlin", "a note called x", "by Verdi".
LEADS = {
    "from": "from source origin start departure sender base",
    "to": "new language to target destination recipient end goal dest",
    "into": "to target destination into language",
    "in": "city location place where region country language room unit folder",
    "at": "city location place where venue address",
    "near": "city location place where near",
    "by": "author artist by creator composer writer owner performer",
    "about": "topic subject about query term keyword search question",
    "with": "attendee participant guest with people password",
    "called": "name title label key filename",
    "named": "name title label key filename",
    "titled": "name title label",
    "as": "name alias key label role",
    "tagged": "tag label topic category",
    "under": "tag label topic category folder key name",
    "saying": "message body text content",
    "for": "city location place person customer recipient guest client reason purpose employee user owner",
}
_STOPS = (
    r"(?=\s(?:from|to|into|in|at|near|by|about|with|called|named|titled|as|tagged|under|saying|for|on|and|that|"
    r"today|tonight|tomorrow|yesterday|next|this|due)\b|[,;:?!]|\.(?:\s|$)|$)"
)


def read_lead(sheet: Sheet, parameter: Parameter) -> Any:
    if parameter.wants != "text":
        return None
    code = re.fullmatch(r"\^?\[A-Z\]\{3\}\$?", str(parameter.schema.get("pattern", "")))
    text = sheet.left(0, sheet.payload)
    for lead, names in LEADS.items():
        if not parameter.is_named(*names.split()):
            continue
        article = "" if lead == "saying" else "(?-i:the |a |my |your |our )?"
        match = re.search(rf"\b{lead}\s+{article}(\S.*?){_STOPS}", text, re.IGNORECASE)
        value = trimmed(match[1]) if match else ""
        if match and value and not is_tool_talk(sheet, value):
            return sheet.take(Found(value.upper() if code else value, match.start(), match.end()))
    return None


def read_unit(sheet: Sheet, parameter: Parameter) -> Any:
    """The word after a number, for a parameter that says in what the amount is: "12 miles in km"."""
    if parameter.kind != "string" or not parameter.is_named("from", "source", "base"):
        return None
    match = re.search(rf"\d\s*([^\W\d]+(?:\s[^\W\d]+)??){_STOPS}", sheet.text, re.IGNORECASE)
    return _take_group(sheet, parameter, match)


def read_target(sheet: Sheet, parameter: Parameter) -> Any:
    if parameter.kind != "string" or not parameter.is_named("to", "target"):
        return None
    many = re.search(r"\bhow many\s+([^\W\d]+)\b", sheet.text, re.IGNORECASE)
    match = many or re.search(rf"\b(?:to|into|in|as)\s+([^\W\d]+){_STOPS}", sheet.left(), re.IGNORECASE)
    return _take_group(sheet, parameter, match)


def _take_group(sheet: Sheet, parameter: Parameter, match: re.Match[str] | None) -> Any:
    if match is None or not sheet.is_free(Found(None, match.start(1), match.end(1))):
        return None
    if parameter.choices:
        stem = words.stem(match[1])
        value: Any = next((each for each in parameter.choices if words.stem(str(each)) == stem), None)
    else:
        short = re.search(
            r"\{3\}|\bISO\b|\b(?:three|3)[- ]letter\b|currency code", f"{parameter.schema}", re.IGNORECASE
        )
        value = match[1].upper() if short and len(match[1]) == 3 else match[1]
    return sheet.take(Found(value, match.start(1), match.end(1))) if value is not None else None


def read_new_value(sheet: Sheet, parameter: Parameter) -> Any:
    """What something is changed to, where the tool leaves open what changes: "rename item 3 to x"."""
    if parameter.required or not parameter.is_named("title", "name", "label", "text", "value", "content"):
        return None
    change = r"(?:rename|change|update|set|edit|modify|correct)\b.*?\b(?:to|as)\s+(\S.*)$"
    match = re.match(change, sheet.left().lstrip(), re.IGNORECASE) if parameter.wants == "text" else None
    value = trimmed(match[1]) if match else ""
    place = sheet.left().find(value) if value else -1
    return sheet.take(Found(value, place, place + len(value))) if place >= 0 else None


def read_pair(sheet: Sheet, parameter: Parameter) -> Any:
    """The name in "the name is the value", where a tool keeps values under names."""
    if not (parameter.required and parameter.wants == "text" and parameter.is_named("key", "name", "title", "topic")):
        return None
    text = sheet.left()
    body = sheet.payload if sheet.payload is not None else front(sheet, text, 0)
    match = re.match(
        r"\s*(?:(?:the|my|our)\s+)?(\S.{0,80}?)\s+(?:is|are|=|equals)\s+(?=\S)", text[body:], re.IGNORECASE
    )
    if match and len(match[1].split()) <= 6:
        return sheet.take(Found(trimmed(match[1]), body, body + match.end()))
    return None


def read_between(sheet: Sheet, parameter: Parameter) -> Any:
    """The two ends in "between here and there"."""
    if parameter.wants != "text" or not parameter.is_named("from", "to", "source", "target", "origin", "destination"):
        return None
    match = re.search(rf"\bbetween\s+(\S.*?)\s+and\s+(\S.*?){_STOPS}", sheet.text, re.IGNORECASE)
    if match is None:
        return None
    end = 1 if parameter.is_named("from", "source", "origin") else 2
    return sheet.take(Found(trimmed(match[end]), match.start(end), match.end(end)))


def read_beside(sheet: Sheet, parameter: Parameter) -> Any:
    """What qualifies the parameter's own word: "the blue room", "project Apollo"."""
    if not (parameter.kind == "string" and parameter.wants == "text" and len(parameter.name_stems) == 1):
        return None
    name = re.escape(parameter.name)
    text = sheet.left(0, sheet.payload)
    after = re.search(
        rf"\b{name}\s+(?:called\s+|named\s+)?(?-i:([A-Z0-9][\w-]*|[\w-]+(?:\.[\w-]+)+))", text, re.IGNORECASE
    )
    before = re.search(rf"\b(?:the|my|our|in|for|of)\s+([\w-]+)\s+{name}\b", text, re.IGNORECASE)
    match = after or before
    if match and not is_tool_talk(sheet, match[1]) and match[1].lower() not in words.STOP:
        return sheet.take(Found(match[1], match.start(), match.end()))
    return None


def read_text(sheet: Sheet, parameter: Parameter) -> Any:
    """What the message is about: the quoted, what follows the colon, or what is left of it."""
    if not parameter.required or parameter.kind != "string" or parameter.choices:
        return None
    quotes = sheet.free(sheet.quotes)
    if quotes:
        return sheet.take(quotes[0])
    if parameter.wants in ("url", "email", "path", "sum", "date"):
        return None
    return trimmed(remainder(sheet, used=True)) or None
