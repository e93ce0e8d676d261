"""Values that stand in a text: dates, times, numbers, addresses, paths, quotations, sums. Each with where it stands.

Knows notations, not tools.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from dateutil.parser import parse
from dateutil.relativedelta import relativedelta


@dataclass(frozen=True)
class Found:
    """A value and the part of the text, [start, end), that says it."""

    value: Any
    start: int
    end: int

    def overlaps(self, start: int, end: int) -> bool:
        return self.start < end and start < self.end


URL = re.compile(r"https?://[^\s<>\"'`]+[^\s<>\"'`.,;:!?)\]]", re.IGNORECASE)
# Repetitions are bounded where one may begin at every place: else a long message of nothing but "a." takes seconds.
EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+")
PATH = re.compile(
    r"(?<![\w@:/.~-])(?:[\w.~-]{0,80}/[\w./~-]{0,200}[\w~/-]|[\w-]{1,80}(?:\.[\w-]{1,20}){0,4}\.[a-z][a-z0-9]{0,4}\b)",
    re.IGNORECASE,
)
WRITTEN = {"url": URL, "email": EMAIL, "path": PATH}
QUOTED = re.compile(r"\"([^\"]+)\"|“([^”]+)”|`([^`]+)`|(?<!\w)'([^']+)'(?!\w)")
NUMBER = re.compile(
    r"(?<![\w.,:/-])[-+]?\d+(?:,\d{3})+(?:\.\d+)?(?![\w:])|(?<![\w.,:/])[-+]?\d+(?:\.\d+)?(?!\d|[:/-]\d)"
)
WORD_NUMBERS = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7} | {
    "eight": 8, "nine": 9, "ten": 10, "eleven": 11, "twelve": 12, "twenty": 20, "thirty": 30, "fifty": 50, "dozen": 12
}  # fmt: skip
NUMBER_WORD = re.compile(rf"\b(?:{'|'.join(list(WORD_NUMBERS)[2:])})\b", re.IGNORECASE)


def matches(pattern: re.Pattern[str], text: str) -> Iterator[Found]:
    for match in pattern.finditer(text):
        yield Found(match[0], match.start(), match.end())


def quoted(text: str) -> list[Found]:
    return [Found(match[match.lastindex or 0], match.start(), match.end()) for match in QUOTED.finditer(text)]


def numbers(text: str) -> list[Found]:
    """Numbers in digits and the small ones in words, in the order of the text."""
    found = []
    for each in matches(NUMBER, text):
        digits = each.value.replace(",", "")
        found.append(Found(float(digits) if "." in digits else int(digits), each.start, each.end))
    found += [Found(_count(each.value), each.start, each.end) for each in matches(NUMBER_WORD, text)]
    return sorted(found, key=lambda each: each.start)


def _count(word: str) -> int:
    return int(word) if word.isdigit() else WORD_NUMBERS[word.lower()]


# -- Days and times --------------------------------------------------------------------------------------------------

_COUNT = rf"(?P<count>\d{{1,4}}|{'|'.join(WORD_NUMBERS)})"
_UNIT = r"(?P<unit>day|week|month|year)s?"
_WEEKDAY = r"(?P<weekday>monday|tuesday|wednesday|thursday|friday|saturday|sunday)"
_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sep(?:tember)?|oct(?:ober)?|"
    r"nov(?:ember)?|dec(?:ember)?)"
)
_DAY = r"\d{1,2}(?:st|nd|rd|th)?"
_YEAR = r"(?P<year>,?\s+\d{4})?"
Reading = Callable[[datetime.datetime, "re.Match[str]"], datetime.datetime]


def _shift(sign: int) -> Reading:
    def shifted(today: datetime.datetime, match: re.Match[str]) -> datetime.datetime:
        count = _count(match.groupdict().get("count") or "a")
        unit = match["unit"].lower()
        shift = {"minutes" if unit.startswith("min") else f"{unit}s": count}
        return today + sign * relativedelta(**shift)  # type: ignore[arg-type]

    return shifted


def _weekday(days: int) -> Reading:
    """Return a reading of that weekday: on the day so many days from today or the first one after it."""
    return lambda today, match: parse(match["weekday"], default=today + relativedelta(days=days))


def _in_year(today: datetime.datetime, match: re.Match[str]) -> datetime.datetime:
    day = parse(match["day"], default=today)
    return day if match["year"] or day >= today else parse(match["day"], default=today + relativedelta(years=1))


#: The first that fits counts.
DAYS: list[tuple[re.Pattern[str], Reading]] = [
    (re.compile(rf"(?:\b(?:due|until|before|by|on|for|from|since|at|this|starting)\s+)*\b{pattern}\b", re.I), reading)
    for pattern, reading in (
        (
            r"(?P<day>\d{4}-\d{2}-\d{2}|\d{1,2}\.\d{1,2}\.\d{4})",
            lambda today, match: parse(match["day"], dayfirst="." in match["day"]),
        ),
        (r"(?:the\s+)?day after tomorrow", lambda today, match: today + relativedelta(days=2)),
        (r"(?:today|tonight)", lambda today, match: today),
        (r"tomorrow", lambda today, match: today + relativedelta(days=1)),
        (r"yesterday", lambda today, match: today - relativedelta(days=1)),
        (rf"in\s+{_COUNT}\s+{_UNIT}", _shift(1)),
        (rf"{_COUNT}\s+{_UNIT}\s+from\s+(?:now|today)", _shift(1)),
        (rf"{_COUNT}\s+{_UNIT}\s+ago", _shift(-1)),
        (rf"next\s+{_UNIT}", _shift(1)),
        (rf"last\s+{_UNIT}", _shift(-1)),
        (rf"last\s+{_WEEKDAY}", _weekday(-7)),
        (rf"(?:(?:next|coming)\s+)?{_WEEKDAY}", _weekday(1)),
        (rf"(?:the\s+)?(?P<day>{_DAY}\s+(?:of\s+)?{_MONTH}{_YEAR})", _in_year),
        (rf"(?P<day>{_MONTH}\s+{_DAY}\b{_YEAR})", _in_year),
    )
]
TIME = re.compile(
    r"(?:\b(?:at|by|around|from|until)\s+)?\b(?P<clock>\d{1,2}:\d{2}(?:\s*[ap]m\b)?|\d{1,2}\s*[ap]m\b|noon\b|midnight\b)"
    r"|\bat\s+(?P<hour>\d{1,2})(?=\s*(?:[.,;!?]?\s*$|(?:to|on|that|for|tomorrow|today)\b))",
    re.IGNORECASE,
)
SOON = re.compile(rf"\bin\s+{_COUNT}\s+(?P<unit>min(?:ute)?|hour)s?\b", re.IGNORECASE)


def dates(text: str, today: datetime.date) -> list[Found]:
    """Days that the text names, with the words that lead in ("due on"), in the order of the text."""
    found: list[Found] = []
    midnight = datetime.datetime.combine(today, datetime.time())
    for pattern, read in DAYS:
        for match in pattern.finditer(text):
            if any(each.overlaps(*match.span()) for each in found):
                continue
            try:
                found.append(Found(read(midnight, match).date(), *match.span()))
            except (ValueError, OverflowError):  # the 31st of February
                continue
    return sorted(found, key=lambda each: each.start)


def times(text: str) -> list[Found]:
    found = []
    for match in TIME.finditer(text):
        clock = f"{match['hour']}:00" if match["hour"] else match["clock"].lower()
        try:
            time = parse({"noon": "12:00", "midnight": "0:00"}.get(clock, clock)).time()
        except ValueError:  # 25 o'clock
            continue
        found.append(Found(time, *match.span()))
    return found


def soon(text: str, now: datetime.datetime) -> list[Found]:
    """Moments said as a distance: in ten minutes, in 2 hours."""
    return [Found(_shift(1)(now, match), *match.span()) for match in SOON.finditer(text)]


# -- Sums ------------------------------------------------------------------------------------------------------------

_SPOKEN = (
    (r"(?<=\d)\s*(?:%|percent)\s*of\b", " / 100 *"),
    (r"\bmultiplied by\b|\btimes\b|(?<=\d)\s*[x×·]\s*(?=\d)", " * "),
    (r"\bdivided by\b|\bover\b|÷", " / "),
    (r"\bplus\b", " + "),
    (r"\bminus\b|−", " - "),
    (r"\bsquared\b", " ** 2"),
    (r"\b(?:the\s+)?square root of\s+(\d+(?:\.\d+)?)", r"sqrt(\1)"),
)
_FUNCTION = r"(?:sqrt|sin|cos|tan|log|ln|exp|abs|round|min|max)\s*\([^()]*\)"
_TERM = rf"[-+]?\s*\({{0,6}}\s*[-+]?\s*(?:\d[\d,]*(?:\.\d+)?%?|\.\d+|{_FUNCTION}|\bpi\b)\s*\){{0,6}}"
SUM = re.compile(rf"{_TERM}(?:\s*(?:\*\*|//|[-+*/^%])\s*{_TERM})+|{_FUNCTION}", re.IGNORECASE)


def expression(text: str) -> str:
    """The longest sum in the text, in the notation of programs, or nothing. Spoken operators are written out."""
    for pattern, written in _SPOKEN:
        text = re.sub(pattern, written, text, flags=re.IGNORECASE)
    found = [re.sub(r"(?<=\d),(?=\d{3})", "", match[0]) for match in SUM.finditer(text)]
    plain = [each for each in found if not re.fullmatch(r"\d{4}-\d{1,2}(-\d{1,2})?", each.strip())]
    longest = max(plain, key=len, default="").strip()
    return re.sub(r"\s+", " ", longest) if longest.count("(") == longest.count(")") else ""
