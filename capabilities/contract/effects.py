"""A guess at what a call of a tool from outside does, from its method and its words. Pure.

A guess, and never a proof: a GET can delete, and what a source says of itself decides nothing. Where words speak
against it, the worse is taken, and a person may change it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


READ, EXTERNAL = "read", "external"
#: Methods of HTTP that are meant to change nothing.
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
#: Words for what takes away, or cannot be undone.
DESTROYING = _set(
    "clear delete destroy drop erase format kill overwrite purge remove reset revoke terminate truncate uninstall "
    "unset wipe"
)
#: Words for what changes something.
CHANGING = _set(
    "accept activate add apply append approve archive assign ban block book buy call cancel charge click close "
    "commit complete configure confirm convert copy create deactivate deny deploy disable dismiss download edit "
    "enable execute fill fork generate grant import insert install invite invoke label lock login logout make "
    "mark merge move mute open order patch pause pay pin post print publish push put refresh register reject "
    "rename replace reply rerun reopen restart restore resume retry rotate run save schedule send set share "
    "shutdown sign start stop submit subscribe sync transfer trigger type unarchive unblock unfollow unlock "
    "unstar unsubscribe update upload upsert write"
)
#: Words that begin the name of what reads.
READING = _set(
    "browse calculate check compare count describe diff docs download estimate evaluate exists explain fetch find "
    "get inspect is last list load log look lookup measure outline parse peek ping preview print query read "
    "resolve search select show solve stat stats status summarize suggest take validate view who whoami"
)
#: Of a call that is meant to read, these words alone speak against it: `set` and `open` are nouns there as well.
LOUD = (DESTROYING - {"format", "clear", "reset", "drop"}) | _set(
    "activate cancel create deploy disable enable execute invite logout publish restart send shutdown submit transfer "
    "trigger unsubscribe update upload"
)
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


@dataclass(frozen=True)
class Effect:
    """`effect` is read or external; `why` is one sentence where words speak against what it was meant to be."""

    effect: str
    is_destructive: bool = False
    why: str = ""


def effect_of_request(method: str, *texts: str) -> Effect:
    """The guess for a request. Words of `texts`, its path, name and summary, speak against a method that reads."""
    method = method.upper()
    if method == "DELETE":
        return Effect(EXTERNAL, is_destructive=True)
    loud = sorted({word for text in texts for word in words_of(text)} & LOUD)
    if method not in SAFE_METHODS:
        return Effect(EXTERNAL, bool(set(loud) & DESTROYING))
    if not loud:
        return Effect(READ)
    why = f"It is a {method}, which should only read, but its words speak of more: {', '.join(loud[:3])}."
    return Effect(EXTERNAL, bool(set(loud) & DESTROYING), why)


def effect_of_name(name: str, title: str = "") -> Effect:
    """The guess for a tool of which there is only a name: it reads where its first word does, and no other is loud."""
    words = words_of(name)
    every = {*words, *words_of(title)}
    if every & DESTROYING:
        return Effect(EXTERNAL, is_destructive=True)
    reads = bool(words) and (words[0] in READING or words[-1] in READING) and words[0] not in CHANGING - READING
    return Effect(READ if reads and not every & LOUD else EXTERNAL)


def words_of(text: str) -> list[str]:
    """The words of a name or a sentence, in lower case: `listPets`, `list_pets` and `List pets` have the same."""
    return [word.lower() for word in _WORDS.findall(text)]
