"""Tools by words, best first: name 100, word of the name 80, title 60, description 40, category 20."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

EXACT_NAME = 100
NAME_TOKEN = 80
TITLE = 60
DESCRIPTION = 40
CATEGORY = 20
WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True)
class Searched:
    """A tool as it is searched. `title` is what people call it; `name` is its key."""

    name: str
    title: str
    description: str
    category: str


@dataclass(frozen=True)
class Found:
    name: str
    score: int


def search(query: str, tools: Iterable[Searched], max_results: int) -> list[Found]:
    """The tools that any word of the query names, the best score first; of those alike, the one that more words name,
    and then by name. At most `max_results`."""
    words = sorted(set(words_of(query)))
    found = []
    for tool in tools:
        score = score_of(query, tool)
        if score:
            found.append((-score, -sum(_scores(words, tool)), tool.name))
    return [Found(name, -score) for score, _, name in sorted(found)[:max_results]]


def score_of(query: str, tool: Searched) -> int:
    """How well the query names the tool, 0 to 100: 100 where it is the name, else that of the best of its words."""
    if query.strip().casefold() == tool.name.casefold():
        return EXACT_NAME
    return max(_scores(set(words_of(query)), tool), default=0)


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
