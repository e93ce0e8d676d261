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
from toolhub.embedded.offline_model.spelling import corrected
from toolhub.embedded.offline_model.tools import ADDING, KINDS, Tool, related_words
from toolhub.embedded.offline_model.values import (
    NUMBER,
    PARTS_OF_DAY,
    QUOTED,
    Found,
    conversion,
    days,
    soon,
    spans,
    sums,
    times,
    zones,
)

MOST_CHARACTERS = 4_000
_POLITE = re.compile(
    r"^\W*(?:(?:please|hey|hi|hello|ok(?:ay)?|now|then|so|and|also)\b[,!.]?\s*|"
    r"(?:can|could|would|will) you (?:please )?|(?:i(?:'d| would) like|i want|i need|i have)(?: you)? to\s+)+",
    re.IGNORECASE,
)
_ENDS = re.compile(r"(?:^|\s)(?:by|on|for|to|due|and|with|at|in|of|from|the|an?|please|that)$", re.IGNORECASE)
_MARKS = " \t,;:.?!-–—"
#: Wordings that say a deed or a thing in other words, and the plain ones.
PHRASES = tuple(
    (re.compile(pattern, re.IGNORECASE), plainly)
    for pattern, plainly in (
        (
            r"^(?:i|we)(?:['’]ve| have)?(?: already| just)* (?:bought|got) (?!to\b)(.+?)\W*$",
            r"mark \1 on the shopping list as bought",
        ),
        (r"^(?:i|we)(?:['’]ve| have)(?: already| just)* (finished|completed|done) ", r"I \1 "),
        (r"^(?:the |my )?(?:task )?(.{2,80}?) (?:is|are) (?:done|finished)\W*$", r"mark \1 as done"),
        (r"^(?:check|tick|cross) (?:off (.+)|(.+) off)$", r"mark \1\2 as done"),
        (r"^(?:do not|don['’]?t) (?:let me )?forget (?:to )?", "remind me to "),
        (r"^(?:a )?(?:new )?(task|todo|event|appointment)\s*:\s*", r"add a \1: "),
        (r"^new (task|todo|event|appointment)\b", r"add a \1"),
        (r"^(?:(?:add|create|make)(?: an?)?(?: new)?|new) reminder\b", "remind me"),
        (r"^wake me(?: up)?\b", "remind me to wake up"),
        (r"^(?:am|are) (?:i|we) (?:free|busy)\b", "what is on my calendar"),
        (
            (
                r"^(?:what do (?:i|we) have|what(?:['’]s| is)(?: up| planned)?|do i have anything)(?: "
                r"planned| going)?(?: on)?(?= (?:today|tonight|tomorrow"
                r"|this|next|on|for) ?(?:\w+day|\w*)\W*$)"
            ),
            "what is on my calendar",
        ),
        (r"\bto (?:buy|get)(?: from| at| in)? the (?:store|shop|supermarket)\b", "on the shopping list"),
        (r"\bset (?:a|another) reminder\b", "remind me"),
    )
)
_QUESTIONS = {"what", "which", "who", "when", "where", "how", "is", "are", "do", "does", "did", "will", "any", "have"}
_QUESTIONS |= {"should", "shall", "can", "could", "would", "may"}
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
    that does; a question reads. `roots`: stems of substance, `objects`: of what it is about, and their like.
    `is_guess`: a misspelt verb was mended. `unknown`: a place without a known time zone. `when`: day and time of a
    moment, as far as they are said."""

    def __init__(self, text: str) -> None:
        text = re.sub(r"\bto-do", "todo", _POLITE.sub("", plain(text)), flags=re.IGNORECASE)
        for pattern, plainly in PHRASES:
            text = pattern.sub(plainly, text, count=1)
        quoted = QUOTED.search(text)
        payload = re.match(r"(?:\S+ ){0,11}?\S+: (?=\S)", text)
        end = min((each for each in (payload and payload.end(), quoted and quoted.start()) if each), default=None)
        self.text, self.is_guess = corrected(text, end)
        colon = re.match(r"(?:\S+ ){0,11}?\S+: (?=\S)", self.text)
        self.payload = colon.end() if colon else None
        self.unknown = ""
        self.span: tuple[datetime.date, datetime.date] | None = None
        self.when: tuple[datetime.date | None, datetime.time | None] | None = None
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
                is_title = word == "with" and at > 0 and stem(words[at - 1][0].lower()) in tool.words - tool.own
                return words[at - 1].start() if is_title else match.end()
            is_article = word in ("a", "an", "the", "my", "our", "new", "all") and stem(following) in tool.words
            opens = not end and word.partition("'")[0] in _QUESTIONS
            if not (opens or is_article or word in _SKIPPED or stem(word) in {self.verb, *tool.words}):
                break
            end, has_deed = match.end(), has_deed or stem(word) == self.verb
        return end


class Filled(NamedTuple):
    """A tool with its arguments, the required fields without a value, and the stems that it has no use for. `row`: the
    field that takes a thing's number; `words`, `dates`: what the message says of that thing."""

    tool: Tool
    arguments: dict[str, Any]
    missing: tuple[ArgumentField, ...]
    left_over: set[str]
    message: Message
    row: ArgumentField | None = None
    words: frozenset[str] = frozenset()
    dates: tuple[str, ...] = ()

    @property
    def needs_row(self) -> bool:
        """True where the thing has to be looked at first: for its number, or for the half of its moment that stays."""
        return self.row is not None and (self.row.name not in self.arguments or self.needs_moment)

    @property
    def needs_moment(self) -> bool:
        return self.tool.alters and self.message.when is not None and None in self.message.when


def fill(tool: Tool, text: str) -> Filled:
    """Fill the tool's arguments with what the text says, and name the required ones that it lacks."""
    message, thing = _parts(tool, text)
    arguments: dict[str, Any] = {}
    # What begins comes before what ends, where one day is said.
    fields = sorted(tool.fields, key=lambda field: (not field.is_required, field.name.startswith("end")))
    row = next((field for field in fields if tool.takes(field) in ("row", "rows")), None)
    for kinds, read in READERS:
        for field in fields:
            wanted = field.name not in arguments and tool.takes(field) in kinds.split()
            part = thing if field is row else message
            if wanted and (value := read(part, tool, field)) not in (None, "", []):
                arguments[field.name] = value
    if message.verb == stem("rename") and "title" in {field.name for field in fields} and trimmed(message.text):
        arguments["title"] = re.sub(r"^to\s+", "", trimmed(message.text))
    missing = tuple(field for field in fields if field.is_required and field.name not in arguments and field is not row)
    if tool.alters and not arguments.keys() - {row and row.name}:
        missing = tuple(field for field in fields if field.name == "title" or tool.takes(field) in ("date", "moment"))
    if row is None:
        return Filled(tool, arguments, missing, tool.unnamed(message.rest(tool).value), message)
    now = datetime.datetime.now().astimezone()
    dates = [f"{day:%Y-%m-%d}" for day in [thing.take(days(thing.text, now.date()))] if day]
    dates += [f"T{clock:%H:%M}" for clock in [thing.take(times(thing.text))] if clock]
    words = tool.unnamed(thing.rest(tool).value)
    return Filled(tool, arguments, missing, words, message, row, frozenset(words), tuple(dates))


def _parts(tool: Tool, text: str) -> tuple[Message, Message]:
    """Return what is said of the new values, and of the thing that gets them: "move the meeting", "to 4pm"."""
    message = Message(text)
    link = list(re.finditer(r"\s(?:to|until|till)\s", message.text))[-1:] if tool.alters else []
    if not link:
        return message, message if not any(tool.takes(each) in ("row", "rows") for each in tool.fields) else Message(
            text
        )
    thing = Message(text)
    at = link[0].start()
    thing.text = thing.text[:at]
    message.text = " " * at + message.text[at:]
    return message, thing


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
    clock, is_part = (
        message.take(times(message.text)),
        re.search(rf"\b(?:{'|'.join(PARTS_OF_DAY)})\b", message.text.lower()),
    )
    day = message.take(days(message.text, now.date()))
    if moment is None and (day or clock):
        message.when = (day, clock)
        usual = datetime.time(PARTS_OF_DAY[is_part[0]] if is_part and day else 9)
        moment = datetime.datetime.combine(day or now.date(), clock or usual, now.tzinfo)
        moment += datetime.timedelta(days=moment < now and not day)  # "at 9", in the evening
    return moment and moment.isoformat(timespec="seconds")


def _span(message: Message, tool: Tool, field: ArgumentField) -> Any:
    """First or last day of a listing, where the message names days in a row, or one."""
    names = {each.name for each in tool.fields}
    if tool.kind != "read" or not {"start", "end"} <= names or field.name not in ("start", "end"):
        return None
    if message.span is None:
        today = datetime.datetime.now().astimezone().date()
        found = message.take(spans(message.text, today)) or message.take(days(message.text, today))
        message.span = found if isinstance(found, tuple) or found is None else (found, found)
    return message.span and message.span[field.name == "end"].isoformat()


def _zone(message: Message, tool: Tool, field: ArgumentField) -> Any:
    """The time zone of a place: "in Tokyo", "Tokyo time". Keeps the words of one that is not known."""
    text = re.sub(
        r"\W*(?:\b(?:right )?now|\btoday|\bplease|\btime|\bat the moment)*\W*$", "", message.text, flags=re.IGNORECASE
    )
    if match := re.search(r"\b(?:in|for|at)\s+(?:the\s+)?([^\W\d][\w .'’/+-]*)$", text, re.IGNORECASE):
        name = re.split(r"\s*,\s*", match[1].lower())[0]
        message.unknown = "" if name in zones() else match[1]
        return message.take([Found(zones()[name], *match.span())]) if name in zones() else None
    for match in re.finditer(r"\b((?:[^\W\d]+ )?([^\W\d]+)) time\b", message.text.lower()):
        for group in (1, 2):
            if match[group] in zones():
                return message.take([Found(zones()[match[group]], *match.span(group))])
    return None


def _measure(message: Message, tool: Tool, field: ArgumentField) -> Any:
    """The part of a conversion that a field of a tool with units takes."""
    if not any(tool.takes(each) == "unit" for each in tool.fields):
        return None
    found = conversion(message.text)
    return found.get("value" if tool.takes(field) == "number" else field.name.partition("_")[0])


def _row_numbers(message: Message, tool: Tool, field: ArgumentField) -> Any:
    """The number of a thing, or several where the field takes them: behind its kind ("task 3", "#3"), or alone."""
    kinds = {"number", "no", "nr", "item", "items", *tool.words, *(stem(each) for each in words_of(field.name))}
    found = list(NUMBER.finditer(message.text))
    alone = not {each for each in tool.unnamed(message.rest(tool).value) if not each.isdecimal()}
    picked = []
    for match in found:
        before = [*words_of(message.text[: match.start()])[-1:]]
        behind_kind = bool({*before, *map(stem, before)} & kinds) and stem(before[0]) != message.verb
        if "." not in match[0] and (behind_kind or alone or message.text[: match.start()].endswith("#")):
            picked.append(int(match[0]))
            message.take([Found(0, *match.span())])
    if tool.takes(field) == "rows":
        return picked
    return picked[0] if len(picked) == 1 else None


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
    if (
        field.name == "title"
        and field.is_required
        and not quoted
        and not rest.value
        and not ADDING.isdisjoint(tool.verbs)
    ):
        alike = (word for word in words_of(message.command) if stem(word) in tool.words - tool.own - KINDS.keys())
        return next(alike, None)  # "schedule a meeting": what it is called is all that is said
    if not quoted and (message.is_question or (message.payload is None and not tool.unnamed(rest.value))):
        return None
    return message.take(quoted or [rest]) if field.is_required or field.name == "query" else None


#: Kinds of value, and the function that reads them: the surest first.
READERS: tuple[tuple[str, Callable[[Message, Tool, ArgumentField], Any]], ...] = (
    ("choice", _choice),
    ("unit number", _measure),
    ("zone", _zone),
    ("date moment", _span),
    ("date moment", _day),
    ("sum", lambda message, tool, field: message.take(sums(message.text))),
    ("row rows", _row_numbers),
    ("integer number", _number),
    ("text", _lead),
    ("lines json", _items),
    ("text", _text),
)
