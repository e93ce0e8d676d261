"""Values that stand in a text: dates, times, numbers, addresses, paths, quotations, sums. Each with where it stands.

Knows notations, not tools.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Found:
    """A value and the part of the text, [start, end), that says it."""

    value: Any
    start: int
    end: int


URL = re.compile(r"https?://[^\s<>\"'`]+[^\s<>\"'`.,;:!?)\]]", re.IGNORECASE)
BARE_DOMAIN = re.compile(
    r"(?<![@\w/.])(?:[a-z0-9-]+\.)+(?:com|org|net|io|dev|edu|gov|info|example)(?:/[^\s,;]*)?", re.I
)
# Repetitions are bounded where one may begin at every place: else a long message of nothing but "a." takes seconds.
EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+")
PATH = re.compile(
    r"(?<![\w@:/.~-])(?:[\w.~-]{0,80}/[\w./~-]{0,200}[\w~/-]|[\w-]{1,80}(?:\.[\w-]{1,20}){0,4}\.[a-z][a-z0-9]{0,4}\b)",
    re.IGNORECASE,
)
QUOTED = re.compile(r"\"([^\"]+)\"|“([^”]+)”|`([^`]+)`|(?<!\w)'([^']+)'(?!\w)|«([^»]+)»")
IDENTIFIER = re.compile(r"#?\b(?=[\w-]*\d)[A-Za-z0-9]+(?:[-_][A-Za-z0-9]+)*\b")
NUMBER = re.compile(
    r"(?<![\w.,:/-])[-+]?\d+(?:,\d{3})+(?:\.\d+)?(?![\w:])|(?<![\w.,:/])[-+]?\d+(?:\.\d+)?(?!\d|[:/-]\d)"
)
UNITS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
NUMBER_WORD = re.compile(r"\b(" + "|".join([*UNITS, "twenty", "thirty", "fifty", "dozen", "hundred"]) + r")\b", re.I)
WEEKDAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
MONTHS = [
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
]
_LEAD = r"(?:\b(?:due|until|before|by|on|for|from|since|at|this|starting)\s+)*"
_COUNT = r"(?P<count>\d+|an?|" + "|".join(UNITS) + r")"
_MONTH = "(?P<month>" + "|".join(f"{month[:3]}(?:{month[3:]})?" if month[3:] else month for month in MONTHS) + ")"


def _number_of(word: str) -> int:
    word = word.lower()
    if word.isdigit():
        return int(word)
    other = {"a": 1, "an": 1, "twenty": 20, "thirty": 30, "fifty": 50, "dozen": 12, "hundred": 100}
    return other[word] if word in other else UNITS.index(word)


def _add_months(day: datetime.date, months: int) -> datetime.date:
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    following = datetime.date(year + month // 11, (month + 1) % 12 + 1, 1)
    return datetime.date(year, month + 1, min(day.day, (following - datetime.timedelta(days=1)).day))


def _shift(today: datetime.date, count: int, unit: str) -> datetime.date:
    unit = unit.lower().rstrip("s")
    if unit in ("month", "year"):
        return _add_months(today, count * (12 if unit == "year" else 1))
    return today + datetime.timedelta(days=count * (7 if unit == "week" else 1))


def _weekday(today: datetime.date, match: re.Match[str]) -> datetime.date:
    which = (match["which"] or "").strip().lower()
    ahead = (WEEKDAYS.index(match["weekday"].lower()) - today.weekday()) % 7
    if which == "last":
        return today + datetime.timedelta(days=(ahead or 7) - 7 if ahead else -7)
    return today + datetime.timedelta(days=ahead or 7)


def _named_day(today: datetime.date, match: re.Match[str]) -> datetime.date:
    month = [name[:3] for name in MONTHS].index(match["month"][:3].lower()) + 1
    day = datetime.date(int(match["year"] or today.year), month, int(match["day"]))
    return day if match["year"] or day >= today else datetime.date(today.year + 1, month, int(match["day"]))


def _word_day(today: datetime.date, match: re.Match[str]) -> datetime.date:
    days = {"yesterday": -1, "tomorrow": 1, "day after tomorrow": 2}
    return today + datetime.timedelta(days=days.get(re.sub(r"\s+|the ", " ", match["word"].lower()).strip(), 0))


Reading = Callable[[datetime.date, "re.Match[str]"], datetime.date]
DATES: list[tuple[re.Pattern[str], Reading]] = [
    (re.compile(_LEAD + pattern, re.IGNORECASE), reading)
    for pattern, reading in (
        (r"\b(?P<iso>\d{4}-\d{2}-\d{2})\b", lambda today, m: datetime.date.fromisoformat(m["iso"])),
        (r"\b(?P<word>(?:the\s+)?day after tomorrow|today|tonight|tomorrow|yesterday)\b", _word_day),
        (
            r"\b(?P<d>\d{1,2})\.(?P<m>\d{1,2})\.(?P<y>\d{4})\b",
            lambda today, m: datetime.date(int(m["y"]), int(m["m"]), int(m["d"])),
        ),
        (
            r"\bin\s+" + _COUNT + r"\s+(?P<unit>days?|weeks?|months?|years?)\b",
            lambda today, m: _shift(today, _number_of(m["count"]), m["unit"]),
        ),
        (
            r"\b" + _COUNT + r"\s+(?P<unit>days?|weeks?|months?|years?)\s+from\s+(?:now|today)\b",
            lambda today, m: _shift(today, _number_of(m["count"]), m["unit"]),
        ),
        (
            r"\b" + _COUNT + r"\s+(?P<unit>days?|weeks?|months?|years?)\s+ago\b",
            lambda today, m: _shift(today, -_number_of(m["count"]), m["unit"]),
        ),
        (r"\bnext\s+(?P<unit>week|month|year)\b", lambda today, m: _shift(today, 1, m["unit"])),
        (r"\blast\s+(?P<unit>week|month|year)\b", lambda today, m: _shift(today, -1, m["unit"])),
        (r"\b(?P<which>next\s+|last\s+|coming\s+)?(?P<weekday>" + "|".join(WEEKDAYS) + r")\b", _weekday),
        (
            r"\b(?:the\s+)?(?P<day>\d{1,2})(?:st|nd|rd|th)?\s+(?:of\s+)?" + _MONTH + r"\b(?:,?\s+(?P<year>\d{4}))?",
            _named_day,
        ),
        (r"\b" + _MONTH + r"\s+(?P<day>\d{1,2})(?:st|nd|rd|th)?\b(?:,?\s+(?P<year>\d{4}))?", _named_day),
    )
]
TIME = re.compile(
    r"(?:\b(?:at|by|around|from|until)\s+)?\b(?:(?P<h>\d{1,2}):(?P<m>\d{2})(?:\s*(?P<half>[ap])\.?m\b\.?)?"
    r"|(?P<h2>\d{1,2})\s*(?P<half2>[ap])\.?m\b\.?|(?P<word>noon|midnight)\b)"
    r"|\bat\s+(?P<h3>\d{1,2})(?=\s*(?:[.,;!?]?\s*$|(?:to|on|that|for|tomorrow|today)\b))",
    re.IGNORECASE,
)
SOON = re.compile(r"\bin\s+" + _COUNT + r"\s+(?P<unit>minutes?|mins?|hours?)\b", re.IGNORECASE)


def dates(text: str, today: datetime.date) -> list[Found]:
    """Days that the text names, with the words that lead in ("due on"), in the order of the text."""
    found: list[Found] = []
    for pattern, reading in DATES:
        for match in pattern.finditer(text):
            if any(match.start() < other.end and other.start < match.end() for other in found):
                continue
            try:
                found.append(Found(reading(today, match), match.start(), match.end()))
            except ValueError:  # the 31st of February
                continue
    return sorted(found, key=lambda each: each.start)


def times(text: str) -> list[Found]:
    found = []
    for match in TIME.finditer(text):
        hour = {"noon": 12, "midnight": 0}.get(
            (match["word"] or "").lower(), int(match["h"] or match["h2"] or match["h3"] or 0)
        )
        half = (match["half"] or match["half2"] or "").lower()
        if half:
            hour = hour % 12 + (12 if half == "p" else 0)
        minute = int(match["m"] or 0)
        if hour < 24 and minute < 60:
            found.append(Found(datetime.time(hour, minute), match.start(), match.end()))
    return found


def soon(text: str, now: datetime.datetime) -> list[Found]:
    """Moments said as a distance: in ten minutes, in 2 hours."""
    return [
        Found(
            now + datetime.timedelta(minutes=_number_of(match["count"]) * (60 if match["unit"][0] in "hH" else 1)),
            match.start(),
            match.end(),
        )
        for match in SOON.finditer(text)
    ]


def numbers(text: str) -> list[Found]:
    """Numbers in digits and the small ones in words, in the order of the text."""
    found = []
    for match in NUMBER.finditer(text):
        digits = match[0].replace(",", "")
        found.append(Found(float(digits) if "." in digits else int(digits), match.start(), match.end()))
    found += [Found(_number_of(match[1]), match.start(), match.end()) for match in NUMBER_WORD.finditer(text)]
    return sorted(found, key=lambda each: each.start)


def quoted(text: str) -> list[Found]:
    return [
        Found(next(group for group in match.groups() if group), match.start(), match.end())
        for match in QUOTED.finditer(text)
    ]


def matches(pattern: re.Pattern[str], text: str) -> Iterator[Found]:
    for match in pattern.finditer(text):
        yield Found(match[0], match.start(), match.end())


# -- Sums ------------------------------------------------------------------------------------------------------------

_SPOKEN = (
    (r"(?<=\d)\s*%\s*of\b", " / 100 *"),
    (r"(?<=\d)\s*percent\s+of\b", " / 100 *"),
    (r"\bmultiplied by\b|\btimes\b|(?<=\d)\s*[x×·]\s*(?=\d)", " * "),
    (r"\bdivided by\b|\bover\b|÷", " / "),
    (r"\bplus\b", " + "),
    (r"\bminus\b|−", " - "),
    (r"\bto the power of\b", " ** "),
    (r"\bsquared\b", " ** 2"),
    (r"\bcubed\b", " ** 3"),
    (r"\b(?:the\s+)?square root of\s+(\d+(?:\.\d+)?)", r"sqrt(\1)"),
)
_FUNCTION = r"(?:sqrt|sin|cos|tan|log|ln|exp|abs|round|min|max|pi)"
_ATOM = rf"(?:\d[\d,]*(?:\.\d+)?%?|\.\d+|{_FUNCTION}\s*\([^()]*\)|\bpi\b)"
_TERM = rf"[-+]?\s*\({{0,6}}\s*[-+]?\s*{_ATOM}\s*\){{0,6}}"
SUM = re.compile(rf"{_TERM}(?:\s*(?:\*\*|//|[-+*/^%])\s*{_TERM})+|{_FUNCTION}\s*\([^()]*\)", re.IGNORECASE)


def expression(text: str) -> str:
    """The longest sum in the text, in the notation of programs, or nothing. Spoken operators are written out."""
    for pattern, written in _SPOKEN:
        text = re.sub(pattern, written, text, flags=re.IGNORECASE)
    found = [re.sub(r"(?<=\d),(?=\d{3})", "", match[0]) for match in SUM.finditer(text)]
    plain = [each for each in found if not re.fullmatch(r"\d{4}-\d{1,2}(-\d{1,2})?", each.strip())]
    longest = max(plain, key=len, default="").strip()
    return re.sub(r"\s+", " ", longest) if longest.count("(") == longest.count(")") else ""
