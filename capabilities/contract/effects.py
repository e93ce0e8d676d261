"""A guess at what a call of a tool does, from its words, its method and its source's statements. Pure.

A guess, and never a proof: a GET can delete, and a server can say what is not so. A sign that it changes something wins
over every sign that it reads, and a person may change the guess.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


READ, EXTERNAL = "read", "external"
#: Methods of HTTP that are meant to change nothing.
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
#: Words for what takes away, or cannot be undone; the second are nouns or names of settings as well.
_DESTROYS = _set(
    "delete destroy erase forget kill overwrite purge remove revoke shred terminate truncate uninstall unset wipe"
)
_MAY_DESTROY = _set("clear drop format reset")
#: Words that can only be meant as changing something.
_WRITES = _set(
    "activate add allocate append apply assign attach ban configure create deactivate decline deploy detach "
    "disable dismiss edit enable enqueue execute grant insert install invite invoke kick login logout modify "
    "move mutate overwrite persist populate provision publish push put reboot redeploy register reindex "
    "rename reopen reorder replace reply rerun restart restore resend save send shutdown submit subscribe "
    "sync toggle transfer trigger unarchive unassign unban unblock undo undeploy unfollow unlock unmute unpin "
    "unregister unshare unstar unsubscribe untag unwatch update upgrade upload upsert write"
)
#: Words for changing that are nouns or adjectives as well: they count where a verb stands.
_MAY_WRITE = (
    _set(
        "accept approve archive block bind book buy call cancel charge checkout click close comment commit "
        "complete confirm copy cut deny dispatch download drag draft evaluate exec fill flag follow fork forward "
        "import increment label link load lock log mark merge mount mute order patch pause pay play post press "
        "print refresh reject release report reserve resize resolve respond resume retry rollback rotate run "
        "schedule set share sign split star start stop store swap switch tag type unlink unload vote withdraw"
    )
    | _MAY_DESTROY
)
#: Words for reading; the second are nouns as well, such as of `todo_list_mark`.
_READS = _set(
    "analyse analyze browse calculate compare compute describe detect estimate explain fetch find get grep "
    "inspect lookup measure parse ping retrieve summarise summarize validate verify whoami"
)
_MAY_READ = _set(
    "check count diff docs exists head history info last list log look ls outline peek preview query read "
    "search show stat statistics stats status suggest tail tree view who"
)
READING = _READS | _MAY_READ
DESTROYING, CHANGING = _DESTROYS | _MAY_DESTROY, _WRITES | _MAY_WRITE
#: Words that the description of a query may begin with as well.
_OF_SENTENCES = _set("execute invoke submit")
#: A word after one of these stands where a verb does.
_JOINS = _set("and or then also")
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
#: A sentence's first word: `Deletes a file.`
_FIRST = re.compile(r"\W*([A-Za-z]+)")
_LONGEST_STEM = max(map(len, _DESTROYS | _WRITES))

BY_WORDS, BY_METHOD, BY_SOURCE = "words", "method", "source"
SERVER_SAYS = "Its server says so."


@dataclass(frozen=True)
class Effect:
    """Guess at a tool's effect. `effect` is read or external; `by` is the base of the guess: words, method or source.
    `why` is one sentence where a source says that it reads: that it says so, or the reasons against it."""

    effect: str
    is_destructive: bool = False
    by: str = BY_WORDS
    why: str = ""


def guess_effect(
    name: str,
    *,
    title: str = "",
    path: str = "",
    description: str = "",
    method: str = "",
    hints: Mapping[str, Any] | None = None,
) -> Effect:
    """The guess for a tool: of an MCP server with the `hints` it gives (`readOnlyHint`, `destructiveHint`), of an HTTP
    request with its `method` and `path`, of a Python tool with its name alone."""
    hints, method = hints or {}, method.upper()
    against = _speaks_of_change(name, title, path, description, is_request=bool(method))
    destroys = bool(set(against) & DESTROYING) or method == "DELETE"
    if is_true(hints.get("destructiveHint")):
        return Effect(EXTERNAL, True, BY_SOURCE, _says_reads(hints, ["its server says that it can destroy"]))
    if method:
        return _of_request(method, against, destroys)
    if against:
        return Effect(EXTERNAL, destroys, BY_WORDS, _says_reads(hints, against))
    if hints.get("readOnlyHint") is True:
        return Effect(READ, by=BY_SOURCE, why=SERVER_SAYS)
    if hints.get("readOnlyHint") is not None:
        return Effect(EXTERNAL, by=BY_SOURCE)
    return Effect(READ if set(words_of(name)) & READING else EXTERNAL)


def is_true(value: Any) -> bool:
    """Return whether a sign that makes stricter is given, in whatever form."""
    return value is True or (isinstance(value, str) and value.strip().lower() in ("true", "yes")) or value == 1


def _of_request(method: str, against: list[str], destroys: bool) -> Effect:
    if method not in SAFE_METHODS:
        return Effect(EXTERNAL, destroys, BY_METHOD)
    if not against:
        return Effect(READ, by=BY_METHOD)
    why = f"It is a {method}, which should only read, but its words speak of more: {', '.join(against[:3])}."
    return Effect(EXTERNAL, destroys, BY_WORDS, why)


def _says_reads(hints: Mapping[str, Any], against: list[str]) -> str:
    """Return a sentence for people about a hint that does not count; "" where nothing hints that it only reads."""
    if hints.get("readOnlyHint") is not True:
        return ""
    return f"Its server says that it only reads, which does not count: {', '.join(against[:3])}."


def _speaks_of_change(name: str, title: str, path: str, description: str, *, is_request: bool) -> list[str]:
    """The words that say that it changes something, in alphabetical order. A method says more than a word that may be
    a noun: of a request only words count that cannot be one."""
    if is_request:
        every = [*words_of(name), *words_of(path), *words_of(title)]
        return sorted(set(every) & (_DESTROYS | _WRITES))
    found = _changing(words_of(name)) | _changing(words_of(title))
    if set(words_of(name)) & READING:
        found -= _MAY_WRITE - _changing(words_of(name))
    first = _FIRST.match(description)
    verb = _stem(first[1].lower()) if first else ""
    return sorted(found | ({verb} & (_DESTROYS | _WRITES) - _OF_SENTENCES))


def _changing(words: list[str]) -> set[str]:
    """Return the words of a name that say that it changes something."""
    found = set(words) & (_DESTROYS | _WRITES)
    if words and (stem := _stem(words[0])) in _DESTROYS | _WRITES:
        found.add(stem)
    reads = False
    for position, word in enumerate(words):
        joined = bool(position) and words[position - 1] in _JOINS
        if word in _MAY_WRITE and (not reads or joined) and not (word in READING and position == len(words) - 1):
            found.add(word)
        # A verb that reads makes nouns of what follows; what may be a noun itself does where it comes first.
        reads = reads or word in _READS or (word in _MAY_READ and not position)
    return found


def _stem(word: str) -> str:
    """The verb of `deletes`, `removing` and `deletefile`; the word itself where there is none."""
    known = _DESTROYS | _WRITES
    for end in ("", "s", "es", "ing", "ting"):
        stem = word.removesuffix(end)
        for each in (stem, f"{stem}e"):
            if each in known:
                return each
    for length in range(min(len(word) - 3, _LONGEST_STEM), 3, -1):
        if word[:length] in known:
            return word[:length]
    return word


def words_of(text: str) -> list[str]:
    """The words of a name or a sentence, in lower case: `listPets`, `list_pets` and `List pets` have the same."""
    return [word.lower() for word in _WORDS.findall(text)]
