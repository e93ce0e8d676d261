"""Tools by words, best first: what `search_tools`, the catalogue and every picker of tools find."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache

from capabilities.choosing.routing import words as stems
from capabilities.choosing.routing.documents import Document
from capabilities.choosing.routing.index import Index
from capabilities.choosing.routing.router import rank_names

#: Characters and words of a query that are looked for.
MAX_QUERY = 200
MAX_WORDS = 8
#: A tool below this share of the best score is not found: it has a word in common, and is about something else.
FLOOR = 0.25
#: Where a word of the query stands in a tool, as `search_tools` tells the model.
EXACT_NAME = 100
NAME_TOKEN = 80
TITLE = 60
DESCRIPTION = 40
CATEGORY = 20
#: Found by another form of its words, or by their beginning.
RANKED = 10
WORD = re.compile(r"[^\W_]+")
#: A name, or a part of one: several words without a blank.
_NAME = re.compile(r"\S*[a-zA-Z0-9][_-]+[a-zA-Z0-9]\S*")


@dataclass(frozen=True)
class Searched:
    """A tool as it is scored. `title` is the name for people of its toolkit or category; `name` is its key."""

    name: str
    title: str
    description: str
    category: str


def names_found(index: Index, query: str, *, near: bool = False) -> list[str]:
    """The names of the tools that the query finds, best first. A name that is the query itself is first; then come
    those that rank by its words, and of them first those that have every word in their name; last, by name, those in
    which every word stands as a part of others. What is written as a name ("file_re") finds the names that hold it,
    where there are any.

    `near` finds more: what is near in meaning where no tool has any of the words, and what is like a tool whose name
    was written. Who looks through a list would take these for what was asked for.
    """
    query = query.strip()[:MAX_QUERY]
    ranked = rank_names(index, query, len(index)) if near or _has_any(index, query) else []
    best = ranked[0][1] if ranked else 0.0
    names = [name for name, score in ranked if score >= FLOOR * best]
    found = dict.fromkeys(sorted(names, key=_lacks_a_word_of(query)))
    exact = [name for name in _spellings(query) if name in index.numbers]
    if not near and _NAME.fullmatch(query):
        written = {name for name in index.numbers if query.casefold() in name.casefold()}
        if written:
            found = dict.fromkeys([*(name for name in found if name in written), *sorted(written)])
            return list(dict.fromkeys([*exact, *found]))
    found |= dict.fromkeys(_with_all_parts(index, query, found))
    return list(dict.fromkeys([*exact, *found]))


def _lacks_a_word_of(query: str) -> Callable[[str], bool]:
    """Build the test of a name for lacking one of the query's words, in any form; of the last one the beginning is
    enough."""
    words = stems.content_words(query) or stems.words_of(query)
    wanted, last = {stems.stem(word) for word in words[:-1]}, words[-1] if words else ""

    def lacks(name: str) -> bool:
        tool_stems = _stems_of(name)
        return not (
            wanted <= tool_stems
            and (stems.stem(last) in tool_stems or any(each.startswith(last) for each in tool_stems))
        )

    return lacks


@lru_cache(maxsize=20_000)
def _stems_of(name: str) -> frozenset[str]:
    return frozenset(stems.stem(word) for word in stems.words_of(name))


def _has_any(index: Index, query: str) -> bool:
    """Return whether any word of the query stands in any tool, in any form; of the last one, its beginning."""
    words = stems.words_of(query)
    terms = index.stems.terms
    if any(stems.stem(word) in terms for word in words):
        return True
    return bool(words) and any(isinstance(term, str) and term.startswith(words[-1]) for term in terms)


def _spellings(query: str) -> list[str]:
    """The names that the query is, written as names are."""
    joined = "_".join(query.split())
    return [query, joined, joined.lower()] if query else []


def _with_all_parts(index: Index, query: str, without: Collection[str]) -> list[str]:
    """Names of the other tools in whose texts each word of the query stands, as a part of a word too."""
    parts = query.casefold().split()[:MAX_WORDS]
    if not parts:
        return []
    others = (document for document in index.documents if document.name not in without)
    return sorted(document.name for document in others if all(part in _text(document) for part in parts))


def _text(document: Document) -> str:
    return f"{document.name} {document.description} {document.category} {document.toolkit} {document.title}".casefold()


def score_of(query: str, tool: Searched) -> int:
    """Return the score of the query's place in the tool, 10 to 100: 100 where it is the name, else the best place of
    any of its words as they are written, 10 where none of them stands there so."""
    if query.strip().casefold() == tool.name.casefold():
        return EXACT_NAME
    return max(_scores(set(words_of(query)), tool), default=0) or RANKED


def _scores(words: Iterable[str], tool: Searched) -> list[int]:
    """Return for each word the score of the best place where it stands; 0 without one."""
    fields = (
        (NAME_TOKEN, set(words_of(tool.name))),
        (TITLE, set(words_of(tool.title))),
        (DESCRIPTION, set(words_of(tool.description))),
        (CATEGORY, set(words_of(tool.category))),
    )
    return [max((score for score, field_words in fields if word in field_words), default=0) for word in words]


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case; `file_read` and `fileRead` are two words each."""
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text)
    return [word.casefold() for word in WORD.findall(parted)]
