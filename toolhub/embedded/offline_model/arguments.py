"""Fills a tool's arguments from a message, by the tool's JSON Schema: what is surely said first, free text last.

Every reader takes the words it used off the sheet, so that what is left is what the message is about.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from toolhub.bounded_json import load_json
from toolhub.embedded.offline_model import values, words
from toolhub.embedded.offline_model.sheet import Sheet, trimmed
from toolhub.embedded.offline_model.tools import Parameter, Tool
from toolhub.embedded.offline_model.values import Found


@dataclass(frozen=True)
class Filled:
    """The arguments, the required parameters for which nothing was said, and the words that were left over."""

    arguments: dict[str, Any]
    missing: tuple[Parameter, ...]
    left_over: str


def fill(tool: Tool, message: str, now: datetime.datetime) -> Filled:
    sheet = Sheet(message, tool, now)
    arguments = _from_json(tool.parameters, sheet)
    needed_first = sorted(tool.parameters, key=lambda each: not each.required)
    for wanted, read in READERS:
        for parameter in needed_first:
            if parameter.name not in arguments and parameter.wants in wanted.split():
                value = read(sheet, parameter)
                if value not in (None, "", []):
                    arguments[parameter.name] = value
    _fill_search(tool.parameters, sheet, arguments)
    missing = tuple(each for each in tool.parameters if each.required and each.name not in arguments)
    return Filled(arguments, missing, trimmed(sheet.rest()))


def _from_json(parameters: Sequence[Parameter], sheet: Sheet) -> dict[str, Any]:
    """Arguments written out as a JSON object in the message."""
    start, end = sheet.text.find("{"), sheet.text.rfind("}")
    try:
        written = load_json(sheet.text[start : end + 1]) if 0 <= start < end else {}
    except ValueError:
        return {}
    found = {each.name: written[each.name] for each in parameters if each.name in written}
    if found:
        sheet.take(Found(None, start, end + 1))
    return found


def _fill_search(parameters: Sequence[Parameter], sheet: Sheet, arguments: dict[str, Any]) -> None:
    """An optional filter takes what is left, where a tool has one and nothing of the text is used otherwise."""
    names = "query q search filter text term keyword contains name topic"
    filters = [
        each.name for each in parameters if each.name not in arguments and each.wants == "text" and each.is_named(names)
    ]
    if not filters or any(isinstance(value, str) for value in arguments.values()):
        return
    quotes = sheet.free(sheet.quotes)
    rest = quotes[0].value if quotes else trimmed(sheet.rest())
    if rest and not sheet.is_tool_talk(rest):
        arguments[filters[0]] = rest


# -- Notations: addresses, paths, days and times, sums, numbers ------------------------------------------------------


def _read_written(sheet: Sheet, parameter: Parameter) -> Any:
    """Read an address, e-mail address or path; a text that names a recipient may be an e-mail address."""
    is_addressee = parameter.wants == "text" and parameter.is_named("to recipient sender cc bcc")
    pattern = values.WRITTEN.get("email" if is_addressee else parameter.wants)
    found = sheet.free(values.matches(pattern, sheet.text)) if pattern else []
    return sheet.take(found[0]) if found else None


def _read_date(sheet: Sheet, parameter: Parameter) -> Any:
    days = sheet.free(values.dates(sheet.text, sheet.now.date()))
    told = re.search(r"date-?time|\btime\b|T\d\d|HH", parameter.description, re.IGNORECASE)
    if parameter.format == "date" or not (told or parameter.format == "date-time"):
        return sheet.take(days[0]).isoformat() if days else None
    near = sheet.free(values.soon(sheet.text, sheet.now))
    if near:
        return sheet.take(near[0]).isoformat(timespec="seconds")
    clock = sheet.free(values.times(sheet.text))
    if not days and not clock:
        return None
    day = sheet.take(days[0]) if days else sheet.now.date()
    hour = sheet.take(clock[0]) if clock else datetime.time(9)
    return datetime.datetime.combine(day, hour, sheet.now.tzinfo).isoformat(timespec="seconds")


def _read_sum(sheet: Sheet, parameter: Parameter) -> Any:
    found = values.expression(sheet.left())
    if found:  # nothing else is said in a message that asks for a sum
        sheet.take(Found(None, 0, len(sheet.text)))
    return found


def _read_near_number(sheet: Sheet, parameter: Parameter) -> Any:
    """A number that stands beside a word of the parameter: "6 people", "level 7", "the first five"."""
    beside = [found for found in _numbers(sheet, parameter) if _is_beside(sheet, found, parameter)]
    return sheet.take(beside[0]) if beside else None


def _is_beside(sheet: Sheet, found: Found, parameter: Parameter) -> bool:
    before, after = sheet.text[: found.start], sheet.text[found.end :]
    limits = re.search(r"\b(?:top|first|last|latest|at most|up to|maximum|max|limit|only)\s+$", before, re.IGNORECASE)
    if limits and parameter.is_named("limit count max top size"):
        return True
    is_second_word = re.fullmatch(r"\W*\w+\s+", before) and re.match(r"\s+\w", after)
    if is_second_word and not parameter.required and parameter.is_named("count quantity amount copies times"):
        return True
    wanted = frozenset(parameter.name_stems) | words.nouns(parameter.name_stems)
    near = [*words.stems(before[-40:])[-1:], *words.stems(after[:40].partition(",")[0])[:1]]
    return any(stem in wanted or words.groups(stem) & wanted for stem in near)


def _read_number(sheet: Sheet, parameter: Parameter) -> Any:
    found = _numbers(sheet, parameter) if parameter.required else []
    return sheet.take(found[0]) if found else None


def _numbers(sheet: Sheet, parameter: Parameter) -> list[Found]:
    found = sheet.free(values.numbers(sheet.text))
    return [each for each in found if parameter.kind != "integer" or isinstance(each.value, int)]


# -- Choices: a value of an enumeration, yes or no -------------------------------------------------------------------


def _read_choice(sheet: Sheet, parameter: Parameter) -> Any:
    """A value of an enumeration that the message names. An optional one has to be meant, not only mentioned."""
    for choice in sorted(parameter.choices, key=lambda choice: -len(str(choice))):
        pattern = r"[\s_-]+".join(re.escape(word) for word in re.split(r"[\s_-]+", str(choice)))
        for match in re.finditer(rf"(?<![\w-]){pattern}(?:s|es|d|ed)?(?![\w-])", sheet.left(), re.IGNORECASE):
            mention = Found(choice, *match.span())
            found = _with_name(sheet, mention, parameter)
            if parameter.required or found != mention or _is_about_deed(sheet, found):
                return sheet.take(found)
    return None


def _is_about_deed(sheet: Sheet, found: Found) -> bool:
    """Return whether a found value belongs to the deed: "closed tickets", or beside a text that is set apart or not
    wanted."""
    if sheet.in_payload(found):
        return False
    following = words.WORD.match(sheet.text, found.end + 1)
    is_apart = not sheet.has_free_text or sheet.payload is not None or bool(sheet.quotes)
    return is_apart or (following is not None and sheet.names_object(following[0]))


def _with_name(sheet: Sheet, found: Found, parameter: Parameter) -> Found:
    """The value together with the parameter's name beside it: "with high priority", "priority: high"."""
    name = r"[\s_-]*".join(re.escape(part) for part in re.split(r"[_-]", parameter.name))
    lead = r"(?:\b(?:with|as|at|of|in|and|set)\s+)?(?:\b(?:a|an|the)\s+)?"
    before = re.search(rf"{lead}\b{name}s?\s*(?:is|of|to|as|=|:|level)?\s*$", sheet.text[: found.start], re.IGNORECASE)
    if before:
        return Found(found.value, before.start(), found.end)
    after = re.match(rf"[\s-]*{name}s?\b", sheet.text[found.end :], re.IGNORECASE)
    led = re.search(rf"{lead}$", sheet.text[: found.start], re.IGNORECASE)
    return Found(found.value, led.start() if led else found.start, found.end + after.end()) if after else found


def _read_boolean(sheet: Sheet, parameter: Parameter) -> Any:
    outside = sheet.text[: sheet.payload]
    switch = re.search(r"\b(?:on|off|enabled?|disabled?|true|false|yes|no)\b", outside, re.IGNORECASE)
    if switch and parameter.required:
        return sheet.take(Found(switch[0].lower()[:2] in ("on", "en", "tr", "ye"), *switch.span()))
    is_named = parameter.name_stems and set(parameter.name_stems) <= set(words.stems(outside))
    return True if is_named else None


# -- Texts: told by the words before or beside them, or simply what is left ------------------------------------------

# Which words lead in what a parameter is about: "from Berlin", "a note called x", "by Verdi".
LEADS = {
    "from": "from source origin start departure sender base",
    "to": "new language to target destination recipient end goal dest",
    "into": "to target destination into language",
    "in": "city location place where region country language room unit folder",
    "at": "city location place where venue address",
    "by": "author artist by creator composer writer owner performer",
    "about": "topic subject about query term keyword search question",
    "with": "attendee participant guest with people password",
    "called": "name title label key filename",
    "named": "name title label key filename",
    "saying": "message body text content",
    "for": "city location place person customer recipient guest client reason purpose employee user owner",
}
_STOPS = (
    rf"(?=\s(?:{'|'.join(LEADS)}|on|and|that|today|tonight|tomorrow|yesterday|next|this|due)\b|[,;:?!]|\.(?:\s|$)|$)"
)


def _read_unit(sheet: Sheet, parameter: Parameter) -> Any:
    """Read the unit of an amount, or the unit in which it is wanted: "12 miles in km"."""
    if parameter.is_named("from source base"):
        match = re.search(rf"\d\s*([^\W\d]+(?:\s[^\W\d]+)??){_STOPS}", sheet.text, re.IGNORECASE)
    elif parameter.is_named("to target"):
        match = re.search(rf"\b(?:to|into|in|as)\s+([^\W\d]+){_STOPS}", sheet.left(), re.IGNORECASE)
    else:
        return None
    found = sheet.free([Found(match[1], *match.span(1))]) if match else []
    return sheet.take(found[0]) if found else None


def _read_lead(sheet: Sheet, parameter: Parameter) -> Any:
    text = sheet.left(sheet.payload)
    for lead, names in LEADS.items():
        if parameter.is_named(names):
            article = "" if lead == "saying" else "(?-i:the |a |my |your |our )?"
            match = re.search(rf"\b{lead}\s+{article}(\S.*?){_STOPS}", text, re.IGNORECASE)
            value = trimmed(match[1]) if match else ""
            if match and value and not sheet.is_tool_talk(value):
                return sheet.take(Found(value, *match.span()))
    return None


def _read_beside(sheet: Sheet, parameter: Parameter) -> Any:
    """Read the word that qualifies the parameter's own word: "the blue room", "project Apollo"."""
    name = re.escape(parameter.name)
    text = sheet.left(sheet.payload)
    match = re.search(
        rf"\b{name}\s+(?:called\s+|named\s+)?(?-i:([A-Z0-9][\w-]*|[\w-]+(?:\.[\w-]+)+))", text, re.IGNORECASE
    ) or re.search(rf"\b(?:the|my|our|in|for|of)\s+([\w-]+)\s+{name}\b", text, re.IGNORECASE)
    if match and not sheet.is_tool_talk(match[1]) and match[1].lower() not in words.STOP:
        return sheet.take(Found(match[1], *match.span()))
    return None


def _read_new_value(sheet: Sheet, parameter: Parameter) -> Any:
    """Read the value that something is changed to, where the tool leaves open what changes: "rename item 3 to x"."""
    if parameter.required or not parameter.is_named("title name label text value content"):
        return None
    change = r"\s*(?:rename|change|update|set|edit|modify|correct)\b.*?\b(?:to|as)\s+(\S.*)$"
    match = re.match(change, sheet.left(), re.IGNORECASE)
    return sheet.take(Found(trimmed(match[1]), *match.span(1))) if match else None


def _read_items(sheet: Sheet, parameter: Parameter) -> Any:
    """The items of a required list: numbers, texts, or rows of one text each, as "6 eggs, flour and milk"."""
    item = parameter.items
    if item is None or not parameter.required:
        return None
    if item.wants == "number":
        return [sheet.take(each) for each in _numbers(sheet, item)]
    texts = [each.name for each in item.fields if each.required and each.kind == "string"]
    if item.kind != "string" and len(texts) != 1:
        return None
    said = re.split(r"\s(?:to|for|on|at|in)\s", sheet.rest(take=True), maxsplit=1)[0]
    parts = [trimmed(part).strip("\"'") for part in re.split(r"\s*(?:,\s*and\b|,|;|\band\b|&)\s*", said)]
    if item.kind == "string":
        return [part for part in parts if part]
    counts = [each.name for each in item.fields if each.is_named("quantity count amount")]
    return [_row(part, texts[0], counts) for part in parts if part]


def _row(part: str, text: str, counts: Sequence[str]) -> dict[str, Any]:
    """One row: the number before its text goes where a row has a place for one."""
    number = re.match(r"(\d+)\s+(?=\D)", part)
    if number and counts:
        return {text: part[number.end() :], counts[0]: int(number[1])}
    return {text: re.sub(r"^(?:some|an?|the)\s+", "", part)}


def _read_text(sheet: Sheet, parameter: Parameter) -> Any:
    """Read the text that the message is about: the quoted, what follows the colon, or what is left of it."""
    if not parameter.required:
        return None
    quotes = sheet.free(sheet.quotes)
    return sheet.take(quotes[0]) if quotes else trimmed(sheet.rest(take=True))


Reader = Callable[[Sheet, Parameter], Any]
#: Kinds of value that a parameter wants, and the function that reads them: the surest first.
READERS: tuple[tuple[str, Reader], ...] = (
    ("url email path text", _read_written),
    ("choice", _read_choice),
    ("boolean", _read_boolean),
    ("date", _read_date),
    ("sum", _read_sum),
    ("number", _read_near_number),
    ("number", _read_number),
    ("text", _read_unit),
    ("text", _read_lead),
    ("text", _read_beside),
    ("text", _read_new_value),
    ("array", _read_items),
    ("text", _read_text),
)
