"""Readers of values that show by how they are written: addresses, paths, days and times, sums, numbers, identifiers."""

from __future__ import annotations

import datetime
import re
from typing import Any

from toolhub.offline_model import values, words
from toolhub.offline_model.schemas import Parameter
from toolhub.offline_model.sheet import Sheet, names_object
from toolhub.offline_model.values import Found


def read_url(sheet: Sheet, parameter: Parameter) -> Any:
    if parameter.kind != "string" or parameter.wants != "url":
        return None
    for found in sheet.free(values.matches(values.URL, sheet.text)):
        return sheet.take(found)
    for found in sheet.free(values.matches(values.BARE_DOMAIN, sheet.text)):
        return "https://" + str(sheet.take(found))
    return None


def read_email(sheet: Sheet, parameter: Parameter) -> Any:
    addressed = parameter.wants == "email" or parameter.is_named("to", "recipient", "sender", "cc", "bcc")
    if parameter.kind != "string" or not addressed:
        return None
    found = sheet.free(values.matches(values.EMAIL, sheet.text))
    return sheet.take(_with_lead(sheet, found[0], "to", "from")) if found else None


def read_path(sheet: Sheet, parameter: Parameter) -> Any:
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


def read_date(sheet: Sheet, parameter: Parameter) -> Any:
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


def read_sum(sheet: Sheet, parameter: Parameter) -> Any:
    if parameter.wants != "sum":
        return None
    quotes = [found for found in sheet.free(sheet.quotes) if values.expression(found.value) or found.value.isdigit()]
    if quotes:
        return sheet.take(quotes[0])
    found = values.expression(sheet.left())
    if found:  # all of it is used: nothing else is said in a message that asks for a sum
        sheet.taken.append((0, len(sheet.text)))
    return found or None


def read_key(sheet: Sheet, parameter: Parameter) -> Any:
    """An identifier: a word with a digit in it."""
    if parameter.kind != "string" or parameter.choices or parameter.wants != "key":
        return None
    for found in sheet.free(values.matches(values.IDENTIFIER, sheet.text)):
        return str(sheet.take(found)).lstrip("#")
    return None


LIMITS = re.compile(r"\b(?:top|first|last|latest|at most|up to|no more than|maximum|max|limit|only)\s+$", re.IGNORECASE)


def read_near_number(sheet: Sheet, parameter: Parameter) -> Any:
    """A number that stands beside a word of the parameter: "3 guests", "level 7", "#12", "the first five"."""
    if parameter.kind not in ("integer", "number") or parameter.choices:
        return None
    name = frozenset(parameter.name_stems)
    kin = name | {group for stem in name for group in words.groups(stem) if group[0] == "#"}
    described = parameter.stated - {words.stem("number")} if parameter.required else kin
    for wanted in (kin, described):
        for found in free_numbers(sheet, parameter):
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


def read_number(sheet: Sheet, parameter: Parameter) -> Any:
    if parameter.kind not in ("integer", "number") or parameter.choices or not parameter.required:
        return None
    found = free_numbers(sheet, parameter)
    return sheet.take(found[0]) if found else None


def free_numbers(sheet: Sheet, parameter: Parameter) -> list[Found]:
    dated = [
        *values.dates(sheet.text, sheet.now.date()),
        *values.times(sheet.text),
        *values.matches(values.URL, sheet.text),
    ]
    return [
        Found(value, found.start, found.end)
        for found in sheet.free(values.numbers(sheet.text))
        if not any(found.start < other.end and other.start < found.end for other in dated)
        and (value := suitable(found.value, parameter)) is not None
    ]


def suitable(number: float, parameter: Parameter) -> float | None:
    """The number as the schema wants it, or None where it cannot be."""
    if parameter.kind == "integer" and number != int(number):
        return None
    low, high = parameter.schema.get("minimum"), parameter.schema.get("maximum")
    if isinstance(low, (int, float)) and number < low:
        return None
    if isinstance(high, (int, float)) and number > high:
        return None
    return int(number) if parameter.kind == "integer" else number
