"""Fills a tool's arguments from a message. Every reader takes the words that it used off the message."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from capabilities.choosing.routing.words import content_words, stem, words_of
from capabilities.contract.argument_fields import ArgumentField, argument_fields
from capabilities.contract.parameters import resolved
from toolhub.embedded.offline_model.tools import KINDS, Tool, related_words
from toolhub.embedded.offline_model.values import NUMBER, QUOTED, Found, days, soon, sums, times

MOST_CHARACTERS = 4_000
_POLITE = re.compile(
    r"^\W*(?:(?:please|hey|hi|hello|ok(?:ay)?|now|then|so|and|also)\b[,!.]?\s*|"
    r"(?:can|could|would|will) you (?:please )?|(?:i(?:'d| would) like|i want|i need|i have)(?: you)? to\s+)+",
    re.IGNORECASE,
)
_ENDS = re.compile(r"(?:^|\s)(?:by|on|for|to|due|and|with|at|in|of|from|the|an?|please|that)$", re.IGNORECASE)
_MARKS = " \t,;:.?!-–—"
_QUESTIONS = {"what", "which", "who", "when", "where", "how", "is", "are", "do", "does", "did", "will", "any", "have"}
_SKIPPED = {"me", "us", "i", "you", "is", "are", "do", "does", "did", "have", "down", "up", "it"}
_LINKS = {"to", "for", "about", "that", "of", "called", "named", "with"}
#: Words that lead in what a field is about: "in Berlin", "a note called x".
LEADS = {
    "(?:in|for)(?: the)?": "city place location",
    "to": "to recipient path",
    "about(?: the)?": "query topic subject",
    "(?:called|named)": "name title",
    "saying": "text body message",
}
_STOPS = rf"(?=\s(?:{'|'.join(LEADS)}|at|on|and|that|with|next|this|today|tomorrow)\b|[,;:?!]|\.(?:\s|$)|\s\s|$)"


def plain(text: str) -> str:
    """The text on one line, as far as it is read."""
    return " ".join(text.split())[:MOST_CHARACTERS]


def trimmed(text: str) -> str:
    """Return the text without the blanks, stops and link words that taking parts out leaves at the ends."""
    text = re.sub(r"\s+([,;.?!])", r"\1", " ".join(text.split())).strip(_MARKS)
    while (shorter := _ENDS.sub("", text).strip(_MARKS)) != text:
        text = shorter
    return text


class Message:
    """A message without courtesies. `text` has blanks where a value was taken. `payload`: where the text after a colon
    begins. `command`: what asks for a tool, neither quoted nor payload. `deeds`: the stems of its verb, `kind`: what
    that does; a question reads. `roots`: stems of substance, `objects`: of what it is about, and their like."""

    def __init__(self, text: str) -> None:
        self.text = re.sub(r"\bto-do", "todo", _POLITE.sub("", plain(text)), flags=re.IGNORECASE)
        colon = re.match(r"(?:\S+ ){0,11}?\S+: (?=\S)", self.text)
        self.payload = colon.end() if colon else None
        command = QUOTED.sub(" ", self.text[: self.payload])
        self.command = re.sub(r"\b(on|my|the|our)[ -]list\b", r"\1 task list", command, flags=re.IGNORECASE)
        words = [*words_of(self.command)[:4], ""]
        self.is_question = words[0] in _QUESTIONS
        self.verb = (
            "" if self.is_question else next((root for root in map(stem, words) if root in KINDS), stem(words[0]))
        )
        self.deeds = {self.verb} | (related_words({self.verb}) & KINDS.keys())
        self.kind = "read" if self.is_question else KINDS.get(self.verb, "")
        self.roots = [*map(stem, content_words(self.command))]
        self.objects = ({*self.roots} - {self.verb}) | related_words({*self.roots})

    def take(self, found: Iterable[Found]) -> Any:
        """The first value, whose part of the text becomes blank; None without one."""
        for value, start, end in found:
            self.text = self.text[:start] + " " * (end - start) + self.text[end:]
            return value
        return None

    def rest(self, tool: Tool) -> Found:
        """The part beyond asking for the tool: after the colon if there is one."""
        start, end = self.payload, len(self.text)
        if start is None or not trimmed(self.text[start:]):
            start = self._front(tool)
            for match in list(re.finditer(r"\s(?:to|on|in|into|from|for)\s", self.text[start:]))[-1:]:
                after = self.text[start + match.end() :]  # "to my list"
                end = start + match.start() if content_words(after) and not tool.unnamed(after) else end
        return Found(trimmed(re.sub(r"^\s*an?\s+(?=\w{2})", "", self.text[start:end])), start, end)

    def _front(self, tool: Tool) -> int:
        """Return where the deed, its object and the word that links to the rest are over: after "add a task to"."""
        end, has_deed = 0, self.is_question
        words = [*re.finditer(r"[^\W_]+(?:['’][a-z]+)?", self.text)]
        for at, match in enumerate(words):
            word, following = match[0].lower(), words[at + 1][0].lower() if at + 1 < len(words) else ""
            if word in _LINKS and has_deed:
                return match.end()
            is_article = word in ("a", "an", "the", "my", "our", "new", "all") and stem(following) in tool.words
            opens = not end and word.partition("'")[0] in _QUESTIONS
            if not (opens or is_article or word in _SKIPPED or stem(word) in {self.verb, *tool.words}):
                break
            end, has_deed = match.end(), has_deed or stem(word) == self.verb
        return end


class Filled(NamedTuple):
    """A tool with its arguments, the required fields without a value, and the stems that it has no use for."""

    tool: Tool
    arguments: dict[str, Any]
    missing: tuple[ArgumentField, ...]
    left_over: set[str]


def fill(tool: Tool, text: str) -> Filled:
    """Fill the tool's arguments with what the text says, and name the required ones that it lacks."""
    message = Message(text)
    arguments: dict[str, Any] = {}
    # What begins comes before what ends, where one day is said.
    fields = sorted(tool.fields, key=lambda field: (not field.is_required, field.name.startswith("end")))
    for kinds, read in READERS:
        for field in fields:
            wanted = field.name not in arguments and tool.takes(field) in kinds.split()
            if wanted and (value := read(message, tool, field)) not in (None, "", []):
                arguments[field.name] = value
    missing = tuple(field for field in fields if field.is_required and field.name not in arguments)
    return Filled(tool, arguments, missing, tool.unnamed(message.rest(tool).value))


def _choice(message: Message, tool: Tool, field: ArgumentField) -> Any:
    """A value of an enumeration. To change something it is required, or stands with its name: "with high priority"."""
    for choice in map(json.loads, field.choices):
        name, value = re.escape(field.name), re.escape(str(choice))
        named = rf"(?:\bwith\s+)?\b(?:{name}\W+{value}|{value}\s+{name})\b"
        pattern = rf"{named}|\b{value}\b" if field.is_required or tool.kind == "read" else named
        if match := re.search(pattern, message.text, re.IGNORECASE):
            return message.take([Found(choice, *match.span())])
    return None


def _day(message: Message, tool: Tool, field: ArgumentField) -> Any:
    """A day; of a field that has a time, the moment: at 9 where none is said."""
    now = datetime.datetime.now().astimezone()
    if tool.takes(field) == "date":
        day = message.take(days(message.text, now.date()))
        return day and day.isoformat()
    moment = message.take(soon(message.text, now))
    day, clock = message.take(days(message.text, now.date())), message.take(times(message.text))
    if moment is None and (day or clock):
        moment = datetime.datetime.combine(day or now.date(), clock or datetime.time(9), now.tzinfo)
        moment += datetime.timedelta(days=moment < now and not day)  # "at 9", in the evening
    return moment and moment.isoformat(timespec="seconds")


def _number(message: Message, tool: Tool, field: ArgumentField) -> Any:
    """The first number where one is required, else one beside the field's name: "6 people", "the last 5"."""
    names = {*map(stem, words_of(field.name)), *(("last", "first") if field.name in ("limit", "count") else ())}
    for match in NUMBER.finditer(message.text):
        near = [*words_of(message.text[: match.start()])[-1:], *words_of(message.text[match.end() :])[:1]]
        if field.is_required or names.intersection(map(stem, near)):
            number = float(match[0]) if "." in match[0] else int(match[0])
            return message.take([Found(number, *match.span())])
    return None


def _lead(message: Message, tool: Tool, field: ArgumentField) -> Any:
    for lead, names in LEADS.items():
        match = re.search(rf"\b{lead}\s+(\S.*?){_STOPS}", message.text[: message.payload], re.IGNORECASE)
        if match and field.name in names.split() and tool.unnamed(match[1]):
            return message.take([Found(trimmed(match[1]), *match.span())])
    return None


def _items(message: Message, tool: Tool, field: ArgumentField) -> Any:
    """The items of a required list: texts, or rows of which one text is required: "6 eggs, flour and milk"."""
    items = resolved(resolved(tool.schema["properties"][field.name], tool.schema).get("items"), tool.schema)
    names = [each.name for each in argument_fields(items) or () if each.is_required]
    if not field.is_required or (field.kind == "json" and len(names) != 1):
        return None
    texts = re.split(r"\s*(?:,\s*and\b|,|;|\band\b|&)\s*", message.take([message.rest(tool)]))
    return [_row(text, names[0], items) if field.kind == "json" else text for text in map(trimmed, texts) if text]


def _row(text: str, name: str, items: Any) -> dict[str, Any]:
    count, _, rest = text.partition(" ")
    if count.isdecimal() and rest and "quantity" in items["properties"]:
        return {name: rest, "quantity": int(count)}
    return {name: rest if count in ("some", "a", "an") else text}


def _text(message: Message, tool: Tool, field: ArgumentField) -> Any:
    """The text that the message is about: the quoted, or what is left of it beside the tool's own words."""
    rest = message.rest(tool)
    quoted = [Found(match[match.lastindex or 0], *match.span()) for match in QUOTED.finditer(message.text)]
    if not quoted and (message.is_question or (message.payload is None and not tool.unnamed(rest.value))):
        return None
    return message.take(quoted or [rest]) if field.is_required or field.name == "query" else None


#: Kinds of value, and the function that reads them: the surest first.
READERS: tuple[tuple[str, Callable[[Message, Tool, ArgumentField], Any]], ...] = (
    ("choice", _choice),
    ("date moment", _day),
    ("sum", lambda message, tool, field: message.take(sums(message.text))),
    ("integer number", _number),
    ("text", _lead),
    ("lines json", _items),
    ("text", _text),
)
