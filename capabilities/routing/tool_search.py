"""Tools by words, best first: what `search_tools`, the catalogue and every picker of tools find."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from capabilities.routing.documents import Document
from capabilities.routing.index import Index
from capabilities.routing.router import rank_names

#: Characters and words of a query that are looked for.
MAX_QUERY = 200
MAX_WORDS = 8
#: What ranks below this share of the best is not found: it has a word in common, and is about something else.
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


@dataclass(frozen=True)
class Searched:
    """A tool as its score is told. `title` is what people call what it comes with; `name` is its key."""

    name: str
    title: str
    description: str
    category: str


def names_found(index: Index, query: str, *, floor: float = FLOOR) -> list[str]:
    """The names of the tools that the query finds, best first. A name that is the query itself is first; then come
    those that rank by its words, down to this share of the best; last, by name, those in which every word stands as a
    part of others."""
    query = query.strip()[:MAX_QUERY]
    ranked = rank_names(index, query, len(index))
    best = ranked[0][1] if ranked else 0.0
    found = dict.fromkeys(name for name, score in ranked if score >= floor * best)
    found |= dict.fromkeys(_with_all_parts(index, query, found))
    exact = [name for name in _spellings(query) if name in index.numbers]
    return list(dict.fromkeys([*exact, *found]))


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
    """Where the query stands in the tool, 10 to 100: 100 where it is the name, else the best place of any of its words
    as they are written, 10 where none of them stands there so."""
    if query.strip().casefold() == tool.name.casefold():
        return EXACT_NAME
    return max(_scores(set(words_of(query)), tool), default=0) or RANKED


def _scores(words: Iterable[str], tool: Searched) -> list[int]:
    """For each word, that of the best place where it stands."""
    places = (
        (NAME_TOKEN, set(words_of(tool.name))),
        (TITLE, set(words_of(tool.title))),
        (DESCRIPTION, set(words_of(tool.description))),
        (CATEGORY, set(words_of(tool.category))),
    )
    return [max((score for score, there in places if word in there), default=0) for word in words]


def words_of(text: str) -> list[str]:
    """Its words in lower case; `file_read` and `fileRead` are two words each."""
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text)
    return [word.casefold() for word in WORD.findall(parted)]
