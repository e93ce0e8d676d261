"""Router: the allowed tools that a message calls for. The entries of this room: `route`, and `rank_names` to search."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from capabilities.choosing.routing.budget import UNCOUNTED, fill, with_small_toolkits
from capabilities.choosing.routing.clauses import clauses_of
from capabilities.choosing.routing.features import Floats
from capabilities.choosing.routing.follow_ups import is_follow_up, is_open_question
from capabilities.choosing.routing.gate import calls_for_tools, is_spoken_of
from capabilities.choosing.routing.index import Ids, Index
from capabilities.choosing.routing.ranking import NAMED, fields_of
from capabilities.choosing.routing.requests import Context, Kept, Route, RouteRequest
from capabilities.choosing.routing.words import content_words, words_of

#: Names in `Route.ranked`.
MAX_RANKED = 50
#: Tools whose price is looked at, those that rank best without it.
CANDIDATES = 100
#: Weight of the best answer to one step of a message, against the answer to the whole.
CLAUSE = np.float32(0.8)
#: Weights of earlier texts: the user's last message, the one before, the assistant's last one.
LAST_USER, USER_BEFORE, LAST_ASSISTANT = 0.35, 0.14, 0.5
#: They count more for a short message: (SPAN - its content words) / 10, at least and at most this.
SPAN, LEAST, MOST = 24, 0.15, 1.5
#: Score of a keyword of the tool's category, and its support for a message to be about tools.
KEYWORD, SUPPORT = np.float32(0.6), 0.5
#: An expensive definition must rank better: per doubling of its tokens.
PRICE = np.float32(0.1)
#: A tool that ranks lower than this share of the best one does not go, even if there is room.
WORTH = 0.2
#: In a search box: words that the last one may be the beginning of, and what such a word counts.
MAX_COMPLETED = 10
COMPLETED = np.float32(0.95)


@dataclass(frozen=True)
class _Ranking:
    """The best of the allowed tools, best first, with a share of the best score; cosine: the message's highest."""

    best: list[tuple[str, float]]
    cosine: float


def route(index: Index, request: RouteRequest) -> Route:
    """Choose what is sent for a message: a part of `request.allowed`, in a stable order. Raises nothing, whatever the
    text; queries nothing."""
    categories = request.keywords.matches(request.message)
    matched = {category for category, _ in categories}
    ranking = _rank(index, request, matched)
    # Looking through all of thousands of names costs less than a set of them, made for a few.
    pinned = [name for name in dict.fromkeys(request.pinned) if name in request.allowed]
    follows = bool(request.context.sent_before) and is_follow_up(request.message)
    if follows and not matched:
        before, allowed = dict.fromkeys(request.context.sent_before), frozenset(request.allowed)
        chosen = [Kept(name, "before", 1.0) for name in before if name in allowed]
    elif request.mode == "keywords":
        names = dict.fromkeys(request.allowed)
        chosen = [Kept(name, "category", 1.0) for name in names if _category(index, name) in matched]
    elif _is_about_tools(index, request, matched, ranking.cosine):
        chosen = [Kept(name, "ranked", score) for name, score in ranking.best if score >= WORTH]
    else:
        chosen = []
    is_empty = not chosen
    chosen = [each for each in chosen if each.name not in pinned]
    too_large: list[str] = []
    if request.mode == "hybrid":
        chosen, too_large = fill(with_small_toolkits(index, chosen), pinned, request)
    sent = _in_order([*(Kept(name, "pinned", 1.0) for name in pinned), *chosen], request.context.sent_before)
    ranked = tuple(ranking.best[:MAX_RANKED])
    return Route(sent, ranked, categories, is_empty, follows, len(request.allowed) - len(sent), tuple(too_large))


def rank_names(
    index: Index, query: str, limit: int, *, allowed: tuple[str, ...] | None = None
) -> list[tuple[str, float]]:
    """The names that a search box shows, best first, at most `limit`; the last word may be the beginning of one."""
    words = words_of(query)
    if not words or not len(index):
        return []
    fields = fields_of(index, [query, *(" ".join([*words[:-1], word]) for word in _completed(index, words[-1]))])
    best = max(float(fields.lexical.max()), 1e-6)
    figures = fields.lexical / np.float32(best) + NAMED * fields.named + np.maximum(fields.cosine, 0)
    figures[1:] *= COMPLETED
    scores: Floats = np.where(fields.lexical > 0, figures, 0).max(axis=0)
    exact = index.numbers.get(query.strip())
    if exact is not None:
        scores[exact] = scores.max() + 1
    among = np.arange(len(index), dtype=np.int32) if allowed is None else index.numbers_of(allowed)
    order = _order(index, scores, among, limit)
    return [(index.documents[at].name, round(float(scores[at]), 4)) for at in order.tolist() if scores[at] > 0]


def _completed(index: Index, beginning: str) -> list[str]:
    """Words of the catalogue that begin so, the shortest first."""
    if len(beginning) < 2:
        return []
    found = [word for word in index.words if word.startswith(beginning) and word != beginning]
    return sorted(found, key=lambda word: (len(word), word))[:MAX_COMPLETED]


def _rank(index: Index, request: RouteRequest, matched: Collection[str]) -> _Ranking:
    """Return the allowed tools by score, the best first, and the cosine of the message."""
    allowed = index.numbers_of(request.allowed)
    if not len(allowed):
        return _Ranking([], 0.0)
    scores, cosine = _scores(index, request.message, request.context, allowed)
    for category in matched:
        scores[index.by_category.get(category, [])] += KEYWORD
    candidates = _order(index, scores, allowed, CANDIDATES)
    if request.tokens:
        tokens = [max(request.tokens.get(index.documents[at].name, UNCOUNTED), 1) for at in candidates.tolist()]
        scores[candidates] -= PRICE * np.log2(np.array(tokens, dtype=np.float32) / UNCOUNTED)
    best = max(float(scores[candidates].max()), 1e-6)
    order = _order(index, scores, candidates, len(candidates))
    shares = np.maximum(scores[order] / np.float32(best), 0).tolist()
    names = (index.documents[at].name for at in order.tolist())
    return _Ranking([(name, round(share, 4)) for name, share in zip(names, shares, strict=True)], cosine)


def _scores(index: Index, message: str, context: Context, allowed: Ids) -> tuple[Floats, float]:
    """Return the scores by the whole message, or one step of it, and by what came before; and the message's highest
    cosine."""
    clauses = clauses_of(message)
    earlier = _earlier(context)
    fields = fields_of(index, [message, *clauses, *earlier])
    all_scores = fields.scores(None if len(allowed) == len(index) else allowed)
    scores: Floats = all_scores[0]
    if clauses:
        scores = np.maximum(scores, CLAUSE * all_scores[1 : 1 + len(clauses)].max(axis=0))
    if earlier:
        need = np.clip((SPAN - len(content_words(message, index.language))) / 10, LEAST, MOST)
        shares = np.array(list(earlier.values()), dtype=np.float32) * np.float32(need)
        scores = scores + (shares @ all_scores[1 + len(clauses) :]).astype(np.float32)
    return scores, float(fields.cosine[0, allowed].max())


def _earlier(context: Context) -> dict[str, float]:
    """The earlier texts, with what each counts."""
    texts = dict(zip(context.last_user, (LAST_USER, USER_BEFORE), strict=False))
    texts[context.last_assistant] = LAST_ASSISTANT
    return {text: share for text, share in texts.items() if text.strip()}


def _is_about_tools(index: Index, request: RouteRequest, matched: Collection[str], cosine: float) -> bool:
    if request.context.is_unfinished or is_open_question(request.context.last_assistant):
        return True
    if any(category in index.by_category for category in matched):
        return calls_for_tools(index, request.message, cosine, support=SUPPORT)
    # Who speaks of the catalogue's things goes on to do so in other words.
    spoken = " ".join([request.message, *request.context.last_user, request.context.last_assistant])
    return is_spoken_of(index, spoken, cosine) and calls_for_tools(index, request.message, cosine)


def _category(index: Index, name: str) -> str | None:
    number = index.numbers.get(name)
    return None if number is None else index.documents[number].category


def _order(index: Index, scores: Floats, among: Ids, limit: int) -> Ids:
    """The numbers of the best ones, best first, at most `limit`; of those alike, by name."""
    size = min(limit, len(among))
    best = among[np.argpartition(-scores[among], size - 1)[:size]] if 0 < size < len(among) else among[:size]
    ordered: Ids = best[np.lexsort((index.name_order[best], -scores[best]))]
    return ordered


def _in_order(kept: list[Kept], before: tuple[str, ...]) -> tuple[Kept, ...]:
    """Return the tools in order: first those sent for the last turn, in their old order; then the others as they
    come."""
    position: Mapping[str, int] = {name: at for at, name in enumerate(dict.fromkeys(before))}
    old = sorted((each for each in kept if each.name in position), key=lambda each: position[each.name])
    return (*old, *(each for each in kept if each.name not in position))
