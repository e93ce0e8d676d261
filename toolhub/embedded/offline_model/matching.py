"""Chooses the tool that a message asks for, by its words. Knows scores; what arguments to send is said elsewhere."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from toolhub.embedded.offline_model import values, words
from toolhub.embedded.offline_model.tools import IN_CHOICES, IN_NAME, Tool

#: A match has to say at least this much; below it, chatting is the better answer.
THRESHOLD = 2.6
#: Characters of a message that are read.
MOST_CHARACTERS = 4_000
_POLITE = re.compile(
    r"^\W*(?:(?:please|kindly|hey|hi|hello|ok(?:ay)?|now|then|so|and|also|first|next)\b[,!.]?\s*|"
    r"(?:can|could|would|will) you (?:please |kindly |maybe |also )?|"
    r"(?:i(?:'d| would) like|i want|i need|i have|i've got)(?: you)? to\s+|i(?:'d| would) like\s+|"
    r"(?:let's|let us|go ahead and|help me(?: to)?|try to|do not forget to|don't forget to)\s+)+",
    re.IGNORECASE,
)
#: Shapes that a message shows by how it is written; a tool that needs such a value has the same word in its `shapes`.
SHAPES = {
    **values.WRITTEN,
    "conversion": re.compile(r"\d\s*[^\W\d]+(?:\s[^\W\d]+)?\s+(?:to|into|in|as)\s+[^\W\d]+", re.IGNORECASE),
}
_LIST_AS_NOUN = re.compile(r"\b(on|my|the|our|your|to-?do|todo|task|check|wish)[ -]+list\b", re.IGNORECASE)
#: Objects that a verb names by itself: a meeting is scheduled, somebody is reminded by a reminder.
_OBJECT_OF_VERB = {"schedul": "#event", "remind": "remind", "rememb": "#memory", "memoriz": "#memory"}


@dataclass(frozen=True)
class Message:
    """Message of the user: `command` is the part that asks for a tool, `payload` what is quoted or stands after a
    colon."""

    text: str
    command: str
    payload: str
    verbs: frozenset[str]
    is_question: bool
    terms: Mapping[str, float]
    shapes: frozenset[str]


def plain(text: str) -> str:
    """The text on one line, as far as it is read."""
    return " ".join(text.split())[:MOST_CHARACTERS]


def request_of(text: str) -> tuple[str, int | None]:
    """The text without the courtesies it begins with, and where its payload begins, if one follows a colon."""
    text = _POLITE.sub("", text)
    colon = re.search(r":\s+(?=\S)", text)
    is_short = colon is not None and len(words.WORD.findall(text[: colon.start()])) <= 12
    return text, colon.end() if colon is not None and is_short else None


def read_message(text: str) -> Message:
    text = plain(text)
    command, start = request_of(text)
    command, payload = (command, "") if start is None else (command[:start], command[start:])
    quotes = [found.value for found in values.quoted(command)]
    for pattern in (values.QUOTED, *values.WRITTEN.values()):
        command = pattern.sub(" ", command)
    payload = " ".join([payload, *quotes]).strip()
    first = re.match(r"[\w'’]+", command)
    is_question = first is not None and first[0].lower().replace("’", "'") in words.QUESTIONS
    terms = _terms(command, payload)
    return Message(text, command, payload, _verbs(command, is_question), is_question, terms, _shapes(text))


def _shapes(text: str) -> frozenset[str]:
    without = values.URL.sub(" ", text)
    shapes = {shape for shape, pattern in SHAPES.items() if pattern.search(text if shape == "url" else without)}
    return frozenset(shapes | {"sum"} if values.expression(without) else shapes)


def _verbs(command: str, is_question: bool) -> frozenset[str]:
    """Return the verbs of a command: a question asks for reading, else the first verb says it."""
    if is_question:
        return frozenset({"list", "read", "find"})
    stems = words.stems(_LIST_AS_NOUN.sub(r"\1", command))
    return next((words.verbs(stem) for stem in stems[:5] if words.verbs(stem)), frozenset())


def _terms(command: str, payload: str) -> dict[str, float]:
    """Each stem with its weight: full in the command, a little in the payload, less for verbs that say little."""
    terms = dict.fromkeys(words.stems(payload), 0.25)
    for stem in _substance(command):
        weight = 0.35 if stem in words.WEAK_STEMS else 0.65 if words.verbs(stem) else 1.0
        terms[stem] = max(terms.get(stem, 0.0), weight)
    if _LIST_AS_NOUN.search(command):
        terms["list"] = max(terms.get("list", 0.0), 0.6)
    return terms


def _substance(command: str) -> tuple[str, ...]:
    """The stems of a command, "my list" read as the to-dos that are on it."""
    return words.stems(_LIST_AS_NOUN.sub(r"\1 todo", command))


# -- The choice ------------------------------------------------------------------------------------------------------


def rank(message: Message, tools: Sequence[Tool]) -> list[tuple[float, Tool]]:
    """The tools that share a word of substance with the message, each with its score, the likeliest first."""
    keys = {key for stem in message.terms for key in (stem, *words.groups(stem))}
    counts = {key: sum(key in tool.terms for tool in tools) for key in keys}
    rarity = {
        key: math.log(1 + len(tools) / count) / math.log(1 + len(tools)) if count else 0.0
        for key, count in counts.items()
    }
    ranked = [(_score(message, tool, rarity), tool) for tool in tools]
    return sorted((each for each in ranked if each[0] > 0), key=lambda each: -each[0])


def _score(message: Message, tool: Tool, rarity: Mapping[str, float]) -> float:
    total = substance = 0.0
    for stem, weight in message.terms.items():
        exact = tool.terms.get(stem, 0.0) * rarity[stem]
        kin = max((tool.terms.get(group, 0.0) * rarity[group] * 0.75 for group in words.groups(stem)), default=0.0)
        gained = max(exact, kin) * weight
        total += gained
        if weight >= 0.5:
            substance = max(substance, gained)
    shaped = 3.0 * len(message.shapes & tool.shapes)
    if _is_named(tool.name, message.text):
        return total + shaped + 20.0
    # Only a word of substance makes a match: "show", or a word of the payload, is in too many mouths.
    return total + shaped + _verb_score(message, tool) if substance + shaped >= 0.7 else 0.0


def _is_named(name: str, text: str) -> bool:
    return ("_" in name or "-" in name) and re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text) is not None


def _verb_score(message: Message, tool: Tool) -> float:
    """Doing the same speaks for a tool; deleting where showing was asked for speaks strongly against it."""
    if not tool.verbs and tool.only_reads:
        return 1.0 if message.is_question or not message.verbs else 0.0
    if not message.verbs or not tool.verbs:
        return 0.0
    # Losing what is there has to be asked for in so many words.
    harm = -1.5 if tool.overwrites and not message.verbs & {"update", "delete"} else 0.0
    if message.verbs & tool.verbs:
        return 2.0 + harm
    kinds = words.kinds(message.verbs)
    if not kinds or not tool.kinds or kinds & tool.kinds:
        return (1.0 if kinds & tool.kinds else 0.0) + harm
    if message.shapes & tool.shapes:  # "what is" asks for reading, but with a sum behind it for the sum
        return 0.0
    return -1.0 if tool.only_reads else -2.5


# -- What a write needs ----------------------------------------------------------------------------------------------


def is_strong(message: Message, tool: Tool) -> bool:
    """Return whether the message asks for just this deed, in plain words, as a tool that may change something needs it.

    The verb has to be the tool's or of its kind, and the object has to stand in the tool's name, its summary or its
    choices, or to be in a notation that the tool cannot do without. Naming the tool itself is enough.
    """
    return _is_named(tool.name, message.text) or (_verb_fits(message, tool) and _object_fits(message, tool))


def _verb_fits(message: Message, tool: Tool) -> bool:
    first = words.WORD.match(message.command)
    if first and words.stem(first[0]) in (*tool.name_stems, *words.stems(tool.description)[:1]):
        return not message.is_question
    kinds = words.kinds(message.verbs) & (tool.kinds - {"read", "compute"})
    return bool(message.verbs & tool.verbs or kinds)


def _object_fits(message: Message, tool: Tool) -> bool:
    if message.shapes & tool.shapes:
        return True
    stems = _substance(message.command)
    verb = next((stem for stem in stems[:5] if words.verbs(stem)), stems[0] if stems else "")
    objects = {stem for stem in stems if stem not in words.WEAK_STEMS and (stem != verb or not words.verbs(stem))}
    # A word of the same group has to be in the name: "item" in a summary may mean many things.
    kin = {*words.nouns({*objects, verb}), _OBJECT_OF_VERB.get(verb, "")}
    named = any(tool.terms.get(key, 0.0) >= IN_NAME for key in kin)
    return named or any(tool.terms.get(stem, 0.0) >= IN_CHOICES for stem in objects)
