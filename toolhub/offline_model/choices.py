"""Readers of what can only be one of a few: a value of an enumeration, yes or no."""

from __future__ import annotations

import re
from typing import Any

from toolhub.offline_model import words
from toolhub.offline_model.schemas import Parameter
from toolhub.offline_model.sheet import Sheet, names_object
from toolhub.offline_model.values import Found


def read_constant(sheet: Sheet, parameter: Parameter) -> Any:
    return parameter.choices[0] if parameter.required and len(parameter.choices) == 1 else None


def read_choice(sheet: Sheet, parameter: Parameter) -> Any:
    """A value of an enumeration that the message names. An optional one has to be meant, not only mentioned."""
    for choice in sorted(parameter.choices, key=lambda choice: -len(str(choice))):
        if str(choice) in ("a", "an", "i"):  # said in every other message, and meant in none
            continue
        spoken = re.sub(r"[_-]+", " ", str(choice)).strip()
        pattern = r"[\s_-]+".join(re.escape(word) for word in spoken.split())
        for match in re.finditer(rf"(?<![\w-]){pattern}(?:s|es|d|ed)?(?![\w-])", sheet.left(), re.IGNORECASE):
            found = _with_name(sheet, Found(choice, match.start(), match.end()), parameter)
            named = found.end - found.start > match.end() - match.start()
            if parameter.required or named or _is_meant(sheet, found):
                return sheet.take(found)
    return None


def _is_meant(sheet: Sheet, found: Found) -> bool:
    """Whether a mention is about the deed: "closed tickets", or beside a text that is set apart or not wanted."""
    if sheet.in_payload(found):
        return False
    following = words.WORD.match(sheet.text, found.end + 1)
    return (
        not sheet.has_free_text
        or sheet.payload is not None
        or bool(sheet.quotes)
        or (following is not None and names_object(sheet, words.stem(following[0])))
    )


def _with_name(sheet: Sheet, found: Found, parameter: Parameter) -> Found:
    """The value together with the parameter's name beside it: "with high priority", "priority: high"."""
    name = r"[\s_-]*".join(re.escape(part) for part in re.split(r"[_-]", parameter.name))
    lead = r"(?:\b(?:with|as|at|of|in|and|set)\s+)?(?:\b(?:a|an|the)\s+)?"
    before = re.search(rf"{lead}\b{name}s?\s*(?:is|of|to|as|=|:|level)?\s*$", sheet.text[: found.start], re.IGNORECASE)
    after = re.match(rf"[\s-]*{name}s?\b", sheet.text[found.end :], re.IGNORECASE)
    if before:
        return Found(found.value, before.start(), found.end)
    if after:
        led = re.search(rf"{lead}$", sheet.text[: found.start], re.IGNORECASE)
        return Found(found.value, led.start() if led else found.start, found.end + after.end())
    return found


def read_boolean(sheet: Sheet, parameter: Parameter) -> Any:
    if parameter.kind != "boolean" or not parameter.name_stems:
        return None
    outside = sheet.text[: sheet.payload] if sheet.payload else sheet.text
    switch = re.search(r"\b(on|off|enabled?|disabled?|true|false|yes|no)\b", outside, re.IGNORECASE)
    if switch and parameter.required:
        value = switch[1].lower()[:2] in ("on", "en", "tr", "ye")
        return sheet.take(Found(value, switch.start(), switch.end()))
    if set(parameter.name_stems) <= set(words.stems(outside)):
        last = parameter.name_stems[-1]
        place = next(m.start() for m in words.WORD.finditer(outside) if last in words.stems(m[0]))
        denied = re.search(r"\b(?:not|don't|without|no|never|except|exclude)\s+(?:\w+\s+)?$", outside[:place].lower())
        return not denied
    return None
