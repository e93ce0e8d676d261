"""Chooses the tool that a message asks for, by its words. Knows scores; what arguments to send is said elsewhere."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from toolhub.offline_model import values, words
from toolhub.offline_model.schemas import Parameter, parameters

#: A match has to say at least this much; below it, chatting is the better answer.
THRESHOLD = 2.6
#: What a word counts for by where the tool says it.
IN_NAME, IN_SUMMARY, IN_DETAILS, IN_PARAMETER, IN_PARAMETER_TEXT, IN_CHOICES = 3.0, 1.6, 0.7, 1.2, 0.4, 1.5
POLITE = re.compile(
    r"^\W*(?:(?:please|kindly|hey|hi|hello|ok(?:ay)?|now|then|so|and|also|first|next)\b[,!.]?\s*|"
    r"(?:can|could|would|will) you (?:please |kindly |maybe |also )?|"
    r"(?:i(?:'d| would) like|i want|i need|i have|i've got)(?: you)? to\s+|i(?:'d| would) like\s+|"
    r"(?:let's|let us|go ahead and|help me(?: to)?|try to|do not forget to|don't forget to)\s+)+",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Tool:
    """One definition of a request, taken apart. `terms` says what each of its words and groups counts for."""

    name: str
    description: str
    parameters: tuple[Parameter, ...]
    terms: Mapping[str, float]
    verbs: frozenset[str]
    shapes: frozenset[str]

    @property
    def is_named_by_verb(self) -> bool:
        return any(words.verbs(stem) for stem in words.stems(self.name))

    @property
    def overwrites(self) -> bool:
        return re.match(r"(?:replace|overwrite|empty|erase|wipe|clear)", self.description, re.IGNORECASE) is not None

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset(words.KINDS[verb] for verb in self.verbs if verb in words.KINDS)

    @property
    def only_reads(self) -> bool:
        """Whether what it does changes nothing, by its words: it reads, or is called by what it tells."""
        if self.kinds:
            return self.kinds <= {"read", "compute"}
        first = words.WORD.match(self.description)
        return not self.verbs and first is not None and first[0].lower() in words.DETERMINERS

    @property
    def name_stems(self) -> tuple[str, ...]:
        return words.stems(self.name)


@dataclass(frozen=True)
class Message:
    """What the user said: `command` is what asks for a tool, `payload` what is quoted or stands after a colon."""

    text: str
    command: str
    payload: str
    verbs: frozenset[str] = frozenset()
    is_question: bool = False
    terms: Mapping[str, float] = field(default_factory=dict)
    shapes: frozenset[str] = frozenset()


def read_tools(definitions: object) -> list[Tool]:
    """The tools of a request; what is not a function with a name is left out."""
    tools = []
    for definition in definitions if isinstance(definitions, list) else []:
        function = definition.get("function") if isinstance(definition, dict) else None
        if isinstance(function, dict) and isinstance(function.get("name"), str) and function["name"]:
            tools.append(_tool(json.dumps(function, sort_keys=True)))
    return tools


@lru_cache(maxsize=2_000)
def _tool(source: str) -> Tool:
    function = json.loads(source)
    name = function["name"]
    description = function.get("description") if isinstance(function.get("description"), str) else ""
    found = parameters(function.get("parameters"))
    summary, _, details = _WHOSE.sub("", description).partition(". ")
    terms: dict[str, float] = {}
    texts = [(name, IN_NAME), (summary, IN_SUMMARY), (details[:600], IN_DETAILS)]
    for parameter in found:
        texts.append((parameter.name, IN_PARAMETER))
        texts.append((parameter.description[:300], IN_PARAMETER_TEXT))
        texts.append((" ".join(str(choice) for choice in parameter.choices[:50]), IN_CHOICES))
    for text, weight in texts:
        for stem in words.stems(text):
            for key in (stem, *words.groups(stem)):
                terms[key] = max(terms.get(key, 0.0), weight)
    return Tool(name, description, tuple(found), terms, _tool_verbs(name, summary), _tool_shapes(found))


def _tool_shapes(found: Sequence[Parameter]) -> frozenset[str]:
    """The notations that the tool cannot do without."""
    shapes = {each.wants for each in found if each.required} & {"url", "path", "sum", "email"}
    ends = (
        [each.is_named("from", "source", "base") for each in found],
        [each.is_named("to", "target") for each in found],
    )
    if all(any(end) for end in ends):
        shapes.add("conversion" if any(each.kind in ("integer", "number") for each in found) else "route")
    return frozenset(shapes)


def _tool_verbs(name: str, summary: str) -> frozenset[str]:
    """What the tool does: by its name, or where that says nothing, by how its description begins.

    A name begins with its verb or ends in it (create_task, task_create). Where both ends could be one (list_add), the
    description decides; where that says a third thing, any of them may be meant.
    """
    parts = words.stems(name)
    begins = frozenset(verb for stem in words.stems(summary)[:1] for verb in words.verbs(stem))
    ends = [found for found in map(words.verbs, (*parts[:1], *parts[-1:])) if found]
    agreeing = [found for found in ends if found & begins]
    if agreeing or ends:
        return frozenset().union(*agreeing) if agreeing else begins.union(*ends)
    return frozenset(verb for stem in parts for verb in words.verbs(stem)) or begins


# -- The message -----------------------------------------------------------------------------------------------------

_QUOTES = re.compile(r"\"[^\"]+\"|“[^”]+”|`[^`]+`|(?<!\w)'[^']+'(?!\w)")
_COLON = re.compile(r":\s+(?=\S)")
_LIST_AS_NOUN = re.compile(r"\b(on|my|the|our|your|to-?do|todo|task|check|wish)[ -]+list\b", re.IGNORECASE)
_A_LIST = re.compile(r"\b(an?|this|shopping|grocery)(?: \w+)?[ -]+list\b", re.IGNORECASE)
#: Whom a tool serves, not what it is about.
_WHOSE = re.compile(r"\bthe (?:user|member)(?:['’]s)?\b", re.IGNORECASE)


def read_message(text: str) -> Message:
    text = re.sub(r"\s+", " ", text).strip()[:4_000]
    command = POLITE.sub("", text)
    payload = ""
    aside = words.ASIDE.search(command)
    if aside:
        command, payload = aside[0], command[: aside.start()]
    colon = _COLON.search(command)
    if colon and len(words.WORD.findall(command[: colon.start()])) <= 12:
        command, payload = command[: colon.start()], f"{payload} {command[colon.end() :]}"
    shapes = _message_shapes(text)
    quotes = " ".join(_QUOTES.findall(command))
    for pattern in (_QUOTES, values.URL, values.EMAIL, values.PATH):
        command = pattern.sub(" ", command)
    first = re.match(r"[\w'’]+", command)
    is_question = bool(first and first[0].lower().replace("’", "'") in words.QUESTIONS)
    verbs = _message_verbs(command, is_question)
    terms = _message_terms(command, payload)
    return Message(text, command, f"{payload} {quotes}".strip(), verbs, is_question, terms, shapes)


_CONVERSION = re.compile(
    r"\d\s*[^\W\d]+(?:\s[^\W\d]+)?\s+(?:to|into|in|as)\s+[^\W\d]+|\bhow many\b.*\bin\b.*\d", re.IGNORECASE
)


_ROUTE = re.compile(r"\bfrom\s+\w[^,;:]*?\sto\s+\w", re.IGNORECASE)


def _message_shapes(text: str) -> frozenset[str]:
    patterns = {
        "url": values.URL,
        "email": values.EMAIL,
        "path": values.PATH,
        "conversion": _CONVERSION,
        "route": _ROUTE,
    }
    plain = values.URL.sub(" ", text)
    shapes = {shape for shape, pattern in patterns.items() if pattern.search(text if shape == "url" else plain)}
    return frozenset(shapes | {"sum"} if values.expression(plain) else shapes)


def _message_verbs(command: str, is_question: bool) -> frozenset[str]:
    """What is asked to be done: a question asks for reading, else the first verb says it."""
    plain = _A_LIST.sub(r"\1", _LIST_AS_NOUN.sub(r"\1", command))
    stems = words.stems(plain)
    if is_question:
        counting = {"count"} if re.match(r"how many", command, re.IGNORECASE) else set()
        sums = {verb for stem in stems for verb in words.verbs(stem) if verb in ("calculate", "convert")}
        return frozenset({"list", "read", "find"} | counting | sums)
    if re.search(r"\b(?:is|are|am|have|i've|i) (?:\w+ )?(?:done|finished|completed)\b", command, re.IGNORECASE):
        return frozenset({"complete"})
    for stem in stems[:5]:
        if words.verbs(stem):
            return words.verbs(stem)
    return frozenset()


def _message_terms(command: str, payload: str) -> dict[str, float]:
    """Each stem with its weight: full in the command, a little in the payload, less for verbs that say little."""
    terms: dict[str, float] = {}
    for stem in words.stems(payload):
        terms[stem] = 0.25
    plain = _LIST_AS_NOUN.sub(r"\1 todo", command)
    for place, stem in enumerate(words.stems(plain)):
        # What is asked for comes first; a long message ends in what it is about.
        weight = 0.35 if words.is_weak(stem) else 0.65 if words.verbs(stem) else 1.0
        weight *= 1.0 if place < 6 else 0.5
        terms[stem] = max(terms.get(stem, 0.0), weight)
    if plain != command:
        terms["list"] = max(terms.get("list", 0.0), 0.6)
    return terms


# -- The choice ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ranked:
    tool: Tool
    score: float


def rank(message: Message, tools: Sequence[Tool]) -> list[Ranked]:
    """The tools that share a word of substance with the message, the likeliest first."""
    known = {key: sum(key in tool.terms for tool in tools) for key in _keys(message)}
    rarity = {
        key: math.log(1 + len(tools) / count) / math.log(1 + len(tools)) if count else 0.0
        for key, count in known.items()
    }
    ranked = [Ranked(tool, _score(message, tool, rarity)) for tool in tools]
    return sorted((each for each in ranked if each.score > 0), key=lambda each: -each.score)


def _keys(message: Message) -> set[str]:
    return {key for stem in message.terms for key in (stem, *words.groups(stem))}


def _score(message: Message, tool: Tool, rarity: Mapping[str, float]) -> float:
    total = 0.0
    substance = 0.0
    for stem, weight in message.terms.items():
        exact = tool.terms.get(stem, 0.0) * rarity[stem]
        kin = max((tool.terms.get(group, 0.0) * rarity[group] * 0.75 for group in words.groups(stem)), default=0.0)
        gained = max(exact, kin) * weight
        total += gained
        if weight >= 0.5:
            substance = max(substance, gained)
    shaped = 3.0 * len(message.shapes & tool.shapes)
    total += shaped
    if is_named(tool.name, message.text):
        return total + 20.0
    # Only a word of substance makes a match: "show", or a word of the payload, is in too many mouths.
    return total + _verb_score(message, tool) if substance + shaped >= 0.7 else 0.0


def is_named(name: str, text: str) -> bool:
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
    kinds = frozenset(words.KINDS[verb] for verb in message.verbs if verb in words.KINDS)
    if not kinds or not tool.kinds or kinds & tool.kinds:
        return (1.0 if kinds & tool.kinds else 0.0) + harm
    if message.shapes & tool.shapes:  # "what is" asks for reading, but with a sum behind it for the sum
        return 0.0
    return -1.0 if tool.kinds <= {"compute", "read"} or not tool.is_named_by_verb else -2.5


# -- What a write needs ----------------------------------------------------------------------------------------------

#: Objects that a verb names by itself: a meeting is scheduled, somebody is reminded by a reminder.
_OBJECT_OF_VERB = {"schedul": "#event", "remind": "remind", "rememb": "#memory", "memoriz": "#memory"}


def is_strong(message: Message, tool: Tool) -> bool:
    """Whether the message asks for just this deed, in so many words: what a tool that may change something needs.

    The verb has to be the tool's or of its kind, and the object has to stand in the tool's name, its summary or its
    choices, or to be in a notation that the tool cannot do without. Naming the tool itself is enough.
    """
    if is_named(tool.name, message.text):
        return True
    stems = words.stems(_LIST_AS_NOUN.sub(r"\1 todo", message.command))
    return _verb_fits(message, tool) and _object_fits(message, tool, stems)


def _verb_fits(message: Message, tool: Tool) -> bool:
    first = words.WORD.match(message.command)
    if first and words.stem(first[0]) in (*tool.name_stems, *words.stems(tool.description)[:1]):
        return not message.is_question
    kinds = frozenset(words.KINDS[verb] for verb in message.verbs if verb in words.KINDS)
    return bool(
        message.verbs & tool.verbs or (kinds & tool.kinds) - {"read", "compute"} or message.shapes & tool.shapes
    )


def _object_fits(message: Message, tool: Tool, stems: Sequence[str]) -> bool:
    if message.shapes & tool.shapes:
        return True
    verb = next((stem for stem in stems[:5] if words.verbs(stem)), stems[0] if stems else "")
    nouns = {stem for stem in stems if not words.is_weak(stem) and (stem != verb or not words.verbs(stem))}
    # A word of the same group has to be in the name: "item" in a summary is said of many things.
    kin = {group for stem in (*nouns, verb) for group in words.groups(stem) if group[0] == "#"}
    named = any(tool.terms.get(key, 0.0) >= IN_NAME for key in (*kin, _OBJECT_OF_VERB.get(verb, "")))
    return named or any(tool.terms.get(stem, 0.0) >= IN_CHOICES for stem in nouns)
