"""Budget of routing: the tools that rank best are sent, up to a number of tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from capabilities.choosing.routing.index import Index
from capabilities.choosing.routing.requests import Kept, RouteRequest

BUDGET = 1_000
LARGE_BUDGET = 2_500
#: Above this many tools the large budget holds.
LARGE = 300
#: Ranked tools that are looked for where the first ones do not fit.
AT_LEAST = 3
#: Tokens of a definition that nobody counted.
UNCOUNTED = 100
#: A toolkit of at most SMALL tools goes whole where WANTED of its tools are among the first AMONG.
SMALL = 8
AMONG = 5
WANTED = 2


def budget_of(request: RouteRequest) -> int:
    """Tokens for the definitions: what the caller asked for, else the default for so many allowed tools."""
    if request.budget_tokens is not None:
        return request.budget_tokens
    return LARGE_BUDGET if len(request.allowed) > LARGE else BUDGET


def fill(chosen: Sequence[Kept], pinned: Iterable[str], request: RouteRequest) -> tuple[list[Kept], list[str]]:
    """Return those of `chosen`, in its order, that fit into the budget beside what is pinned; and the names of those
    that are larger than all of it.

    What does not fit ends the row, unless fewer than AT_LEAST are in it: then smaller ones behind it are looked at.
    """
    budget = budget_of(request)
    remaining = budget - sum(request.tokens.get(name, UNCOUNTED) for name in pinned)
    kept: list[Kept] = []
    too_large: list[str] = []
    for each in chosen:
        tokens = request.tokens.get(each.name, UNCOUNTED)
        if tokens > budget:
            too_large.append(each.name)
        elif tokens <= remaining:
            remaining -= tokens
            kept.append(each)
        elif len(kept) >= AT_LEAST:
            break
    return kept, too_large


def with_small_toolkits(index: Index, chosen: Sequence[Kept]) -> list[Kept]:
    """Return `chosen`, with the rest of a small toolkit moved up behind the first ones where two of those are its
    tools."""
    first = chosen[:AMONG]
    toolkit_of = {
        each.name: index.documents[index.numbers[each.name]].toolkit for each in chosen if each.name in index.numbers
    }
    leading = [toolkit_of.get(each.name, "") for each in first]
    whole = {
        toolkit
        for toolkit in leading
        if toolkit and leading.count(toolkit) >= WANTED and index.toolkit_sizes[toolkit] <= SMALL
    }
    rest = chosen[AMONG:]
    moved = [Kept(each.name, "toolkit", each.score) for each in rest if toolkit_of.get(each.name) in whole]
    return [*first, *moved, *(each for each in rest if toolkit_of.get(each.name) not in whole)]
