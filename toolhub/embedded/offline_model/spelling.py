"""Misspelt words of messages, one edit away from a word that commands are made of. Knows no tool."""

from __future__ import annotations

import re

#: Verbs, all of which change something: a guessed one is asked back. None takes anything away.
VERBS = frozenset(
    ["remind", "create", "schedule", "complete", "finish", "update", "remember", "reschedule", "postpone"]
)
#: Things and days.
THINGS = frozenset(
    [
        "task",
        "tasks",
        "todo",
        "reminder",
        "reminders",
        "calendar",
        "event",
        "events",
        "meeting",
        "appointment",
        "shopping",
        "grocery",
        "groceries",
        "convert",
        "calculate",
        "weather",
        "today",
        "tomorrow",
        "tonight",
        "monday",
        "tuesday",
        "wednesday",
        "thursday",
        "friday",
        "saturday",
        "sunday",
    ]
)
_WORD = re.compile(r"[A-Za-z]{4,}")
_VOWELS = frozenset("aeiou")


def corrected(text: str, end: int | None) -> tuple[str, bool]:
    """The text with misspelt words mended in front of `end`; and whether one of them is a verb."""
    guessed = False

    def mend(match: re.Match[str]) -> str:
        nonlocal guessed
        word = match[0].lower()
        near = {each for each in VERBS | THINGS if is_near(word, each)} if word not in VERBS | THINGS else set()
        if len(near) != 1:
            return match[0]
        guessed = guessed or not near.isdisjoint(VERBS)
        return near.pop()

    front = text[:end]
    return _WORD.sub(mend, front) + text[len(front) :], guessed


def is_near(word: str, known: str) -> bool:
    """Return whether `word` is `known` with two letters swapped, or, of five letters or more, with one too many, one
    missing or another vowel; the first letter is right, and an ending alone ("created") is no error."""
    if word[:1] != known[:1] or known.startswith(word) or word.startswith(known):
        return False
    if len(word) == len(known):
        at = [place for place in range(len(word)) if word[place] != known[place]]
        if len(at) == 2:
            return at[1] == at[0] + 1 and (word[at[0]], word[at[1]]) == (known[at[1]], known[at[0]])
        return len(at) == 1 and len(word) > 4 and {word[at[0]], known[at[0]]} <= _VOWELS
    longer, shorter = sorted((word, known), key=len, reverse=True)
    is_one = len(longer) == len(shorter) + 1 and len(shorter) > 4
    return is_one and any(longer[:place] + longer[place + 1 :] == shorter for place in range(len(longer)))
