"""Days, times, numbers, sums, time zones and units that stand in a text, each with its span. Knows no tool."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple
from zoneinfo import available_timezones

from dateutil.parser import parse
from dateutil.relativedelta import relativedelta


class Found(NamedTuple):
    """A value and the part of the text, [start, end), that holds it."""

    value: Any
    start: int
    end: int


QUOTED = re.compile(r"\"([^\"]+)\"|“([^”]+)”|`([^`]+)`|(?<!\w)'([^']+)'(?!\w)")
NUMBER = re.compile(r"(?<![\w.,:/-])-?\d+(?:\.\d+)?(?!\d|[:/-]\d|\s*[ap]m\b|(?:st|nd|rd|th)\b)", re.IGNORECASE)
WORD_NUMBERS = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "ten": 10}
DAYS_AHEAD = {"today": 0, "tonight": 0, "tomorrow": 1, "yesterday": -1}
DAYS_AHEAD |= dict.fromkeys(("this morning", "this afternoon", "this evening"), 0)
#: Hours for parts of a day that are named without a time.
PARTS_OF_DAY = {"afternoon": 15, "evening": 19, "tonight": 20, "night": 20}
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
    r"(?:\b(?:at|by|around|from|until)\s+)?\b(?P<clock>\d{1,2}:\d{2}(?:\s*[ap]m\b)?|\d{1,2}\s*[ap]m\b|"
    r"\d{1,2}(?=\s*o['’]?clock\b))"
    r"(?:\s*o['’]?clock\b)?"
    r"|\bat\s+(?:(?P<hour>\d{1,2})(?=\s*(?:[.,;!?]?\s*$|:\s|(?:to|on|that|for|tomorrow|today|tonight|in the|"
    r"this|next)\b))|noon\b)",
    re.IGNORECASE,
)
_LATE = re.compile(r"\s+(?:in the (?:afternoon|evening)|at night|tonight|this (?:afternoon|evening))\b", re.IGNORECASE)
_IN_THE = re.compile(r"\s+(?:in the (?:morning|afternoon|evening)|at night)\b", re.IGNORECASE)
#: Days in a row: the part of a week or a month that is still to come.
SPAN = re.compile(
    r"\b(?:(?:in|on|for|over|during)\s+)?(?:the\s+)?(?:(?P<which>this|next|coming)\s+(?P<unit>weekend|week|"
    r"month)|(?P<end>weekend)"
    r"|(?:next|coming)\s+(?P<days>\d{1,3}|few)\s+days)\b",
    re.IGNORECASE,
)
SOON = re.compile(rf"\b{_COUNT}\s+(?P<unit>minute|hour)s?\b", re.IGNORECASE)
SUM = re.compile(r"[-(]*\d[\d,]*(?:\.\d+)?\)*(?:\s*(?:\*\*|[-+*/])\s*[-(]*\d[\d,]*(?:\.\d+)?\)*)+")


SPOKEN_SIGNS = (
    (r"(?<=\d)\s*(?:%|per ?cent)\s+of\b", " / 100 *"),
    (r"\b(?:times|multiplied by)\b", "*"),
    (r"\bdivided by\b", "/"),
    (r"\bplus\b", "+"),
    (r"(?<=\d)\s+minus\b", " -"),
)
_UNIT = r"[A-Za-z°µ][\w°/²³]*"
_MEASURE = rf"(?P<value>-?\d[\d,]*(?:\.\d+)?)\s*(?:degrees?\s+)?(?P<from>{_UNIT})"
#: "convert 10 miles to km", "what is 5 kg in pounds", "how many cups are in 2 liters".
_CONVERSIONS = (
    re.compile(
        rf"(?:convert|turn|calculate|what(?:'s|’s| is| are)|how (?:much|many|long|far) (?:is|"
        rf"are))?\s*{_MEASURE}\s+(?:to|into|in|as)"
        rf"\s+(?:degrees?\s+)?(?P<to>{_UNIT})\W*",
        re.IGNORECASE,
    ),
    re.compile(
        rf"how (?:many|much) (?P<to>{_UNIT}) (?:(?:are|is|make)(?: there)?(?: in)?|in) {_MEASURE}\W*", re.IGNORECASE
    ),
)


def conversion(text: str) -> dict[str, Any]:
    """Value, unit and other unit (`value`, `from`, `to`) of a text that asks for nothing else; {} for any other."""
    match = next(filter(None, (pattern.fullmatch(text.strip()) for pattern in _CONVERSIONS)), None)
    if match is None:
        return {}
    value = match["value"].replace(",", "")
    return {**match.groupdict(), "value": float(value) if "." in value else int(value)}


#: Cities and countries whose time zone bears another name.
_ELSEWHERE = {
    "Europe/Berlin": "germany munich hamburg frankfurt cologne",
    "Europe/Paris": "france lyon marseille",
    "Europe/Madrid": "spain barcelona",
    "Europe/Rome": "italy milan",
    "Europe/London": "uk england scotland manchester",
    "America/New_York": "boston washington miami nyc atlanta",
    "America/Los_Angeles": "san_francisco seattle las_vegas california la",
    "America/Chicago": "dallas houston texas",
    "Asia/Kolkata": "india mumbai delhi new_delhi bangalore",
    "Asia/Shanghai": "china beijing shenzhen",
    "Asia/Tokyo": "osaka kyoto",
}


@lru_cache(maxsize=1)
def zones() -> dict[str, str]:
    """IANA names of time zones, by name and by what people call their place: "new york", "japan"."""
    known = sorted(available_timezones(), key=lambda name: (name.count("/"), name))
    named = {
        name.rpartition("/")[2].replace("_", " ").lower(): name
        for name in known
        if not name.startswith(("Etc", "posix"))
    }
    others = {each.replace("_", " "): name for name, places in _ELSEWHERE.items() for each in places.split()}
    return {**{name.lower(): name for name in known}, **named, **others}


def days(text: str, today: datetime.date) -> list[Found]:
    """Days that the text names, with the words that lead in ("due on")."""
    return _read(DAY, text, lambda match: _day(match, datetime.datetime.combine(today, datetime.time())).date())


def spans(text: str, today: datetime.date) -> list[Found]:
    """First and last days of weeks, weekends and months that the text names, from today on."""
    return _read(SPAN, text, lambda match: _span(match, today))


def _span(match: re.Match[str], today: datetime.date) -> tuple[datetime.date, datetime.date]:
    if match["days"]:
        return today, today + datetime.timedelta(days=int(match["days"]) - 1 if match["days"].isdecimal() else 2)
    unit, is_next = (match["unit"] or match["end"]).lower(), (match["which"] or "").lower() == "next"
    if unit == "month":
        first = today.replace(day=1) + relativedelta(months=1) if is_next else today
        return first, first + relativedelta(day=31)
    monday = today + datetime.timedelta(days=7 * is_next - today.weekday())
    first = monday + datetime.timedelta(days=5 if unit == "weekend" else 0)
    return max(first, today), monday + datetime.timedelta(days=6)


def times(text: str) -> list[Found]:
    """Times of day that the text names, with what says which half of the day it is."""
    found = _read(TIME, text, lambda match: _time(match, text))
    return [each._replace(end=part.end()) if (part := _IN_THE.match(text, each.end)) else each for each in found]


def _time(match: re.Match[str], text: str) -> datetime.time:
    clock_text = match["clock"] or match["hour"] or "12"
    clock = parse(clock_text if ":" in clock_text or clock_text[-1:].lower() == "m" else f"{clock_text}:00").time()
    is_late = clock.hour < 12 and "m" not in clock_text.lower() and _LATE.match(text, match.end())
    return clock.replace(hour=clock.hour + 12) if is_late else clock


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


@lru_cache(maxsize=32)
def sums(text: str) -> list[Found]:
    """The longest sum in the text, in the notation of programs; nothing else is said in a text that has one."""
    end = len(text)
    for spoken, sign in SPOKEN_SIGNS:
        text = re.sub(spoken, sign, text, flags=re.IGNORECASE)
    found = [match[0].replace(",", "") for match in SUM.finditer(text)]
    found = [each for each in found if each.count("(") == each.count(")") and not DAY.fullmatch(each)]
    return [Found(re.sub(r"\s+", " ", max(found, key=len)), 0, end)] if found else []
