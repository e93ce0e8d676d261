"""Choice of the categories that a message is about: the operator's keywords first, then the words of their tools."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from capabilities.choosing.routing.documents import Document
from capabilities.choosing.routing.gate import calls_for_tools
from capabilities.choosing.routing.index import Index, build_index
from capabilities.choosing.routing.keywords import Keywords
from capabilities.choosing.routing.ranking import fields_of

#: Score of a matched keyword beside the ranking, whose best has 1; and of each further word of it.
MATCHED = 0.5
FURTHER_WORD = 0.25
#: Support that a matched keyword gives for a message to be about tools at all.
SUPPORT = 0.7
#: Share of the small talk that is kept out: less than for tools, a category costs little.
SHARE = 0.88
#: A category with two of these keywords searches in general: it may answer what no other one knows.
GENERAL = frozenset({"search", "look up", "what is", "who is", "google", "find", "find on", "research", "browse"})
FALLBACK = 1.2


@dataclass(frozen=True)
class RankedCategory:
    name: str
    score: float
    matched: tuple[str, ...]


def category_index(keywords: Keywords, tools: Iterable[Document] = ()) -> Index:
    """An index with one document for each category: its keywords, and the names and descriptions of its tools."""
    texts: dict[str, list[str]] = {category: [] for category, _ in keywords.categories}
    for tool in tools:
        if tool.category in texts:
            texts[tool.category].append(f"{tool.name} {tool.description[:200]}")
    return build_index(
        [Document(name, ", ".join(phrases), " ".join(texts[name])) for name, phrases in keywords.categories]
    )


def rank_categories(index: Index, keywords: Keywords, message: str, limit: int = 3) -> Sequence[RankedCategory]:
    """The categories that a message speaks of, best first, at most `limit`; none where it calls for no tool."""
    matched = dict(keywords.matches(message))
    if not len(index):
        return ()
    fields = fields_of(index, [message])
    cosine, support = float(fields.cosine.max()), SUPPORT if matched else 0.0
    if not calls_for_tools(index, message, cosine, support=support, share=SHARE):
        return ()
    scores = fields.scores(None)[0]
    best = max(float(scores.max()), 1e-6)
    general = {name for name, phrases in keywords.categories if len(GENERAL.intersection(phrases)) >= 2}
    found = []
    for document, score in zip(index.documents, scores.tolist(), strict=True):
        phrases = matched.get(document.name, ())
        longest = max((len(phrase.split()) for phrase in phrases), default=0)
        extra = MATCHED + FURTHER_WORD * (longest - 1) if phrases else 0.0
        extra += FALLBACK if document.name in general else 0.0
        found.append(RankedCategory(document.name, round(score / best + extra, 4), phrases))
    return tuple(sorted(found, key=lambda each: (-each.score, each.name))[:limit])
