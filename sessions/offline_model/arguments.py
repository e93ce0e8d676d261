"""Fills a tool's arguments from a message, by the tool's JSON Schema: what is surely said first, free text last.

Every reader takes the words it used off the sheet, so that what is left is what the message is about.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sessions.offline_model import values, words
from sessions.offline_model.matching import POLITE, Tool
from sessions.offline_model.schemas import Parameter
from sessions.offline_model.sheet import Sheet, front, is_tool_talk, names_object, remainder, trimmed
from sessions.offline_model.values import Found


@dataclass(frozen=True)
class Filled:
    """The arguments, the required parameters for which nothing was said, and the words that were left over."""

    arguments: dict[str, Any]
    missing: tuple[Parameter, ...]
    left_over: str


Reader = Callable[[Sheet, Parameter], Any]


def fill(tool: Tool, message: str, now: datetime.datetime) -> Filled:
    text = re.sub(r"\s+", " ", message).strip()[:4_000]
    sheet = Sheet(POLITE.sub("", text), _tool_words(tool), now)
    arguments = _fill(tool.parameters, sheet)
    missing = tuple(each for each in tool.parameters if each.required and each.name not in arguments)
    return Filled(arguments, missing, trimmed(remainder(sheet)))


def _tool_words(tool: Tool) -> frozenset[str]:
    """Stems and groups by which a message may call the tool's deed and its object, without telling anything new."""
    summary = words.stems(tool.description.partition(". ")[0])
    stems = (*words.stems(tool.name), *summary)
    named = {group for stem in words.stems(tool.name) for group in words.groups(stem)}
    return frozenset(stems) | named | {group for stem in summary for group in words.groups(stem) if group[0] == "#"}


def _fill(parameters: Sequence[Parameter], sheet: Sheet) -> dict[str, Any]:
    arguments: dict[str, Any] = _from_json(parameters, sheet)
    sheet.has_free_text = any(each.required and each.wants == "text" for each in parameters)
    for read in READERS:
        for parameter in parameters:
            if parameter.name not in arguments:
                value = read(sheet, parameter)
                if value is not None and value != "":
                    arguments[parameter.name] = value
    _fill_search(parameters, sheet, arguments)
    return arguments


def _from_json(parameters: Sequence[Parameter], sheet: Sheet) -> dict[str, Any]:
    """Arguments written out as a JSON object in the message."""
    start, end = sheet.text.find("{"), sheet.text.rfind("}")
    try:
        written = json.loads(sheet.text[start : end + 1]) if 0 <= start < end else {}
    except (ValueError, RecursionError):
        return {}
    known = {each.name for each in parameters}
    found = {name: value for name, value in written.items() if name in known}
    if found:
        sheet.take(Found(None, start, end + 1))
    return found


# -- Readers, the surest first ---------------------------------------------------------------------------------------


def _read_named(sheet: Sheet, parameter: Parameter) -> Any:
    """`name: value`, `name = value`."""
    name = r"[ _-]?".join(re.escape(part) for part in re.split(r"[_-]", parameter.name))
    for match in re.finditer(
        rf"(?<!\w){name}\s*(?:=|:(?!//))\s*(\"[^\"]*\"|'[^']*'|[^,;]+)", sheet.left(), re.IGNORECASE
    ):
        value = _cast(match[1].strip().strip("\"'").rstrip("."), parameter, sheet)
        # "thing: text" says what the thing is; only a name that is more than the tool's own words is a label.
        if value is None or (":" in match[0] and parameter.kind == "string" and _is_only_tool(sheet, match[0])):
            continue
        return sheet.take(Found(value, match.start(), match.end()))
    return None


def _is_only_tool(sheet: Sheet, text: str) -> bool:
    return sheet.payload is not None and not re.search(r"[,;]\s*\w+\s*[:=]", sheet.text)


def _cast(text: str, parameter: Parameter, sheet: Sheet) -> Any:
    if parameter.choices:
        return next((choice for choice in parameter.choices if str(choice).lower() == text.lower()), None)
    match parameter.kind:
        case "integer" | "number":
            found = values.numbers(text)
            return _suitable(found[0].value, parameter) if found else None
        case "boolean":
            return {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}.get(text.lower())
        case "string":
            days = values.dates(text, sheet.now.date()) if parameter.wants == "date" else []
            return days[0].value.isoformat() if days else text
        case "array":
            return _items(text, parameter)
    return None


def _read_constant(sheet: Sheet, parameter: Parameter) -> Any:
    return parameter.choices[0] if parameter.required and len(parameter.choices) == 1 else None


def _read_url(sheet: Sheet, parameter: Parameter) -> Any:
    if parameter.kind != "string" or parameter.wants != "url":
        return None
    for found in sheet.free(values.matches(values.URL, sheet.text)):
        return sheet.take(found)
    for found in sheet.free(values.matches(values.BARE_DOMAIN, sheet.text)):
        return "https://" + str(sheet.take(found))
    return None


def _read_email(sheet: Sheet, parameter: Parameter) -> Any:
    addressed = parameter.wants == "email" or parameter.is_named("to", "recipient", "sender", "cc", "bcc")
    if parameter.kind != "string" or not addressed:
        return None
    found = sheet.free(values.matches(values.EMAIL, sheet.text))
    return sheet.take(_with_lead(sheet, found[0], "to", "from")) if found else None


def _read_path(sheet: Sheet, parameter: Parameter) -> Any:
    if parameter.kind != "string" or parameter.wants != "path":
        return None
    found = sheet.free(values.matches(values.PATH, sheet.left()))
    lead = (
        _with_lead(sheet, found[0], "to", "into", "in", "from", "file", "folder", "called", "named") if found else None
    )
    return sheet.take(lead) if lead else None


def _with_lead(sheet: Sheet, found: Found, *leads: str) -> Found:
    """The value with the words that lead to it: "to the file notes.txt"."""
    before = re.search(rf"(?:\b(?:{'|'.join(leads)}|the|a|my)\s+[\"'`]?)+$", sheet.text[: found.start], re.IGNORECASE)
    return Found(found.value, before.start() if before else found.start, found.end)


def _read_choice(sheet: Sheet, parameter: Parameter) -> Any:
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


def _read_boolean(sheet: Sheet, parameter: Parameter) -> Any:
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


def _read_date(sheet: Sheet, parameter: Parameter) -> Any:
    if parameter.wants != "date":
        return None
    days = sheet.free(values.dates(sheet.text, sheet.now.date()))
    clock = sheet.free(values.times(sheet.text))
    if parameter.format == "time" or (parameter.name_stems[-1:] == ("time",) and parameter.format != "date-time"):
        return sheet.take(clock[0]).strftime("%H:%M") if clock else None
    wants_time = parameter.format == "date-time" or re.search(
        r"date-?time|\btime\b|T\d\d|HH", parameter.description, re.IGNORECASE
    )
    if not wants_time or parameter.format == "date":
        return sheet.take(days[0]).isoformat() if days else None
    near = sheet.free(values.soon(sheet.text, sheet.now))
    if near:
        return sheet.take(near[0]).isoformat(timespec="seconds")
    if not days and not clock:
        return None
    day = sheet.take(days[0]) if days else sheet.now.date()
    hour = sheet.take(clock[0]) if clock else datetime.time(9)
    return datetime.datetime.combine(day, hour, sheet.now.tzinfo).isoformat(timespec="seconds")


def _read_sum(sheet: Sheet, parameter: Parameter) -> Any:
    if parameter.wants != "sum":
        return None
    quotes = [found for found in sheet.free(sheet.quotes) if values.expression(found.value) or found.value.isdigit()]
    if quotes:
        return sheet.take(quotes[0])
    found = values.expression(sheet.left())
    if found:  # all of it is used: nothing else is said in a message that asks for a sum
        sheet.taken.append((0, len(sheet.text)))
    return found or None


def _suitable(number: float, parameter: Parameter) -> float | None:
    """The number as the schema wants it, or None where it cannot be."""
    if parameter.kind == "integer" and number != int(number):
        return None
    low, high = parameter.schema.get("minimum"), parameter.schema.get("maximum")
    if isinstance(low, (int, float)) and number < low:
        return None
    if isinstance(high, (int, float)) and number > high:
        return None
    return int(number) if parameter.kind == "integer" else number


def _free_numbers(sheet: Sheet, parameter: Parameter) -> list[Found]:
    dated = [
        *values.dates(sheet.text, sheet.now.date()),
        *values.times(sheet.text),
        *values.matches(values.URL, sheet.text),
    ]
    return [
        Found(value, found.start, found.end)
        for found in sheet.free(values.numbers(sheet.text))
        if not any(found.start < other.end and other.start < found.end for other in dated)
        and (value := _suitable(found.value, parameter)) is not None
    ]


LIMITS = re.compile(r"\b(?:top|first|last|latest|at most|up to|no more than|maximum|max|limit|only)\s+$", re.IGNORECASE)


def _read_near_number(sheet: Sheet, parameter: Parameter) -> Any:
    """A number that stands beside a word of the parameter: "3 guests", "level 7", "#12", "the first five"."""
    if parameter.kind not in ("integer", "number") or parameter.choices:
        return None
    name = frozenset(parameter.name_stems)
    kin = name | {group for stem in name for group in words.groups(stem) if group[0] == "#"}
    described = parameter.said - {words.stem("number")} if parameter.required else kin
    for wanted in (kin, described):
        for found in _free_numbers(sheet, parameter):
            if not (sheet.in_payload(found) and not parameter.required) and _is_beside(sheet, found, wanted, parameter):
                return sheet.take(found)
    return None


def _is_beside(sheet: Sheet, found: Found, wanted: frozenset[str], parameter: Parameter) -> bool:
    before, after = sheet.text[: found.start], sheet.text[found.end :]
    if parameter.is_named("limit", "count", "max", "top", "size") and LIMITS.search(before):
        return True
    if parameter.wants == "key" and before.endswith("#"):
        return True
    counts = parameter.is_named("count", "quantity", "number", "amount", "copies", "times")
    following = words.WORD.match(after.lstrip())
    if counts and parameter.name_stems[-1:] != ("id",) and re.match(r"\s", after) and following:
        adjective = words.WORD.match(after.lstrip(), following.end() + 1)
        if any(word and names_object(sheet, words.stem(word[0])) for word in (following, adjective)):
            return True
    if counts and not parameter.required and re.fullmatch(r"\W*\w+\s+", before) and re.match(r"\s+\w", after):
        return True
    near = [*words.stems(before[-40:])[-1:], *words.stems(after[:40].partition(",")[0])[:1]]
    return any(stem in wanted or words.groups(stem) & wanted for stem in near)


def _read_number(sheet: Sheet, parameter: Parameter) -> Any:
    if parameter.kind not in ("integer", "number") or parameter.choices or not parameter.required:
        return None
    found = _free_numbers(sheet, parameter)
    return sheet.take(found[0]) if found else None


def _read_key(sheet: Sheet, parameter: Parameter) -> Any:
    """An identifier: a word with a digit in it."""
    if parameter.kind != "string" or parameter.choices or parameter.wants != "key":
        return None
    for found in sheet.free(values.matches(values.IDENTIFIER, sheet.text)):
        return str(sheet.take(found)).lstrip("#")
    return None


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


def _read_lead(sheet: Sheet, parameter: Parameter) -> Any:
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


def _read_unit(sheet: Sheet, parameter: Parameter) -> Any:
    """The word after a number, for a parameter that says in what the amount is: "12 miles in km"."""
    if parameter.kind != "string" or not parameter.is_named("from", "source", "base"):
        return None
    match = re.search(rf"\d\s*([^\W\d]+(?:\s[^\W\d]+)??){_STOPS}", sheet.text, re.IGNORECASE)
    return _take_group(sheet, parameter, match)


def _read_target(sheet: Sheet, parameter: Parameter) -> Any:
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


def _read_new_value(sheet: Sheet, parameter: Parameter) -> Any:
    """What something is changed to, where the tool leaves open what changes: "rename item 3 to x"."""
    if parameter.required or not parameter.is_named("title", "name", "label", "text", "value", "content"):
        return None
    change = r"(?:rename|change|update|set|edit|modify|correct)\b.*?\b(?:to|as)\s+(\S.*)$"
    match = re.match(change, sheet.left().lstrip(), re.IGNORECASE) if parameter.wants == "text" else None
    value = trimmed(match[1]) if match else ""
    place = sheet.left().find(value) if value else -1
    return sheet.take(Found(value, place, place + len(value))) if place >= 0 else None


def _read_pair(sheet: Sheet, parameter: Parameter) -> Any:
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


def _read_between(sheet: Sheet, parameter: Parameter) -> Any:
    """The two ends in "between here and there"."""
    if parameter.wants != "text" or not parameter.is_named("from", "to", "source", "target", "origin", "destination"):
        return None
    match = re.search(rf"\bbetween\s+(\S.*?)\s+and\s+(\S.*?){_STOPS}", sheet.text, re.IGNORECASE)
    if match is None:
        return None
    end = 1 if parameter.is_named("from", "source", "origin") else 2
    return sheet.take(Found(trimmed(match[end]), match.start(end), match.end(end)))


def _read_beside(sheet: Sheet, parameter: Parameter) -> Any:
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


def _read_items(sheet: Sheet, parameter: Parameter) -> Any:
    if parameter.kind != "array" or parameter.items is None:
        return None
    if parameter.items.kind in ("integer", "number"):
        found = [sheet.take(each) for each in _free_numbers(sheet, parameter.items)] if parameter.required else []
        return found or None
    if parameter.items.choices:
        chosen = []
        while parameter.required and (one := _read_choice(sheet, parameter.items)) is not None:
            chosen.append(one)
        return chosen or None
    tagged = re.search(
        r"\b(?:tagged|tags?|labell?ed|labels?)\s+(?:as\s+|with\s+)?(.+?)(?=[.;:]|$)",
        sheet.left(0, sheet.payload),
        re.I,
    )
    if tagged and parameter.is_named("tag", "label"):
        return sheet.take(Found(_items(tagged[1], parameter), tagged.start(), tagged.end()))
    if not parameter.required or parameter.items.kind != "string":
        return None
    rest = remainder(sheet, used=True)
    return _items(re.split(r"\s(?:to|for|on|at|in)\s", rest, maxsplit=1)[0], parameter)


def _items(text: str, parameter: Parameter) -> list[str] | None:
    if parameter.items is not None and parameter.items.kind != "string":
        return None
    parts = re.split(r"\s*(?:,\s*and\b|,|;|\band\b|&)\s*", text)
    found = [trimmed(part).strip("\"'") for part in parts]
    return [each for each in found if each] or None


def _read_object(sheet: Sheet, parameter: Parameter) -> Any:
    if parameter.kind != "object" or not parameter.required:
        return None
    if parameter.fields:
        inner = _fill(parameter.fields, sheet)
        return None if any(each.required and each.name not in inner for each in parameter.fields) else inner
    pairs = re.findall(r"(\w+)\s*=\s*(\"[^\"]*\"|[^\s,;]+)", sheet.left())
    return {name: value.strip('"') for name, value in pairs} or None


def _read_text(sheet: Sheet, parameter: Parameter) -> Any:
    """What the message is about: the quoted, what follows the colon, or what is left of it."""
    if not parameter.required or parameter.kind != "string" or parameter.choices:
        return None
    quotes = sheet.free(sheet.quotes)
    if quotes:
        return sheet.take(quotes[0])
    if parameter.wants in ("url", "email", "path", "sum", "date"):
        return None
    return trimmed(remainder(sheet, used=True)) or None


READERS: tuple[Reader, ...] = (
    _read_named,
    _read_constant,
    _read_url,
    _read_email,
    _read_path,
    _read_choice,
    _read_boolean,
    _read_date,
    _read_sum,
    _read_near_number,
    _read_key,
    _read_number,
    _read_unit,
    _read_target,
    _read_between,
    _read_lead,
    _read_beside,
    _read_new_value,
    _read_pair,
    _read_object,
    _read_items,
    _read_text,
)


def _fill_search(parameters: Sequence[Parameter], sheet: Sheet, arguments: dict[str, Any]) -> None:
    """An optional filter takes what is left, where a tool has one and nothing of the text is used otherwise."""
    filters = [
        each
        for each in parameters
        if each.name not in arguments
        and each.wants == "text"
        and each.is_named("query", "q", "search", "filter", "text", "term", "keyword", "contains", "name", "topic")
    ]
    if not filters or any(isinstance(value, str) for value in arguments.values()):
        return
    quotes = sheet.free(sheet.quotes)
    rest = quotes[0].value if quotes else trimmed(remainder(sheet))
    if rest and not is_tool_talk(sheet, rest):
        arguments[filters[0].name] = rest
