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

from toolhub.offline_model import choices, notations, phrases, values, words
from toolhub.offline_model.matching import POLITE, Tool
from toolhub.offline_model.schemas import Parameter
from toolhub.offline_model.sheet import Sheet, is_tool_talk, remainder, trimmed
from toolhub.offline_model.values import Found


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
    needed_first = sorted(parameters, key=lambda each: not each.required)
    for read in READERS:
        for parameter in needed_first:
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


# -- Readers of what is said by name, or made of other values --------------------------------------------------------


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
            return notations.suitable(found[0].value, parameter) if found else None
        case "boolean":
            return {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}.get(text.lower())
        case "string":
            days = values.dates(text, sheet.now.date()) if parameter.wants == "date" else []
            return days[0].value.isoformat() if days else text
        case "array":
            return _items(text, parameter)
    return None


def _read_items(sheet: Sheet, parameter: Parameter) -> Any:
    if parameter.kind != "array" or parameter.items is None:
        return None
    if parameter.items.kind in ("integer", "number"):
        found = (
            [sheet.take(each) for each in notations.free_numbers(sheet, parameter.items)] if parameter.required else []
        )
        return found or None
    if parameter.items.choices:
        chosen = []
        while parameter.required and (one := choices.read_choice(sheet, parameter.items)) is not None:
            chosen.append(one)
        return chosen or None
    if parameter.items.kind == "object":
        return _read_rows(sheet, parameter.items) if parameter.required else None
    tagged = re.search(
        r"\b(?:tagged|tags?|labell?ed|labels?)\s+(?:as\s+|with\s+)?(.+?)(?=[.;:]|$)",
        sheet.left(0, sheet.payload),
        re.I,
    )
    if tagged and parameter.is_named("tag", "label"):
        return sheet.take(Found(_items(tagged[1], parameter), tagged.start(), tagged.end()))
    if not parameter.required or parameter.items.kind != "string":
        return None
    return _items(_before_link(remainder(sheet, used=True)), parameter)


def _before_link(text: str) -> str:
    return re.split(r"\s(?:to|for|on|at|in)\s", text, maxsplit=1)[0]


def _items(text: str, parameter: Parameter) -> list[str] | None:
    if parameter.items is not None and parameter.items.kind != "string":
        return None
    return _parts(text) or None


def _parts(text: str) -> list[str]:
    """What an enumeration names: "eggs, flour and milk"."""
    parts = re.split(r"\s*(?:,\s*and\b|,|;|\band\b|&)\s*", text)
    found = [trimmed(part).strip("\"'") for part in parts]
    return [each for each in found if each]


def _read_rows(sheet: Sheet, row: Parameter) -> list[dict[str, Any]] | None:
    """Rows of one text each, as "6 eggs, flour and milk": the number goes where a row has a place for one."""
    texts = [each for each in row.fields if each.required]
    if len(texts) != 1 or texts[0].kind != "string":
        return None
    counts = [each.name for each in row.fields if each.is_named("quantity", "count", "amount")]
    rows = []
    for part in _parts(_before_link(remainder(sheet, used=True))):
        number = re.match(r"(\d+)\s+(?=\D)", part) if counts else None
        name = part[number.end() :] if number else re.sub(r"^(?:some|an?|the)\s+", "", part)
        rows.append({texts[0].name: name} | ({counts[0]: int(number[1])} if number else {}))
    return rows or None


def _read_object(sheet: Sheet, parameter: Parameter) -> Any:
    if parameter.kind != "object" or not parameter.required:
        return None
    if parameter.fields:
        inner = _fill(parameter.fields, sheet)
        return None if any(each.required and each.name not in inner for each in parameter.fields) else inner
    pairs = re.findall(r"(\w+)\s*=\s*(\"[^\"]*\"|[^\s,;]+)", sheet.left())
    return {name: value.strip('"') for name, value in pairs} or None


#: The surest first.
READERS: tuple[Reader, ...] = (
    _read_named,
    choices.read_constant,
    notations.read_url,
    notations.read_email,
    notations.read_path,
    choices.read_choice,
    choices.read_boolean,
    notations.read_date,
    notations.read_sum,
    notations.read_near_number,
    notations.read_key,
    notations.read_number,
    phrases.read_unit,
    phrases.read_target,
    phrases.read_between,
    phrases.read_lead,
    phrases.read_beside,
    phrases.read_new_value,
    phrases.read_pair,
    _read_object,
    _read_items,
    phrases.read_text,
)
