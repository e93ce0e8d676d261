"""Days, times, numbers and sums that stand in a text, each with its span. Knows no tool."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from dateutil.parser import parse
from dateutil.relativedelta import relativedelta


class Found(NamedTuple):
    """A value and the part of the text, [start, end), that holds it."""

    value: Any
    start: int
    end: int


QUOTED = re.compile(r"\"([^\"]+)\"|“([^”]+)”|`([^`]+)`|(?<!\w)'([^']+)'(?!\w)")
NUMBER = re.compile(r"(?<![\w.,:/-])-?\d+(?:\.\d+)?(?!\d|[:/-]\d)")
WORD_NUMBERS = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "ten": 10}
DAYS_AHEAD = {"today": 0, "tonight": 0, "tomorrow": 1, "yesterday": -1}
_COUNT = rf"in\s+(?P<count>\d{{1,4}}|{'|'.join(WORD_NUMBERS)})"
_MONTH = r"(?:jan|feb|mar|apr|may|june?|july?|aug|sep|oct|nov|dec)(?:(?:uar|ruar)?y|ch|il|ust|(?:t?em|o|em)ber)?"
_IN_MONTH = r"\d{1,2}(?:st|nd|rd|th)?"
_DATE = rf"\d{{4}}-\d\d-\d\d|(?:{_IN_MONTH}\s+(?:of\s+)?{_MONTH}|{_MONTH}\s+{_IN_MONTH})(?:,?\s+\d{{4}})?"
DAY = re.compile(
    r"(?:\b(?:due|until|before|by|on|for|from|at|this)\s+)*\b(?:"
    rf"(?P<named>(?:the\s+)?day after tomorrow|{'|'.join(DAYS_AHEAD)})|(?:the\s+)?(?P<date>{_DATE})"
    rf"|(?:{_COUNT}|next)\s+(?P<unit>day|week|month|year)s?"
    r"|(?:next\s+)?(?P<weekday>(?:mon|tues|wednes|thurs|fri|satur|sun)day))\b",
    re.IGNORECASE,
)
TIME = re.compile(
    r"(?:\b(?:at|by|around|from|until)\s+)?\b(?P<clock>\d{1,2}:\d{2}(?:\s*[ap]m\b)?|\d{1,2}\s*[ap]m\b)"
    r"|\bat\s+(?:(?P<hour>\d{1,2})(?=\s*(?:[.,;!?]?\s*$|(?:to|on|that|for|tomorrow|today)\b))|noon\b)",
    re.IGNORECASE,
)
SOON = re.compile(rf"\b{_COUNT}\s+(?P<unit>minute|hour)s?\b", re.IGNORECASE)
SUM = re.compile(r"[-(]*\d[\d,]*(?:\.\d+)?\)*(?:\s*(?:\*\*|[-+*/])\s*[-(]*\d[\d,]*(?:\.\d+)?\)*)+")


def days(text: str, today: datetime.date) -> list[Found]:
    """Days that the text names, with the words that lead in ("due on")."""
    return _read(DAY, text, lambda match: _day(match, datetime.datetime.combine(today, datetime.time())).date())


def times(text: str) -> list[Found]:
    return _read(TIME, text, lambda match: parse(match["clock"] or f"{match['hour'] or 12}:00").time())


def soon(text: str, now: datetime.datetime) -> list[Found]:
    """Moments at a distance: in ten minutes, in 2 hours."""
    return _read(SOON, text, lambda match: now + _distance(match))


def _read(pattern: re.Pattern[str], text: str, value_of: Callable[[re.Match[str]], Any]) -> list[Found]:
    found = []
    for match in pattern.finditer(text):
        with suppress(ValueError, OverflowError):  # the 31st of February, 25 o'clock
            found.append(Found(value_of(match), *match.span()))
    return found


def _day(match: re.Match[str], today: datetime.datetime) -> datetime.datetime:
    if match["named"]:
        return today + datetime.timedelta(days=DAYS_AHEAD.get(match["named"].lower(), 2))
    if match["unit"]:
        return today + _distance(match)
    if match["weekday"]:  # the first one after today
        return parse(match["weekday"], default=today + datetime.timedelta(days=1))
    day = parse(match["date"], default=today)
    return day + relativedelta(years=day < today and not re.search(r"\d{4}", match["date"]))


def _distance(match: re.Match[str]) -> relativedelta:
    count = (match["count"] or "one").lower()
    shift: dict[str, Any] = {f"{match['unit'].lower()}s": WORD_NUMBERS.get(count) or int(count)}
    return relativedelta(**shift)


def sums(text: str) -> list[Found]:
    """The longest sum in the text, in the notation of programs; nothing else is said in a text that has one."""
    end = len(text)
    for spoken, sign in ((r"(?<=\d)\s*%\s+of\b", " / 100 *"), (r"\btimes\b", "*"), (r"\bplus\b", "+")):
        text = re.sub(spoken, sign, text)
    found = [match[0].replace(",", "") for match in SUM.finditer(text)]
    found = [each for each in found if each.count("(") == each.count(")") and not DAY.fullmatch(each)]
    return [Found(re.sub(r"\s+", " ", max(found, key=len)), 0, end)] if found else []
