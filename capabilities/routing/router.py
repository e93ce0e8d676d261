"""Which of the allowed tools a message calls for. The one entry of this room: `route`, and `rank_names` to search."""

from __future__ import annotations

import numpy as np

from capabilities.routing.budget import default_budget, fill
from capabilities.routing.follow_ups import is_follow_up
from capabilities.routing.index import Floats, Index
from capabilities.routing.requests import Kept, Route, RouteRequest
from capabilities.routing.words import stem, terms_of, words_of

#: Names in `Route.ranked`.
MAX_RANKED = 50


def route(index: Index, request: RouteRequest) -> Route:
    """Choose what is sent for a message: a part of `request.allowed`, in a stable order. Raises nothing, whatever the
    text; queries nothing."""
    categories = request.keywords.matches(request.message)
    follow_up = is_follow_up(request.message) and bool(request.context.sent_before)
    ranked = _ranked(index, request)
    kept = {name: Kept(name, "pinned", 1.0) for name in request.allowed if name in set(request.pinned)}
    chosen = _chosen(index, request, [name for name, _ in categories], ranked, follow_up)
    is_empty = not chosen
    chosen = {name: each for name, each in chosen.items() if name not in kept}
    if request.mode == "hybrid":
        chosen = fill(chosen, kept, request, default_budget(len(request.allowed)))
    kept |= chosen
    sent = _in_order(kept, request)
    return Route(sent, tuple(ranked[:MAX_RANKED]), categories, is_empty, follow_up, len(request.allowed) - len(sent))


def rank_names(index: Index, query: str, limit: int) -> list[tuple[str, float]]:
    """The names that a search box shows, best first, at most `limit`; the last word may be the beginning of one."""
    words = words_of(query)
    terms = [stem(word) for word in words]
    if words:
        terms += [term for term in index.vocabulary if term.startswith(words[-1]) and term != terms[-1]][:50]
    scores = index.lexical(terms)
    order = sorted(np.flatnonzero(scores).tolist(), key=lambda at: (-scores[at], index.documents[at].name))
    return [(index.documents[at].name, float(scores[at])) for at in order[:limit]]


def _ranked(index: Index, request: RouteRequest) -> list[tuple[str, float]]:
    """The allowed names that the message or what came before it speaks of, best first."""
    scores: Floats = index.lexical(terms_of(request.message))
    for text, share in zip((*request.context.last_user[:1], request.context.last_assistant), (0.35, 0.5), strict=False):
        scores = scores + index.lexical(terms_of(text)) * np.float32(share)
    highest = float(scores.max(initial=0.0)) or 1.0
    allowed = [(name, index.numbers[name]) for name in request.allowed if name in index.numbers]
    found = [(name, float(scores[number]) / highest) for name, number in allowed if scores[number] > 0]
    return sorted(found, key=lambda each: (-each[1], each[0]))


def _chosen(
    index: Index, request: RouteRequest, categories: list[str], ranked: list[tuple[str, float]], follow_up: bool
) -> dict[str, Kept]:
    allowed = dict.fromkeys(request.allowed)
    before = [name for name in request.context.sent_before if name in allowed]
    if follow_up and not categories:
        return {name: Kept(name, "before", 1.0) for name in before}
    if request.mode == "keywords":
        numbers = index.numbers
        wanted = [name for name in allowed if name in numbers and index.documents[numbers[name]].category in categories]
        return {name: Kept(name, "category", 1.0) for name in wanted}
    return {name: Kept(name, "ranked", score) for name, score in ranked}


def _in_order(kept: dict[str, Kept], request: RouteRequest) -> tuple[Kept, ...]:
    """What was sent for the last turn stays first, in its old order; then what is pinned, then the others by score."""
    before = {name: at for at, name in enumerate(request.context.sent_before)}
    place = {name: at for at, name in enumerate(kept)}
    return tuple(
        sorted(kept.values(), key=lambda each: (each.name not in before, before.get(each.name, 0), place[each.name]))
    )
