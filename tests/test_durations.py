"""Durations are told in one way, wherever they are told."""

from __future__ import annotations

import re

import pytest

from tests.paths import ROOT
from toolhub.durations import duration
from toolhub.tenants.templatetags.look import seconds

#: A number that a sentence or a page follows with a unit of its own.
BY_HAND = re.compile(
    "|".join(
        (
            r"[{][^{}\"]*(?:seconds|SECONDS|timeout|elapsed|pause|wait|took)[^{}\"]*[}] ?(?:s\b|sec)",
            r"timeout ?[}][}] ?s\b",
            r"floatformat(?::\d)? ?[}][}] ?s\b",
        )
    )
)
#: Lines for an operator's terminal, of whole seconds that are constants.
ALLOWED = ("toolhub/embedded/supervisor.py",)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (-1, "0 s"),
        (0, "0 s"),
        (0.014, "0.01 s"),
        (0.5, "0.5 s"),
        (0.996, "1 s"),
        (3.04, "3 s"),
        (9.96, "10 s"),
        (19.4999, "19 s"),
        (59.7, "1 min"),
        (60, "1 min"),
        (125, "2 min 5 s"),
        (130, "2 min 10 s"),
        (3_600, "1 h"),
        (10_920, "3 h 2 min"),
        (float("inf"), "for ever"),
    ],
)
def test_a_duration_is_rounded_to_what_a_reader_takes_in(value: float, told: str) -> None:
    assert (duration(value), seconds(value)) == (told, told)


def test_no_duration_is_told_as_nothing() -> None:
    assert seconds(None) == ""


def test_nobody_writes_seconds_by_hand() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for folder, ending in (("capabilities", "py"), ("sessions", "py"), ("toolhub", "py"), ("templates", "html"))
        for path in sorted((ROOT / folder).rglob(f"*.{ending}"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if BY_HAND.search(line) and str(path.relative_to(ROOT)) not in ALLOWED
    ]

    assert found == []
