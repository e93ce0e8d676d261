"""Times as pages show them: in the organisation's time zone, and as its language writes dates. The one place for all.

Outside `shown_as` (workers, REST) times are in UTC, and dates in British English.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import date, datetime, tzinfo
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.utils import timezone
from django.utils.dates import MONTHS, MONTHS_AP, WEEKDAYS, WEEKDAYS_ABBR
from django.utils.translation import trans_real

if TYPE_CHECKING:
    from toolhub.tenants.models import Organisation


@dataclass(frozen=True)
class Dates:
    """Dates of one language, as `strftime` writes them: a day, one without its year, one in full, a month."""

    title: str
    day: str = "%-d %b %Y"
    short: str = "%-d %b"
    long: str = "%A, %-d %B %Y"
    month: str = "%B %Y"
    time: str = "%H:%M"
    time_with_seconds: str = "%H:%M:%S"


BRITISH = "en-gb"
#: By the code of the language; names of months and days are Django's. Without names: "iso".
DATES = {
    BRITISH: Dates("English (United Kingdom)"),
    "en-us": Dates(
        "English (United States)",
        day="%b %-d, %Y",
        short="%b %-d",
        long="%A, %B %-d, %Y",
        time="%-I:%M %p",
        time_with_seconds="%-I:%M:%S %p",
    ),
    "de": Dates("Deutsch", day="%-d. %b %Y", short="%-d. %b", long="%A, %-d. %B %Y"),
    "es": Dates("Español", long="%A, %-d de %B de %Y", month="%B de %Y"),
    "fr": Dates("Français", long="%A %-d %B %Y"),
    "it": Dates("Italiano", long="%A %-d %B %Y"),
    "nl": Dates("Nederlands", long="%A %-d %B %Y"),
    "pt": Dates("Português", long="%A, %-d de %B de %Y", month="%B de %Y"),
    "iso": Dates("Numbers alone", day="%Y-%m-%d", short="%m-%d", long="%Y-%m-%d", month="%Y-%m"),
}
#: Those whose names of months and days are not English, and not numbers.
TRANSLATED = DATES.keys() - {BRITISH, "en-us", "iso"}
LANGUAGES = [(code, dates.title) for code, dates in DATES.items()]

_language: ContextVar[str] = ContextVar("toolhub_language_of_dates", default=BRITISH)


@contextmanager
def shown_as(organisation: Organisation) -> Iterator[None]:
    """Times inside are shown, and typed, as the organisation has them."""
    with written_in(organisation.date_language), timezone.override(zone_of(organisation.time_zone)):
        yield


@contextmanager
def written_in(language: str) -> Iterator[None]:
    """Dates inside are written in this language."""
    token = _language.set(language)
    try:
        yield
    finally:
        _language.reset(token)


def zone_of(name: str) -> tzinfo:
    """The time zone of this name; UTC where there is none."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return timezone.get_default_timezone()


def day(value: date) -> str:
    """A day: "28 Nov 2026". Of a moment, the day that it is in the zone of the page."""
    return _written(value, _dates().day)


def short_day(value: date) -> str:
    """A day of this year, or of the last twelve months: "28 Nov"."""
    return _written(value, _dates().short)


def long_day(value: date) -> str:
    """A day in full: "Saturday, 28 November 2026"."""
    return _written(value, _dates().long)


def month(value: date, *, with_year: bool = True) -> str:
    """A month: "November 2026", or "Nov"."""
    return _written(value, _dates().month if with_year else "%b")


def clock(value: datetime) -> str:
    """A time of day: "14:05"."""
    return _written(value, _dates().time)


def day_and_time(value: datetime) -> str:
    """A moment to the minute: "28 Nov 2026, 14:05"."""
    return f"{day(value)}, {clock(value)}"


def exact(value: datetime) -> str:
    """A moment to the second, with the short name of its zone: "28 Nov 2026, 14:05:09 UTC"."""
    return f"{day(value)}, {_written(value, _dates().time_with_seconds)} {_local(value):%Z}"


def weekday_and_time(value: datetime, zone: tzinfo) -> str:
    """A moment on the clock of another zone than the page's: "Sat 28 Nov, 14:05"."""
    with timezone.override(zone):
        return f"{_written(value, '%a')} {short_day(value)}, {clock(value)}"


def _dates() -> Dates:
    return DATES.get(_language.get(), DATES[BRITISH])


def _local(value: date) -> date:
    """A moment in the zone of the page; what is no moment, as it is."""
    return timezone.localtime(value) if isinstance(value, datetime) and timezone.is_aware(value) else value


def _written(value: date, pattern: str) -> str:
    """The date as the pattern says, with its names in the language of the page."""
    local = _local(value)
    if (code := _language.get()) in TRANSLATED:
        for mark, name in _names(local, code).items():
            pattern = pattern.replace(mark, name)
    return local.strftime(pattern)


def _names(value: date, code: str) -> dict[str, str]:
    """Names of the day and month in a language, by the mark of `strftime`."""
    words = trans_real.translation(code)
    names = {
        "%A": words.gettext(str(WEEKDAYS[value.weekday()])),
        "%a": words.gettext(str(WEEKDAYS_ABBR[value.weekday()])),
        "%B": words.gettext(str(MONTHS[value.month])),
        "%b": words.pgettext("abbrev. month", str(MONTHS_AP[value.month])),
    }
    return names if code == "de" else {mark: name.lower() for mark, name in names.items()}
